package router_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/fleet"
	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/router"
)

// Turn after turn of two conversations: each goes where its last turn is.
func TestConversationStaysWithItsCache(t *testing.T) {
	h := newHouse(t, router.Config{Seed: 1})
	defer h.fleet.Close()
	for id := range uint64(4) {
		h.join(id+1, card())
	}
	prompts := [][]uint32{count(0, 42), count(1000, 42)}
	home := []uint64{0, 0}
	told := map[uint64]uint64{}
	for turn := range 5 {
		var open []*router.Booking
		for i, p := range prompts {
			b := h.route(router.Query{Model: "m", Tokens: p})
			open = append(open, b)
			d := b.Decision()
			if turn == 0 {
				home[i] = d.Target.Worker
				if d.Overlap != 0 || d.CachedTokens != 0 || d.Blocks != 11 {
					t.Errorf("first turn: %+v", d)
				}
			}
			if d.Target.Worker != home[i] {
				t.Errorf("turn %d of conversation %d went to %d, not to %d", turn, i, d.Target.Worker, home[i])
			}
			if want := (len(p) - 20) / 4; turn > 0 && (d.Overlap != want || d.CachedTokens != 4*want) {
				t.Errorf("turn %d: overlap %d, %d tokens; want %d blocks", turn, d.Overlap, d.CachedTokens, want)
			}
		}
		if turn == 0 && home[0] == home[1] {
			t.Error("two cold prompts went to one worker, while others were idle")
		}
		for i, b := range open {
			b.Prefilled()
			told[home[i]]++
			h.caches(home[i], told[home[i]], kv.TierDevice, prompts[i])
			b.Release()
			prompts[i] = append(prompts[i], count(uint32(5000+100*turn+i*10000), 20)...)
		}
	}
	if c := h.router.Counters(); c.Decisions != 10 || c.NonMaxOverlap != 0 {
		t.Errorf("%+v", c)
	}
}

// What the index has to forget, the router no longer counts on.
func TestGap(t *testing.T) {
	h := newHouse(t, router.Config{})
	defer h.fleet.Close()
	h.join(1, card())
	p := count(0, 40)
	h.caches(1, 1, kv.TierDevice, p)
	h.engines[1].events <- kv.Batch{Epoch: 1, Gap: kv.GapLost}
	h.caches(1, 9, kv.TierDevice, p[:8])
	rows, err := h.router.Explain(t.Context(), &router.Query{Model: "m", Tokens: p})
	if err != nil || rows[0].Device != 2 {
		t.Errorf("%+v, %v; want the two blocks told since", rows, err)
	}
}

// The books count what is new of a prompt, and what a decision ignored.
func TestWhatIsCachedIsNotBooked(t *testing.T) {
	h := newHouse(t, router.Config{Mode: router.RoundRobin})
	defer h.fleet.Close()
	h.join(1, card())
	h.join(2, card())
	p := count(0, 42)
	h.caches(1, 1, kv.TierDevice, p[:40])
	q := router.Query{Model: "m", Tokens: p}
	defer h.route(q).Release()
	if l := h.router.Loads(); l[0].PrefillTokens != 2 {
		t.Errorf("%+v, want 2 tokens", l[0])
	}
	if c := h.router.Counters(); c.NonMaxOverlap != 0 {
		t.Errorf("%+v", c)
	}
	defer h.route(q).Release()
	if l := h.router.Loads(); l[1].PrefillTokens != 42 {
		t.Errorf("%+v, want 42 tokens", l[1])
	}
	if c := h.router.Counters(); c.Decisions != 2 || c.NonMaxOverlap != 1 || c.OverlapBlocksLost != 10 {
		t.Errorf("%+v", c)
	}
	// What one decision found in use is not taken for another prompt's.
	rows, err := h.router.Explain(t.Context(), &router.Query{Model: "m", Tokens: count(7000, 40)})
	if err != nil || rows[0].DecodeBlocks != 20 || rows[1].DecodeBlocks != 20 {
		t.Errorf("%+v, %v; want 20 blocks each", rows, err)
	}
}

