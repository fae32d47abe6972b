package router_test

import (
	"math"
	"slices"
	"testing"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/router"
)

func eagle(c *engine.Card) { c.HashScheme = engine.SchemeXXH3Eagle }

// cachesAs is caches for a worker of another pool.
func (h *house) cachesAs(id, n uint64, s kv.Scheme, p []uint32) {
	h.t.Helper()
	local := s.AppendLocal(nil, p)
	var e kv.Event
	for i, seq := range s.AppendSeq(nil, local) {
		e.Blocks = append(e.Blocks, kv.Block{Engine: kv.EngineHash(seq), Local: local[i]})
	}
	h.tells(id, n, e)
}

// Workers with Eagle name their blocks by windows of one token more, so that the
// last block of a prompt is none unless a token follows.
func TestEagle(t *testing.T) {
	h := newHouse(t, router.Config{})
	defer h.fleet.Close()
	h.join(1, card(eagle))
	h.join(2, card())
	h.join(3, card(eagle))
	p := count(0, 40)
	windows := kv.Scheme{BlockSize: 4, Eagle: true, Seed: kv.HashSeed, Chain: kv.HashSeed}
	h.cachesAs(1, 1, windows, p)
	h.caches(2, 1, kv.TierDevice, p)
	h.cachesAs(3, 1, windows, p[:17])
	for _, tc := range []struct {
		tokens int
		want   []int
	}{{40, []int{9, 10, 4}}, {37, []int{9, 9, 4}}, {36, []int{8, 9, 4}}, {5, []int{1, 1, 1}}, {4, []int{0, 1, 0}}, {0, []int{0, 0, 0}}} {
		if got := h.devices(p[:tc.tokens]); !slices.Equal(got, tc.want) {
			t.Errorf("%d tokens: cached are %v blocks, want %v", tc.tokens, got, tc.want)
		}
	}
	// A long prompt comes from memory.
	long := count(50_000, kv.MemoTokens+1)
	for _, id := range []uint64{1, 2} {
		h.fleet.Worker(id) // both pools cut the same prompt
	}
	h.cachesAs(1, 2, windows, long)
	for range 2 {
		if got := h.devices(long); !slices.Equal(got, []int{kv.MemoTokens / 4, 0, 0}) {
			t.Errorf("cached are %v blocks of a long prompt", got)
		}
	}
	// In the books the pools have nothing in common.
	for _, id := range []uint64{1, 2} {
		defer h.route(router.Query{Model: "m", PinWorker: id, Tokens: p}).Release()
	}
	rows, err := h.router.Explain(t.Context(), &router.Query{Model: "m", Tokens: p})
	if err != nil || rows[0].DecodeBlocks != 9 || rows[1].DecodeBlocks != 10 || rows[2].DecodeBlocks != 9 {
		t.Errorf("%+v, %v; want 9, 10 and 9 blocks", rows, err)
	}
}

