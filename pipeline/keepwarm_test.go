package pipeline_test

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/nvext"
	"github.com/dynago/dynago/pipeline"
	"github.com/dynago/dynago/router"
)

// warmHouse has a stock engine of a hundred blocks, half of which may be kept warm.
func warmHouse(t *testing.T, r pipeline.Retention) (*house, *fake) {
	t.Helper()
	e := &fake{features: engine.Features{engine.FeaturePriority, engine.FeatureCacheSalt}, change: func(c *engine.Card) { c.TotalBlocks = 100 }}
	if r.KeepWarm == pipeline.KeepWarmOff {
		r.KeepWarm = pipeline.KeepWarmAsked
	}
	if r.KeepWarmBudget == 0 {
		r.KeepWarmBudget = 0.5
	}
	h := newHouse(t, pipeline.Config{Retention: r}, e)
	e.generate = h.say("Yes.", 1, engine.FinishEOS)
	t.Cleanup(func() { h.Close() })
	return h, e
}

var numbers atomic.Int64 // of requests

// words is a request of so many words that begin with another one than all others.
func words(of string, n int, ext *nvext.Ext) *pipeline.Request {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "%s%d ", of, i)
	}
	r := request(b.String())
	r.ID = fmt.Sprintf("request %d", numbers.Add(1))
	r.Ext, r.Notes = ext, new(pipeline.Notes)
	return r
}

// press lets others compute about as many blocks.
func press(t *testing.T, h *house, blocks int) {
	t.Helper()
	for i := 0; blocks > 0; i++ {
		r := words(fmt.Sprintf("other%d-%d-", blocks, i), 60, nil)
		run(t, h, r)
		blocks -= r.Notes.Blocks
	}
}

// isWarming says whether a request was made to keep something warm.
func isWarming(r *engine.Request) bool { return strings.HasPrefix(r.ID, "warm-") }

func warmings(e *fake) (list []*engine.Request) {
	return slices.DeleteFunc(e.sent(), func(r *engine.Request) bool { return !isWarming(r) })
}

// A prefix is used again when others have computed half of what the cache holds, by one
// token in the background, and not before.
func TestKeepWarm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, e := warmHouse(t, pipeline.Retention{})
		r := words("mine", 60, cached("1h"))
		r.KV.Namespace.Salt = "salt"
		run(t, h, r)
		ids := e.sent()[0].TokenIDs
		time.Sleep(time.Minute)
		press(t, h, 20)
		time.Sleep(time.Minute)
		if n := len(warmings(e)); n != 0 {
			t.Fatalf("%d uses of what nobody can have pushed out", n)
		}
		press(t, h, 50)
		time.Sleep(time.Minute)
		again := warmings(e)
		if len(again) != 1 {
			t.Fatalf("%d uses, want 1", len(again))
		}
		got := again[0]
		if n := len(ids) / 16 * 16; !slices.Equal(got.TokenIDs, ids[:n]) || got.Stop.MaxTokens != 1 || got.KV.Namespace != (kv.Namespace{Salt: "salt"}) {
			t.Errorf("it was asked for %d tokens of a prompt of %d of %d, %+v", got.Stop.MaxTokens, len(got.TokenIDs), len(ids), got.KV)
		}
		if got.Priority == nil || *got.Priority != nvext.PriorityBackground || got.KV.Priority != nil || len(got.KV.Pins) != 0 {
			t.Errorf("priority %v, retention %v, pins %v", got.Priority, got.KV.Priority, got.KV.Pins)
		}
		c := h.Warm()
		if want := (pipeline.WarmCounts{Leases: 1, LeasedBlocks: len(ids) / 16, Warmed: 1, Blocks: int64(len(ids) / 16)}); c != want {
			t.Errorf("counted %+v, want %+v", c, want)
		}
		if g := r.Notes.Granted; g == nil || g.TTL != 3600 || g.Blocks != uint64(len(ids)/16) {
			t.Errorf("the client is told %+v", g)
		}
		h.released(t)
	})
}

