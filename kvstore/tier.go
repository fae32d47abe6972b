package kvstore

import (
	"math"
	"math/bits"

	"github.com/dynago/dynago/kvcache"
	"github.com/dynago/dynago/kvcache/store"
)

// MemoryTier is the name of the tier of Options.Driver.
const MemoryTier = "memory"

// Tier is one more place that values lie in, slower and larger than those before.
// What is left in it when a server begins is the server's.
type Tier struct {
	// Name is what metrics and events call it: "disk", "external".
	Name string
	// Driver keeps the bytes, and is the caller's to close, after Shutdown. Its Get
	// may take its time; where Later is not set, Delete and Retag should not.
	Driver store.Driver
	// Capacity bounds the bytes of its values; 0 means by the driver, which then
	// says of how much it is capable.
	Capacity int64
	// PinBudget is the part of it that may be pinned, 0 to 1.
	PinBudget float64
	// Later acknowledges values before they are here: they are copied when there is
	// time, and what is lost before is lost. It is for what is slow, or may be away.
	Later bool
}

// Change tells that a part of a value has come to a tier, or has left it.
type Change struct {
	Namespace, Key string
	Tier           string
	Stored         bool // else removed
	Size           int64
}

// places is a set of tiers.
type places uint8

const maxTiers = 8

func only(tier int) places             { return 1 << tier }
func (p places) has(tier int) bool     { return p&only(tier) != 0 }
func (p places) with(tier int) places  { return p | only(tier) }
func (p places) minus(tier int) places { return p &^ only(tier) }

// first returns the fastest of some tiers.
func (p places) first() int { return bits.TrailingZeros8(uint8(p)) }

// tier is one of the server's, the fastest first.
type tier struct {
	Tier
	used   int64
	lag    lag
	looked bool // through what an earlier life has left in it, if it is told later
	ails   bool // the last value did not go into it, or come out
	counts tierCounts
}

type tierCounts struct {
	hits, stored, evicted int64
	failed                int64 // values that could not be written
	lost                  int64 // values that were no longer what they had been, or not there
	late                  int64 // values that were not copied as too many waited
	down, up              Transfers
	// Values that a prefetch has read from it, and that it could not read.
	aheadLoaded, aheadFailed int64
}

// TierStats is what one tier holds, and what it has done.
type TierStats struct {
	Name           string
	Used, Capacity int64 // bytes of values; a capacity of 0 is not known
	Hits           int64 // values that were read from it
	Stored         int64 // values that were written to it, by clients or from other tiers
	Evicted        int64 // values that had to leave it
	Failed         int64 // values that could not be written to it
	Lost           int64 // values that it no longer had, or not as they were
	Waiting        int   // changes that it has yet to be told of
	Late           int64 // values that were not copied to it, as too many waited
	Failing        bool  // the last value did not go into it, or come out of it
	// Down and Up are values that were written to it and read from it.
	Down, Up Transfers
	// Prefetched are values that were read from it before anybody asked for them, and
	// PrefetchFailed those that could not be.
	Prefetched, PrefetchFailed int64
	SoftPins, HardPins         int // values in it that are pinned
}

func (t *tier) stats() TierStats {
	n := t.counts
	return TierStats{
		Name: t.Name, Used: t.used, Capacity: t.capacity(), Hits: n.hits, Stored: n.stored, Evicted: n.evicted,
		Failed: n.failed, Lost: n.lost, Waiting: t.lag.len(), Late: n.late, Failing: t.ails,
		Down: n.down, Up: n.up, Prefetched: n.aheadLoaded, PrefetchFailed: n.aheadFailed,
	}
}

// ails says, once, that a tier does not do what it should. Values that it has not
// taken are offered again.
func (c *cache) ails(t *tier, err error) {
	if !t.ails {
		t.ails = true
		c.log.Warn("a tier fails, and the store goes on without", "tier", t.Name, "error", err)
	}
}

// well says that a tier which has failed does its work again.
func (c *cache) well(t *tier) {
	if t.ails {
		t.ails = false
		c.log.Info("a tier is back", "tier", t.Name)
	}
}