// The credit decays by what a worker has outstanding beyond the least of all.
func TestCreditDecay(t *testing.T) {
	tuning := router.Unscaled()
	tuning.OverlapScoreCreditDecay = 1
	h := newHouse(t, router.Config{Tuning: &tuning})
	defer h.fleet.Close()
	h.join(1, card())
	h.join(2, card())
	p := count(0, 40)
	for id, n := range map[uint64]int{1: 40, 2: 120} {
		h.caches(id, 1, kv.TierDevice, p)
		defer h.route(router.Query{Model: "m", PinWorker: id, Tokens: count(9000, n)}).Release()
	}
	rows, err := h.router.Explain(t.Context(), &router.Query{Model: "m", Tokens: p})
	if err != nil {
		t.Fatal(err)
	}
	// 10 + 10 blocks of prefill less 10, and 20 in use; 30 + 10 less 10/3, and 40.
	if got := [2]float64{rows[0].Cost, rows[1].Cost}; got[0] != 30 || math.Abs(got[1]-(40-10./3+40)) > 1e-9 {
		t.Errorf("costs %v", got)
	}
}

// Two equal prompts at the same moment: the second sees the first in the books,
// not in the index.
func TestBookingsCount(t *testing.T) {
	h := newHouse(t, router.Config{Seed: 1, Tuning: new(router.Unscaled())})
	defer h.fleet.Close()
	h.join(1, card())
	p := count(0, 42)
	first := h.route(router.Query{Model: "m", Tokens: p})
	second := h.route(router.Query{Model: "m", Tokens: p, Choices: 2})
	want := router.TargetLoad{Target: kv.Target{Worker: 1}, Requests: 3, ActiveBlocks: 10, PrefillTokens: 3 * 42}
	if got := h.router.Loads(); !slices.Equal(got, []router.TargetLoad{want}) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	rows, err := h.router.Explain(t.Context(), &router.Query{Model: "m", Tokens: p})
	if err != nil {
		t.Fatal(err)
	}
	if r := rows[0]; r.PrefillTokens != 126 || r.ActiveBlocks != 10 || r.DecodeBlocks != 10 || r.Requests != 3 ||
		math.Abs(r.Cost-(42+10)) > 1e-9 {
		t.Errorf("explained as %+v", r)
	}
	second.Prefilled()
	second.Prefilled()
	second.Release()
	first.Release()
	first.Release()
	want = router.TargetLoad{Target: kv.Target{Worker: 1}}
	if got := h.router.Loads(); !slices.Equal(got, []router.TargetLoad{want}) {
		t.Errorf("got %+v, want nothing", got)
	}
}

func TestOverlapByTier(t *testing.T) {
	h := newHouse(t, router.Config{Seed: 1})
	defer h.fleet.Close()
	h.join(1, card())
	p := count(0, 40)
	h.caches(1, 1, kv.TierDevice, p[:8])
	h.caches(1, 2, kv.TierHost, p[:24])
	h.caches(1, 3, kv.TierShared, p[:40])
	rows, err := h.router.Explain(t.Context(), &router.Query{Model: "m", Tokens: p})
	if err != nil {
		t.Fatal(err)
	}
	if r := rows[0]; r.Device != 2 || r.Host != 4 || r.Disk != 4 {
		t.Errorf("device %d, host %d, disk %d; want 2, 4, 4", r.Device, r.Host, r.Disk)
	}
	b := h.route(router.Query{Model: "m", Tokens: p})
	defer b.Release()
	if d := b.Decision(); d.Overlap != 6 || d.CachedTokens != 24 {
		t.Errorf("%+v", d)
	}
	// Another namespace shares nothing.
	rows, err = h.router.Explain(t.Context(), &router.Query{Model: "m", Tokens: p, Namespace: kv.Namespace{Salt: "tenant"}})
	if err != nil || rows[0].Device != 0 {
		t.Errorf("another tenant finds %d blocks (%v)", rows[0].Device, err)
	}
}

