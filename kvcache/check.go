//go:build invariants

package kvcache

import "fmt"

// check panics if the pool contradicts itself. It looks at every slot, and so
// exists only under the build tag invariants.
func (p *Pool) check() {
	var count [Inactive + 1]int
	refs := make([]int32, len(p.blocks)) // held by children and duplicates
	for i := range p.blocks {
		b := &p.blocks[i]
		count[b.state]++
		if b.published() != (b.state != Duplicate && p.find(b.hash) == int32(i)) {
			panic(fmt.Sprintf("kvcache: block %d is %s and its hash %x leads to %d", i, b.state, b.hash, p.find(b.hash)))
		}
		if (b.refs == 0) != (b.state == Reset || b.state == Inactive) {
			panic(fmt.Sprintf("kvcache: block %d is %s with %d references", i, b.state, b.refs))
		}
		if b.up == none {
			continue
		}
		if up := &p.blocks[b.up]; b.state == Inactive && !up.published() || b.state != Inactive && up.state != Primary {
			panic(fmt.Sprintf("kvcache: block %d is %s below block %d, which is %s", i, b.state, b.up, up.state))
		}
		if b.state != Inactive {
			refs[b.up]++
		}
	}
	if count != p.count {
		panic(fmt.Sprintf("kvcache: counted %v, booked %v", count, p.count))
	}
	for i, n := range refs {
		if n > p.blocks[i].refs {
			panic(fmt.Sprintf("kvcache: block %d has %d references and %d holders below it", i, p.blocks[i].refs, n))
		}
	}
	p.checkLists()
}

func (o *Order) check() {
	if n := o.keeper.check(); n > o.present {
		panic(fmt.Sprintf("kvcache: %d idle entries of %d", n, o.present))
	}
}

func (p *Pool) checkLists() {
	n := 0
	for i := p.free.head; i != none; i = p.blocks[i].next {
		if n++; p.blocks[i].state != Reset {
			panic(fmt.Sprintf("kvcache: block %d is free and %s", i, p.blocks[i].state))
		}
	}
	if n != p.count[Reset] {
		panic(fmt.Sprintf("kvcache: %d slots in the free list of %d", n, p.count[Reset]))
	}
	if n := p.keeper.check(); n != p.count[Inactive] {
		panic(fmt.Sprintf("kvcache: %d blocks filed of %d", n, p.count[Inactive]))
	}
}

// check panics if what is filed, counted or asked for does not agree, and returns
// how many idle blocks are where they can be found again.
func (k *keeper) check() (filed int) {
	where := k.checkQueues()
	kids := make([]int32, len(k.blocks))
	locks := make([][2]int32, len(k.blocks))
	var locked [2]int
	var pinned int64
	notes := 0
	for i := range k.blocks {
		b := &k.blocks[i]
		if b.state == Inactive {
			filed++
			if b.up != none {
				kids[b.up]++
			}
		}
		if k.plain {
			if b.state == Inactive != (where[i] == inList) || b.flags&^(tagged|foreign|shared) != 0 {
				panic(fmt.Sprintf("kvcache: plain block %d is %s, found at %d, flags %b", i, b.state, where[i], b.flags))
			}
			continue
		}
		if b.place != where[i] && b.place != aside {
			panic(fmt.Sprintf("kvcache: block %d lies at %d, found at %d", i, b.place, where[i]))
		}
		until, hard := k.pinOf(int32(i))
		if b.state == Inactive && b.place == nowhere && !hard {
			panic(fmt.Sprintf("kvcache: idle block %d is nowhere", i))
		}
		if hard && b.place != nowhere || until > 0 && b.place != nowhere && b.place != inPins && b.place != aside {
			panic(fmt.Sprintf("kvcache: pinned block %d lies at %d", i, b.place))
		}
		if !b.published() && b.flags != 0 && (b.state != Duplicate || b.flags != foreign) {
			panic(fmt.Sprintf("kvcache: block %d is %s and has flags %b", i, b.state, b.flags))
		}
		if b.flags&noted != 0 {
			notes++
			if n := k.notes.at(k.noteOf[i]); n.at != none && k.expiry.items[n.at].id != int32(i) {
				panic(fmt.Sprintf("kvcache: block %d is not at %d among the deadlines", i, n.at))
			}
		}
		if until > 0 {
			pinned += k.size(int32(i))
			locks[i][byAny]++
		}
		if hard {
			locks[i][byHard]++
		}
	}
	if used := len(k.notes.records) - len(k.notes.free); used != notes {
		panic(fmt.Sprintf("kvcache: %d notes in use, %d found", used, notes))
	}
	if pinned != k.pinned {
		panic(fmt.Sprintf("kvcache: pinned %d, booked %d", pinned, k.pinned))
	}
	for kind := range locked {
		locked[kind] = k.checkLocks(kind, locks)
	}
	if locked != k.locked {
		panic(fmt.Sprintf("kvcache: locked %v, booked %v", locked, k.locked))
	}
	for i := range k.blocks {
		b := &k.blocks[i]
		if !k.plain && b.kids != kids[i] {
			panic(fmt.Sprintf("kvcache: block %d has %d idle children, booked %d", i, kids[i], b.kids))
		}
		if b.place == aside && b.kids == 0 {
			panic(fmt.Sprintf("kvcache: block %d is set aside for no child", i))
		}
	}
	k.checkSessions()
	return filed
}

