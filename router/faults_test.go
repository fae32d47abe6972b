package router_test

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/fleet"
	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/router"
)

// devices returns how many blocks of a prompt each worker of the house has, in
// the order of their ids.
func (h *house) devices(p []uint32) (n []int) {
	h.t.Helper()
	rows, err := h.router.Explain(h.t.Context(), &router.Query{Model: "m", Tokens: p})
	if err != nil {
		h.t.Fatal(err)
	}
	for _, r := range rows {
		n = append(n, r.Device)
	}
	return n
}

// tells makes a worker tell events with these numbers, and waits until the
// router has heard.
func (h *house) tells(id, first uint64, events ...kv.Event) {
	h.t.Helper()
	last := first + uint64(len(events)) - 1
	h.engines[id].events <- kv.Batch{Epoch: 1, First: first, Last: last, Events: events}
	h.engines[id].events <- kv.Batch{Epoch: 1, Last: last}
}

// A worker that stores for ever is cut off, for longer each time, and what it
// can hold is believed in between. Nobody else notices.
func TestWorkerThatStoresForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		h := newHouse(t, router.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		defer h.fleet.Close()
		h.join(1, card(func(c *engine.Card) { c.TotalBlocks = 400 })) // 6,400 with lower tiers
		h.join(2, card())
		p := count(0, 40)
		h.caches(2, 1, kv.TierDevice, p)
		most, stop := 0, time.After(time.Hour)
		n := uint64(1)
		random := rand.New(rand.NewPCG(1, 1))
	flood:
		for {
			e := kv.Event{Kind: kv.Stored}
			for range 100 {
				e.Blocks = append(e.Blocks, kv.Block{Engine: kv.EngineHash(random.Uint64()), Local: kv.LocalHash(random.Uint64())})
			}
			select {
			case h.engines[1].events <- kv.Batch{Epoch: 1, First: n, Last: n, Events: []kv.Event{e}}:
				n++
			case <-stop:
				break flood
			}
			synctest.Wait()
			most = max(most, h.router.IndexStats().Blocks-10)
			time.Sleep(100 * time.Millisecond)
		}
		synctest.Wait()
		if most < 6000 || most > 6400 {
			t.Errorf("the index held up to %d blocks of a worker with room for 400", most)
		}
		if got := h.devices(p); !slices.Equal(got, []int{0, 10}) {
			t.Errorf("cached are %v blocks", got)
		}
		// 10, 20, 40 … 600 s and some in between.
		c := h.router.Intake()
		if c.Overfull < 8 || c.Overfull > 14 || c.Muted < 20_000 || c.Unknown+c.Unheard != 0 {
			t.Errorf("%+v", c)
		}
		if n := strings.Count(log.String(), "more KV blocks than it can hold"); n != int(c.Overfull) {
			t.Errorf("logged %d times, want %d", n, c.Overfull)
		}
		// In another life it is heard at once.
		s := card()
		s.Epoch = 2
		h.become(1, s)
		h.caches(1, 1, kv.TierDevice, p)
		if got := h.devices(p); !slices.Equal(got, []int{10, 10}) {
			t.Errorf("cached are %v blocks in another life", got)
		}
	})
}