func TestErrors(t *testing.T) {
	h := newHouse(t, router.Config{Seed: 1})
	defer h.fleet.Close()
	h.join(1, card(func(c *engine.Card) { c.Taints = []string{"gpu"} }))
	h.join(2, card(func(c *engine.Card) { c.ContextLength = 100; c.DPStart, c.DPSize = 4, 2 }))
	h.join(3, card())
	h.become(3, engine.Status{Epoch: 1, Revision: 1, State: engine.Draining, Card: card().Card})
	h.join(4, card(func(c *engine.Card) { c.Model, c.Aliases = "loading", nil }))
	h.become(4, engine.Status{Epoch: 1, State: engine.Loading, Card: card(func(c *engine.Card) { c.Model, c.Aliases = "loading", nil }).Card})
	h.join(5, card(func(c *engine.Card) { c.Model, c.Aliases = "failing", nil })).Inhibit(time.Now(), engine.Disconnected)
	h.join(6, card(func(c *engine.Card) { c.Model, c.Aliases = "busy", nil })).Inhibit(time.Now(), engine.WorkerOverloaded)

	rank := func(n uint32) *uint32 { return &n }
	minus := -1.0
	for _, tc := range []struct {
		name  string
		query router.Query
		kind  engine.ErrorKind // "" = served
		text  string
	}{
		{"served", router.Query{Model: "m"}, "", ""},
		{"served by alias", router.Query{Model: "alias"}, "", ""},
		{"unknown model", router.Query{Model: "x"}, engine.NotFound, "The model `x` does not exist"},
		{"wrong role", router.Query{Model: "m", Role: engine.Prefill}, engine.NotFound, "does not exist"},
		{"not ready", router.Query{Model: "loading"}, engine.Unavailable, "Model `loading` is not ready to serve requests yet."},
		{"all failed", router.Query{Model: "failing"}, engine.Unavailable, "have failed just now"},
		{"all full", router.Query{Model: "busy"}, engine.ResourceExhausted, "all eligible workers are overloaded"},
		{"all tried", router.Query{Model: "m", Exclude: []uint64{1, 2}}, engine.Unavailable, "no untried eligible worker remains after migration"},
		{"one tried", router.Query{Model: "m", Exclude: []uint64{1}}, "", ""},
		{"taint", router.Query{Model: "m", Require: []string{"gpu"}}, "", ""},
		{"taint missing", router.Query{Model: "m", Require: []string{"gpu", "fast"}}, engine.Unavailable, "required taints"},
		{"taint tried", router.Query{Model: "m", Require: []string{"gpu"}, Exclude: []uint64{1}}, engine.Unavailable, "required taints"},
		{"too long for all", router.Query{Model: "m", Tokens: count(0, 4096)}, engine.InvalidArgument, "4096 tokens"},
		{"too long for one", router.Query{Model: "m", Tokens: count(0, 100)}, "", ""},
		{"pinned", router.Query{Model: "m", PinWorker: 1}, "", ""},
		{"pinned to a failing one", router.Query{Model: "failing", PinWorker: 5}, "", ""},
		{"pinned to a rank", router.Query{Model: "m", PinWorker: 2, PinRank: rank(5)}, "", ""},
		{"pin without rank", router.Query{Model: "m", PinWorker: 2}, engine.InvalidArgument, "ranks 4 to 5"},
		{"pin to no such rank", router.Query{Model: "m", PinWorker: 2, PinRank: rank(6)}, engine.InvalidArgument, "not 6"},
		{"pin to nobody", router.Query{Model: "m", PinWorker: 99}, engine.Unavailable, "not among those of model `m`"},
		{"pin to another model's", router.Query{Model: "m", PinWorker: 5}, engine.Unavailable, "not among those of model `m`"},
		{"pin to one that drains", router.Query{Model: "m", PinWorker: 3}, engine.Unavailable, "is not ready"},
		{"pin to a full one", router.Query{Model: "busy", PinWorker: 6}, engine.WorkerOverloaded, "overloaded"},
		{"pin too long", router.Query{Model: "m", PinWorker: 2, PinRank: rank(4), Tokens: count(0, 100)}, engine.InvalidArgument, "context of 100"},
		{"pin without taint", router.Query{Model: "m", PinWorker: 1, Require: []string{"fast"}}, engine.Unavailable, "taints"},
		{"pin tried", router.Query{Model: "m", PinWorker: 1, Exclude: []uint64{1}}, engine.Unavailable, "no untried"},
		{"bad override", router.Query{Model: "m", Overrides: &router.Overrides{Temperature: &minus}}, engine.InvalidArgument, "router_temperature: got -1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b, err := h.router.Route(context.Background(), &tc.query)
			if tc.kind == "" {
				if err != nil {
					t.Fatal(err)
				}
				d := b.Decision()
				if tc.query.PinWorker != 0 && d.Target.Worker != tc.query.PinWorker || tc.query.PinRank != nil && d.Target.Rank != *tc.query.PinRank {
					t.Errorf("pinned, but went to %v", d.Target)
				}
				if len(tc.query.Tokens) >= 100 && d.Target.Worker != 1 || slices.Contains(tc.query.Exclude, d.Target.Worker) {
					t.Errorf("went to %v", d.Target)
				}
				if d.Model != b.Worker().Card().Model {
					t.Errorf("model %q", d.Model)
				}
				b.Release()
				return
			}
			if err == nil {
				t.Fatalf("served by %v", b.Decision().Target)
			}
			if engine.KindOf(err) != tc.kind || !strings.Contains(err.Error(), tc.text) {
				t.Errorf("got %v, want %s: … %s …", err, tc.kind, tc.text)
			}
			if tc.kind == engine.NotFound {
				var e *engine.Error
				if !errors.As(err, &e) || e.Code != "model_not_found" {
					t.Errorf("code of %v", err)
				}
			}
		})
	}
}