// A lease ends with its time, an hour at most after the last use, and when it is let go.
func TestLeasesEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, e := warmHouse(t, pipeline.Retention{})
		leases := func(want int, when string) {
			t.Helper()
			if got := h.Warm().Leases; got != want {
				t.Errorf("%s: %d leases, want %d", when, got, want)
			}
		}
		run(t, h, words("mine", 60, cached("10h")))
		time.Sleep(50 * time.Minute)
		run(t, h, words("mine", 60, nil)) // a hit, by who has no say
		time.Sleep(50 * time.Minute)
		leases(1, "less than an hour behind the last use")
		time.Sleep(11 * time.Minute)
		leases(0, "an hour behind it")
		press(t, h, 100)
		time.Sleep(time.Minute)
		if n := len(warmings(e)); n != 0 {
			t.Errorf("%d uses for no lease", n)
		}
		run(t, h, words("mine", 60, cached("10m")))
		run(t, h, words("yours", 60, cached("1m")))
		leases(2, "anew")
		run(t, h, words("mine", 60, cached(0.0)))
		leases(1, "one was let go")
		time.Sleep(2 * time.Minute)
		leases(0, "in the end")
	})
}

// The next prompt of a conversation takes the place of the one before it; of more than
// the budget those that were used least lately go, and a longer one is cut.
func TestKeepWarmBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _ := warmHouse(t, pipeline.Retention{KeepWarmBudget: 0.4})
		first := words("mine", 60, cached("1h"))
		run(t, h, first)
		held := h.Warm().LeasedBlocks
		next := words("mine", 60, cached("1h"))
		next.Chat.Turns = append(next.Chat.Turns, words("more", 10, nil).Chat.Turns...)
		run(t, h, next)
		if c := h.Warm(); c.LeasedBlocks < held {
			t.Errorf("%+v after a longer prompt, %d blocks before", c, held)
		}
		for i := range 8 {
			run(t, h, words(fmt.Sprint("one", i), 60, cached("1h")))
			if c := h.Warm(); c.LeasedBlocks > 40 {
				t.Fatalf("%d of 40 blocks leased", c.LeasedBlocks)
			}
		}
		run(t, h, words("long", 600, cached("1h")))
		if c := h.Warm(); c.Leases != 1 || c.LeasedBlocks != 40 {
			t.Errorf("%+v, want one lease of 40 blocks", c)
		}
	})
}

// Each tenant may fill the budget while nobody else wants any of it, and has its share
// whatever others want.
func TestKeepWarmTenants(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _ := warmHouse(t, pipeline.Retention{KeepWarmBudget: 0.4})
		n := 0
		ask := func(tenant string, count int) (granted uint64) {
			t.Helper()
			n++
			r := words(fmt.Sprint(tenant, n), count, cached("1h"))
			r.Tenant = tenant
			run(t, h, r)
			if sum := h.Warm().LeasedBlocks; sum > 40 {
				t.Errorf("%d blocks are leased, want 40 at most", sum)
			}
			return r.Notes.Granted.Blocks
		}
		held := func(when string, want map[string]int) {
			t.Helper()
			if got := h.WarmBlocks(); !maps.Equal(got, want) {
				t.Errorf("%s: %v, want %v", when, got, want)
			}
		}
		if got := ask("a", 600); got != 40 {
			t.Errorf("%d blocks for who is alone, want 40", got)
		}
		if got := ask("b", 600); got != 20 {
			t.Errorf("%d blocks beside one who has all, want 20", got)
		}
		held("two of them", map[string]int{"a": 20, "b": 20})
		small := int(ask("b", 10))
		held("what b wants next takes the place of what it wanted", map[string]int{"a": 20, "b": small})
		ask("a", 600)
		held("a takes what b leaves", map[string]int{"a": 40 - small, "b": small})
		ask("b", 600)
		held("and gives it back", map[string]int{"a": 20, "b": 20})
		ask("c", 600)
		got := h.WarmBlocks()
		for _, tenant := range []string{"a", "b", "c"} {
			if got[tenant] < 13 || got[tenant] > 14 {
				t.Errorf("three of them: %v, want 13 each at least", got)
			}
		}
	})
}