// Once a worker that was cut off tells the truth, it is heard again.
func TestWorkerThatStoredTooMuch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, router.Config{})
		defer h.fleet.Close()
		h.join(1, card(func(c *engine.Card) { c.TotalBlocks = 1 })) // 4,096 at least
		p, n := count(0, 40), uint64(1)
		e := kv.Event{}
		for i := range 5000 {
			e.Blocks = append(e.Blocks, kv.Block{Engine: kv.EngineHash(i), Local: kv.LocalHash(i)})
		}
		h.tells(1, n, kv.Event{Blocks: e.Blocks[:4000]})
		if c := h.router.Intake(); c.Overfull != 0 {
			t.Errorf("cut off at 4,000 blocks: %+v", c)
		}
		n++
		h.tells(1, n, e)
		h.caches(1, n+1, kv.TierDevice, p)
		if got, c := h.devices(p), h.router.Intake(); got[0] != 0 || c != (router.IntakeCounts{Overfull: 1, Muted: 1}) {
			t.Errorf("cached are %v blocks, %+v", got, c)
		}
		time.Sleep(10 * time.Second)
		h.engines[1].events <- kv.Batch{Epoch: 1, First: n + 2, Last: n + 2, Events: []kv.Event{{}}} // the sign to begin anew
		synctest.Wait()
		h.caches(1, 1, kv.TierDevice, p)
		if got, opened := h.devices(p), h.fleet.Worker(1).EventCounts().Opened; got[0] != 10 || opened != 2 {
			t.Errorf("cached are %v blocks, and events were read %d times", got, opened)
		}
	})
}

// Events that make no sense are counted, and change nothing but what they name.
func TestEventsWithoutSense(t *testing.T) {
	h := newHouse(t, router.Config{})
	defer h.fleet.Close()
	h.join(1, card())
	h.join(2, card())
	h.join(3, card(func(c *engine.Card) { c.HashScheme = "" }))
	p := count(0, 40)
	h.caches(1, 1, kv.TierDevice, p)
	h.caches(2, 1, kv.TierDevice, p)
	block := func(n uint64) []kv.Block { return []kv.Block{{Engine: kv.EngineHash(n), Local: kv.LocalHash(n)}} }
	keys := kv.AppendSeqHashes(nil, kv.AppendLocalHashes(nil, p, 4, kv.HashSeed))
	h.tells(2, 2,
		kv.Event{HasParent: true, Parent: 12345, Blocks: block(1)},
		kv.Event{HasParent: true, Parent: 7, Blocks: block(7)},
		kv.Event{Kind: kv.Removed, Blocks: block(99)},
		kv.Event{Kind: 77, Blocks: block(5)},
		kv.Event{Tier: 200, Blocks: block(6)},
		kv.Event{HasParent: true, Parent: kv.EngineHash(keys[4]), Blocks: []kv.Block{{Engine: kv.EngineHash(keys[1]), Local: 5}}},
		kv.Event{},
		kv.Event{Kind: kv.Removed},
	)
	h.tells(3, 1, kv.Event{Blocks: block(8)})
	if got := h.devices(p); !slices.Equal(got, []int{10, 10, 0}) {
		t.Errorf("cached are %v blocks", got)
	}
	s := h.router.IndexStats()
	if s.ParentNotFound != 2 || s.BlockNotFound != 1 || s.Unsupported != 2 || s.Conflicts+s.InvalidSequence != 1 || s.Blocks != 20 {
		t.Errorf("%+v", s)
	}
	if c := h.router.Intake(); c != (router.IntakeCounts{Unheard: 1}) {
		t.Errorf("%+v", c)
	}
}

// A worker whose blocks get another size keeps nothing of the old one.
func TestAnotherBlockSize(t *testing.T) {
	h := newHouse(t, router.Config{})
	defer h.fleet.Close()
	h.join(1, card())
	h.join(2, card())
	p := count(0, 64)
	h.caches(1, 1, kv.TierDevice, p)
	h.caches(2, 1, kv.TierDevice, p)
	open := h.route(router.Query{Model: "m", PinWorker: 1, Tokens: p})
	h.become(1, card(func(c *engine.Card) { c.BlockSize = 16 }))
	if got := h.devices(p); !slices.Equal(got, []int{0, 16}) {
		t.Errorf("cached are %v blocks", got)
	}
	if s := h.router.IndexStats(); s.Blocks != 16 || s.Targets != 1 {
		t.Errorf("%+v", s)
	}
	h.tell(1, p)
	if got := h.devices(p); !slices.Equal(got, []int{4, 16}) {
		t.Errorf("cached are %v blocks", got)
	}
	open.Release()
	for _, l := range h.router.Loads() {
		if l.Requests != 0 || l.ActiveBlocks != 0 || l.PrefillTokens != 0 {
			t.Errorf("left behind: %+v", l)
		}
	}
}