func TestCancelled(t *testing.T) {
	h := newHouse(t, router.Config{})
	defer h.fleet.Close()
	h.join(1, card())
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(engine.ErrClientGone)
	if _, err := h.router.Route(ctx, &router.Query{Model: "m"}); engine.KindOf(err) != engine.Cancelled {
		t.Errorf("got %v", err)
	}
}

func TestMinInitialWorkers(t *testing.T) {
	h := newHouse(t, router.Config{MinInitialWorkers: 2})
	defer h.fleet.Close()
	h.join(1, card())
	if _, err := h.router.Route(context.Background(), &router.Query{Model: "m"}); engine.KindOf(err) != engine.Unavailable {
		t.Errorf("with one of two workers: %v", err)
	}
	h.join(2, card())
	h.route(router.Query{Model: "m"}).Release()
	h.fleet.Remove(2)
	h.route(router.Query{Model: "m"}).Release() // only the beginning waits
}

// How often each of four workers is picked, of 4,000 with one request on the
// first and two on the second that do not end.
func TestModes(t *testing.T) {
	for _, tc := range []struct {
		mode router.Mode
		want [4]float64 // share
		off  float64
	}{
		{router.RoundRobin, [4]float64{.25, .25, .25, .25}, 0.001},
		{router.Random, [4]float64{.25, .25, .25, .25}, 0.03},
		// Of the six pairs the third and fourth worker win five and share one;
		// the first wins against the second alone.
		{router.PowerOfTwo, [4]float64{1. / 6, 0, 5. / 12, 5. / 12}, 0.03},
		{router.LeastLoaded, [4]float64{0, 0, .5, .5}, 0.03},
	} {
		t.Run(string(tc.mode), func(t *testing.T) {
			h := newHouse(t, router.Config{Mode: tc.mode, Seed: 5})
			defer h.fleet.Close()
			for id := range uint64(4) {
				h.join(id+1, card())
			}
			for _, id := range []uint64{1, 2, 2} {
				defer h.route(router.Query{Model: "m", PinWorker: id}).Release()
			}
			const n = 4000
			var seen [4]float64
			for range n {
				b := h.route(router.Query{Model: "m"})
				seen[b.Decision().Target.Worker-1]++
				b.Release()
			}
			for i := range seen {
				if math.Abs(seen[i]/n-tc.want[i]) > tc.off {
					t.Errorf("picked %v of %d, want shares %v", seen, n, tc.want)
					break
				}
			}
		})
	}
}

// Two models take turns; each must still go round its own workers.
func TestRoundRobinByModel(t *testing.T) {
	h := newHouse(t, router.Config{Mode: router.RoundRobin})
	defer h.fleet.Close()
	for id := range uint64(4) {
		h.join(id+1, card(func(c *engine.Card) { c.Model, c.Aliases = fmt.Sprint("m", id%2), nil }))
	}
	seen := map[uint64]int{}
	for i := range 40 {
		q := router.Query{Model: fmt.Sprint("m", i%2)}
		if _, err := h.router.Explain(t.Context(), &q); err != nil { // does not take a turn
			t.Fatal(err)
		}
		b := h.route(q)
		seen[b.Decision().Target.Worker]++
		b.Release()
	}
	for id := range uint64(4) {
		if seen[id+1] != 10 {
			t.Errorf("turns %v, want ten for each", seen)
			break
		}
	}
}

func TestDirect(t *testing.T) {
	h := newHouse(t, router.Config{Mode: router.Direct})
	defer h.fleet.Close()
	h.join(1, card())
	h.join(2, card())
	if _, err := h.router.Route(context.Background(), &router.Query{Model: "m"}); engine.KindOf(err) != engine.InvalidArgument {
		t.Errorf("without a worker: %v", err)
	}
	h.route(router.Query{Model: "m", PinWorker: 2}).Release()
}

