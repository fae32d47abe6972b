package kvstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/dynago/dynago/kvcache"
	"github.com/dynago/dynago/kvcache/store"
)

// Errors of values that are not stored. Their texts go to clients.
var (
	errFull  = errors.New("OOM there is no room, and nothing that may be evicted")
	errQuota = errors.New("OOM quota of the namespace is used up")
)

// cache holds the values of all namespaces over one driver.
//
// The lock covers what is known of the values, and what the driver forgets, but
// not the bytes that go into it and out of it. A unit that is written is busy:
// whoever wants to change it waits, and it is not evicted.
type cache struct {
	driver store.Driver
	log    *slog.Logger
	now    func() time.Time
	zero   time.Time
	lease  time.Duration

	mu     sync.Mutex
	idle   sync.Cond // some unit is no longer busy
	spaces []*space
	counts counts
}

// counts are of the server's life.
type counts struct {
	hits, misses     int64
	stored, evicted  int64
	replaced         int64 // of those stored
	expired, corrupt int64
	full, denied     int64
	evictedAs        [kvcache.HardPinned + 1]int64
	orphans          int64 // metadata that came after its bytes had gone
}

func newCache(o Options) *cache {
	c := &cache{driver: o.Driver, log: o.Log, now: o.Now, zero: o.Now(), lease: o.Lease}
	c.idle.L = &c.mu
	for _, n := range o.Namespaces {
		c.spaces = append(c.spaces, newSpace(n, o))
	}
	return c
}

// begin locks the cache and lets what is due by now happen.
func (c *cache) begin() (now time.Duration) {
	c.mu.Lock()
	now = c.now().Sub(c.zero)
	for _, sp := range c.spaces {
		sp.order.Advance(now)
		for u := sp.due(now); u != nil; u = sp.due(now) {
			c.counts.expired++
			c.remove(u)
		}
		sp.endLeases(now)
	}
	return now
}

// find returns the unit under name once nobody writes it, or nil.
func (c *cache) find(sp *space, name string) *unit {
	for {
		u := sp.names[name]
		if u == nil || !u.busy {
			return u
		}
		c.idle.Wait()
	}
}

// conditions are those of a SET.
type conditions struct {
	absent, present bool
	ttl             time.Duration // 0 = until it is evicted
}

// set stores value, unless the conditions fail.
func (c *cache) set(ctx context.Context, sp *space, key string, value []byte, on conditions) (stored bool, err error) {
	now := c.begin()
	defer c.mu.Unlock()
	name, p, paired := splitKey(key)
	u := c.find(sp, name)
	has := u != nil && u.has[p]
	if on.absent && has || on.present && !has {
		return false, nil
	}
	if p == metadata && u == nil {
		// Its bytes were evicted since they came. To tell of them would be a lie.
		c.counts.orphans++
		return true, nil
	}
	size := int64(len(value))
	fresh := u == nil
	if fresh {
		u = sp.insert(name, paired, size)
	}
	more := size - u.size[p]
	u.busy = true
	sp.order.Hold(u.ref)
	defer c.written(u)
	if !c.fit(sp, more) {
		c.counts.denied++
		if fresh {
			sp.vacate(u)
		}
		return false, errQuota
	}
	sp.used += more
	if err := c.put(ctx, u, p, value); err != nil {
		c.failed(u, p, more)
		return false, err
	}
	c.counts.stored++
	if has {
		c.counts.replaced++
	}
	if p == whole && !fresh && more != 0 {
		sp.resize(u, size, c.zero)
	}
	u.size[p] = size
	sp.admit(u, p, size)
	u.expires[p] = 0
	if on.ttl > 0 {
		u.expires[p] = now + on.ttl
		sp.expire(u, u.expires[p])
	}
	return true, nil
}

// fit evicts what a namespace has beyond its quota, with so much more.
func (c *cache) fit(sp *space, more int64) bool {
	for sp.Quota > 0 && more > 0 && sp.used+more > sp.Quota {
		if sp.Deny || more > sp.Quota || !c.evict(sp) {
			return false
		}
	}
	return true
}

// put gives value to the driver, which gets room as long as there is any to be
// had. The lock is not held meanwhile.
func (c *cache) put(ctx context.Context, u *unit, p part, value []byte) error {
	for {
		c.mu.Unlock()
		err := c.driver.Put(ctx, u.key(p), value, nil)
		c.mu.Lock()
		if !errors.Is(err, store.ErrFull) {
			if err != nil {
				c.log.Warn("value not stored", "key", u.name, "bytes", len(value), "error", err)
				return fmt.Errorf("ERR value not stored: %w", err)
			}
			return nil
		}
		if !c.makeRoom() {
			c.counts.full++
			return errFull
		}
	}
}

