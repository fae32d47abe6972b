package router_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/router"
)

// chain is the blocks of a prompt.
func chain(prompt []uint32) (blocks []kv.Block) {
	local := kv.AppendLocalHashes(nil, prompt, 4, kv.HashSeed)
	for i, seq := range kv.AppendSeqHashes(nil, local) {
		blocks = append(blocks, kv.Block{Engine: kv.EngineHash(seq), Local: local[i]})
	}
	return blocks
}

// below is the event that stores blocks of a chain, from number first on.
func below(tier kv.Tier, chain []kv.Block, first, n int) kv.Event {
	e := kv.Event{Tier: tier, Blocks: chain[first : first+n]}
	if first > 0 {
		e.Parent, e.HasParent = chain[first-1].Engine, true
	}
	return e
}

// Blocks of a store that come before those they continue count once these are there.
func TestStrays(t *testing.T) {
	h := newHouse(t, router.Config{})
	defer h.fleet.Close()
	h.join(1, card())
	h.join(2, card())
	p := count(1, 40)
	all := chain(p)
	h.tells(2, 1, below(kv.TierDevice, all, 0, 2)) // of another worker
	h.tells(1, 1, below(kv.TierShared, all, 6, 4), below(kv.TierShared, all, 3, 2))
	h.sees(p, 0, 2)
	h.tells(1, 3, below(kv.TierShared, all, 0, 3))
	h.sees(p, 5, 2)
	h.tells(1, 4, below(kv.TierHost, all, 5, 1))
	h.sees(p, 5, 2) // the host is not looked at below the store
	h.tells(1, 5, below(kv.TierShared, all, 5, 1))
	h.sees(p, 10, 2)
	// What has gone meanwhile does not come back, and nothing is left of who begins
	// anew.
	h.tells(2, 2, below(kv.TierShared, all, 4, 2), kv.Event{Kind: kv.Removed, Tier: kv.TierShared, Blocks: all[5:6]}, below(kv.TierShared, all, 2, 2))
	h.sees(p, 10, 5)
	h.tells(2, 5, kv.Event{Kind: kv.Cleared}, below(kv.TierShared, all, 4, 2), kv.Event{Kind: kv.Cleared}, below(kv.TierShared, all, 0, 4))
	h.sees(p, 10, 4)
}

// What waited before a gap is forgotten with all else that the rank had told, and does
// not come back with the block that it continued.
func TestStrays_EndWithAGap(t *testing.T) {
	for _, gap := range []kv.GapReason{kv.GapLost, kv.GapOverflow, kv.GapRestart} {
		h := newHouse(t, router.Config{})
		h.join(1, card())
		h.join(2, card())
		p := count(1, 40)
		all := chain(p)
		for id := range h.engines {
			h.tells(id, 1, below(kv.TierShared, all, 3, 2))
		}
		h.engines[1].events <- kv.Batch{Epoch: 1, Last: 1, Gap: gap}
		for id := range h.engines {
			h.tells(id, 2, below(kv.TierShared, all, 0, 3))
		}
		h.sees(p, 3, 5) // the other has lost nothing
		h.fleet.Close()
	}
}

// A rank that tells of no end of blocks without those before them has so many wait,
// and no more. That takes nothing from others.
func TestStrays_AreBounded(t *testing.T) {
	h := newHouse(t, router.Config{})
	defer h.fleet.Close()
	h.join(1, card())
	h.join(2, card())
	p := count(1, 40)
	all := chain(p)
	flood := kv.Event{Tier: kv.TierShared, Parent: 1, HasParent: true}
	for i := range router.MostStrays - 1 {
		flood.Blocks = append(flood.Blocks, kv.Block{Engine: kv.EngineHash(i + 2), Local: kv.LocalHash(i)})
	}
	h.tells(1, 1, flood, below(kv.TierShared, all, 3, 2), below(kv.TierShared, all, 6, 1))
	h.tells(2, 1, below(kv.TierShared, all, 3, 2))
	h.tells(1, 4, below(kv.TierShared, all, 0, 3))
	h.tells(2, 2, below(kv.TierShared, all, 0, 3))
	h.sees(p, 4, 5) // of the two, one found the last place
	// The place that it left is free again.
	h.tells(1, 5, below(kv.TierShared, all, 5, 1), below(kv.TierShared, all, 4, 1))
	h.sees(p, 6, 5)
}