// Workers that restart and leave all the time, under load: nobody is routed to
// one whose life was over before, the one that stays keeps its blocks, and in
// the end nothing is left in the books.
func TestRestartsUnderLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tuning := router.DefaultTuning()
		tuning.TrackOutputBlocks, tuning.PredictedTTL = true, time.Second
		h := newHouse(t, router.Config{Tuning: &tuning})
		defer h.fleet.Close()
		tells := func(c *engine.Card) { c.Features = append(c.Features, engine.FeatureCachedTokens) }
		h.join(1, card(tells))
		h.join(2, card(tells))
		p := count(0, 40)
		h.caches(1, 1, kv.TierDevice, p)
		h.caches(2, 1, kv.TierDevice, p)
		ctx, stop := context.WithTimeout(context.Background(), 5*time.Minute)
		defer stop()
		var agents sync.WaitGroup
		var gone atomic.Pointer[[]*fleet.Worker]
		gone.Store(new([]*fleet.Worker))
		for agent := range uint32(8) {
			agents.Go(func() {
				for i := uint32(0); ctx.Err() == nil; i++ {
					before := *gone.Load()
					b, err := h.router.Route(context.Background(), &router.Query{Model: "m", Tokens: count(agent%3*1000, 40+int(i%9))})
					if err != nil {
						t.Error(err)
						return
					}
					if slices.Contains(before, b.Worker()) {
						t.Error("routed to a worker that had left before")
					}
					time.Sleep(time.Duration(i%7*100) * time.Millisecond)
					b.Prefilled()
					b.Output(int(i % 30))
					b.Cached(b.Decision().CachedTokens)
					b.Release()
				}
			})
		}
		agents.Go(func() { // restarts every second
			for epoch := uint64(2); ctx.Err() == nil; epoch++ {
				time.Sleep(time.Second)
				s := card(tells)
				s.Epoch = epoch
				h.engines[1].statuses <- s
				synctest.Wait()
			}
		})
		agents.Go(func() { // comes and goes
			for ctx.Err() == nil {
				time.Sleep(700 * time.Millisecond)
				e := &fake{statuses: make(chan engine.Status), events: make(chan kv.Batch)}
				w, err := h.fleet.Add(fleet.Entry{Name: "third", ID: 3, Engine: e})
				if err != nil {
					t.Error(err)
					return
				}
				e.statuses <- card(tells)
				time.Sleep(300 * time.Millisecond)
				h.fleet.Remove(3)
				left := append(slices.Clone(*gone.Load()), w)
				gone.Store(&left)
			}
		})
		agents.Wait()
		time.Sleep(2 * time.Second)
		if got := h.devices(p); got[1] != 10 {
			t.Errorf("cached are %v blocks, want 10 on the worker that stayed", got)
		}
		for _, l := range h.router.Loads() {
			if l.Requests != 0 || l.ActiveBlocks != 0 || l.PrefillTokens != 0 {
				t.Errorf("left behind: %+v", l)
			}
		}
		if n, names := h.router.BookedTargets(), h.router.BookedBlocks(); n > 2 || len(names) != 0 {
			t.Errorf("the books know %d targets and %d blocks", n, len(names))
		}
		for _, v := range h.router.CacheViews() {
			if v.Target.Worker == 3 {
				t.Errorf("a view of a worker that left: %+v", v)
			}
		}
	})
}

