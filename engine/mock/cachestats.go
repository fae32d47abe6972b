package mock

import (
	"time"

	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/kvcache"
)

// CacheStats says what a core's caches have done. Counters never decrease.
type CacheStats struct {
	Tiers [kv.TierShared + 1]TierStats
	// LoadWait is for how long requests were parked until their blocks had come, all
	// together, and Parked how many times one was.
	LoadWait time.Duration
	Parked   int64
	// Recomputed counts tokens that were computed again after a preemption.
	Recomputed int64
	// Pins counts requests for pins by what became of them.
	PinsGranted, PinsPartial, PinsDenied int64

	Loads    kvcache.LoadStats
	Prefetch kvcache.PrefetchStats
	// Ways are those between the tiers: what was written down and loaded up.
	Ways []kvcache.WayStats
}

// TierStats says what one tier has done.
type TierStats struct {
	Blocks, Used, Stored int // its size, of that in use by someone, and of that findable
	// HitTokens counts tokens that requests found there when they were admitted:
	// each on the fastest tier that had it.
	HitTokens int64
	// Evictions counts evicted blocks by [kvcache.Class].
	Evictions [kvcache.HardPinned + 1]uint64
	// Pinned is how many blocks are pinned, and PinnedSeconds that number over time.
	Pinned        int64
	PinnedSeconds float64
}

// CacheStats returns the present counts.
func (c *Core) CacheStats() CacheStats {
	var s CacheStats
	d := &s.Tiers[kv.TierDevice]
	n := c.pool.Stats()
	d.Blocks, d.Used, d.Stored = n.Total, n.Used(), n.Primary+n.Inactive
	return s
}