// Of pools with blocks of different size the cheapest worker wins by tokens, and
// equal ones share.
func TestPoolsCompareByTokens(t *testing.T) {
	h := newHouse(t, router.Config{Seed: 3})
	defer h.fleet.Close()
	for id, size := range []uint32{4, 4, 8, 16} {
		h.join(uint64(id+1), card(func(c *engine.Card) { c.BlockSize = size }))
	}
	p := count(0, 64)
	seen := make([]float64, 4)
	const n = 4000
	for range n {
		b := h.route(router.Query{Model: "m", Tokens: p})
		seen[b.Decision().Target.Worker-1]++
		b.Release()
	}
	for i := range seen {
		if math.Abs(seen[i]/n-0.25) > 0.03 {
			t.Errorf("equal workers were picked %v times", seen)
			break
		}
	}
	// Two cached blocks of 16 tokens save more than five of four.
	h.cachesAs(1, 1, kv.PublicScheme(4, kv.Namespace{}), p[:20])
	h.cachesAs(4, 1, kv.PublicScheme(16, kv.Namespace{}), p[:32])
	for range 20 {
		b := h.route(router.Query{Model: "m", Tokens: p})
		b.Release()
		if d := b.Decision(); d.Target.Worker != 4 || d.CachedTokens != 32 {
			t.Fatalf("%+v", d)
		}
	}
	if c := h.router.Counters(); c.NonMaxOverlap != 0 {
		t.Errorf("%+v", c)
	}
	// What is left behind counts in the blocks of the chosen one.
	h.route(router.Query{Model: "m", Tokens: p, PinWorker: 1}).Release()
	b := h.route(router.Query{Model: "m", Tokens: p, Exclude: []uint64{4, 2}})
	b.Release()
	if b.Decision().Target.Worker != 1 {
		t.Fatalf("%+v", b.Decision())
	}
	load := h.route(router.Query{Model: "m", PinWorker: 4, Tokens: count(5000, 2000)})
	defer load.Release()
	b = h.route(router.Query{Model: "m", Tokens: p})
	b.Release()
	if d := b.Decision(); d.Target.Worker != 1 {
		t.Fatalf("%+v", d)
	}
	if c := h.router.Counters(); c.NonMaxOverlap != 1 || c.OverlapBlocksLost != 3 {
		t.Errorf("%+v, want 12 tokens in 3 blocks of four", c)
	}
}

// With a key, the books count as they do without, by names that nobody can make
// who does not have it; the index does not change.
func TestTrackingKey(t *testing.T) {
	key, err := kv.NewTrackingKey(slices.Repeat([]byte{'A'}, 32), "2026-01")
	if err != nil {
		t.Fatal(err)
	}
	h := newHouse(t, router.Config{Tracking: &key})
	defer h.fleet.Close()
	h.join(1, card())
	h.join(2, card(eagle))
	h.join(3, card(func(c *engine.Card) { c.Model, c.Aliases = "other", nil }))
	p := count(0, 42)
	h.caches(1, 1, kv.TierDevice, p)
	check := func(id uint64, q router.Query, want kv.Scheme) {
		t.Helper()
		q.PinWorker, q.Tokens = id, p
		var open []*router.Booking
		for range 2 {
			open = append(open, h.route(q))
		}
		names := want.AppendSeq(nil, want.AppendLocal(nil, p))
		if got := h.router.BookedBlocks(); !slices.Equal(got, names) {
			t.Errorf("worker %d, %+v: booked as %v, want %v", id, q.Namespace, got, names)
		}
		for _, b := range open {
			b.Release()
		}
	}
	tenant := kv.Namespace{Salt: "tenant"}
	check(1, router.Query{Model: "m"}, key.Scheme("m", "default", 4, kv.Namespace{}, false))
	check(1, router.Query{Model: "alias"}, key.Scheme("m", "default", 4, kv.Namespace{}, false))
	check(1, router.Query{Model: "m", Namespace: tenant}, key.Scheme("m", "default", 4, tenant, false))
	check(2, router.Query{Model: "m"}, key.Scheme("m", "default", 4, kv.Namespace{}, true))
	check(3, router.Query{Model: "other"}, key.Scheme("other", "default", 4, kv.Namespace{}, false))
	if got := h.devices(p); !slices.Equal(got, []int{10, 0}) {
		t.Errorf("cached are %v blocks", got)
	}
	defer h.route(router.Query{Model: "m", PinWorker: 1, Tokens: p}).Release()
	rows, err := h.router.Explain(t.Context(), &router.Query{Model: "m", Tokens: p[:22]})
	if err != nil || rows[0].DecodeBlocks != 10 {
		t.Errorf("%+v, %v: the prompts share nothing in the books", rows, err)
	}
	no := false
	defer h.route(router.Query{Model: "m", PinWorker: 1, Tokens: p, Overrides: &router.Overrides{AssumeKVReuse: &no}}).Release()
	if l := h.router.Loads()[0]; l.ActiveBlocks != 20 {
		t.Errorf("%d blocks in use without sharing, want 20", l.ActiveBlocks)
	}
}
