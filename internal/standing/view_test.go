package standing_test

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/mock"
	"github.com/dynago/dynago/fleet"
	"github.com/dynago/dynago/internal/demo"
	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/pipeline"
	"github.com/dynago/dynago/prompt"
	"github.com/dynago/dynago/router"
)

// liar is an engine that leaves blocks out of its events while it lies.
type liar struct {
	engine.Engine
	lies    atomic.Bool
	removed bool // leave out removals, else stores
}

func (l *liar) Unwrap() engine.Engine { return l.Engine }

func (l *liar) Events(ctx context.Context, from []kv.Cursor) iter.Seq2[kv.Batch, error] {
	return func(yield func(kv.Batch, error) bool) {
		for b, err := range l.Engine.Events(ctx, from) {
			if l.lies.Load() {
				events := make([]kv.Event, 0, len(b.Events))
				for _, e := range b.Events {
					if (e.Kind == kv.Removed) == l.removed {
						e = kv.Event{Kind: kv.Removed} // of nothing, so that the numbers are right
					}
					events = append(events, e)
				}
				b.Events = events
			}
			if !yield(b, err) {
				return
			}
		}
	}
}

// village is a small fleet under pressure, in virtual time: its caches hold a
// fraction of the conversations that go on.
type village struct {
	router   *router.Router
	pipeline *pipeline.Pipeline
	fleet    *fleet.Fleet
	engines  []*mock.Engine
	log      strings.Builder // of the fleet; to be read when nothing runs
}

// settle makes a village, each engine in what wrap puts around it.
func settle(t *testing.T, wrap func(i int, e engine.Engine) engine.Engine) *village {
	t.Helper()
	model, err := prompt.Load(func(name string) ([]byte, error) { return files().ReadFile(name) }, prompt.Parsers{})
	check(t, err)
	v := &village{}
	f := fleet.New(fleet.Config{Logger: slog.New(slog.NewTextHandler(&v.log, nil))})
	v.fleet = f
	v.router, err = router.New(router.Config{Seed: 1}, f)
	check(t, err)
	v.pipeline = pipeline.New(pipeline.Config{
		Fleet: f, Router: v.router, MigrationLimit: 3,
		Load: func(*engine.Card) (*prompt.Model, error) { return model, nil },
	})
	args := mock.DefaultArgs()
	args.BlockSize, args.NumGPUBlocks, args.MaxNumSeqs = 16, 400, 4
	args.TimingModel, args.DecodeMS = "constant", 2
	for i := range 3 {
		e, err := mock.New(mock.Config{
			Model: demo.Name, Args: args, Seed: uint64(i), Encode: model.Tokenizer.Append,
			EOS: model.EOS, VocabSize: model.Tokenizer.Size(), ContextLength: 4096,
		})
		check(t, err)
		v.engines = append(v.engines, e)
		_, err = f.Add(fleet.Entry{Name: fmt.Sprint("mock-", i), Engine: wrap(i, e), ID: uint64(i + 1)})
		check(t, err)
	}
	synctest.Wait()
	t.Cleanup(func() { check(t, f.Close()) })
	return v
}

// live lets ten agents go on with forty conversations for a while, each a
// thousand tokens long at most.
func (v *village) live(t *testing.T, turns int, seed uint64) {
	t.Helper()
	var agents sync.WaitGroup
	for agent := range 10 {
		agents.Go(func() {
			random := rand.New(rand.NewPCG(seed, uint64(agent)))
			conversations := make([][]uint32, 4)
			for turn := range turns {
				c := random.IntN(len(conversations))
				if len(conversations[c]) > 1000 {
					conversations[c] = nil
				}
				for range random.IntN(200) + 20 {
					conversations[c] = append(conversations[c], random.Uint32N(200)+1000)
				}
				one := 1 + random.IntN(40)
				answers, err := chat.Fold(v.pipeline.Run(t.Context(), &pipeline.Request{
					ID: fmt.Sprint(seed, agent, turn), Arrived: time.Now(),
					Chat: &chat.Request{
						Model: demo.Name, API: chat.APICompletions, Prompt: &chat.Prompt{IDs: conversations[c]},
						Sampling: chat.Sampling{MaxTokens: &one, IgnoreEOS: true, N: 1},
					},
				}))
				if err != nil {
					t.Error(err)
					return
				}
				conversations[c] = append(conversations[c], answers[0].IDs...)
				time.Sleep(time.Duration(random.IntN(300)) * time.Millisecond) // virtual
			}
		})
	}
	agents.Wait()
}