// checkQueues says where each block is found.
func (k *keeper) checkQueues() []spot {
	where := make([]spot, len(k.blocks))
	for q := range k.queues {
		prev := none
		empty := true
		for i := k.queues[q].head; i != none; i = k.blocks[i].next {
			if b := &k.blocks[i]; b.state != Inactive || b.prev != prev || !k.plain && int(b.queue) != q {
				panic(fmt.Sprintf("kvcache: block %d is %s in queue %d, prev %d, after %d", i, b.state, q, b.prev, prev))
			}
			where[i], prev, empty = inList, i, false
		}
		if prev != k.queues[q].tail {
			panic(fmt.Sprintf("kvcache: queue %d ends with %d, not %d", q, prev, k.queues[q].tail))
		}
		k.checkHeap(&k.queues[q].front, where, inFront)
		if empty = empty && len(k.queues[q].front.items) == 0; !k.plain && empty == (k.filled[q>>6]>>(q&63)&1 != 0) {
			panic(fmt.Sprintf("kvcache: queue %d: empty %v, booked otherwise", q, empty))
		}
	}
	k.checkHeap(&k.pins, where, inPins)
	return where
}

func (k *keeper) checkHeap(h *minHeap, where []spot, at spot) {
	for n, x := range h.items {
		if n > 0 && x.less(h.items[(n-1)/2]) {
			panic(fmt.Sprintf("kvcache: item %d of a heap is less than its parent", n))
		}
		if b := &k.blocks[x.id]; b.prev != int32(n) || b.state != Inactive {
			panic(fmt.Sprintf("kvcache: block %d is %s at %d of a heap, booked %d", x.id, b.state, n, b.prev))
		}
		where[x.id] = at
	}
}

// checkLocks adds to the own locks those of children and returns how many idle
// blocks have any.
func (k *keeper) checkLocks(kind int, locks [][2]int32) (idle int) {
	total := make([]int32, len(k.blocks))
	var up func(i int32)
	up = func(i int32) {
		if total[i]++; total[i] == 1 && k.blocks[i].up != none {
			up(k.blocks[i].up)
		}
	}
	for i := range k.blocks {
		if locks[i][kind] > 0 {
			up(int32(i))
		}
	}
	for i, n := range total {
		booked := int32(0)
		if k.blocks[i].flags&noted != 0 {
			booked = k.notes.at(k.noteOf[i]).locks[kind]
		}
		if n != booked {
			panic(fmt.Sprintf("kvcache: block %d has %d locks, booked %d", i, n, booked))
		}
		if n > 0 && k.blocks[i].state == Inactive {
			idle++
		}
	}
	return idle
}

func (k *keeper) checkSessions() {
	live := make(map[uint32]int)
	for i := range k.blocks {
		for _, t := range k.tagsOf(int32(i)) {
			live[uint32(t-1)]++
		}
	}
	for n, s := range k.sessions {
		if s == nil && live[uint32(n)] > 0 || s != nil && (s.live != live[uint32(n)] || s.ended && s.live == 0) {
			panic(fmt.Sprintf("kvcache: session number %d has %d blocks, booked %+v", n, live[uint32(n)], s))
		}
	}
}