// The blocks of a long prompt are named to whoever wants to tell of them, unless they are
// a tenant's or an adapter's own.
func TestBlocksOfBooking(t *testing.T) {
	h := newHouse(t, router.Config{Seed: 1})
	defer h.fleet.Close()
	h.join(1, card())
	long := count(9, kv.MemoTokens+6)
	public := kv.PublicScheme(4, kv.Namespace{})
	want := public.AppendSeq(nil, public.AppendLocal(nil, long))
	for _, tc := range []struct {
		name string
		q    router.Query
		want []kv.SeqHash
	}{
		{"long", router.Query{Tokens: long}, want},
		{"long, again", router.Query{Tokens: long}, want},
		{"short", router.Query{Tokens: long[:40]}, nil},
		{"of a tenant", router.Query{Tokens: long, Namespace: kv.Namespace{Salt: "tenant"}}, nil},
		{"of an adapter", router.Query{Tokens: long, Namespace: kv.Namespace{LoRA: "legal"}}, nil},
	} {
		tc.q.Model = "m"
		b := h.route(tc.q)
		h.route(router.Query{Model: "m", Tokens: count(70_000, 4000)}).Release()
		if blocks, size := b.Blocks(); size != 4 || !slices.Equal(blocks, tc.want) {
			t.Errorf("%s: %d blocks of %d, want %d", tc.name, len(blocks), size, len(tc.want))
		}
		b.Release()
	}
}

// At a temperature the costlier worker gets its share too.
func TestTemperatureOverride(t *testing.T) {
	h := newHouse(t, router.Config{Seed: 1})
	defer h.fleet.Close()
	h.join(1, card())
	h.join(2, card())
	defer h.route(router.Query{Model: "m", PinWorker: 1, Tokens: count(0, 40)}).Release()
	hot, seen := 1.0, map[uint64]int{}
	for range 1000 {
		b := h.route(router.Query{Model: "m", Tokens: count(500, 40), Overrides: &router.Overrides{Temperature: &hot}})
		seen[b.Decision().Target.Worker]++
		b.Release()
	}
	// e^-1 to 1.
	if seen[1] < 220 || seen[1] > 320 {
		t.Errorf("seen %v, want about 269 on 1", seen)
	}
	for range 100 {
		b := h.route(router.Query{Model: "m", Tokens: count(500, 40)})
		if b.Decision().Target.Worker != 2 {
			t.Fatal("without the override the costlier worker was picked")
		}
		b.Release()
	}
}

func TestOverrides(t *testing.T) {
	h := newHouse(t, router.Config{Seed: 1, Tuning: new(router.Unscaled())})
	defer h.fleet.Close()
	h.join(1, card())
	p := count(0, 40)
	h.caches(1, 1, kv.TierDevice, p)
	zero, two, no := 0.0, 2.0, false
	for _, tc := range []struct {
		name string
		o    *router.Overrides
		cost float64 // of ten blocks, all cached and none active
	}{
		{"none", nil, 10},
		{"no credit", &router.Overrides{OverlapScoreCredit: &zero}, 20},
		{"no credit, prefill counts twice", &router.Overrides{OverlapScoreCredit: &zero, PrefillLoadScale: &two}, 30},
		{"old name wins", &router.Overrides{OverlapScoreCredit: &zero, PrefillLoadScale: &zero, OverlapScoreWeight: &two}, 30},
		{"old name off", &router.Overrides{OverlapScoreWeight: &zero}, 10},
		{"untracked", &router.Overrides{TrackPrefillTokens: &no}, 0},
		{"untracked without credit", &router.Overrides{TrackPrefillTokens: &no, OverlapScoreCredit: &zero}, 10},
	} {
		rows, err := h.router.Explain(t.Context(), &router.Query{Model: "m", Tokens: p, Overrides: tc.o})
		if err != nil {
			t.Fatal(err)
		}
		if rows[0].Cost != tc.cost {
			t.Errorf("%s: cost %v, want %v", tc.name, rows[0].Cost, tc.cost)
		}
	}
	// Without reuse equal prompts do not share in the books.
	o := &router.Overrides{AssumeKVReuse: &no}
	defer h.route(router.Query{Model: "m", Tokens: p, Overrides: o}).Release()
	defer h.route(router.Query{Model: "m", Tokens: p, Overrides: o}).Release()
	if l := h.router.Loads()[0]; l.ActiveBlocks != 20 {
		t.Errorf("%d blocks in use, want 20", l.ActiveBlocks)
	}
}

