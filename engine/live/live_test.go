package live_test

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/live"
	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/kvevent"
	"github.com/dynago/dynago/kvevent/zmtp"
)

// scripted is a source whose batches the test gives.
type scripted struct {
	out      chan kv.Batch
	restarts int
	from     []kv.Cursor
}

func (s *scripted) Restarted() { s.restarts++ }

func (s *scripted) Events(ctx context.Context, from []kv.Cursor) iter.Seq2[kv.Batch, error] {
	return func(yield func(kv.Batch, error) bool) {
		s.from = from
		for {
			select {
			case b := <-s.out:
				if !yield(b, nil) {
					return
				}
			case <-ctx.Done():
				return
			}
		}
	}
}

func status(epoch uint64, blockSize, ranks uint32) engine.Status {
	return engine.Status{Epoch: epoch, State: engine.Ready, Card: &engine.Card{
		BlockSize: blockSize, DPSize: ranks, Features: engine.Features{engine.FeatureEvents},
	}}
}

// stage is a feed and all sources it has opened.
type stage struct {
	*live.Feed
	shapes  []live.Shape
	sources []*scripted
	fail    error
}

func newStage() *stage {
	s := &stage{}
	s.Feed = live.NewFeed(func(shape live.Shape) (live.Source, error) {
		s.shapes = append(s.shapes, shape)
		if s.fail != nil {
			return nil, s.fail
		}
		s.sources = append(s.sources, &scripted{out: make(chan kv.Batch, 4)})
		return s.sources[len(s.sources)-1], nil
	})
	return s
}

func (s *stage) become(t *testing.T, st engine.Status) {
	t.Helper()
	if err := s.Become(st); err != nil {
		t.Fatal(err)
	}
}

func TestRestartInPlace(t *testing.T) {
	s := newStage()
	for _, epoch := range []uint64{1, 1, 2} {
		s.become(t, status(epoch, 16, 2))
	}
	s.become(t, engine.Status{Epoch: 3, State: engine.Failed, Reason: "gone"})
	if len(s.sources) != 1 || s.sources[0].restarts != 2 {
		t.Errorf("%d sources, want one that heard of two new lives", len(s.sources))
	}
	if want := (live.Shape{Size: 2, BlockSize: 16}); s.shapes[0] != want {
		t.Errorf("shape %+v, want %+v", s.shapes[0], want)
	}
}

func TestAnotherShapeEndsTheSequence(t *testing.T) {
	s := newStage()
	s.become(t, status(1, 16, 1))
	s.sources[0].out <- kv.Batch{Epoch: 7}
	cursors := []kv.Cursor{{Epoch: 7, Sequence: 9}}
	seen := 0
	for b, err := range s.Events(t.Context(), cursors) {
		if err != nil || b.Epoch != 7 {
			t.Fatalf("%+v, %v", b, err)
		}
		seen++
		s.sources[0].out <- kv.Batch{Epoch: 7} // of the old shape, and too late
		s.become(t, status(1, 32, 1))
	}
	if seen != 1 || len(s.sources) != 2 || s.shapes[1].BlockSize != 32 {
		t.Errorf("%d batches and shapes %+v", seen, s.shapes)
	}
	if !slices.Equal(s.sources[0].from, cursors) {
		t.Errorf("the source was asked from %+v, want %+v", s.sources[0].from, cursors)
	}
	s.sources[1].out <- kv.Batch{Epoch: 8}
	for b := range s.Events(t.Context(), nil) {
		if b.Epoch != 8 {
			t.Errorf("%+v of the new source", b)
		}
		break
	}
}

// Who waits for events is not left waiting for those of caches that are gone.
func TestWaitingEnds(t *testing.T) {
	for name, end := range map[string]func(s *stage, t *testing.T){
		"another shape": func(s *stage, t *testing.T) { s.become(t, status(1, 16, 2)) },
		"close":         func(s *stage, _ *testing.T) { s.Close() },
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newStage()
			s.become(t, status(1, 16, 1))
			over := make(chan int)
			go func() {
				n := 0
				for range s.Events(context.Background(), nil) {
					n++
				}
				over <- n
			}()
			synctest.Wait()
			end(s, t)
			select {
			case n := <-over:
				if n != 0 {
					t.Errorf("%s: %d batches", name, n)
				}
			case <-time.After(time.Hour):
				t.Errorf("%s: the sequence goes on", name)
			}
		})
	}
}

