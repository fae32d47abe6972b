package vllm_test

import (
	"context"
	"encoding/hex"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/mock"
	"github.com/dynago/dynago/engine/vllm"
	fake "github.com/dynago/dynago/internal/fake/vllm"
	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/kvevent/zmtp"
)

// stored tells of two blocks of four tokens, 11 to 18, as vLLM does.
const stored = "93cb40290000000000009199ab426c6f636b53746f72656492cf800000000000000102c0980b0c0d0e0f10111204c0a3475055c092c0c000"

// publisher is the socket of a server, and the address in the server's words.
func publisher(t *testing.T) (pub *zmtp.Pub, endpoint string) {
	t.Helper()
	pub = zmtp.NewPub(zmtp.Options{})
	t.Cleanup(func() { pub.Close() })
	at, err := pub.Bind(t.Context(), "tcp://127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return pub, strings.Replace(at, "127.0.0.1", "*", 1)
}

// send sends the message with a number once so many listen.
func send(ctx context.Context, t *testing.T, pub *zmtp.Pub, listeners int, sequence byte) {
	payload, err := hex.DecodeString(stored)
	if err != nil {
		t.Error(err)
	}
	for pub.Subscribers(nil) < listeners {
		select {
		case <-ctx.Done():
			t.Errorf("%d listen, want %d", pub.Subscribers(nil), listeners)
			return
		case <-time.After(time.Millisecond):
		}
	}
	if err := pub.Send(nil, []byte{0, 0, 0, 0, 0, 0, 0, sequence}, payload); err != nil {
		t.Error(err)
	}
}

func TestEvents(t *testing.T) {
	pub, endpoint := publisher(t)
	s := serve(t, fake.Config{Mock: mock.Config{Args: args()}}, func(c *vllm.Config) {
		c.BlockSize, c.Events.Endpoint = 4, endpoint
	})
	first := s.await(t, engine.Ready)
	if !first.Card.Features.Has(engine.FeatureEvents) || first.Card.HashScheme != engine.SchemeXXH3 {
		t.Fatalf("card %+v", first.Card)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	want := kv.AppendLocalHashes(nil, []uint32{11, 12, 13, 14, 15, 16, 17, 18}, 4, kv.Namespace{}.Seed())
	go send(ctx, t, pub, 1, 0)
	var epoch uint64
	for b, err := range s.Events(ctx, nil) {
		if err != nil {
			t.Fatal(err)
		}
		if epoch != 0 && b.Gap == kv.GapRestart && b.Epoch != epoch {
			return // what was told is void
		}
		for _, ev := range b.Events {
			if ev.Kind != kv.Stored || len(ev.Blocks) != 2 || ev.Blocks[0].Local != want[0] || ev.Blocks[1].Local != want[1] || b.Rank != 0 {
				t.Fatalf("%+v, want blocks %x", b, want)
			}
			epoch = b.Epoch
			// Another life is seen by the next look at the server.
			s.server.Restart()
			go func() {
				for st := range s.Card(ctx) {
					if st.Epoch != first.Epoch {
						return
					}
				}
			}()
		}
	}
	t.Error("the restart did not void what was told")
}

// The size of blocks is that of the first one where nothing else tells it.
func TestBlockSizeIsLearned(t *testing.T) {
	pub, endpoint := publisher(t)
	s := attach(t, fake.Config{}, map[string]http.HandlerFunc{"/metrics": refuses(404, "")})
	e, err := vllm.New(vllm.Config{URL: s.http.URL, Every: 5 * time.Millisecond, Events: vllm.Events{Endpoint: endpoint}})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	go send(ctx, t, pub, 1, 0)
	for st, err := range e.Card(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		if has := st.Card.Features.Has(engine.FeatureEvents); has != (st.Card.BlockSize == 4) {
			t.Errorf("events %v with blocks of %d tokens", has, st.Card.BlockSize)
		} else if has {
			return
		}
	}
	t.Error("the size was never learned")
}

// What is published is how the engine hashes, whatever its configuration says; the
// operator knows best.
func TestQuirk05BlockSizeIsThatOfEvents(t *testing.T) {
	for declared, tc := range map[uint32]struct {
		want      uint32
		listeners int // of events and, where it is wanted, of the size
	}{
		0: {4, 2},
		8: {8, 1},
	} {
		pub, endpoint := publisher(t)
		s := serve(t, fake.Config{Mock: mock.Config{Args: args()}}, func(c *vllm.Config) {
			c.Events.Endpoint, c.BlockSize = endpoint, declared
		})
		s.ready(t)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		go func() {
			for range s.Events(ctx, nil) {
			}
		}()
		send(ctx, t, pub, tc.listeners, 0)
		size := uint32(0)
		for st := range s.Card(ctx) {
			// Who has declared a size has it from the beginning, and keeps it.
			if size = st.Card.BlockSize; size == tc.want || declared != 0 {
				break
			}
		}
		if later := s.ready(t).BlockSize; size != tc.want || later != tc.want {
			t.Errorf("declared %d: blocks of %d and then %d tokens, want %d", declared, size, later, tc.want)
		}
	}
}

func TestEventsNowhere(t *testing.T) {
	if _, err := vllm.New(vllm.Config{URL: "http://gpu7:8000", Events: vllm.Events{Endpoint: "udp://gpu7"}}); err == nil {
		t.Error("an address that is none is no error")
	}
	s := serve(t, fake.Config{Mock: mock.Config{Args: args()}}, nil)
	if s.ready(t).Features.Has(engine.FeatureEvents) {
		t.Error("a server that publishes nothing has events")
	}
	for _, err := range s.Events(t.Context(), nil) {
		if engine.KindOf(err) != engine.Unavailable {
			t.Errorf("%v", err)
		}
	}
}