// Stores that are told late do not count against the index, nor removals; what it
// never hears of counts, and what the answer has shown is credited from then on,
// until another answer shows that it is gone, or its time is up.
func TestAnswersShowWhatTheIndexLacks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, router.Config{})
		defer h.fleet.Close()
		h.join(1, card(func(c *engine.Card) { c.Features = append(c.Features, engine.FeatureCachedTokens) }))
		late, hidden, other := count(0, 42), count(1000, 42), count(2000, 10)
		expect := func(device, surprising, missing int) {
			t.Helper()
			v := h.router.CacheViews()[0]
			if got := h.devices(hidden)[0]; got != device || int(v.Surprising) != surprising || int(v.Missing) != missing {
				t.Errorf("%d blocks on the device, want %d; %+v, want %d surprising and %d missing", got, device, v, surprising, missing)
			}
		}
		ask := func(p []uint32, cached int) {
			t.Helper()
			b := h.route(router.Query{Model: "m", Tokens: p})
			b.Cached(cached)
			b.Release()
		}
		// later lets time pass, and something be told by which it is noticed.
		later := func(d time.Duration) {
			t.Helper()
			time.Sleep(d)
			ask(other, 0)
		}
		ask(late, 40)
		h.caches(1, 1, kv.TierDevice, late)
		later(time.Second)
		expect(0, 0, 0)
		ask(late, 36) // engines differ by a block
		later(time.Second)
		expect(0, 0, 0)
		ask(late, 0)
		later(time.Second)
		expect(0, 0, 10)
		ask(late, 0)
		h.tells(1, 2, kv.Event{Kind: kv.Cleared})
		later(time.Second)
		expect(0, 0, 10)

		ask(hidden, 32)
		later(900 * time.Millisecond)
		expect(0, 0, 10) // not yet
		later(100 * time.Millisecond)
		expect(8, 8, 10)
		time.Sleep(100 * time.Second)
		ask(hidden, 36)
		later(time.Second)
		expect(9, 17, 10)
		time.Sleep(100 * time.Second) // the first is as old as may be, but was shown again
		expect(9, 17, 10)
		time.Sleep(21 * time.Second)
		expect(0, 17, 10)
		ask(hidden, 32)
		later(time.Second)
		expect(8, 25, 10)
		ask(hidden, 0)
		expect(0, 25, 10)
		ask(hidden, 32)
		later(time.Second)
		expect(8, 33, 10)
		h.tells(1, 3, kv.Event{Kind: kv.Cleared})
		expect(0, 33, 10)
		ask(hidden, 32)
		later(time.Second)
		expect(8, 41, 10)
		s := card()
		s.Epoch = 2
		h.become(1, s)
		if got := h.devices(hidden)[0]; got != 0 || len(h.router.CacheViews()) != 0 {
			t.Errorf("in another life it has %d blocks; %+v", got, h.router.CacheViews())
		}
	})
}

// An answer that can show nothing is not asked.
func TestAnswersThatShowNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, router.Config{})
		defer h.fleet.Close()
		h.join(1, card(func(c *engine.Card) { c.Features = append(c.Features, engine.FeatureCachedTokens) }))
		ask := func(q router.Query) {
			t.Helper()
			q.Model, q.Tokens = "m", count(0, 42)
			b := h.route(q)
			b.Cached(40)
			b.Cached(40)
			b.Release()
			time.Sleep(time.Second)
		}
		ask(router.Query{Choices: 2})
		ask(router.Query{Recompute: true})
		ask(router.Query{Namespace: kv.Namespace{Salt: "tenant"}})
		ask(router.Query{Namespace: kv.Namespace{LoRA: "adapter"}})
		for choices := range 2 {
			b := h.route(router.Query{Model: "m", Tokens: count(0, 42), Choices: choices + 1})
			b.Release()
			b.Cached(40) // too late
		}
		for _, tokens := range []int{-40, 400} { // of a prompt of 42
			b := h.route(router.Query{Model: "m", Tokens: count(0, 42), Choices: 2})
			b.Cached(tokens)
			b.Release()
		}
		ask(router.Query{})
		ask(router.Query{})
		if v := h.router.CacheViews()[0]; v.Answers != 8 || v.Witnesses != 1 || v.Reported != 282 {
			t.Errorf("%+v, want one witness of eight", v)
		}
	})
}

