package router_test

import (
	"slices"
	"testing"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/router"
)

// clears makes a worker tell that its cache is empty.
func (h *house) clears(id, n uint64) { h.tells(id, n, kv.Event{Kind: kv.Cleared}) }

// A worker that empties its cache and tells of it has what it has stored since, however
// late its answer comes.
func TestWipedInOrder(t *testing.T) {
	h := newHouse(t, router.Config{})
	defer h.fleet.Close()
	h.join(1, card())
	h.join(2, card())
	old, fresh := count(0, 40), count(100, 20)
	h.caches(1, 1, kv.TierDevice, old)
	h.caches(2, 1, kv.TierDevice, old)
	wiped := h.router.Wiping(1)
	h.clears(1, 2)
	h.caches(1, 3, kv.TierDevice, fresh)
	wiped(true)
	if a, b := h.devices(old), h.devices(fresh); !slices.Equal(a, []int{0, 10}) || !slices.Equal(b, []int{5, 0}) {
		t.Errorf("cached are %v blocks of before, %v since", a, b)
	}
	// What the next one tells is of the next time.
	h.caches(1, 4, kv.TierDevice, old)
	h.router.Wiping(1)(true)
	if a, b := h.devices(old), h.devices(fresh); !slices.Equal(a, []int{0, 10}) || !slices.Equal(b, []int{0, 0}) {
		t.Errorf("the second time: %v, %v", a, b)
	}
}

// One that tells of it only with what it stores next, or never, counts as empty from its
// answer on, and is believed about what it tells then.
func TestWipedInSilence(t *testing.T) {
	for name, tells := range map[string]bool{"late": true, "never": false} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t, router.Config{})
			defer h.fleet.Close()
			h.join(1, card())
			old, fresh := count(0, 40), count(100, 20)
			h.caches(1, 1, kv.TierDevice, old)
			h.router.Wiping(1)(true)
			if got := h.devices(old); got[0] != 0 {
				t.Errorf("%d blocks are believed to be there", got[0])
			}
			n := uint64(2)
			if tells {
				h.clears(1, n)
				n++
			}
			h.caches(1, n, kv.TierDevice, fresh)
			if a, b := h.devices(old), h.devices(fresh); a[0] != 0 || b[0] != 5 {
				t.Errorf("%d blocks of before, and %d since", a[0], b[0])
			}
		})
	}
}

// A worker that refuses, and one that is not there, change nothing.
func TestWipedInVain(t *testing.T) {
	h := newHouse(t, router.Config{})
	defer h.fleet.Close()
	h.join(1, card())
	p := count(0, 40)
	h.caches(1, 1, kv.TierDevice, p)
	h.router.Wiping(1)(false)
	h.router.Wiping(9)(true)
	if got := h.devices(p); got[0] != 10 {
		t.Errorf("cached are %d blocks", got[0])
	}
}

// Of a worker that tells no events nothing counts any more that was routed there.
func TestWipedWithoutEvents(t *testing.T) {
	h := newHouse(t, router.Config{})
	defer h.fleet.Close()
	h.join(1, card(func(c *engine.Card) { c.Features = nil }))
	p := count(0, 40)
	h.route(router.Query{Model: "m", Tokens: p}).Release()
	if got := h.devices(p); got[0] != 10 {
		t.Fatalf("%d blocks count that were routed there", got[0])
	}
	h.router.Wiping(1)(true)
	if got := h.devices(p); got[0] != 0 {
		t.Errorf("%d blocks count after all was forgotten", got[0])
	}
	h.route(router.Query{Model: "m", Tokens: p}).Release()
	if got := h.devices(p); got[0] != 10 {
		t.Errorf("%d blocks count that were routed there since", got[0])
	}
}

// What other workers tell is no word of this one, and a gap is as good as a word.
func TestWipedByWhom(t *testing.T) {
	h := newHouse(t, router.Config{})
	defer h.fleet.Close()
	h.join(1, card())
	h.join(2, card())
	old, fresh := count(0, 40), count(100, 20)
	h.caches(1, 1, kv.TierDevice, old)
	one, two := h.router.Wiping(1), h.router.Wiping(2)
	h.clears(2, 1)
	h.caches(2, 2, kv.TierDevice, fresh)
	one(true)
	two(true)
	if a, b := h.devices(old), h.devices(fresh); !slices.Equal(a, []int{0, 0}) || !slices.Equal(b, []int{0, 5}) {
		t.Errorf("cached are %v, %v blocks", a, b)
	}
	wiped := h.router.Wiping(1)
	h.engines[1].events <- kv.Batch{Epoch: 1, Gap: kv.GapLost}
	h.caches(1, 1, kv.TierDevice, fresh)
	wiped(true)
	if got := h.devices(fresh); !slices.Equal(got, []int{5, 5}) {
		t.Errorf("behind a gap: %v blocks", got)
	}
}

// What was concluded from what was routed there is void as well: of workers of whose
// caches something is lacking, of what will be told soon, and in all that is counted.
func TestWipedConclusions(t *testing.T) {
	tuning := router.DefaultTuning()
	tuning.PredictedTTL = time.Minute
	h := newHouse(t, router.Config{Tuning: &tuning})
	defer h.fleet.Close()
	h.join(1, card())
	p, q := count(0, 40), count(100, 40)
	runs := func(prompt []uint32) {
		t.Helper()
		b := h.route(router.Query{Model: "m", Tokens: prompt})
		b.Prefilled()
		b.Cached(0)
		b.Completed()
		b.Release()
	}
	runs(p) // it will tell of it
	if got := h.devices(p); got[0] != 10 {
		t.Fatalf("%d blocks are predicted", got[0])
	}
	h.router.Wiping(1)(true)
	if got := h.devices(p); got[0] != 0 {
		t.Errorf("%d blocks are predicted behind that", got[0])
	}

	tuning.PredictedTTL = 0
	h = newHouse(t, router.Config{Tuning: &tuning})
	defer h.fleet.Close()
	h.join(1, card())
	runs(p)
	if got := h.devices(p); got[0] != 0 {
		t.Fatalf("%d blocks count of one that is heard", got[0])
	}
	h.router.Wiping(1)(true)
	runs(p)
	runs(q)
	if a, b := h.devices(p), h.devices(q); a[0] == 0 || b[0] == 0 {
		t.Errorf("%d and %d blocks count of one that may have told too early", a[0], b[0])
	}
	h.router.Wiping(1)(true)
	if a, b := h.devices(p), h.devices(q); a[0]+b[0] != 0 {
		t.Errorf("%d and %d blocks count the second time", a[0], b[0])
	}

	h = newHouse(t, router.Config{})
	defer h.fleet.Close()
	h.join(1, card(func(c *engine.Card) { c.Features, c.TotalBlocks = nil, 20 }))
	runs(p)
	h.router.Wiping(1)(true)
	for n := range uint32(3) {
		runs(count(1000*n, 40))
	}
	if s := h.router.IndexStats(); s.BlockNotFound != 0 || s.Blocks != 20 {
		t.Errorf("%+v, want the 20 blocks that there is room for, and none taken out that is not there", s)
	}
}
