package standing_test

import (
	"context"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/kvindex"
)

// faulty is an engine whose events are spoilt on the way while it is at fault.
type faulty struct {
	engine.Engine
	fault atomic.Bool
	// spoil returns what arrives instead of a batch; nothing ends the stream.
	spoil func(b kv.Batch, r *rand.Rand) []kv.Batch
}

func (f *faulty) Unwrap() engine.Engine { return f.Engine }

func (f *faulty) Events(ctx context.Context, from []kv.Cursor) iter.Seq2[kv.Batch, error] {
	return func(yield func(kv.Batch, error) bool) {
		r := rand.New(rand.NewPCG(1, 2))
		for b, err := range f.Engine.Events(ctx, from) {
			batches := []kv.Batch{b}
			if f.fault.Load() && err == nil {
				batches = f.spoil(b, r)
			}
			for _, b := range batches {
				if !yield(b, err) {
					return
				}
			}
			if len(batches) == 0 {
				return
			}
		}
	}
}

// one spoils about one batch in n.
func one(n int, spoil func(kv.Batch, *rand.Rand) []kv.Batch) func(kv.Batch, *rand.Rand) []kv.Batch {
	return func(b kv.Batch, r *rand.Rand) []kv.Batch {
		if r.IntN(n) == 0 {
			return spoil(b, r)
		}
		return []kv.Batch{b}
	}
}

// blocks are some that no engine has.
func blocks(r *rand.Rand, n int) []kv.Block {
	b := make([]kv.Block, n)
	for i := range b {
		b[i] = kv.Block{Engine: kv.EngineHash(r.Uint64()), Local: kv.LocalHash(r.Uint64())}
	}
	return b
}

// What one worker's events do wrong reaches nobody else: the index knows every
// block of the others and no other, requests are served, and nothing is left in
// the books. When the fault is over, that worker's blocks are known as well.
func TestFaultsOfOneWorkerStayThere(t *testing.T) {
	for name, tc := range map[string]struct {
		spoil  func(b kv.Batch, r *rand.Rand) []kv.Batch
		logged string // "" = nothing
	}{
		"batches get lost": {one(5, func(b kv.Batch, r *rand.Rand) []kv.Batch {
			return []kv.Batch{{Rank: b.Rank, Epoch: b.Epoch, Last: b.First - 1}}
		}), "KV events are missing"},
		"events get lost": {one(5, func(b kv.Batch, r *rand.Rand) []kv.Batch {
			if n := len(b.Events); n > 0 {
				b.Events = b.Events[:n-1]
			}
			return []kv.Batch{b}
		}), "KV events are missing"},
		"events come in ten copies": {func(b kv.Batch, r *rand.Rand) []kv.Batch { return slices.Repeat([]kv.Batch{b}, 10) }, ""},
		"batches come out of order": {func() func(b kv.Batch, r *rand.Rand) []kv.Batch {
			var held []kv.Batch
			return func(b kv.Batch, r *rand.Rand) []kv.Batch {
				if held = append(held, b); len(held) < 4 {
					return []kv.Batch{{Rank: b.Rank, Epoch: b.Epoch}}
				}
				out := held
				r.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
				held = nil
				return out
			}
		}(), "KV events"},
		"numbers go back": {func(b kv.Batch, r *rand.Rand) []kv.Batch {
			if b.First > 3 {
				b.First, b.Last = b.First-3, b.Last-3
			}
			return []kv.Batch{b}
		}, "KV events are missing"},
		"epochs flap": {one(3, func(b kv.Batch, r *rand.Rand) []kv.Batch {
			b.Epoch += 1000
			return []kv.Batch{b}
		}), "KV events have become void"},
		"gaps for ever": {func(b kv.Batch, r *rand.Rand) []kv.Batch {
			return slices.Repeat([]kv.Batch{{Rank: b.Rank, Epoch: b.Epoch, Gap: kv.GapOverflow}}, 10)
		}, "KV events have become void"},
		"snapshots are cut off": {one(4, func(b kv.Batch, r *rand.Rand) []kv.Batch {
			return []kv.Batch{{Rank: b.Rank, Epoch: b.Epoch, Snapshot: kv.SnapshotPart, Events: []kv.Event{{Blocks: blocks(r, 20)}}}, b}
		}), "KV events are missing"},
		"streams end at once": {func(b kv.Batch, r *rand.Rand) []kv.Batch { return nil }, "KV events have become void"},
		"ranks that are not there": {one(2, func(b kv.Batch, r *rand.Rand) []kv.Batch {
			other := b
			other.Rank = 1 + r.Uint32()>>1
			return []kv.Batch{other, b}
		}), "name a rank that the worker does not have"},
		"blocks that are not there": {func(b kv.Batch, r *rand.Rand) []kv.Batch {
			b.Events = slices.Clone(b.Events)
			for i := range b.Events {
				if b.Events[i].Kind == kv.Stored {
					b.Events[i] = kv.Event{Blocks: blocks(r, 40)}
				} else {
					b.Events[i] = kv.Event{} // never removed
				}
			}
			return []kv.Batch{b}
		}, ""},
		"absurd parents": {func(b kv.Batch, r *rand.Rand) []kv.Batch {
			b.Events = slices.Clone(b.Events)
			for i := range b.Events {
				b.Events[i].HasParent, b.Events[i].Parent = true, kv.EngineHash(r.Uint64N(3))
				if blocks := b.Events[i].Blocks; len(blocks) > 1 {
					b.Events[i].Parent = blocks[len(blocks)-1].Engine
				}
			}
			return []kv.Batch{b}
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				bad := &faulty{spoil: tc.spoil}
				v := settle(t, func(i int, e engine.Engine) engine.Engine {
					if i == 1 {
						bad.Engine = e
						return bad
					}
					return e
				})
				v.live(t, 20, 1)
				bad.fault.Store(true)
				v.live(t, 60, 2)
				v.quiet(t)
				for _, i := range []int{0, 2} {
					v.known(t, i)
				}
				for _, c := range v.router.CacheViews() {
					if c.Target.Worker != 2 && c.Doubts > 0 {
						t.Errorf("another worker is doubted: %+v", c)
					}
				}
				if held, most := v.router.Loads()[1].CachedBlocks, 16*400; held > most {
					t.Errorf("the index holds %d blocks of the worker, want at most %d", held, most)
				}
				bad.fault.Store(false)
				v.fleet.Worker(2).Resync() // as drift, or an operator, would
				time.Sleep(15 * time.Minute)
				v.live(t, 20, 3)
				v.quiet(t)
				for i := range 3 {
					v.known(t, i)
				}
				log := v.log.String()
				if n := strings.Count(log, "level=WARN"); n > 20 || n > 0 && tc.logged == "" || !strings.Contains(log, tc.logged) {
					t.Errorf("%d warnings, want some of %q:\n%s", n, tc.logged, log)
				}
			})
		})
	}
}

