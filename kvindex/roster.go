package kvindex

import (
	"slices"

	"github.com/dynago/dynago/kv"
)

// roster says whose the slots are. It never changes: who joins or leaves makes
// a new one. A query compares that of its beginning with that of its end, and
// believes of a slot only if it had one owner in between.
type roster struct {
	seats   []seat      // by slot
	order   []uint32    // slots in use, by target
	targets []kv.Target // in that order
	rank    []uint32    // by slot: where it stands in order; behind all if it is free
}

// seat is one slot's owner; nobody's life is 0.
type seat struct {
	target kv.Target
	life   uint64
}

// with returns a roster with one more seat taken.
func (r *roster) with(slot uint32, s seat) *roster {
	next := &roster{seats: make([]seat, max(len(r.seats), int(slot)+1))}
	copy(next.seats, r.seats)
	next.seats[slot] = s
	at, _ := r.find(s.target)
	next.order = slices.Insert(slices.Clone(r.order), at, slot)
	next.number()
	return next
}

// without returns a roster in which some seats are free.
func (r *roster) without(gone []*holder) *roster {
	next := &roster{seats: slices.Clone(r.seats)}
	for _, h := range gone {
		next.seats[h.slot] = seat{}
	}
	for _, slot := range r.order {
		if next.seats[slot].life != 0 {
			next.order = append(next.order, slot)
		}
	}
	next.number()
	return next
}

func (r *roster) number() {
	for len(r.seats) > 0 && r.seats[len(r.seats)-1].life == 0 {
		r.seats = r.seats[:len(r.seats)-1]
	}
	r.rank = make([]uint32, len(r.seats))
	for slot := range r.rank {
		r.rank[slot] = uint32(len(r.order))
	}
	r.targets = make([]kv.Target, len(r.order))
	for i, slot := range r.order {
		r.rank[slot] = uint32(i)
		r.targets[i] = r.seats[slot].target
	}
}

// holder returns what is known of t, from now on something, and locked. It is
// nil if no more targets can be told apart.
func (x *Index) holder(t kv.Target) *holder {
	for {
		h := x.known(t)
		if h == nil {
			if h = x.join(t); h == nil {
				return nil
			}
		}
		h.mu.Lock()
		if !h.gone {
			return h
		}
		h.mu.Unlock()
	}
}

func (x *Index) known(t kv.Target) *holder {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.targets[t]
}

// join gives a target a slot, unless another has done so meanwhile.
func (x *Index) join(t kv.Target) *holder {
	x.mu.Lock()
	defer x.mu.Unlock()
	if h := x.targets[t]; h != nil {
		return h
	}
	if x.free.count == 0 {
		if x.slots == maxSlots {
			return nil
		}
		x.free.set(x.slots)
		x.slots++
	}
	x.lives++
	h := &holder{target: t, slot: uint32(x.free.first()), life: x.lives}
	x.free.clear(int(h.slot))
	x.targets[t] = h
	x.roster.Store(x.roster.Load().with(h.slot, seat{t, h.life}))
	return h
}

// leave forgets some targets. From now on no query returns them; their slots
// are free when nothing of them is left in the tree.
func (x *Index) leave(targets []kv.Target) {
	gone := x.expel(targets)
	for _, h := range gone {
		h.mu.Lock()
		h.gone = true
		h.sweep(&x.tree)
		h.mu.Unlock()
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, h := range gone {
		x.free.set(int(h.slot))
	}
}

func (x *Index) expel(targets []kv.Target) []*holder {
	x.mu.Lock()
	defer x.mu.Unlock()
	var gone []*holder
	for _, t := range targets {
		if h := x.targets[t]; h != nil {
			gone = append(gone, h)
			delete(x.targets, t)
		}
	}
	if len(gone) > 0 {
		x.roster.Store(x.roster.Load().without(gone))
	}
	return gone
}

// still says whether a slot has the owner that it had before.
func (r *roster) still(before *roster, slot uint32) bool {
	return int(slot) < len(r.seats) && r.seats[slot].life == before.seats[slot].life
}

// ranks returns the targets of one worker.
func (r *roster) ranks(worker uint64) []kv.Target {
	var ranks []kv.Target
	at, _ := r.find(kv.Target{Worker: worker})
	for ; at < len(r.targets) && r.targets[at].Worker == worker; at++ {
		ranks = append(ranks, r.targets[at])
	}
	return ranks
}

// find returns where a target stands in order, or would.
func (r *roster) find(t kv.Target) (int, bool) {
	return slices.BinarySearchFunc(r.targets, t, kv.Target.Compare)
}