// A worker whose index keeps being wrong is doubted: its events are read anew,
// and what is routed there counts instead, until the index has been right for a
// while.
func TestDoubtAndBelief(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, router.Config{})
		defer h.fleet.Close()
		h.join(1, card(func(c *engine.Card) { c.Features = append(c.Features, engine.FeatureCachedTokens) }))
		told, routed := count(0, 42), count(5000, 42)
		h.caches(1, 1, kv.TierDevice, told)
		ask := func(p []uint32, cached int) {
			t.Helper()
			b := h.route(router.Query{Model: "m", Tokens: p})
			b.Prefilled()
			b.Cached(cached)
			b.Release()
			time.Sleep(time.Second)
		}
		view := func() router.CacheView { return h.router.CacheViews()[0] }
		ask(told, 0)
		for i := 0; i < 20 && !view().Doubted; i++ {
			ask(told, 0)
		}
		synctest.Wait()
		if v := view(); !v.Doubted || v.Doubts != 1 || v.Resyncs != 1 || h.fleet.Worker(1).EventCounts().Opened != 2 {
			t.Fatalf("%+v, read %d times", v, h.fleet.Worker(1).EventCounts().Opened)
		}
		if got := h.devices(told)[0]; got != 0 {
			t.Errorf("of what it was told the router believes %d blocks", got)
		}
		h.caches(1, 1, kv.TierDevice, told)
		if got := h.devices(told)[0]; got != 0 {
			t.Errorf("of what it was told anew the router believes %d blocks at once", got)
		}
		ask(routed, 0)
		if got := h.devices(routed)[0]; got != 10 {
			t.Errorf("of what was routed %d blocks count, want 10", got)
		}
		for i := 0; i < 60 && view().Doubted; i++ {
			ask(told, 40)
		}
		if got := h.devices(told)[0]; got != 10 || view().Doubted || view().Doubts != 1 {
			t.Errorf("%d blocks are believed again; %+v", got, view())
		}
		if got := h.devices(routed)[0]; got != 0 {
			t.Errorf("of what was routed %d blocks still count", got)
		}
	})
}

// What a worker told before some of its events were lost for good counts no more.
// What it computes from then on does, until all that it holds is known again.
func TestLostForGood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, router.Config{})
		defer h.fleet.Close()
		h.join(1, card(func(c *engine.Card) { c.Features = append(c.Features, engine.FeatureCachedTokens) }))
		before, after, gone := count(0, 42), count(1000, 42), count(2000, 42)
		expect := func(when string, want ...int) {
			t.Helper()
			if got := []int{h.devices(before)[0], h.devices(after)[0], h.devices(gone)[0]}; !slices.Equal(got, want) {
				t.Errorf("%s: %v blocks count, want %v", when, got, want)
			}
		}
		tell := func(b kv.Batch) {
			t.Helper()
			b.Epoch = 1
			h.engines[1].events <- b
			synctest.Wait()
		}
		h.caches(1, 1, kv.TierDevice, before)
		expect("told", 10, 0, 0)
		tell(kv.Batch{Gap: kv.GapLost})
		expect("lost", 0, 0, 0)
		b := h.route(router.Query{Model: "m", Tokens: after})
		left := h.route(router.Query{Model: "m", Tokens: gone})
		left.Release()
		expect("not computed yet", 0, 0, 0)
		b.Prefilled()
		b.Cached(0)
		b.Release()
		expect("computed", 0, 10, 0)
		tell(kv.Batch{Gap: kv.GapLost})
		expect("lost again", 0, 10, 0)

		b = h.route(router.Query{Model: "m", Tokens: before})
		b.Cached(24)
		b.Release()
		expect("shown by an answer", 6, 10, 0)
		b = h.route(router.Query{Model: "m", Tokens: after})
		b.Cached(16)
		b.Release()
		expect("belied by an answer", 0, 4, 0)
		tell(kv.Batch{Snapshot: kv.SnapshotEnd})
		expect("known", 0, 0, 0)
		b = h.route(router.Query{Model: "m", Tokens: after})
		b.Prefilled()
		b.Release()
		expect("the worker will tell", 0, 0, 0)
	})
}

