package kvstore

import "context"

// Prefetched is what has become of values that were to be in memory before anybody
// asks for them. A pair is one value.
type Prefetched struct {
	Requested int
	Already   int // were in memory
	Loaded    int
	Failed    int   // could not be read, or have no place there that nobody needs more
	Missing   int   // are nowhere
	Bytes     int64 // of those that were loaded
}

// Prefetch reads values into memory, the first first, until ctx ends or they take
// half of what the namespace may have there. What lies in memory and is pinned, or
// was read just now, does not go for them, and to be read ahead is no use of a
// value.
func (t *Tenant) Prefetch(ctx context.Context, keys []string) Prefetched {
	p := Prefetched{Requested: len(keys)}
	for _, key := range keys {
		t.s.cache.prefetch(ctx, t.sp, key, &p)
	}
	return p
}

func (c *cache) prefetch(ctx context.Context, sp *space, key string, p *Prefetched) {
	c.begin()
	defer c.mu.Unlock()
	u, _ := sp.have(key)
	switch {
	case u == nil:
		p.Missing++
		c.counts.aheadMissing++
	case u.isIn(0):
		p.Already++
		c.counts.aheadAlready++
	case ctx.Err() != nil || p.Bytes >= sp.shelves[0].may/2:
		p.Failed++
		c.tiers[u.at[whole].first()].counts.aheadFailed++
	default:
		c.lift(ctx, u, p)
	}
}

// lift reads all of u into memory.
func (c *cache) lift(ctx context.Context, u *unit, p *Prefetched) {
	from := c.tiers[u.at[whole].first()]
	for _, part := range []part{whole, metadata} {
		if u.has[part] && !c.liftPart(ctx, u, part) {
			p.Failed++
			from.counts.aheadFailed++
			return
		}
	}
	p.Loaded++
	p.Bytes += u.size[whole] + u.size[metadata]
	from.counts.aheadLoaded++
	u.ahead = true
}

// liftPart reads a part of u into memory, and reports whether it lies there.
func (c *cache) liftPart(ctx context.Context, u *unit, p part) bool {
	for u.busy {
		c.idle.Wait()
	}
	if !u.has[p] || u.at[p].has(0) {
		return u.has[p]
	}
	tier, version := u.at[p].first(), u.version[p]
	v, err := c.raise(ctx, u, p, tier)
	if err != nil {
		c.missed(ctx, u, p, version, tier, err)
	}
	if v == nil {
		return false
	}
	v.Release()
	return true
}

// isIn says whether all of u lies in a tier.
func (u *unit) isIn(tier int) bool {
	return (!u.has[whole] || u.at[whole].has(tier)) && (!u.has[metadata] || u.at[metadata].has(tier))
}

// spent is told that u leaves memory: read ahead for nothing, if nobody has asked
// for it.
func (c *cache) spent(u *unit) {
	if u.ahead {
		u.ahead = false
		c.counts.wasted++
	}
}