// What a rank tells of one parent alone costs no more than as many parents would, to
// remember as well as to forget: here 65,536 twice, where siblings that are all looked at
// would take minutes.
func TestStrays_OfOneParent(t *testing.T) {
	h := newHouse(t, router.Config{})
	defer h.fleet.Close()
	h.join(1, card())
	p := count(1, 40)
	all := chain(p)
	var stored []kv.Event
	gone := kv.Event{Kind: kv.Removed, Tier: kv.TierShared}
	for i := range router.MostStrays {
		b := kv.Block{Engine: kv.EngineHash(i + 2), Local: kv.LocalHash(i)}
		stored = append(stored, kv.Event{Tier: kv.TierShared, Parent: 1, HasParent: true, Blocks: []kv.Block{b}})
		gone.Blocks = append(gone.Blocks, b)
	}
	h.tells(1, 1, stored...)
	h.tells(1, uint64(1+len(stored)), gone, below(kv.TierShared, all, 3, 2), below(kv.TierShared, all, 0, 3))
	h.sees(p, 5)
}

// sees compares how many blocks of a prompt the workers are taken to have, on any
// tier.
func (h *house) sees(p []uint32, want ...int) {
	h.t.Helper()
	rows, err := h.router.Explain(h.t.Context(), &router.Query{Model: "m", Tokens: p})
	if err != nil {
		h.t.Fatal(err)
	}
	for i, r := range rows {
		if got := r.Device + r.Host + r.Disk; got != want[i] {
			h.t.Errorf("worker %d has %d blocks, want %d", i+1, got, want[i])
		}
	}
}

// Whatever order blocks come and go in, what is there from the root on counts, by its
// tier.
func TestStraysInAnyOrder(t *testing.T) {
	outer := t
	rapid.Check(t, func(t *rapid.T) {
		h := newHouse(outer, router.Config{})
		defer h.fleet.Close()
		h.join(1, card())
		// Two prompts with a common beginning.
		prompts := [][]uint32{count(1, 32), append(count(1, 12), count(900, 20)...)}
		chains := [][]kv.Block{chain(prompts[0]), chain(prompts[1])}
		held := map[kv.EngineHash]*[4]bool{}
		on := func(b kv.Block) *[4]bool {
			if held[b.Engine] == nil {
				held[b.Engine] = &[4]bool{}
			}
			return held[b.Engine]
		}
		n := uint64(1)
		for range rapid.IntRange(1, 40).Draw(t, "events") {
			c := rapid.SampledFrom(chains).Draw(t, "chain")
			tier := kv.Tier(rapid.IntRange(1, 3).Draw(t, "tier"))
			first := rapid.IntRange(0, len(c)-1).Draw(t, "first")
			last := min(first+rapid.IntRange(1, 3).Draw(t, "blocks"), len(c))
			e := below(tier, c, first, last-first)
			if rapid.IntRange(0, 2).Draw(t, "removed") == 0 {
				e = kv.Event{Kind: kv.Removed, Tier: tier, Blocks: e.Blocks}
			}
			for _, b := range e.Blocks {
				on(b)[tier] = e.Kind == kv.Stored
			}
			h.tells(1, n, e)
			n++
		}
		for i, p := range prompts {
			var want [3]int
			at := 0
			for tier := range 4 {
				for at < len(chains[i]) && on(chains[i][at])[tier] {
					want[min(tier, 2)]++
					at++
				}
			}
			rows, err := h.router.Explain(outer.Context(), &router.Query{Model: "m", Tokens: p})
			if err != nil {
				t.Fatal(err)
			}
			if got := [3]int{rows[0].Device, rows[0].Host, rows[0].Disk}; got != want {
				t.Fatalf("of prompt %d there are %d blocks, by tier, want %d", i, got, want)
			}
		}
	})
}

// A store that many share may hold any number of times what one worker does.
func TestFeed_StoresAreLarge(t *testing.T) {
	h := newHouse(t, router.Config{})
	defer h.fleet.Close()
	h.join(1, card(func(c *engine.Card) { c.TotalBlocks = 400 })) // 6,400 with lower tiers of its own
	events := stored(0, 20_000)
	for i := range events {
		events[i].Tier = kv.TierShared
	}
	h.tells(1, 1, events...)
	if got := h.router.IndexStats().Blocks; got != 20_000 {
		t.Errorf("the router knows of %d blocks, want the 20,000 of the store", got)
	}
	for i := range events {
		events[i].Tier = kv.TierDisk
	}
	h.tells(1, 1+uint64(len(events)), events...)
	if got := h.router.IndexStats().Blocks; got != 0 {
		t.Errorf("the router knows of %d blocks, and believes a worker with a disk of 20,000", got)
	}
}
