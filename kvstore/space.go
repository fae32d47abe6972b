package kvstore

import (
	"container/heap"
	"slices"
	"strings"
	"time"

	"github.com/dynago/dynago/kvcache"
)

// space is the values of one namespace.
type space struct {
	Namespace
	// order has all values, wherever they lie: it knows what was asked for them, and
	// what goes when the quota is used up.
	order   *kvcache.Order
	shelves []shelf // by tier
	names   map[string]*unit
	units   []*unit // by Ref; nil = free
	free    []kvcache.Ref
	chunks  map[chunk]int // pairs that are complete
	dues    dues
	leases  leases
	keys    int
	used    int64 // bytes of the values, each once, those that are being written included
	may     int64 // what used may come to, as far as is known
	// flushed is the newest version of what a flush has removed, also where it was not
	// known yet.
	flushed int64
	// closed is a namespace of an earlier life that nobody may use any more. Its
	// values go first.
	closed bool
}

// unit is what is kept or evicted as one: a value, or a pair of values.
type unit struct {
	sp      *space
	ref     kvcache.Ref
	name    string
	paired  bool
	has     [2]bool
	at      [2]places // where each part lies
	size    [2]int64
	expires [2]time.Duration // 0 = never
	version [2]int64         // when it was put, in unix nanoseconds; never one twice
	epoch   uint32           // of what was asked for it
	wished  time.Duration    // when a lower tier was told of that last; 0 = nothing was asked

	ahead  bool   // in memory by a prefetch, and nobody has asked for it
	barred places // tiers that can never have it
	left   places // tiers that are told later, and that it has had to leave

	busy   bool    // being written
	rising [2]bool // being read into memory
	lost   bool    // to be removed once it is not
	// overdue says that it was busy when it should have expired.
	overdue bool
	leased  bool
	// leasedBytes is what it counts for among the leases.
	leasedBytes int64
	lease       time.Duration // when that ends
}

func (c *cache) newSpace(n Namespace, hardPins bool) *space {
	sp := &space{Namespace: n, names: map[string]*unit{}, chunks: map[chunk]int{}, leases: leases{tier: c.lastSync}}
	var budget int64
	for _, t := range c.tiers {
		sh := newShelf(t, n.Quota, hardPins)
		sp.shelves = append(sp.shelves, sh)
		sp.may = max(sp.may, sh.may)
		_, most := sh.order.PinBudget()
		budget = max(budget, most)
	}
	if len(c.tiers) == 1 {
		sp.order = sp.shelves[0].order
		return sp
	}
	sp.order = kvcache.NewOrder(kvcache.PoolConfig{Eviction: kvcache.EvictRetention, PinBudget: budget, HardPins: hardPins})
	return sp
}

// eachOrder calls do for the namespace's own order, and for those of its shelves.
func (sp *space) eachOrder(do func(*kvcache.Order)) {
	do(sp.order)
	if len(sp.shelves) == 1 {
		return
	}
	for i := range sp.shelves {
		do(sp.shelves[i].order)
	}
}

// key is what the drivers know a part by.
func (u *unit) key(p part) string { return u.sp.Name + " " + u.clientKey(p) }

// clientKey is what the client knows it by.
func (u *unit) clientKey(p part) string {
	if p == metadata {
		return strings.TrimSuffix(u.name, bytesSuffix) + metadataSuffix
	}
	return u.name
}

// insert adds a unit that has nothing yet.
func (sp *space) insert(name string, paired bool, size int64) *unit {
	u := &unit{sp: sp, name: name, paired: paired}
	if n := len(sp.free); n > 0 {
		u.ref, sp.free = sp.free[n-1], sp.free[:n-1]
		sp.units[u.ref] = u
	} else {
		u.ref = kvcache.Ref(len(sp.units))
		sp.units = append(sp.units, u)
	}
	sp.names[name] = u
	sp.order.Insert(u.ref, kvcache.Root, size)
	return u
}

// vacate forgets a unit that lies nowhere any more. Whoever holds it in the order
// does so no longer.
func (sp *space) vacate(u *unit) {
	u.takeOut(all)
	delete(sp.names, u.name)
	sp.units[u.ref] = nil
	sp.free = append(sp.free, u.ref)
}

// admit notes that a part of u is there now.
func (sp *space) admit(u *unit, p part) {
	if u.has[p] {
		return
	}
	u.has[p] = true
	sp.keys++
	if u.paired && u.has[whole] && u.has[metadata] {
		sp.chunks[chunkOf(u.name)]++
	}
}

// discharge notes that a part of u is there no more.
func (sp *space) discharge(u *unit, p part) {
	if !u.has[p] {
		return
	}
	if u.paired && u.has[whole] && u.has[metadata] {
		if k := chunkOf(u.name); sp.chunks[k] == 1 {
			delete(sp.chunks, k)
		} else {
			sp.chunks[k]--
		}
	}
	sp.used -= u.size[p]
	u.has[p], u.size[p], u.expires[p] = false, 0, 0
	sp.keys--
}

// prefix returns how many of the leading hashes of a model's chunks are there.
func (sp *space) prefix(model string, hashes []string) int {
	for i, h := range hashes {
		if sp.chunks[chunk{model, h}] == 0 {
			return i
		}
	}
	return len(hashes)
}

// due is when a unit may have expired.
type due struct {
	at time.Duration
	u  *unit
}

type dues []due

func (d dues) Len() int           { return len(d) }
func (d dues) Less(i, j int) bool { return d[i].at < d[j].at }
func (d dues) Swap(i, j int)      { d[i], d[j] = d[j], d[i] }
func (d *dues) Push(x any)        { *d = append(*d, x.(due)) }
func (d *dues) Pop() any {
	last := (*d)[len(*d)-1]
	*d = (*d)[:len(*d)-1]
	return last
}

// expire lets u be looked at when a part of it expires. What was replaced or
// removed before its time is swept out when it is more than what was not.
func (sp *space) expire(u *unit, at time.Duration) {
	if heap.Push(&sp.dues, due{at, u}); len(sp.dues) > 2*sp.keys+64 {
		sp.dues = slices.DeleteFunc(sp.dues, func(d due) bool { return !sp.holds(d) })
		heap.Init(&sp.dues)
	}
}

// holds says whether something still expires with d.
func (sp *space) holds(d due) bool {
	return sp.units[d.u.ref] == d.u && (d.at == d.u.expires[whole] || d.at == d.u.expires[metadata])
}

// due returns a unit that has expired by now, or nil. A pair expires as one, with
// whichever half is first.
func (sp *space) due(now time.Duration) *unit {
	for len(sp.dues) > 0 && sp.dues[0].at <= now {
		switch d := heap.Pop(&sp.dues).(due); {
		case !sp.holds(d):
		case d.u.busy:
			d.u.overdue = true // what is being written may live longer
		default:
			return d.u
		}
	}
	return nil
}

// expired says whether u, which was overdue, has not been given more time.
func (u *unit) expired(now time.Duration) bool {
	u.overdue = false
	for _, at := range u.expires {
		switch {
		case at == 0:
		case at <= now:
			return true
		default:
			u.sp.expire(u, at)
		}
	}
	return false
}
