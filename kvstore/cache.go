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
	tiers      []*tier
	lastSync   int // the last one that is not told later
	log        *slog.Logger
	now        func() time.Time
	zero       time.Time
	lease      time.Duration
	mostValues int
	changed    func(Change)

	mu     sync.Mutex
	idle   sync.Cond // some unit is no longer busy, or a tier has been told all
	named  []*space  // those of the options, in their order
	spaces []*space  // and those of earlier lives
	counts counts
	last   int64 // version that was given last
	// beside is how many bytes of values are sent, from lower tiers, that do not lie
	// in memory, and mostBeside what that may come to.
	beside, mostBeside int64
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
	busy             int64 // values that were there, but memory to send them was not
	// Of what was to be read ahead: values that were in memory, that were nowhere,
	// and that left memory before anybody asked for them.
	aheadAlready, aheadMissing, wasted int64
}

func newCache(o Options) *cache {
	c := &cache{log: o.Log, now: o.Now, zero: o.Now(), lease: o.Lease, mostValues: o.MaxValues, changed: o.Changed, mostBeside: o.MaxPending}
	c.idle.L = &c.mu
	for i, t := range append([]Tier{{Name: MemoryTier, Driver: o.Driver, PinBudget: o.PinBudget}}, o.Below...) {
		c.tiers = append(c.tiers, &tier{Tier: t})
		if !t.Later {
			c.lastSync = i
		}
	}
	for _, n := range o.Namespaces {
		c.named = append(c.named, c.newSpace(n, o.HardPins))
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
func (c *cache) set(ctx context.Context, sp *space, key string, v content, on conditions) (stored bool, err error) {
	now := c.begin()
	defer c.mu.Unlock()
	name, p, paired := splitKey(key)
	if sp.names[name] == nil && p == whole && !on.present {
		c.makeWay()
	}
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
	size := int64(len(v.bytes))
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
	u.ahead = false
	v.version = c.nextVersion()
	if on.ttl > 0 {
		v.expires = now + on.ttl
	}
	at, barred, err := c.place(ctx, u, p, v)
	if at == 0 {
		c.failed(u, p, more, fresh)
		return false, err
	}
	c.counts.stored++
	if has {
		c.counts.replaced++
	}
	u.version[p], u.expires[p] = v.version, v.expires
	if p == whole {
		u.barred = barred
	}
	c.settle(u, p, size, at)
	if v.expires > 0 {
		sp.expire(u, v.expires)
	}
	c.remindAll(u)
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
	lies    string // under which key the bytes are in memory already; "" = they are not
	version int64
	expires time.Duration // 0 = never
}

// place puts a value in all tiers that have it before its client is told, and
// returns those that do, and those that never can. The others have nothing of it
// any more.
func (c *cache) place(ctx context.Context, u *unit, p part, v content) (at, barred places, err error) {
	key, tag := u.key(p), c.tag(u, p, v.version, v.expires)
	from, ephemeral := v.bytes, c.ephemeral(u)
	for i, t := range c.tiers {
		if t.Later {
			continue
		}
		if i > 0 && ephemeral && at != 0 {
			// It is not worth more.
			if u.at[p].has(i) {
				c.erase(u, [2]places{whole: only(i), metadata: only(i)}, []part{p})
			}
			continue
		}
		// What lies in a lower tier as well is not worth a pin or a lease.
		var kept *store.Value
		failure := errors.ErrUnsupported
		if i == 0 && v.lies != "" {
			kept, failure = c.move(ctx, v.lies, key, tag)
		}
		if failure != nil {
			kept, failure = c.put(ctx, i, key, from, tag, i < c.lastSync)
		} else {
			t.counts.stored++
		}
		if failure == nil {
			at = at.with(i)
			if kept != nil {
				defer kept.Release()
				from = kept.Bytes // which begin at a page
			}
			continue
		}
		if errors.Is(failure, store.ErrTooLarge) {
			barred = barred.with(i)
		}
		t.counts.failed++
		if err = errors.Join(err, failure); u.at[p].has(i) {
			c.erase(u, [2]places{whole: only(i), metadata: only(i)}, []part{p})
		}
	}
	if at == 0 && c.lastSync > 0 && !barred.has(0) {
		kept, failure := c.put(ctx, 0, key, v.bytes, tag, false)
		if failure == nil {
			defer kept.Release()
			return only(0), barred, nil
		}
	}
	switch {
	case at != 0:
		return at, barred, nil
	case errors.Is(err, errFull):
		c.counts.full++
		return 0, barred, errFull
	}
	return 0, barred, fmt.Errorf("ERR value not stored: %w", err)
}

// put gives value to a driver, which gets room as long as there is any to be had,
// or any that nobody cares for. It returns the value as it lies there, to be
// released, if it lies in memory. The lock is not held meanwhile.
func (c *cache) put(ctx context.Context, tier int, key string, value, tag []byte, gently bool) (v *store.Value, err error) {
	t := c.tiers[tier]
	filler, fills := t.Driver.(store.Filler)
	fills = fills && tier < c.lastSync // else nobody wants it back
	for {
		c.mu.Unlock()
		begun := time.Now()
		if fills {
			v, err = filler.Fill(ctx, key, int64(len(value)), tag, func(b []byte) (uint64, error) {
				copy(b, value)
				return store.Sum(value), nil
			})
		} else {
			err = t.Driver.Put(ctx, key, value, tag)
		}
		c.mu.Lock()
		switch {
		case err == nil:
			t.counts.stored++
			t.counts.down.add(int64(len(value)), begun)
			c.well(t)
			return v, nil
		case errors.Is(err, store.ErrFull):
			if !c.makeRoom(tier, gently) {
				return nil, errFull
			}
		default:
			if !errors.Is(err, store.ErrTooLarge) {
				c.ails(t, err)
			}
			return nil, err
		}
	}
}

// use tells that u was asked for.
func (c *cache) use(u *unit, now time.Duration) {
	u.ahead = false
	if c.lease > 0 {
		u.sp.leaseUntil(u, now+c.lease)
	}
	u.eachOrder(func(_ int, o *kvcache.Order) { o.Hit(0, u.ref) })
	if u.wished > 0 && now-u.wished >= retell {
		u.wished = now
		c.retellAll(u)
	}
	c.remindAll(u)
}

// have returns the unit that has what key names, or nil.
func (sp *space) have(key string) (*unit, part) {
	name, p, _ := splitKey(key)
	if u := sp.names[name]; u != nil && u.has[p] {
		return u, p
	}
	return nil, p
}

// size returns the length of what lies under key, and can be had.
func (c *cache) size(ctx context.Context, sp *space, key string) (n int64, ok bool) {
	now := c.begin()
	defer c.mu.Unlock()
	u, p := sp.have(key)
	if u != nil && !c.reaches(ctx, u, p) {
		return 0, false
	}
	if u, p = sp.have(key); u == nil {
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
			c.removeUnknown(sp, key)
		case p == metadata:
			c.withdraw(u, u.at[p], metadata)
		default:
			c.expel(u)
		}
	}
	return n
}