// until lets life go on, for so many rounds at most, until something holds.
func (v *village) until(t *testing.T, what string, rounds uint64, holds func() bool) {
	t.Helper()
	for round := range rounds {
		if holds() {
			return
		}
		v.live(t, 20, 100+round)
	}
	t.Errorf("it never came to pass that %s: %+v", what, v.router.CacheViews())
}

// doubted returns how many workers are doubted.
func (v *village) doubted() (n int) {
	for _, c := range v.router.CacheViews() {
		if c.Doubted {
			n++
		}
	}
	return n
}

// sum returns what was counted, over all workers.
func (v *village) sum() (sum router.CacheView) {
	for _, c := range v.router.CacheViews() {
		sum.Witnesses += c.Witnesses
		sum.Missing += c.Missing
		sum.Surprising += c.Surprising
		sum.Doubts += c.Doubts
		sum.Resyncs += c.Resyncs
	}
	return sum
}

// Under evictions, queues and requests side by side, what a worker tells is never
// doubted as long as it is true.
func TestATrueViewIsBelieved(t *testing.T) {
	for seed := range uint64(2) {
		synctest.Test(t, func(t *testing.T) {
			v := settle(t, func(_ int, e engine.Engine) engine.Engine { return e })
			v.live(t, 120, seed)
			sum := v.sum()
			if v.doubted() != 0 || sum.Doubts != 0 || sum.Witnesses < 200 {
				t.Errorf("%+v", v.router.CacheViews())
			}
			if sum.Missing+sum.Surprising > sum.Witnesses/20 {
				t.Errorf("true, and yet contradicted: %+v", sum)
			}
		})
	}
}

// A worker that hides evictions, or what it has stored, is found out, read anew,
// and believed again once it tells the truth.
func TestAFalseViewIsFoundAndRepaired(t *testing.T) {
	for name, removed := range map[string]bool{"hides evictions": true, "hides what it stores": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var liars []*liar
				v := settle(t, func(_ int, e engine.Engine) engine.Engine {
					liars = append(liars, &liar{Engine: e, removed: removed})
					return liars[len(liars)-1]
				})
				v.live(t, 40, 1)
				for _, l := range liars {
					l.lies.Store(true)
				}
				v.until(t, "all three liars are doubted", 30, func() bool { return v.doubted() == 3 })
				sum := v.sum()
				if removed && sum.Missing == 0 || !removed && sum.Surprising == 0 || sum.Resyncs < 3 {
					t.Errorf("found out by %+v", sum)
				}
				for _, l := range liars {
					l.lies.Store(false)
				}
				v.until(t, "all three are believed", 60, func() bool { return v.doubted() == 0 })
			})
		})
	}
}

// late is an engine whose events are only looked for now and then.
type late struct {
	engine.Engine
	every time.Duration
}

func (l *late) Unwrap() engine.Engine { return l.Engine }

func (l *late) Events(ctx context.Context, from []kv.Cursor) iter.Seq2[kv.Batch, error] {
	return func(yield func(kv.Batch, error) bool) {
		var mu sync.Mutex
		var waiting []kv.Batch
		ctx, stop := context.WithCancel(ctx)
		var reading sync.WaitGroup
		defer reading.Wait()
		defer stop()
		reading.Go(func() {
			for b, err := range l.Engine.Events(ctx, from) {
				if err != nil {
					return
				}
				mu.Lock()
				waiting = append(waiting, b)
				mu.Unlock()
			}
		})
		tick := time.NewTicker(l.every)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			mu.Lock()
			batches := waiting
			waiting = nil
			mu.Unlock()
			for _, b := range batches {
				if !yield(b, nil) {
					return
				}
			}
		}
	}
}

// What is told late is not taken for false.
func TestALateViewIsBelieved(t *testing.T) {
	for _, every := range []time.Duration{20 * time.Millisecond, 100 * time.Millisecond, 500 * time.Millisecond} {
		t.Run(every.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				v := settle(t, func(_ int, e engine.Engine) engine.Engine { return &late{e, every} })
				v.live(t, 300, 7)
				sum := v.sum()
				if sum.Doubts != 0 || sum.Witnesses < 400 || sum.Missing+sum.Surprising > sum.Witnesses/20 {
					t.Errorf("doubted although only late: %+v", v.router.CacheViews())
				}
			})
		})
	}
}
