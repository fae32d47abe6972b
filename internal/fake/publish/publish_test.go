package publish_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/mock"
	"github.com/dynago/dynago/internal/fake/publish"
	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/kvevent"
)

const (
	any        = "tcp://127.0.0.1:*"
	saltPrefix = "dynamo-cache-salt:"
	blockSize  = 16
)

// truth is what a rank's cache holds, by the hashes that requests are looked up
// by.
type truth struct {
	mu     sync.Mutex
	blocks map[kv.EngineHash]kv.SeqHash
	salted bool // salts are told
}

func (h *truth) hear(r mock.Report) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if r.Fresh {
		h.blocks = map[kv.EngineHash]kv.SeqHash{}
	}
	for i, e := range r.Events {
		switch e.Kind {
		case kv.Stored:
			s := r.Stores[i]
			s.Namespace.Salt = strings.TrimPrefix(s.Namespace.Salt, saltPrefix)
			if !h.salted {
				s.Namespace.Salt = ""
			}
			locals := kv.AppendLocalHashes(nil, s.Tokens, blockSize, s.Namespace.Seed())
			parent, inside := h.blocks[e.Parent], e.HasParent
			for j, b := range e.Blocks {
				seq := kv.SeqHash(locals[j])
				if inside {
					seq = parent.Next(locals[j])
				}
				h.blocks[b.Engine] = seq
				parent, inside = seq, true
			}
		case kv.Removed:
			for _, b := range e.Blocks {
				delete(h.blocks, b.Engine)
			}
		case kv.Cleared:
			clear(h.blocks)
		}
	}
}

func (h *truth) set() map[kv.SeqHash]bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := map[kv.SeqHash]bool{}
	for _, s := range h.blocks {
		out[s] = true
	}
	return out
}

// heard is what a listener makes of the events.
type heard struct {
	mu     sync.Mutex
	blocks map[kv.EngineHash]kv.SeqHash
	gaps   int
}

func (h *heard) apply(b kv.Batch) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if b.Gap != "" || h.blocks == nil {
		h.gaps++
		h.blocks = map[kv.EngineHash]kv.SeqHash{}
	}
	for _, e := range b.Events {
		switch e.Kind {
		case kv.Stored:
			parent, inside := h.blocks[e.Parent], e.HasParent
			for _, b := range e.Blocks {
				seq := kv.SeqHash(b.Local)
				if inside {
					seq = parent.Next(b.Local)
				}
				h.blocks[b.Engine] = seq
				parent, inside = seq, true
			}
		case kv.Removed:
			for _, b := range e.Blocks {
				delete(h.blocks, b.Engine)
			}
		case kv.Cleared:
			clear(h.blocks)
		}
	}
}

func (h *heard) set() map[kv.SeqHash]bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := map[kv.SeqHash]bool{}
	for _, s := range h.blocks {
		out[s] = true
	}
	return out
}

// stage is an engine of which a publisher tells, and who listens to it.
type stage struct {
	*publish.Publisher
	engine *mock.Engine
	source *kvevent.Source
	truth  []*truth
	heard  []*heard
}

