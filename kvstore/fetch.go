package kvstore

import (
	"context"
	"errors"
	"time"

	"github.com/dynago/dynago/kvcache/store"
)

// get returns what lies under key, to be released, or nil. Of many who want what
// comes up from a lower tier, one reads it and the others wait.
func (c *cache) get(ctx context.Context, sp *space, key string) *store.Value {
	now := c.begin()
	defer c.mu.Unlock()
	u, p := sp.have(key)
	if u != nil {
		c.use(u, now)
	}
	for tried := places(0); u != nil && u.at[p]&^tried != 0; u, p = sp.have(key) {
		if u.rising[p] {
			c.idle.Wait()
			continue
		}
		tier := (u.at[p] &^ tried).first()
		tried = tried.with(tier)
		if v := c.fetch(ctx, u, p, tier); v != nil {
			c.counts.hits++
			c.tiers[tier].counts.hits++
			c.well(c.tiers[tier])
			return v
		}
	}
	c.counts.misses++
	return nil
}

// fetch reads a part of u from a tier, and lets it be in the faster ones, too. What
// the tier no longer has, or no longer as it was, it has lost; what cannot be had
// just now is nil, too.
func (c *cache) fetch(ctx context.Context, u *unit, p part, tier int) *store.Value {
	t, id, version := c.tiers[tier], u.key(p), u.version[p]
	if tier > 0 && !u.busy {
		v, err := c.raise(ctx, u, p, tier)
		if v != nil {
			return v
		}
		if err != nil {
			c.missed(ctx, u, p, version, tier, err)
			return nil
		}
	}
	size := u.size[p]
	if tier > 0 && !c.aside(size) {
		c.counts.busy++
		return nil
	}
	c.mu.Unlock()
	begun := time.Now()
	v, err := t.Driver.Get(ctx, id)
	c.mu.Lock()
	if err == nil && tier > 0 {
		t.counts.up.add(size, begun)
		e, b, release := v.Entry, v.Bytes, v.Release
		return store.NewValue(e, b, func() {
			release()
			c.mu.Lock()
			defer c.mu.Unlock()
			c.beside -= size
		})
	}
	if tier > 0 {
		c.beside -= size
	}
	if err != nil {
		c.missed(ctx, u, p, version, tier, err)
		return nil
	}
	return v
}

// aside says whether there is memory for n more bytes of values that are sent from
// a lower tier while memory has no room for them, and takes it.
func (c *cache) aside(n int64) bool {
	if c.beside > 0 && c.beside+n > c.mostBeside {
		return false
	}
	c.beside += n
	return true
}

// raise reads a part of u, which is not busy, from a tier into memory, where it
// lies from then on. With neither a value nor an error there is no room for it.
// What comes from a tier that is told later is copied to those between.
func (c *cache) raise(ctx context.Context, u *unit, p part, tier int) (*store.Value, error) {
	memory, fills := c.tiers[0].Driver.(store.Filler)
	if !fills {
		return nil, nil
	}
	c.seize(u)
	u.rising[p] = true
	defer func() {
		u.rising[p] = false
		c.let(u)
	}()
	key, size := u.key(p), u.size[p]
	tag := c.tag(u, p, u.version[p], u.expires[p])
	for {
		var failure error
		c.mu.Unlock()
		begun := time.Now()
		v, err := memory.Fill(ctx, key, size, tag, func(b []byte) (sum uint64, err error) {
			sum, failure = c.load(ctx, tier, key, b)
			return sum, failure
		})
		c.mu.Lock()
		switch {
		case err == nil:
			c.tiers[0].counts.stored++
			c.tiers[tier].counts.up.add(size, begun)
			at := u.at[p].with(0)
			for i := 1; i < tier; i++ {
				if _, err := c.put(ctx, i, key, v.Bytes, tag, true); err == nil {
					at = at.with(i)
				}
			}
			c.settle(u, p, size, at)
			return v, nil
		case failure != nil:
			return nil, failure
		case !errors.Is(err, store.ErrFull) || !c.makeRoom(0, true):
			return nil, nil
		}
	}
}

// load reads what lies under key in a tier into b.
func (c *cache) load(ctx context.Context, tier int, key string, b []byte) (sum uint64, err error) {
	if l, ok := c.tiers[tier].Driver.(store.Loader); ok {
		return l.Load(ctx, key, b)
	}
	v, err := c.tiers[tier].Driver.Get(ctx, key)
	if err != nil {
		return 0, err
	}
	defer v.Release()
	if len(v.Bytes) != len(b) {
		return 0, store.ErrCorrupt
	}
	copy(b, v.Bytes)
	return store.Sum(b), nil
}

// reaches says whether a part of u can be had. Where it lies in a tier only that may
// be away, and was when it was asked last, that is asked.
func (c *cache) reaches(ctx context.Context, u *unit, p part) bool {
	tier := u.at[p].first()
	t, id, version := c.tiers[tier], u.key(p), u.version[p]
	if !t.Later || !t.ails {
		return true
	}
	c.mu.Unlock()
	_, err := t.Driver.Stat(ctx, id)
	c.mu.Lock()
	if err != nil {
		c.missed(ctx, u, p, version, tier, err)
		return false
	}
	c.well(t)
	return true
}

// missed is told why a part of u could not be read from a tier. What is lost there
// is forgotten, unless it is another value by now.
func (c *cache) missed(ctx context.Context, u *unit, p part, version int64, tier int, err error) {
	t := c.tiers[tier]
	lost := errors.Is(err, store.ErrCorrupt) || errors.Is(err, store.ErrNotFound) || errors.Is(err, store.ErrTooLarge)
	if !lost && !t.Later {
		// A driver that has failed to read says now whether it will be asked again.
		_, known := t.Driver.Stat(ctx, u.key(p))
		lost = errors.Is(known, store.ErrNotFound)
	}
	switch {
	case errors.Is(err, store.ErrCorrupt):
		c.counts.corrupt++
		c.log.Warn("value dropped: it is not what was stored", "tier", t.Name, "key", u.name, "error", err)
	case !lost:
		c.ails(t, err)
	}
	if !lost || u.sp.units[u.ref] != u || u.busy || u.version[p] != version || !u.at[p].has(tier) {
		return
	}
	t.counts.lost++
	if p == whole && u.at[whole] == only(tier) {
		c.expel(u)
	} else {
		c.withdraw(u, only(tier), p)
	}
}