// A worker's blocks of another size are found as well.
func TestBlockSizes(t *testing.T) {
	h := newHouse(t, router.Config{Seed: 1, Tuning: new(router.Unscaled())})
	defer h.fleet.Close()
	h.join(1, card(func(c *engine.Card) { c.BlockSize = 8 }))
	h.join(2, card())
	h.join(3, card(func(c *engine.Card) { c.BlockSize = 0 }))
	p := count(0, 64)
	h.caches(2, 1, kv.TierDevice, p[:32])
	rows, err := h.router.Explain(t.Context(), &router.Query{Model: "m", Tokens: p})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range rows {
		got = append(got, fmt.Sprint(r.BlockSize, " ", r.Device, " ", r.Cost))
	}
	if want := []string{"8 0 16", "4 8 24", "16 0 8"}; !slices.Equal(got, want) {
		t.Errorf("size, device, cost are %v, want %v", got, want)
	}
	for range 20 { // 24 blocks of 4 tokens cost less than 16 of 8
		b := h.route(router.Query{Model: "m", Tokens: p})
		if b.Decision().Target.Worker != 2 {
			t.Fatalf("went to %v", b.Decision().Target)
		}
		b.Release()
	}
}

func TestRanksAreTargets(t *testing.T) {
	h := newHouse(t, router.Config{Mode: router.RoundRobin})
	defer h.fleet.Close()
	h.join(1, card(func(c *engine.Card) { c.DPStart, c.DPSize = 2, 3 }))
	h.join(2, card())
	var got []string
	for range 4 {
		b := h.route(router.Query{Model: "m"})
		defer b.Release()
		got = append(got, b.Decision().Target.String())
	}
	if want := []string{"1/2", "1/3", "1/4", "2/0"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if n := len(h.router.Loads()); n != 4 {
		t.Errorf("%d loads", n)
	}
}

// Workers that tell no events, or none that we can read, are credited with what
// was sent to them.
func TestWorkersWithoutEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, router.Config{Seed: 1})
		defer h.fleet.Close()
		h.join(1, card(func(c *engine.Card) { c.Features = nil }))
		h.join(2, card(func(c *engine.Card) { c.HashScheme = "other" }))
		p := count(0, 40)
		first := h.route(router.Query{Model: "m", Tokens: p})
		first.Release()
		home := first.Decision().Target
		for range 10 {
			b := h.route(router.Query{Model: "m", Tokens: p})
			b.Release()
			if d := b.Decision(); d.Target != home || d.Overlap != 10 {
				t.Fatalf("%+v, want all of it on %v", d, home)
			}
		}
		time.Sleep(121 * time.Second) // virtual
		rows, err := h.router.Explain(t.Context(), &router.Query{Model: "m", Tokens: p})
		if err != nil || rows[0].Device+rows[1].Device != 0 {
			t.Errorf("after its time the prompt still counts: %+v (%v)", rows, err)
		}
		h.route(router.Query{Model: "m", Tokens: p}).Release()
		h.fleet.Remove(1)
		h.fleet.Remove(2)
		h.join(3, card(func(c *engine.Card) { c.Features = nil }))
		time.Sleep(121 * time.Second) // what the others had expires now
		h.route(router.Query{Model: "m"}).Release()
		if s := h.router.IndexStats(); s.Blocks != 0 || s.Nodes != 0 || s.BlockNotFound != 0 {
			t.Errorf("left behind: %+v", s)
		}
	})
}

func TestIgnoreEvents(t *testing.T) {
	tuning := router.DefaultTuning()
	tuning.IgnoreEvents = true
	h := newHouse(t, router.Config{Tuning: &tuning})
	defer h.fleet.Close()
	h.join(1, card())
	h.caches(1, 1, kv.TierDevice, count(0, 40))
	h.route(router.Query{Model: "m", Tokens: count(500, 40)}).Release()
	for from, want := range map[uint32]int{0: 0, 500: 10} {
		rows, err := h.router.Explain(t.Context(), &router.Query{Model: "m", Tokens: count(from, 40)})
		if err != nil || rows[0].Device != want {
			t.Errorf("prompt %d: %d blocks, want %d (%v)", from, rows[0].Device, want, err)
		}
	}
}

