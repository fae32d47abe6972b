package mock

import (
	"time"

	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/kvcache"
)

// What is asked of a core's cache besides requests. Time is that of the call; a
// core whose last pass ends later takes it for that of the pass's beginning.

// at tells the time to the cache.
func (c *Core) at(now time.Duration) time.Duration {
	c.asked = true
	c.start = max(c.start, now)
	c.advance(c.start)
	return c.start
}

// Hashes returns the names of the whole blocks of a prompt.
func (c *Core) Hashes(prompt []uint32, ns kv.Namespace) []kv.SeqHash {
	return kv.AppendSeqHashes(nil, kv.AppendLocalHashes(nil, prompt, c.args.BlockSize, ns.Seed()))
}

// Pin keeps the longest prefix of a sequence that is there, on each tier as far as
// its budget goes. The result is that of the tier with most of them. A TTL of 0
// takes the owner's pins away.
func (c *Core) Pin(now time.Duration, hashes []kv.SeqHash, pin kvcache.Pin) kvcache.PinResult {
	c.at(now)
	return c.pin(hashes, pin)
}

// Retain sets the retention of blocks on all tiers, and returns how many of them
// are on any.
func (c *Core) Retain(now time.Duration, hashes []kv.SeqHash, r kvcache.Retention) (set int) {
	c.at(now)
	for _, h := range hashes {
		one := []kv.SeqHash{h}
		n := c.pool.SetRetention(one, r)
		if c.below != nil {
			for _, t := range c.below.lower {
				n += t.Pool().SetRetention(one, r)
			}
		}
		set += min(n, 1)
	}
	return set
}

// OpenSession begins a session, or gives one that is known another timeout.
func (c *Core) OpenSession(now time.Duration, id kvcache.SessionID, o kvcache.SessionOptions) (known bool) {
	c.at(now)
	return c.pool.OpenSession(id, o)
}

// CloseSession ends a session on all tiers, now or with its last request, and its
// pins.
func (c *Core) CloseSession(now time.Duration, id kvcache.SessionID) kvcache.SessionState {
	c.at(now)
	return c.closeSession(id)
}

func (c *Core) closeSession(id kvcache.SessionID) kvcache.SessionState {
	if c.below == nil {
		return c.pool.CloseSession(id)
	}
	return c.below.registry.CloseSession(c.start, id)
}

// Prefetch begins to bring blocks up. Where there are no lower tiers all that is
// not on the device is missing.
func (c *Core) Prefetch(now time.Duration, q kvcache.PrefetchRequest) kvcache.Prefetch {
	now = c.at(now)
	if c.below == nil {
		n, _ := c.pool.Prefix(q.Hashes)
		return kvcache.Prefetch{State: kvcache.PrefetchDone, Requested: len(q.Hashes), Already: n, Missing: len(q.Hashes) - n}
	}
	return c.below.registry.Prefetch(now, q)
}

// Prefetched says how far a prefetch has come by now.
func (c *Core) Prefetched(now time.Duration, id kvcache.PrefetchID) (kvcache.Prefetch, bool) {
	if c.at(now); c.below == nil {
		return kvcache.Prefetch{}, false
	}
	return c.below.registry.Prefetched(id)
}

// CancelPrefetch ends a prefetch, and says whether it was running.
func (c *Core) CancelPrefetch(now time.Duration, id kvcache.PrefetchID) bool {
	if now = c.at(now); c.below == nil {
		return false
	}
	return c.below.registry.CancelPrefetch(now, id)
}