func newStage(t *testing.T, c publish.Config, ranks int) *stage {
	t.Helper()
	a := mock.DefaultArgs()
	a.NumGPUBlocks, a.BlockSize, a.SpeedupRatio, a.DPSize = 60, blockSize, 0, ranks
	e, err := mock.New(mock.Config{Model: "m", Args: a, Source: mock.SourceRandom})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	p, err := publish.New(c, ranks, blockSize)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	s := &stage{Publisher: p, engine: e}
	for range ranks {
		s.truth = append(s.truth, &truth{salted: c.Dialect == publish.VLLM || c.Metadata})
		s.heard = append(s.heard, &heard{})
	}
	e.Hear(func(r mock.Report) {
		s.truth[r.Rank].hear(r)
		p.Hear(r)
	})
	endpoints, err := kvevent.EngineEndpoints(p.Endpoint(), p.Replay(), "127.0.0.1", 0, uint32(ranks))
	if err != nil {
		t.Fatal(err)
	}
	s.source, err = kvevent.NewSource(kvevent.SourceConfig{Endpoints: endpoints, Window: uint64(p.Window()), Decoder: kvevent.Config{BlockSize: blockSize}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for b, err := range s.source.Events(ctx, nil) {
			if err != nil {
				t.Error(err)
				return
			}
			s.heard[b.Rank].apply(b)
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
	for i := range ranks {
		until(t, "somebody listens", func() bool { return p.Listeners(uint32(i)) == 1 })
	}
	return s
}

func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !is(); <-time.After(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited 20 s: %s", what)
		}
	}
}

// ask makes a rank compute something.
func (s *stage) ask(t *testing.T, r *rand.Rand) {
	t.Helper()
	rank := uint32(r.IntN(len(s.truth)))
	q := &engine.Request{DPRank: &rank, Stop: engine.Stop{MaxTokens: 1 + r.IntN(40)}}
	from := uint32(r.IntN(3) * 1000)
	for i := range 1 + r.IntN(200) {
		q.TokenIDs = append(q.TokenIDs, 100+from+uint32(i/(50+r.IntN(2))))
	}
	if r.IntN(4) == 0 {
		// One key stands for the block of all tenants in one dialect, which makes it
		// nobody's.
		q.KV.Namespace = kv.Namespace{Salt: saltPrefix + "a"}
		q.TokenIDs[0] = 7
	}
	for _, err := range s.engine.Generate(t.Context(), q) {
		if err != nil {
			t.Fatal(err)
		}
	}
}

func (s *stage) agree(t *testing.T) {
	t.Helper()
	for i := range s.truth {
		until(t, fmt.Sprintf("rank %d is known", i), func() bool {
			want := s.truth[i].set()
			return maps.Equal(s.heard[i].set(), want)
		})
		if len(s.truth[i].set()) == 0 {
			t.Errorf("nothing is cached on rank %d", i)
		}
	}
}

// Whatever the build, a listener knows what is cached, through evictions, clearings
// and new lives.
func TestDialects(t *testing.T) {
	for name, c := range map[string]publish.Config{
		"vllm":            {Replay: any},
		"vllm arrays":     {Replay: any, Positional: true, ShortReplay: true},
		"vllm bytes":      {Replay: any, Bytes: true, Topic: "kv@host@m"},
		"vllm groups":     {Replay: any, Groups: true},
		"vllm old groups": {Replay: any, Groups: true, Positional: true, Unranked: true},
		"vllm units":      {Replay: any, Page: 4},
		"sglang":          {Dialect: publish.SGLang, Replay: any, ShortReplay: true},
		"sglang arrays":   {Dialect: publish.SGLang, Replay: any, ShortReplay: true, Positional: true},
		"sglang tokens":   {Dialect: publish.SGLang, Replay: any, ShortReplay: true, Page: 1},
		"sglang metadata": {Dialect: publish.SGLang, Replay: any, Metadata: true},
		"sglang old meta": {Dialect: publish.SGLang, Replay: any, Metadata: true, Positional: true},
		"ranks":           {Replay: any},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ranks := 1
			if name == "ranks" {
				ranks = 3
			}
			c.Endpoint = any
			s := newStage(t, c, ranks)
			r := rand.New(rand.NewPCG(1, 2))
			for i := range 60 {
				s.ask(t, r)
				switch i {
				case 20:
					s.agree(t)
					s.engine.Forget()
				case 40:
					s.agree(t)
					s.engine.Restart()
				}
			}
			s.agree(t)
			for _, stats := range s.source.Stats() {
				if stats.Order.Partial {
					t.Errorf("partial: %+v", stats)
				}
			}
		})
	}
}

// What goes wrong on the way is put right by replay: nothing is believed that is
// not so.
func TestFaults(t *testing.T) {
	for name, f := range map[string]publish.Faults{
		"lose":            {Lose: 3},
		"repeat":          {Repeat: 2},
		"swap":            {Swap: 4},
		"all":             {Lose: 5, Repeat: 3, Swap: 7},
		"quiet restarts":  {Quiet: true},
		"lose and quiet":  {Lose: 4, Quiet: true},
		"everything lost": {Lose: 1},
	} {
		for _, dialect := range []publish.Dialect{publish.VLLM, publish.SGLang} {
			t.Run(fmt.Sprintf("%s/%d", name, dialect), func(t *testing.T) {
				t.Parallel()
				s := newStage(t, publish.Config{Dialect: dialect, Endpoint: any, Replay: any}, 1)
				s.SetFaults(f)
				r := rand.New(rand.NewPCG(3, 4))
				for i := range 60 {
					s.ask(t, r)
					if i == 30 {
						s.engine.Restart()
					}
				}
				s.SetFaults(publish.Faults{})
				until(t, "somebody listens", func() bool { return s.Settled() && s.Listeners(0) == 1 })
				if f.Swap > 0 {
					// Messages in disorder are of two publishers, as far as a listener can
					// tell, whom it believes nothing for a while, unless that all is gone.
					// The first time that may itself come in disorder.
					s.engine.Forget()
					s.engine.Forget()
				}
				// The last message has to arrive, so that it is known what was lost.
				s.ask(t, r)
				s.agree(t)
			})
		}
	}
}