// capacity returns what its values may come to, as far as is known; 0 is not.
func (t *tier) capacity() int64 {
	if t.Capacity > 0 {
		return t.Capacity
	}
	if m, ok := t.Driver.(store.Measured); ok {
		return m.Usage().Capacity
	}
	return 0
}

// shelf is what one namespace has in one tier.
type shelf struct {
	// order says what leaves the tier next. It is the namespace's own where there
	// is one tier only.
	order *kvcache.Order
	used  int64
	may   int64 // what used may come to, as far as is known
}

func newShelf(t *tier, quota int64, hardPins bool) shelf {
	sh := shelf{may: t.capacity()}
	if sh.may == 0 {
		sh.may = math.MaxInt64
	}
	if quota > 0 {
		sh.may = min(sh.may, quota)
	}
	sh.order = kvcache.NewOrder(kvcache.PoolConfig{
		Eviction:  kvcache.EvictRetention,
		PinBudget: int64(t.PinBudget * float64(sh.may)), HardPins: hardPins,
	})
	return sh
}

// share is how much of what it may have the namespace has.
func (sh *shelf) share() float64 { return float64(sh.used) / float64(sh.may) }

// all is the number of the order of all that a namespace has, among those of its
// tiers.
const all = -1

// holds is how often an order that u is in is told to hold it. A lease keeps u in
// the store, but not in memory.
func (u *unit) holds(tier int) (n int) {
	if u.busy {
		n++
	}
	if u.leased && (tier == all || tier == u.sp.leases.tier) {
		n++
	}
	return n
}

// eachOrder calls do for the orders that u is in: that of its namespace, and those
// of tiers.
func (u *unit) eachOrder(do func(tier int, o *kvcache.Order)) {
	do(all, u.sp.order)
	if len(u.sp.shelves) == 1 {
		return
	}
	for i := range u.sp.shelves {
		if u.places().has(i) {
			do(i, u.sp.shelves[i].order)
		}
	}
}

// places returns where any part of u lies.
func (u *unit) places() places { return u.at[whole] | u.at[metadata] }

// putIn adds u to an order.
func (c *cache) putIn(tier int, u *unit, size int64, r kvcache.Record) {
	o := u.sp.orderOf(tier)
	o.Insert(u.ref, kvcache.Root, size)
	o.Inherit(u.ref, r, c.zero)
	for range u.holds(tier) {
		o.Hold(u.ref)
	}
}

// takeOut takes u out of an order.
func (u *unit) takeOut(tier int) {
	o := u.sp.orderOf(tier)
	for range u.holds(tier) {
		o.Release(u.ref)
	}
	o.Remove(u.ref)
}

func (sp *space) orderOf(tier int) *kvcache.Order {
	if tier == all {
		return sp.order
	}
	return sp.shelves[tier].order
}

// settle notes where a part of u lies by now, and how long it is. Nowhere is that
// it is gone.
func (c *cache) settle(u *unit, p part, size int64, at places) {
	sp, was, had := u.sp, u.places(), u.size[p]
	grown := p == whole && u.has[p] && at != 0 && size != had
	for i, t := range c.tiers {
		before, after := u.at[p].has(i), at.has(i)
		if before {
			sp.shelves[i].used -= had
			t.used -= had
		}
		if after {
			sp.shelves[i].used += size
			t.used += size
		}
		if before != after && c.changed != nil {
			c.changed(Change{sp.Name, u.clientKey(p), t.Name, after, size})
		}
	}
	u.at[p] = at
	if at == 0 {
		sp.discharge(u, p)
	} else {
		u.size[p] = size
		sp.admit(u, p)
	}
	if grown {
		r := sp.order.Record(u.ref, c.zero)
		u.takeOut(all)
		c.putIn(all, u, size, r)
	}
	if len(c.tiers) == 1 {
		return
	}
	is := u.places()
	for i := range c.tiers {
		if was.has(i) && (grown || !is.has(i)) {
			u.takeOut(i)
		}
		if is.has(i) && (grown || !was.has(i)) {
			c.putIn(i, u, max(u.size[whole], u.size[metadata]), sp.order.Record(u.ref, c.zero))
		}
	}
}