// What is heard of requests of a life that is over says nothing of the cache of the
// next one: it neither counts there nor takes away what does.
func TestAnEndedLifeTeachesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, router.Config{})
		defer h.fleet.Close()
		status := card(func(c *engine.Card) { c.Features = append(c.Features, engine.FeatureCachedTokens) })
		h.join(1, status)
		lacks := func(epoch uint64) { // from now on what is routed there counts
			h.engines[1].events <- kv.Batch{Epoch: epoch, First: 1, Last: 1, Events: []kv.Event{below(kv.TierDevice, chain(count(5000, 4)), 0, 1)}}
			h.engines[1].events <- kv.Batch{Epoch: epoch, Last: 1, Gap: kv.GapLost}
			synctest.Wait()
		}
		computed := func(p []uint32) {
			t.Helper()
			b := h.route(router.Query{Model: "m", Tokens: p})
			b.Prefilled()
			b.Release()
			if got := h.devices(p)[0]; got != 10 {
				t.Fatalf("%d blocks count of what was computed, want 10", got)
			}
		}
		past, late, now := count(0, 42), count(1000, 42), count(2000, 42)
		lacks(1)
		computed(past)
		begun := h.route(router.Query{Model: "m", Tokens: late})
		told := h.route(router.Query{Model: "m", Tokens: late})
		belied := h.route(router.Query{Model: "m", Tokens: past})

		status.Epoch = 2
		h.become(1, status)
		synctest.Wait()
		lacks(2)
		computed(now)
		for name, hear := range map[string]func(){
			"a prompt is computed":             begun.Prefilled,
			"an answer tells of cached tokens": func() { told.Cached(24) },
			"an answer tells of none":          func() { belied.Cached(0) },
		} {
			hear()
			if got := []int{h.devices(past)[0], h.devices(late)[0], h.devices(now)[0]}; !slices.Equal(got, []int{0, 0, 10}) {
				t.Errorf("%s: %v blocks count, want 10 of the last", name, got)
			}
		}
	})
}

// An index that lacks much is doubted, and what it does say counts all the same.
func TestAnIndexThatOnlyLacksCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, router.Config{})
		defer h.fleet.Close()
		h.join(1, card(func(c *engine.Card) { c.Features = append(c.Features, engine.FeatureCachedTokens) }))
		told, hidden := count(0, 42), count(1000, 42)
		for i := 0; i < 30 && (i == 0 || !h.router.CacheViews()[0].Doubted); i++ {
			b := h.route(router.Query{Model: "m", Tokens: hidden})
			b.Cached(40)
			b.Release()
			time.Sleep(time.Second)
		}
		synctest.Wait()
		h.caches(1, 1, kv.TierDevice, told)
		if v, got := h.router.CacheViews()[0], h.devices(told)[0]; !v.Doubted || v.Missing > 0 || got != 10 {
			t.Errorf("%d blocks count of what it told, want 10; %+v", got, v)
		}
		if got := h.devices(hidden)[0]; got != 10 {
			t.Errorf("%d blocks count of what answers have shown, want 10", got)
		}
		b := h.route(router.Query{Model: "m", Tokens: hidden})
		b.Cached(8)
		b.Release()
		if got := h.devices(hidden)[0]; got != 2 {
			t.Errorf("%d blocks count of what an answer has not found, want 2", got)
		}
	})
}