// quiet fails the test unless the books are empty.
func (v *village) quiet(t *testing.T) {
	t.Helper()
	time.Sleep(time.Minute) // until what was told has been heard
	synctest.Wait()
	for _, l := range v.router.Loads() {
		if l.Requests != 0 || l.ActiveBlocks != 0 || l.PrefillTokens != 0 {
			t.Errorf("left in the books: %+v", l)
		}
	}
}

// known fails the test unless the index holds what an engine holds.
func (v *village) known(t *testing.T, i int) {
	t.Helper()
	target, truth := v.router.Loads()[i].Target, kvindex.New()
	for b, err := range v.engines[i].Events(t.Context(), nil) {
		check(t, err)
		for _, e := range b.Events {
			check(t, truth.Apply(target, e))
		}
		if b.Snapshot == kv.SnapshotEnd {
			break
		}
	}
	if got, want := v.router.Loads()[i].CachedBlocks, truth.Blocks(target); got != want || want < 100 {
		t.Errorf("the index holds %d blocks of worker %d, which has %d", got, i+1, want)
	}
}

// A worker that is lost and comes back every second, under load: every request is
// served, by whoever is there.
func TestRestartsEverySecondUnderLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := settle(t, func(_ int, e engine.Engine) engine.Engine { return e })
		ctx, stop := context.WithCancel(t.Context())
		restarts, done := 0, make(chan struct{})
		go func() {
			defer close(done)
			for ctx.Err() == nil {
				time.Sleep(time.Second)
				v.engines[1].Restart()
				restarts++
			}
		}()
		v.live(t, 100, 1)
		stop()
		<-done
		if restarts < 10 {
			t.Errorf("only %d restarts", restarts)
		}
		v.quiet(t)
		for _, i := range []int{0, 2} {
			v.known(t, i)
		}
	})
}