// Each worker has a budget of its own.
func TestKeepWarmByWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		change := func(c *engine.Card) { c.TotalBlocks = 100 }
		first, second := &fake{change: change}, &fake{change: change}
		h := newHouse(t, pipeline.Config{Retention: pipeline.Retention{KeepWarm: pipeline.KeepWarmAsked, KeepWarmBudget: 0.4}}, first, second)
		first.generate = h.say("Yes.", 1, engine.FinishEOS)
		second.generate = first.generate
		for worker, tenant := range []string{"a", "b"} {
			ext := cached("1h")
			ext.BackendInstanceID = new(nvext.WorkerID(worker + 1))
			r := words(tenant, 600, ext)
			r.Tenant = tenant
			run(t, h, r)
			if got := r.Notes.Granted.Blocks; got != 40 {
				t.Errorf("%d blocks on worker %d, want all 40", got, worker+1)
			}
		}
		if got := h.WarmBlocks(); !maps.Equal(got, map[string]int{"a": 40}) {
			t.Errorf("on the first: %v", got)
		}
		h.Close()
	})
}

// awaitWarm waits until prefixes were used again so often.
func awaitWarm(t *testing.T, h *house, times int64) {
	t.Helper()
	for began := time.Now(); h.Warm().Warmed < times; <-time.After(time.Millisecond) {
		if time.Since(began) > time.Minute {
			t.Fatalf("%+v, want %d warmed", h.Warm(), times)
		}
	}
}

// stock is an engine that has no pins.
type stock struct{ *shaky }

func (s stock) Card(ctx context.Context) iter.Seq2[engine.Status, error] {
	return func(yield func(engine.Status, error) bool) {
		for st, err := range s.shaky.Card(ctx) {
			if st.Card != nil {
				c := *st.Card
				c.Features = slices.DeleteFunc(slices.Clone(c.Features), func(f engine.Feature) bool { return f == engine.FeaturePins })
				st.Card = &c
			}
			if !yield(st, err) {
				return
			}
		}
	}
}

func (s stock) Generate(ctx context.Context, r *engine.Request) iter.Seq2[engine.Delta, error] {
	plain := *r
	plain.KV.Pins = nil
	return s.shaky.Generate(ctx, &plain)
}