// A message that cannot be read is lost for good, and what is known then is less
// than the truth and never more.
func TestGarbled(t *testing.T) {
	s := newStage(t, publish.Config{Endpoint: any, Replay: any}, 1)
	r := rand.New(rand.NewPCG(5, 6))
	s.ask(t, r)
	s.agree(t)
	s.SetFaults(publish.Faults{Garble: 1})
	s.ask(t, r)
	until(t, "it is noticed", func() bool { return s.source.Stats()[0].Order.Partial })
	s.SetFaults(publish.Faults{})
	for range 20 {
		s.ask(t, r)
	}
	last := func() bool {
		st := s.source.Stats()[0].Order
		return st.Live >= 22
	}
	until(t, "the rest is heard", last)
	until(t, "no block is believed to be there that is not", func() bool {
		want := s.truth[0].set()
		for h := range s.heard[0].set() {
			if !want[h] {
				return false
			}
		}
		return true
	})
	// Once it is told that nothing is there, everything is known again.
	s.engine.Forget()
	s.ask(t, r)
	s.agree(t)
}

// Ports stay a publisher's own from one life to the next: nobody can take them in
// between, and they are free once it is closed.
func TestKeepsItsPorts(t *testing.T) {
	s := newStage(t, publish.Config{Endpoint: any, Replay: any}, 1)
	port := func(endpoint string) string { return "127.0.0.1" + endpoint[strings.LastIndexByte(endpoint, ':'):] }
	ctx, cancel := context.WithCancel(t.Context())
	var thieves sync.WaitGroup
	for _, address := range []string{port(s.Endpoint()), port(s.Replay())} {
		thieves.Go(func() {
			for ctx.Err() == nil {
				if l, err := net.Listen("tcp", address); err == nil {
					l.Close()
					t.Errorf("%s was free", address)
					return
				}
			}
		})
	}
	r := rand.New(rand.NewPCG(3, 4))
	for range 30 {
		s.engine.Restart()
		s.ask(t, r)
		until(t, "all is told", s.Settled)
	}
	cancel()
	thieves.Wait()
	s.agree(t)
	s.Close()
	for _, address := range []string{port(s.Endpoint()), port(s.Replay())} {
		l, err := net.Listen("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		l.Close()
	}
}

// A publisher that does not listen connects to who does.
func TestConnectsOut(t *testing.T) {
	p, err := publish.New(publish.Config{Endpoint: any}, 1, blockSize)
	if err != nil {
		t.Fatal(err)
	}
	free := "tcp://127.0.0.1" + p.Endpoint()[strings.LastIndexByte(p.Endpoint(), ':'):]
	p.Close()
	s := newStage(t, publish.Config{Endpoint: free}, 1)
	if s.Endpoint() != free {
		t.Errorf("it tells %s", s.Endpoint())
	}
	s.ask(t, rand.New(rand.NewPCG(1, 1)))
	s.agree(t)
}

func TestBadConfigs(t *testing.T) {
	for want, c := range map[string]publish.Config{
		"no endpoint":                       {},
		"have no pages of 5":                {Endpoint: any, Page: 5},
		"must begin with tcp:// or ipc://":  {Endpoint: "udp://*:1"},
		"no port that could be raised by 1": {Endpoint: "ipc://" + filepath.Join(t.TempDir(), "*")},
		"the port must be a number":         {Endpoint: any, Replay: "tcp://127.0.0.1:1x"},
	} {
		p, err := publish.New(c, 2, blockSize)
		if err == nil {
			p.Close()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", c, err, want)
		}
	}
}