// makeRoom evicts a value of the namespace that has most of what it may have, or,
// if it holds all of them, of the one after it.
func (c *cache) makeRoom() bool {
	if len(c.spaces) == 1 {
		return c.evict(c.spaces[0])
	}
	richest := slices.Clone(c.spaces)
	slices.SortStableFunc(richest, func(a, b *space) int { return cmp.Compare(b.share(), a.share()) })
	return slices.ContainsFunc(richest, c.evict)
}

// failed puts things right after a part of u could not be written: its driver
// has what it had before, or nothing.
func (c *cache) failed(u *unit, p part, more int64) {
	u.sp.used -= more
	if u.has[p] {
		if e, err := c.driver.Stat(context.Background(), u.key(p)); err == nil && e.Size == u.size[p] {
			return
		}
	}
	if p == whole {
		u.lost = true // written removes it
		return
	}
	c.dropPart(u, metadata)
}

// written ends the writing of u.
func (c *cache) written(u *unit) {
	u.busy = false
	if u.sp.units[u.ref] == u {
		u.sp.order.Release(u.ref)
		if u.lost {
			c.remove(u)
		}
	}
	c.idle.Broadcast()
}

// evict removes the value of sp that is to go next. Where all are held it breaks
// the oldest lease: to keep what somebody may ask for is worth less than to store
// what somebody sends.
func (c *cache) evict(sp *space) bool {
	for {
		if r, ok := sp.order.Victim(); ok {
			c.counts.evicted++
			c.counts.evictedAs[sp.order.Class(r)]++
			c.remove(sp.units[r])
			return true
		}
		if !sp.breakLease() {
			return false
		}
	}
}

// remove forgets a unit that is not busy, metadata first.
func (c *cache) remove(u *unit) {
	u.endLease()
	for _, p := range []part{metadata, whole} {
		if u.has[p] {
			c.dropPart(u, p)
		}
	}
	u.sp.vacate(u)
}

// dropPart forgets one part of a unit.
func (c *cache) dropPart(u *unit, p part) {
	if err := c.driver.Delete(context.Background(), u.key(p)); err != nil {
		c.log.Warn("value not deleted", "key", u.name, "error", err)
	}
	u.sp.discharge(u, p)
}

// use tells that u was asked for.
func (c *cache) use(u *unit, now time.Duration) {
	if c.lease > 0 {
		u.sp.leaseUntil(u, now+c.lease)
	}
	u.sp.order.Hit(0, u.ref)
}

// have returns the unit that has what key names, or nil.
func (sp *space) have(key string) (*unit, part) {
	name, p, _ := splitKey(key)
	if u := sp.names[name]; u != nil && u.has[p] {
		return u, p
	}
	return nil, p
}

// get returns what lies under key, to be released, or nil.
func (c *cache) get(ctx context.Context, sp *space, key string) *store.Value {
	now := c.begin()
	u, p := sp.have(key)
	if u == nil {
		c.counts.misses++
		c.mu.Unlock()
		return nil
	}
	c.use(u, now)
	id := u.key(p)
	c.mu.Unlock()

	v, err := c.driver.Get(ctx, id)
	if err == nil {
		c.mu.Lock()
		c.counts.hits++
		c.mu.Unlock()
		return v
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counts.misses++
	if errors.Is(err, store.ErrCorrupt) {
		c.counts.corrupt++
		c.log.Warn("value dropped: it is not what was stored", "key", key, "error", err)
		if now, _ := sp.have(key); now == u && !u.busy {
			c.remove(u)
		}
	}
	return nil
}

// size returns the length of what lies under key.
func (c *cache) size(sp *space, key string) (n int64, ok bool) {
	now := c.begin()
	defer c.mu.Unlock()
	u, p := sp.have(key)
	if u == nil {
		return 0, false
	}
	c.use(u, now)
	return u.size[p], true
}

// del removes keys and returns how many of them there were. Without the bytes of
// a pair its metadata goes too.
func (c *cache) del(sp *space, keys []string) (n int) {
	c.begin()
	defer c.mu.Unlock()
	for _, key := range keys {
		if u, _ := sp.have(key); u != nil {
			n++
		}
	}
	for _, key := range keys {
		name, p, _ := splitKey(key)
		switch u := c.find(sp, name); {
		case u == nil || !u.has[p]:
		case p == metadata:
			c.dropPart(u, metadata)
		default:
			c.remove(u)
		}
	}
	return n
}