// Where one worker computes prompts for another, it is there that they are kept warm, and
// the other one has nothing to do with it. Where both would be at it, nobody is.
func TestKeepWarmOnPrefillWorkers(t *testing.T) {
	for name, meets := range map[string]bool{"one after the other": false, "at once": true} {
		t.Run(name, func(t *testing.T) {
			first, second := newShaky(t, "prefill", meets), newShaky(t, "decode", false)
			h := newHouse(t, pipeline.Config{Retention: pipeline.Retention{
				KeepWarm: pipeline.KeepWarmAsked, KeepWarmBudget: 0.5, KeepWarmEvery: time.Millisecond,
			}}, stock{first}, stock{second})
			brief := func(of string, ext *nvext.Ext) *pipeline.Request {
				r := words(of, 60, ext)
				r.Chat.Sampling.MaxTokens = new(8)
				return r
			}
			r := brief("mine", cached("1h"))
			run(t, h, r)
			if meets {
				if c := h.Warm(); c.Leases != 0 || r.Notes.Granted.Blocks != 0 {
					t.Errorf("%+v, and the client is told of %d blocks", c, r.Notes.Granted.Blocks)
				}
				return
			}
			if c := h.Warm(); c.Leases != 1 || r.Notes.Granted.Blocks == 0 {
				t.Fatalf("%+v, and the client is told of %d blocks", c, r.Notes.Granted.Blocks)
			}
			for i, blocks := 0, 600; blocks > 0; i++ {
				other := brief(fmt.Sprintf("other%d-", i), nil)
				run(t, h, other)
				blocks -= other.Notes.Blocks
			}
			awaitWarm(t, h, 1)
			warmings := func(e *shaky) []*engine.Request {
				return slices.DeleteFunc(e.sent(), func(r *engine.Request) bool { return !isWarming(r) })
			}
			again := warmings(first)
			if len(again) == 0 || again[0].Disagg.Phase != engine.PhaseWhole || !slices.Equal(again[0].TokenIDs, first.sent()[0].TokenIDs[:len(again[0].TokenIDs)]) {
				t.Errorf("the prefill worker was asked again %d times: %+v", len(again), again)
			}
			// It tells what it has cached, and so is asked at once for what is gone, as soon
			// as there is anything that can have taken its place.
			for { // until what it has handed over is released, and nothing runs
				_, err := first.Control(t.Context(), engine.ControlReset, nil)
				if err == nil {
					break
				}
				if engine.KindOf(err) != engine.Unavailable {
					t.Fatal(err)
				}
				<-time.After(time.Millisecond)
			}
			run(t, h, brief("one more", nil))
			for began := time.Now(); ; <-time.After(time.Millisecond) {
				there, err := h.router.Advise(t.Context(), &router.Query{Model: "test/model", Tokens: again[0].TokenIDs, Role: engine.Prefill})
				if err == nil && len(warmings(first)) > len(again) && there.Overlap == len(again[0].TokenIDs)/16 {
					break
				}
				if time.Since(began) > time.Minute {
					t.Fatalf("%d blocks are there, %v, after %d more warmings; %+v", there.Overlap, err, len(warmings(first))-len(again), h.Warm())
				}
			}
			if n := len(warmings(second)); n != 0 {
				t.Errorf("the decode worker was asked %d times", n)
			}
			h.Close()
		})
	}
}

// What is being warmed stops when real work comes, and a worker that has some is left
// alone.
func TestRealWorkComesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, e := warmHouse(t, pipeline.Retention{})
		say := e.generate
		stopped := 0
		e.generate = func(ctx context.Context, r *engine.Request, yield func(engine.Delta, error) bool) {
			if isWarming(r) {
				<-ctx.Done()
				stopped++
				yield(engine.Delta{}, context.Cause(ctx))
				return
			}
			say(ctx, r, yield)
		}
		run(t, h, words("mine", 60, cached("1h")))
		press(t, h, 60)
		time.Sleep(time.Second)
		if n := len(warmings(e)); n != 1 || stopped != 0 {
			t.Fatalf("%d uses, %d stopped, want one that goes on", n, stopped)
		}
		run(t, h, words("real", 10, nil))
		synctest.Wait()
		if c := h.Warm(); stopped != 1 || c.Cancelled != 1 || c.Failed != 0 || c.Warmed != 0 {
			t.Errorf("%d stopped, counted %+v", stopped, c)
		}

		// A worker that answers somebody is not asked.
		before := len(warmings(e))
		e.generate = func(ctx context.Context, r *engine.Request, yield func(engine.Delta, error) bool) {
			if !isWarming(r) {
				time.Sleep(time.Minute)
			}
			say(ctx, r, yield)
		}
		done := make(chan struct{})
		go func() {
			run(t, h, words("slow", 10, nil))
			close(done)
		}()
		time.Sleep(30 * time.Second)
		if n := len(warmings(e)) - before; n > 1 { // one may have begun, and ended, before
			t.Errorf("%d uses beside real work", n)
		}
		<-done
		time.Sleep(time.Second)
		if c := h.Warm(); c.Warmed == 0 {
			t.Errorf("nothing was warmed behind it: %+v", c)
		}
	})
}
