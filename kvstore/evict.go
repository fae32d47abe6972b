package kvstore

import (
	"cmp"
	"context"
	"slices"

	"github.com/dynago/dynago/kvcache"
)

// fit evicts what a namespace has beyond its quota, with so much more.
func (c *cache) fit(sp *space, more int64) bool {
	for sp.Quota > 0 && more > 0 && sp.used+more > sp.Quota {
		if sp.Deny || more > sp.Quota || !c.evict(sp) {
			return false
		}
	}
	return true
}

// makeWay lets values go until there may be one more: of the namespace that has most
// of them.
func (c *cache) makeWay() {
	for {
		values, largest := 0, c.spaces[0]
		for _, sp := range c.spaces {
			values += len(sp.names)
			if len(sp.names) > len(largest.names) {
				largest = sp
			}
		}
		if values < c.mostValues || !c.evict(largest) {
			return
		}
	}
}

// evict removes the value of sp that is to go next. Where all are held it breaks
// the oldest lease: to keep what somebody may ask for is worth less than to store
// what somebody sends.
func (c *cache) evict(sp *space) bool {
	for {
		if r, ok := sp.order.Victim(); ok {
			c.evicted(sp.units[r])
			return true
		}
		if !sp.breakLease() {
			return false
		}
	}
}

// evicted removes a unit as it is the next to go.
func (c *cache) evicted(u *unit) {
	c.spent(u)
	c.counts.evicted++
	c.counts.evictedAs[u.sp.order.Class(u.ref)]++
	c.expel(u)
}

// makeRoom lets a value leave a tier: of the namespace that has most of what it
// may have there, or, if it holds all of them, of the one after it. Gently, leases
// and pins are left alone.
func (c *cache) makeRoom(tier int, gently bool) bool {
	if len(c.spaces) == 1 {
		return c.retireOne(c.spaces[0], tier, gently)
	}
	richest := slices.Clone(c.spaces)
	slices.SortStableFunc(richest, func(a, b *space) int {
		if a.closed != b.closed {
			return map[bool]int{true: -1, false: 1}[a.closed]
		}
		return cmp.Compare(b.shelves[tier].share(), a.shelves[tier].share())
	})
	return slices.ContainsFunc(richest, func(sp *space) bool { return c.retireOne(sp, tier, gently) })
}

// retireOne lets the value of sp that is to go next leave a tier.
func (c *cache) retireOne(sp *space, tier int, gently bool) bool {
	order := sp.shelves[tier].order
	for {
		choose := order.Victim
		if gently {
			choose = order.Spare
		}
		if r, ok := choose(); ok {
			c.retire(sp.units[r], tier)
			return true
		}
		if gently || !sp.breakLease() {
			return false
		}
	}
}

// retire takes a unit that nobody holds out of a tier. What lies in no other is
// gone, and without its bytes a pair is nothing.
func (c *cache) retire(u *unit, tier int) {
	if u.at[whole].minus(tier) == 0 {
		c.evicted(u)
		return
	}
	c.tiers[tier].counts.evicted++
	if tier == 0 {
		c.spent(u)
	}
	c.withdraw(u, only(tier), metadata, whole)
}

// withdraw takes parts of a unit that is not busy out of some tiers. The lock is
// not held while their drivers are told.
func (c *cache) withdraw(u *unit, from places, parts ...part) {
	at := u.at
	for _, p := range parts {
		if at[p]&from != 0 {
			c.settle(u, p, u.size[p], at[p]&^from)
		}
	}
	u.left |= from
	c.seize(u)
	c.erase(u, [2]places{at[whole] & from, at[metadata] & from}, parts)
	c.let(u)
}

// erase lets the tiers forget parts of a unit that is busy, which lay there. The
// lock is not held while their drivers are told.
func (c *cache) erase(u *unit, at [2]places, parts []part) {
	c.mu.Unlock()
	for _, p := range parts {
		for i, t := range c.tiers {
			if !at[p].has(i) || t.Later {
				continue
			}
			if err := t.Driver.Delete(context.Background(), u.key(p)); err != nil {
				c.log.Warn("value not deleted", "tier", t.Name, "key", u.name, "error", err)
			}
		}
	}
	c.mu.Lock()
	for _, p := range parts {
		for i, t := range c.tiers {
			if t.Later && at[p].has(i) {
				c.remind(i, job{u.sp, u.name, p})
			}
		}
	}
}

// expel removes a unit that is not busy from everywhere, metadata first. The lock
// is not held while drivers are told; whoever wants to store it anew waits.
func (c *cache) expel(u *unit) {
	u.endLease()
	at := u.at
	for _, p := range []part{metadata, whole} {
		if u.has[p] {
			c.settle(u, p, 0, 0)
		}
	}
	c.seize(u)
	for i, t := range c.tiers {
		for _, p := range []part{whole, metadata} {
			if t.lag.has(job{u.sp, u.name, p}) {
				at[p] = at[p].with(i) // a copy may be on its way
			}
		}
	}
	c.erase(u, at, []part{metadata, whole})
	u.lost = false
	u.sp.vacate(u)
	u.busy = false
	c.idle.Broadcast()
}

// seize makes u busy: nobody else changes it, and nothing evicts it.
func (c *cache) seize(u *unit) {
	u.busy = true
	u.eachOrder(func(_ int, o *kvcache.Order) { o.Hold(u.ref) })
}

// let ends what seize began.
func (c *cache) let(u *unit) {
	if u.sp.units[u.ref] == u {
		u.eachOrder(func(_ int, o *kvcache.Order) { o.Release(u.ref) })
		u.busy = false
		if u.overdue && u.expired(c.now().Sub(c.zero)) {
			c.counts.expired++
			u.lost = true
		}
		if u.lost {
			c.expel(u)
			return
		}
	}
	u.busy = false
	c.idle.Broadcast()
}