// A prompt counts as cached where it was just sent, before the worker tells so;
// but only for a while, and not beyond a loss. What lower tiers continue with
// counts only behind it.
func TestPredictedOnRoute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tuning := router.DefaultTuning()
		tuning.PredictedTTL = 5 * time.Second
		h := newHouse(t, router.Config{Tuning: &tuning})
		defer h.fleet.Close()
		h.join(1, card())
		p := count(0, 40)
		h.caches(1, 1, kv.TierDevice, p[:8])
		h.caches(1, 2, kv.TierHost, p[:24])
		cached := func(device, host int) {
			t.Helper()
			rows, err := h.router.Explain(t.Context(), &router.Query{Model: "m", Tokens: p})
			if err != nil || rows[0].Device != device || rows[0].Host != host {
				t.Errorf("%d blocks on the device and %d on the host, want %d and %d (%v)", rows[0].Device, rows[0].Host, device, host, err)
			}
		}
		cached(2, 4)
		h.route(router.Query{Model: "m", Tokens: p[:20]}).Release()
		cached(5, 1)
		h.route(router.Query{Model: "m", Tokens: p}).Release()
		cached(10, 0)
		if s := h.router.IndexStats(); s.Blocks != 6 {
			t.Errorf("the index of what workers tell holds %d blocks, want the 6 that it was told of", s.Blocks)
		}
		time.Sleep(5*time.Second + 100*time.Millisecond) // virtual
		cached(2, 4)
		h.route(router.Query{Model: "m", Tokens: p}).Release()
		h.engines[1].events <- kv.Batch{Epoch: 1, First: 3, Last: 3, Events: []kv.Event{{Kind: kv.Cleared}}}
		h.engines[1].events <- kv.Batch{Epoch: 1, Last: 3} // taken only when the one before is done
		cached(0, 0)
		h.route(router.Query{Model: "m", Tokens: p}).Release()
		cached(10, 0)
		h.fleet.Remove(1)
		h.join(1, card())
		cached(0, 0)
	})
}

// A new life of a worker starts with empty books and an empty cache; what ran in
// the old one is released without harm.
func TestNewLife(t *testing.T) {
	h := newHouse(t, router.Config{Seed: 1})
	defer h.fleet.Close()
	h.join(1, card())
	p := count(0, 40)
	h.caches(1, 1, kv.TierDevice, p)
	old := h.route(router.Query{Model: "m", Tokens: p})
	s := card()
	s.Epoch = 2
	h.become(1, s)
	if got, want := h.router.Loads(), []router.TargetLoad{{Target: kv.Target{Worker: 1}}}; !slices.Equal(got, want) {
		t.Errorf("the new life begins with %+v", got)
	}
	if rows, err := h.router.Explain(t.Context(), &router.Query{Model: "m", Tokens: p}); err != nil || rows[0].Requests != 0 || rows[0].DecodeBlocks != 10 {
		t.Errorf("the new life begins with %+v (%v)", rows, err)
	}
	b := h.route(router.Query{Model: "m", Tokens: p})
	if d := b.Decision(); d.Overlap != 0 {
		t.Errorf("the old life's cache counts: %+v", d)
	}
	want := h.router.Loads()
	if l := want[0]; l.Requests != 1 || l.PrefillTokens != 40 || l.ActiveBlocks != 10 {
		t.Errorf("the new life's first request is booked as %+v", l)
	}
	rows, err := h.router.Explain(t.Context(), &router.Query{Model: "m", Tokens: p})
	if err != nil || rows[0].Requests != 1 || rows[0].DecodeBlocks != 10 {
		t.Errorf("explained as %+v (%v)", rows, err)
	}
	old.Prefilled()
	old.Output(100)
	old.Release()
	if got := h.router.Loads(); !slices.Equal(got, want) {
		t.Errorf("the old life changed %+v to %+v", want, got)
	}
	h.fleet.Remove(1)
	b.Release()
	if n := len(h.router.Loads()); n != 0 {
		t.Errorf("%d loads of a worker that left", n)
	}
}

type policyFunc func(context.Context, *router.Query, []router.Candidate) (int, error)

func (f policyFunc) Pick(ctx context.Context, q *router.Query, c []router.Candidate) (int, error) {
	return f(ctx, q, c)
}

func TestPolicy(t *testing.T) {
	var answer int
	var failure error
	var h *house
	h = newHouse(t, router.Config{Policy: policyFunc(func(_ context.Context, _ *router.Query, c []router.Candidate) (int, error) {
		h.router.Loads() // no lock is held
		return answer, failure
	})})
	defer h.fleet.Close()
	h.join(1, card())
	h.join(2, card())
	for _, tc := range []struct {
		answer  int
		failure error
		want    engine.ErrorKind
	}{
		{1, nil, ""},
		{2, nil, engine.Internal},
		{-1, nil, engine.Internal},
		{0, errors.New("no opinion"), engine.Internal},
		{0, engine.Errorf(engine.ResourceExhausted, "budget"), engine.ResourceExhausted},
	} {
		answer, failure = tc.answer, tc.failure
		b, err := h.router.Route(context.Background(), &router.Query{Model: "m"})
		if tc.want == "" {
			if err != nil || b.Decision().Target.Worker != 2 {
				t.Errorf("%+v: %v", tc, err)
			}
			b.Release()
		} else if engine.KindOf(err) != tc.want {
			t.Errorf("%+v: %v", tc, err)
		}
	}
	for _, l := range h.router.Loads() {
		if l.Requests != 0 {
			t.Errorf("left behind: %+v", l)
		}
	}
}

