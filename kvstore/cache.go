package kvstore

import (
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

// cache holds the values of all namespaces, each in one tier or several.
//
// The lock covers what is known of the values, but not what drivers do. A unit
// that is written, or told to go, is busy: whoever wants to change it waits, and
// it is not evicted. All that may end in an eviction gives the lock away meanwhile.
type cache struct {
	tiers   []*tier
	later   places // the tiers that are told later
	log     *slog.Logger
	now     func() time.Time
	zero    time.Time
	lease   time.Duration
	changed func(Change)

	mu     sync.Mutex
	idle   sync.Cond // some unit is no longer busy, or a tier is
	named  []*space  // those of the options, in their order
	spaces []*space  // and those of earlier lives
	counts counts
	last   int64 // version that was given last
	couriers
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
	c := &cache{log: o.Log, now: o.Now, zero: o.Now(), lease: o.Lease, changed: o.Changed}
	c.idle.L = &c.mu
	for i, t := range append([]Tier{{Name: MemoryTier, Driver: o.Driver, PinBudget: o.PinBudget}}, o.Below...) {
		c.tiers = append(c.tiers, &tier{Tier: t})
		if t.Later {
			c.later = c.later.with(i)
		}
	}
	for _, n := range o.Namespaces {
		c.named = append(c.named, newSpace(n, c.tiers, o.HardPins))
	}
	c.spaces = slices.Clone(c.named)
	return c
}

// begin locks the cache and lets what is due by now happen.
func (c *cache) begin() (now time.Duration) {
	c.mu.Lock()
	now = c.now().Sub(c.zero)
	for i := 0; i < len(c.spaces); i++ {
		sp := c.spaces[i]
		sp.eachOrder(func(o *kvcache.Order) { o.Advance(now) })
		for u := sp.due(now); u != nil; u = sp.due(now) {
			c.counts.expired++
			c.expel(u)
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
	c.seize(u)
	defer c.let(u)
	if !c.fit(sp, more) {
		c.counts.denied++
		if fresh {
			sp.vacate(u)
		}
		return false, errQuota
	}
	sp.used += more
	v := content{bytes: value, version: c.nextVersion()}
	if on.ttl > 0 {
		v.expires = now + on.ttl
	}
	at, err := c.place(ctx, u, p, v)
	if at == 0 {
		c.failed(u, p, more, fresh)
		return false, err
	}
	c.counts.stored++
	if has {
		c.counts.replaced++
	}
	u.version[p], u.expires[p] = v.version, v.expires
	c.settle(u, p, size, at)
	if v.expires > 0 {
		sp.expire(u, v.expires)
	}
	c.remindAll(u, p)
	return true, nil
}

// failed puts things right after a part of u could not be written anywhere, and
// what was there before is gone.
func (c *cache) failed(u *unit, p part, more int64, fresh bool) {
	u.sp.used -= more
	switch {
	case fresh:
		u.sp.vacate(u)
	case p == whole:
		c.settle(u, whole, 0, 0)
		u.lost = true // let removes it
	case u.has[p]:
		c.settle(u, p, 0, 0)
	}
}

// nextVersion returns the version of what is put now.
func (c *cache) nextVersion() int64 {
	c.last = max(c.last+1, c.now().UnixNano())
	return c.last
}

// content is what is put.
type content struct {
	bytes   []byte
	version int64
	expires time.Duration // 0 = never
}

// place puts a value in all tiers that have it before its client is told, and
// returns those that do. The others have nothing of it any more.
func (c *cache) place(ctx context.Context, u *unit, p part, v content) (at places, err error) {
	tag := c.tag(u, p, v.version, v.expires)
	for i, t := range c.tiers {
		if t.Later {
			continue
		}
		failure := c.put(ctx, i, u.key(p), v.bytes, tag)
		if failure == nil {
			at = at.with(i)
			continue
		}
		t.counts.failed++
		if err = errors.Join(err, failure); u.at[p].has(i) {
			c.erase(u, [2]places{whole: only(i), metadata: only(i)}, []part{p})
		}
	}
	if at == 0 {
		if errors.Is(err, errFull) {
			c.counts.full++
			return 0, errFull
		}
		return 0, fmt.Errorf("ERR value not stored: %w", err)
	}
	return at, nil
}

// put gives value to a driver, which gets room as long as there is any to be had.
// The lock is not held meanwhile.
func (c *cache) put(ctx context.Context, tier int, key string, value, tag []byte) error {
	t := c.tiers[tier]
	for {
		c.mu.Unlock()
		err := t.Driver.Put(ctx, key, value, tag)
		c.mu.Lock()
		switch {
		case err == nil:
			t.counts.stored++
			return nil
		case !errors.Is(err, store.ErrFull):
			if !errors.Is(err, store.ErrTooLarge) || len(c.tiers) == 1 {
				c.log.Warn("value not stored", "tier", t.Name, "key", key, "bytes", len(value), "error", err)
			}
			return err
		}
		// To keep what somebody may ask for is worth less than to store what somebody
		// sends; but what is in a lower tier anyway is not worth a pin or a lease.
		if !c.makeRoom(tier, tier < len(c.tiers)-1) {
			return errFull
		}
	}
}

// use tells that u was asked for.
func (c *cache) use(u *unit, now time.Duration) {
	if c.lease > 0 {
		u.sp.leaseUntil(u, now+c.lease)
	}
	u.eachOrder(func(o *kvcache.Order) { o.Hit(0, u.ref) })
	if u.wished > 0 && now-u.wished >= retell {
		u.wished = now
		c.retellAll(u)
	}
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
	defer c.mu.Unlock()
	u, p := sp.have(key)
	if u != nil {
		c.use(u, now)
	}
	for tried := places(0); u != nil && u.at[p]&^tried != 0; u, p = sp.have(key) {
		tier := (u.at[p] &^ tried).first()
		tried = tried.with(tier)
		if v := c.fetch(ctx, u, p, tier); v != nil {
			c.counts.hits++
			c.tiers[tier].counts.hits++
			return v
		}
	}
	c.counts.misses++
	return nil
}

// fetch reads a part of u from a tier. What it no longer has, or no longer as it
// was, it has lost; what cannot be had just now is nil, too.
func (c *cache) fetch(ctx context.Context, u *unit, p part, tier int) *store.Value {
	t, id, version := c.tiers[tier], u.key(p), u.version[p]
	c.mu.Unlock()
	v, err := t.Driver.Get(ctx, id)
	lost := errors.Is(err, store.ErrCorrupt) || errors.Is(err, store.ErrNotFound)
	if err != nil && !lost && !t.Later {
		_, known := t.Driver.Stat(ctx, id)
		lost = errors.Is(known, store.ErrNotFound)
	}
	c.mu.Lock()
	switch {
	case err == nil:
		c.promote(ctx, u, p, version, tier, v)
		return v
	case errors.Is(err, store.ErrCorrupt):
		c.counts.corrupt++
		c.log.Warn("value dropped: it is not what was stored", "tier", t.Name, "key", u.name, "error", err)
	case !errors.Is(err, store.ErrNotFound):
		c.log.Warn("value not read", "tier", t.Name, "key", u.name, "error", err)
	}
	if lost && u.sp.units[u.ref] == u && !u.busy && u.version[p] == version && u.at[p].has(tier) {
		t.counts.lost++
		if p == whole && u.at[p] == only(tier) {
			c.expel(u)
		} else {
			c.withdraw(u, only(tier), p)
		}
	}
	return nil
}

// promote copies what was read from a tier into the faster ones, if nobody changes
// it meanwhile.
func (c *cache) promote(ctx context.Context, u *unit, p part, version int64, from int, v *store.Value) {
	for i, t := range c.tiers[:from] {
		if t.Later || u.sp.units[u.ref] != u || u.busy || u.version[p] != version || u.at[p].has(i) {
			continue
		}
		c.seize(u)
		if err := c.put(ctx, i, u.key(p), v.Bytes, c.tag(u, p, version, u.expires[p])); err == nil {
			c.settle(u, p, u.size[p], u.at[p].with(i))
		}
		c.let(u)
	}
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
			c.withdraw(u, u.at[p], metadata)
		default:
			c.expel(u)
		}
	}
	return n
}
