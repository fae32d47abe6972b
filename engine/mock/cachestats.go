package mock

import (
	"time"

	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/kvcache"
	"github.com/dynago/dynago/kvcache/carry"
)

// CacheStats says what a core's caches have done. Counters never decrease.
type CacheStats struct {
	Tiers [kv.TierShared + 1]TierStats
	// Admissions counts admitted requests, and AskedTokens the tokens that were looked
	// for then.
	Admissions, AskedTokens int64
	// LoadWait is for how long requests were parked until their blocks had come, all
	// together, and Parked how many times one was.
	LoadWait time.Duration
	Parked   int64
	// Recomputed counts tokens that were computed again after a preemption.
	Recomputed int64
	// Pulled counts blocks that came from engines that compute prompts for others.
	Pulled int64
	Pulls  PullStats
	// RetentionExpired counts how often priorities and pins of blocks came to the end of
	// their time, and SessionBlocks how many are tagged with sessions now, by the states of
	// these. Tiers that are shared are left out.
	RetentionExpired int64
	SessionBlocks    [kvcache.SessionClosing + 1]int
	// Pins counts requests for pins by what became of them.
	PinsGranted, PinsPartial, PinsDenied int64

	Loads    kvcache.LoadStats
	Prefetch kvcache.PrefetchStats
	// Ways are those between the tiers: what was written down and loaded up.
	Ways []kvcache.WayStats
	// Carried says what went wrong with bytes on these ways, in this life of the core.
	Carried carry.Counts
}

// TierStats says what one tier has done.
type TierStats struct {
	Blocks, Used, Stored int // its size, of that in use by someone, and of that findable
	Writing, Idle        int // of those in use the incomplete ones, and of those findable the unused ones
	// Shared says that other cores have the same tier, and tell of it as well.
	Shared bool
	// HitTokens counts tokens that requests found there when they were admitted:
	// each on the fastest tier that had it.
	HitTokens int64
	// Evictions counts evicted blocks by [kvcache.Class].
	Evictions [kvcache.HardPinned + 1]uint64
	// Pinned is how many blocks are pinned, and PinnedSeconds that number over time.
	Pinned        int64
	PinnedSeconds float64
	// SoftPins and HardPins are how many are pinned now, by the hardest of their pins.
	SoftPins, HardPins int
}

// CacheStats returns the present counts. Tiers that are shared are told by each core
// that shares them.
func (c *Core) CacheStats() CacheStats {
	s := c.stats
	for k := range s.Tiers {
		p := c.poolOf(kv.Tier(k))
		if p == nil {
			continue
		}
		t, n := &s.Tiers[k], p.Stats()
		t.Blocks, t.Used, t.Stored = n.Total, n.Used(), n.Primary+n.Inactive
		t.Writing, t.Idle = n.Mutable, n.Inactive
		t.Evictions = p.Evictions()
		t.SoftPins, t.HardPins = p.PinnedBlocks()
	}
	s.AskedTokens = c.queries
	if c.below != nil {
		if shared := c.below.shared; shared != nil {
			registry := c.below.registry
			s.Tiers[kv.TierDisk].Shared = shared.disk != nil && registry.Tier(kv.TierDisk) == shared.disk
			s.Tiers[kv.TierShared].Shared = shared.store != nil && registry.Tier(kv.TierShared) == shared.store
		}
		s.Loads, s.Prefetch, s.Ways = c.below.registry.LoadStats(), c.below.registry.PrefetchStats(), c.below.registry.Ways()
		if real, ok := c.below.carrier.(*carry.Carrier); ok {
			s.Carried = real.Counts()
		}
	}
	for k := range s.Tiers {
		if p := c.poolOf(kv.Tier(k)); p != nil && !s.Tiers[k].Shared {
			s.RetentionExpired += p.Expired()
			p.EachSession(func(_ kvcache.SessionID, state kvcache.SessionState, blocks int) { s.SessionBlocks[state] += blocks })
		}
	}
	return s
}

// poolOf returns the pool of a tier, or nil.
func (c *Core) poolOf(k kv.Tier) *kvcache.Pool {
	if k == kv.TierDevice {
		return c.pool
	}
	if c.below != nil {
		if t := c.below.registry.Tier(k); t != nil {
			return t.Pool()
		}
	}
	return nil
}

// countPins adds up what was pinned until now.
func (c *Core) countPins(now time.Duration) {
	seconds := max(0, now-c.counted).Seconds()
	c.counted = max(c.counted, now)
	for k := range c.stats.Tiers {
		p := c.poolOf(kv.Tier(k))
		if p == nil {
			continue
		}
		t := &c.stats.Tiers[k]
		t.PinnedSeconds += float64(t.Pinned) * seconds
		t.Pinned, _ = p.PinBudget()
	}
}