// A worker that is removed while a policy thinks about it is not returned, and
// neither books nor index count on it afterwards.
func TestRemovedWhileRouting(t *testing.T) {
	var h *house
	var asked int
	h = newHouse(t, router.Config{Policy: policyFunc(func(_ context.Context, _ *router.Query, c []router.Candidate) (int, error) {
		asked++
		if c[0].Target.Worker == 1 {
			h.fleet.Remove(1)
		}
		return 0, nil
	})})
	defer h.fleet.Close()
	silent := card(func(c *engine.Card) { c.Features = nil })
	h.join(1, silent)
	if _, err := h.router.Route(t.Context(), &router.Query{Model: "m"}); engine.KindOf(err) != engine.NotFound || asked != 1 {
		t.Errorf("routed to nobody: %v, asked %d times", err, asked)
	}
	h.join(1, silent)
	h.join(2, silent)
	b := h.route(router.Query{Model: "m", Tokens: count(0, 40)})
	if w := b.Worker(); w.ID() != 2 || w.Lost().Err() != nil {
		t.Errorf("went to %d", w.ID())
	}
	b.Release()
	h.join(1, silent)
	if s := h.router.IndexStats(); s.Blocks != 10 || s.Targets != 1 {
		t.Errorf("the index credits the worker that came back: %+v", s)
	}
	if l := h.router.Loads(); len(l) != 2 || l[0].Requests+l[1].Requests != 0 {
		t.Errorf("the books hold %+v", l)
	}
	if c := h.router.Counters(); c.Decisions != 1 {
		t.Errorf("%+v", c)
	}
}

// Workers that are lost each time are given up in the end.
func TestAlwaysLostWhileRouting(t *testing.T) {
	var h *house
	h = newHouse(t, router.Config{Policy: policyFunc(func(context.Context, *router.Query, []router.Candidate) (int, error) {
		s := card()
		s.Epoch = h.fleet.Worker(1).Status().Epoch + 1
		h.become(1, s)
		return 0, nil
	})})
	defer h.fleet.Close()
	h.join(1, card())
	if _, err := h.router.Route(t.Context(), &router.Query{Model: "m"}); engine.KindOf(err) != engine.Unavailable {
		t.Errorf("got %v", err)
	}
	if c := h.router.Counters(); c.Decisions != 0 || c.Refused != 1 {
		t.Errorf("%+v", c)
	}
}

// Workers that come and go leave no page in the books.
func TestBooksForgetTheGone(t *testing.T) {
	h := newHouse(t, router.Config{})
	defer h.fleet.Close()
	for id := range uint64(20) {
		h.join(id+1, card())
		h.route(router.Query{Model: "m", Tokens: count(0, 40)}).Release()
		h.fleet.Remove(id + 1)
	}
	if n := h.router.BookedTargets(); n != 0 {
		t.Errorf("the books know %d targets of an empty fleet", n)
	}
}

// Everything at once; at the end nothing may be left in the books.
func TestConcurrentUse(t *testing.T) {
	tuning := router.DefaultTuning()
	tuning.TrackOutputBlocks = true
	h := newHouse(t, router.Config{Tuning: &tuning, Logger: slog.New(slog.DiscardHandler)})
	defer h.fleet.Close()
	for id := range uint64(3) {
		h.join(id+1, card())
	}
	var wg sync.WaitGroup
	for g := range uint32(4) {
		wg.Go(func() {
			for i := range uint32(200) {
				b, err := h.router.Route(context.Background(), &router.Query{Model: "m", Tokens: count(g%2*1000, int(8+i%40)), Expected: 20, Exclude: []uint64{4}})
				if err != nil {
					t.Error(err)
					return
				}
				b.Prefilled()
				b.Output(int(i % 13))
				h.router.Loads()
				wg.Go(b.Release)
				b.Release()
			}
		})
	}
	wg.Go(func() {
		for n := range uint64(50) {
			h.caches(1, n+1, kv.TierDevice, count(0, 4+4*int(n%8)))
		}
	})
	wg.Go(func() {
		for range 20 {
			h.fleet.Remove(3)
			if _, err := h.fleet.Add(fleet.Entry{Name: "again", ID: 3, Engine: &fake{}}); err != nil {
				t.Error(err)
			}
		}
	})
	wg.Wait()
	for _, l := range h.router.Loads() {
		if l.Requests != 0 || l.ActiveBlocks != 0 || l.PrefillTokens != 0 {
			t.Errorf("left behind: %+v", l)
		}
	}
}
