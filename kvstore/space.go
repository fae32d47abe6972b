package kvstore

import (
	"container/heap"
	"math"
	"strings"
	"time"

	"github.com/dynago/dynago/kvcache"
	"github.com/dynago/dynago/kvcache/store"
)

// space is the values of one namespace.
type space struct {
	Namespace
	order  *kvcache.Order
	names  map[string]*unit
	units  []*unit // by Ref; nil = free
	free   []kvcache.Ref
	chunks map[chunk]int // pairs that are complete
	dues   dues
	leases []lease // the earliest first, but for those renewed since
	keys   int
	used   int64 // bytes of the values, those that are being written included
	may    int64 // what used may come to, as far as is known
}

// unit is what is kept or evicted as one: a value, or a pair of values.
type unit struct {
	sp      *space
	ref     kvcache.Ref
	name    string
	paired  bool
	has     [2]bool
	size    [2]int64
	expires [2]time.Duration // 0 = never

	busy   bool // being written
	lost   bool // to be removed once it is not
	leased bool
	lease  time.Duration // when that ends
}

func newSpace(n Namespace, o Options) *space {
	sp := &space{Namespace: n, names: map[string]*unit{}, chunks: map[chunk]int{}, may: n.Quota}
	if m, ok := o.Driver.(store.Measured); ok {
		whole := m.Usage().Capacity
		if sp.may == 0 || sp.may > whole {
			sp.may = whole
		}
	}
	if sp.may == 0 {
		sp.may = math.MaxInt64
	}
	sp.order = kvcache.NewOrder(kvcache.PoolConfig{
		Eviction:  kvcache.EvictRetention,
		PinBudget: int64(o.PinBudget * float64(sp.may)), HardPins: o.HardPins,
	})
	return sp
}

// share is how much of what it may have the namespace has.
func (sp *space) share() float64 { return float64(sp.used) / float64(sp.may) }

// key is what the driver knows a part by.
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

// vacate forgets a unit that has nothing any more. Whoever holds it in the order
// does so no longer.
func (sp *space) vacate(u *unit) {
	if u.busy {
		sp.order.Release(u.ref)
	}
	sp.order.Remove(u.ref)
	delete(sp.names, u.name)
	sp.units[u.ref] = nil
	sp.free = append(sp.free, u.ref)
}

// resize tells the order how long u is now, and what was asked for it again. It
// is held as it was.
func (sp *space) resize(u *unit, size int64, zero time.Time) {
	holds := 0
	for _, held := range []bool{u.busy, u.leased} {
		if held {
			holds++
			sp.order.Release(u.ref)
		}
	}
	r := sp.order.Record(u.ref, zero)
	sp.order.Remove(u.ref)
	sp.order.Insert(u.ref, kvcache.Root, size)
	sp.order.Inherit(u.ref, r, zero)
	for range holds {
		sp.order.Hold(u.ref)
	}
}

// admit notes that a part of u is there now.
func (sp *space) admit(u *unit, p part, size int64) {
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

// expire lets u be looked at when a part of it expires.
func (sp *space) expire(u *unit, at time.Duration) { heap.Push(&sp.dues, due{at, u}) }

// due returns a unit that has expired by now, or nil. A pair expires as one, with
// whichever half is first.
func (sp *space) due(now time.Duration) *unit {
	for len(sp.dues) > 0 && sp.dues[0].at <= now {
		if sp.dues[0].u.busy {
			return nil // what is being written may live longer
		}
		d := heap.Pop(&sp.dues).(due)
		if sp.units[d.u.ref] != d.u || d.at != d.u.expires[whole] && d.at != d.u.expires[metadata] {
			continue
		}
		return d.u
	}
	return nil
}
