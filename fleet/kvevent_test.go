package fleet_test

import (
	"context"
	"errors"
	"iter"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dynago/dynago/fleet"
	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/kvevent"
)

// remote is an engine in another process, whose events come over a bus that
// loses some.
type remote struct {
	*fake
	worker *kvevent.Republisher
	bus    chan []kvevent.RouterEvent
	loses  atomic.Bool
}

func newRemote(t *testing.T, seed uint64) *remote {
	r := &remote{fake: newFake(), bus: make(chan []kvevent.RouterEvent, 4096)}
	draw := rand.New(rand.NewPCG(seed, 0))
	w, err := kvevent.NewRepublisher(kvevent.RepublisherConfig{Worker: 7, Send: func(_ context.Context, m []kvevent.RouterEvent) error {
		if r.loses.Load() && draw.IntN(4) == 0 {
			return errors.New("lost")
		}
		r.bus <- m
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	r.worker = w
	return r
}

func (r *remote) Events(ctx context.Context, _ []kv.Cursor) iter.Seq2[kv.Batch, error] {
	return kvevent.Listen(ctx, kvevent.ListenConfig{
		Worker: 7, Ranks: 1,
		Messages: func(ctx context.Context) iter.Seq2[[]kvevent.RouterEvent, error] {
			return func(yield func([]kvevent.RouterEvent, error) bool) {
				for {
					select {
					case m := <-r.bus:
						if !yield(m, nil) {
							return
						}
					case <-ctx.Done():
						return
					}
				}
			}
		},
		Ask: func(_ context.Context, q kvevent.Recovery) (kvevent.Answer, error) { return r.worker.Answer(q), nil },
	})
}

// blocks is a sink that keeps what each target holds.
type blocks struct {
	mu    sync.Mutex
	holds map[kv.EngineHash]bool
	gaps  int
}

func (s *blocks) Apply(_ kv.Target, b kv.Batch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b.Gap != "" {
		s.gaps++
		clear(s.holds)
	}
	for _, e := range b.Events {
		change(s.holds, e)
	}
}

func (s *blocks) RemoveWorker(uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.holds)
}

func change(holds map[kv.EngineHash]bool, e kv.Event) {
	for _, b := range e.Blocks {
		if e.Kind == kv.Stored {
			holds[b.Engine] = true
		} else {
			delete(holds, b.Engine)
		}
	}
	if e.Kind == kv.Cleared {
		clear(holds)
	}
}

// What kvevent makes of a lossy way between two processes is what a fleet takes:
// the sinks know what the worker holds, and are told of a gap only where
// something was missed.
func TestEventsFromAnotherProcess(t *testing.T) {
	for seed := range uint64(10) {
		synctest.Test(t, func(t *testing.T) {
			r, sink := newRemote(t, seed), &blocks{holds: make(map[kv.EngineHash]bool)}
			f := fleet.New(fleet.Config{})
			if err := f.Subscribe(sink); err != nil {
				t.Fatal(err)
			}
			if _, err := f.Add(fleet.Entry{Name: "r", ID: 7, Engine: r}); err != nil {
				t.Fatal(err)
			}
			r.cards <- ready(1)

			truth := make(map[kv.EngineHash]bool)
			draw := rand.New(rand.NewPCG(seed, 1))
			batches := make(chan kv.Batch)
			done := make(chan struct{})
			go func() {
				defer close(done)
				_ = r.worker.Run(t.Context(), func(yield func(kv.Batch, error) bool) {
					for b := range batches {
						if !yield(b, nil) {
							return
						}
					}
				})
			}()
			happen := func(n int) {
				for range n {
					e := kv.Event{Kind: kv.EventKind(draw.IntN(2)), Blocks: []kv.Block{{Engine: kv.EngineHash(draw.IntN(20))}}}
					if draw.IntN(50) == 0 {
						e = kv.Event{Kind: kv.Cleared}
					}
					change(truth, e)
					batches <- kv.Batch{Events: []kv.Event{e}}
				}
			}
			expect := func() {
				t.Helper()
				r.loses.Store(false)
				happen(1)
				time.Sleep(time.Minute)
				synctest.Wait()
				sink.mu.Lock()
				defer sink.mu.Unlock()
				for key := range truth {
					if !sink.holds[key] {
						t.Fatalf("block %d is there, and the sink does not know", key)
					}
				}
				if len(sink.holds) != len(truth) {
					t.Fatalf("the sink knows %d blocks, and there are %d", len(sink.holds), len(truth))
				}
			}
			happen(100)
			expect()
			sink.mu.Lock()
			if sink.gaps > 0 {
				t.Errorf("%d gaps before anything was lost", sink.gaps)
			}
			sink.mu.Unlock()
			for range 5 {
				r.loses.Store(true)
				happen(50)
				expect()
			}
			sink.mu.Lock()
			if sink.gaps == 0 {
				t.Error("no gap, though much was lost")
			}
			sink.mu.Unlock()

			// Another life of the worker.
			r.cards <- ready(2)
			expect()
			close(batches)
			<-done
			if err := f.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}