func TestNoSource(t *testing.T) {
	only := func(what string, s *stage, kind engine.ErrorKind, want error) {
		t.Helper()
		n := 0
		for _, err := range s.Events(t.Context(), nil) {
			if n++; engine.KindOf(err) != kind || want != nil && !errors.Is(err, want) {
				t.Errorf("%s: %v", what, err)
			}
		}
		if n != 1 {
			t.Errorf("%s: %d items, want one error", what, n)
		}
	}
	s := newStage()
	only("before any status", s, engine.Unavailable, nil)
	s.become(t, engine.Status{Epoch: 1, Card: &engine.Card{BlockSize: 16}})
	only("a card without events", s, engine.Unavailable, nil)
	s.fail = errors.New("no such host")
	if err := s.Become(status(1, 16, 1)); !errors.Is(err, s.fail) {
		t.Errorf("become: %v", err)
	}
	only("a source that cannot be opened", s, engine.Internal, s.fail)
	if err := s.Become(status(1, 16, 1)); err != nil || len(s.shapes) != 1 {
		t.Errorf("the same shape was tried %d times, %v", len(s.shapes), err)
	}
	s.fail = nil
	s.become(t, status(1, 32, 1))
	s.Close()
	only("closed", s, engine.Unavailable, nil)
}

// stored is a message that tells of two blocks of four tokens.
const stored = "93cb40290000000000009199ab426c6f636b53746f72656492cf800000000000000102c0980b0c0d0e0f10111204c0a3475055c092c0c000"

func TestBlockSize(t *testing.T) {
	payload, err := hex.DecodeString(stored)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	pub := zmtp.NewPub(zmtp.Options{})
	defer pub.Close()
	at, err := pub.Bind(ctx, "tcp://127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	learned := make(chan string, 1)
	go func() {
		n, err := live.BlockSize(ctx, kvevent.Endpoint{Events: at}, "", zmtp.Options{})
		learned <- fmt.Sprint(n, err)
	}()
	for {
		// A publisher does not say when somebody listens: it says things again.
		for _, p := range [][]byte{[]byte("none of ours"), payload} {
			if err := pub.Send(nil, make([]byte, 8), p); err != nil {
				t.Fatal(err)
			}
		}
		select {
		case got := <-learned:
			if got != "4 <nil>" {
				t.Errorf("learned %s, want 4", got)
			}
			return
		case <-time.After(time.Millisecond):
		}
	}
}

func TestBlockSizeOfNobody(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if n, err := live.BlockSize(ctx, kvevent.Endpoint{Events: "tcp://127.0.0.1:1"}, "", zmtp.Options{}); err == nil {
		t.Errorf("learned %d from nobody", n)
	}
}

func ExampleFeed() {
	feed := live.NewFeed(func(s live.Shape) (live.Source, error) {
		endpoints, err := kvevent.EngineEndpoints("tcp://*:5557", "", "gpu7", s.First, s.Size)
		if err != nil {
			return nil, err
		}
		for _, e := range endpoints {
			fmt.Println(e.Rank, e.Events)
		}
		return kvevent.NewSource(kvevent.SourceConfig{Endpoints: endpoints, Decoder: kvevent.Config{BlockSize: int(s.BlockSize)}})
	})
	defer feed.Close()
	err := feed.Become(engine.Status{Epoch: 1, State: engine.Ready, Card: &engine.Card{
		BlockSize: 16, DPSize: 2, Features: engine.Features{engine.FeatureEvents},
	}})
	fmt.Println(err)
	// Output:
	// 0 tcp://gpu7:5557
	// 1 tcp://gpu7:5558
	// <nil>
}
