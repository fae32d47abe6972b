package kvindex

import "sync"

// tree is the one that all caches make when they are laid over each other: a
// compressed radix tree whose parts lie in arenas without pointers. Its writer
// holds mu; readers hold nothing.
type tree struct {
	mu       sync.Mutex
	nodes    *arena[nodeChunk]
	lowers   *arena[lowerChunk]
	lists    *arena[listChunk]
	slab     *arena[slabChunk]
	children children
	blocks   int    // distinct, over all nodes
	touched  uint32 // keeps the compiler from dropping loads that only warm the cache
}

func (t *tree) init() {
	t.nodes = newArena[nodeChunk](nodeOrder, 1<<(32-nodeOrder)-1)
	t.lowers = newArena[lowerChunk](lowerOrder, 1<<(32-lowerOrder)-1)
	t.lists = newArena[listChunk](listOrder, 1<<(32-listOrder)-1)
	t.slab = newArena[slabChunk](slabOrder, 1<<(placeBits-unitOrder-slabOrder)-1)
	t.children.init()
}

// owner returns what says whose the unit is that p lies in, nil if its chunk is
// not in use.
func (t *tree) owner(p place) (c *slabChunk, i int) {
	return t.slab.chunk(uint32(p) >> (unitOrder + slabOrder)), int(p >> unitOrder & (1<<slabOrder - 1))
}

// resolve returns the node that has the block at p. It is 0 if there is none,
// which can only be so for places that are no longer held.
func (t *tree) resolve(p place) (id uint32, n *node, r run) {
	o, i := t.owner(p)
	if o == nil {
		return 0, nil, run{}
	}
	for id = o.first[i]; id != 0; id = n.tail {
		n = t.node(id)
		if r = n.at(); r.contains(p) {
			return id, n, r
		}
	}
	return 0, nil, run{}
}

// newNode returns a node without blocks below the place given, which nobody can
// find yet. It fails if there is no room for more.
func (t *tree) newNode(up place, depth, room int) (uint32, bool) {
	n := units(room)
	u, ok := t.slab.take(n)
	if !ok {
		return 0, false
	}
	id, ok := t.nodes.take(1)
	if !ok {
		t.slab.put(u, n)
		return 0, false
	}
	start := place(u) << unitOrder
	for i := range n {
		t.own(start+place(i*unit), id)
	}
	at := t.node(id)
	at.open()
	at.run.Store(run{start: start, room: n * unit}.word())
	at.link(up, 0)
	at.depth, at.children, at.tail = uint32(depth), 0, 0
	at.device.full.Store(0)
	at.device.part.Store(0)
	at.hint.Store(0)
	at.shut()
	return id, true
}

// own notes that a node has part of the unit that p lies in.
func (t *tree) own(p place, id uint32) {
	o, i := t.owner(p)
	if o.nodes[i] == 0 {
		o.first[i] = id
	}
	o.nodes[i]++
}

// disown notes that a node has no part any more of the units that begin at or
// after from and before to, and gives those back that nobody has.
func (t *tree) disown(from, to place) {
	for p := from &^ (unit - 1); p < to; p += unit {
		o, i := t.owner(p)
		if o.nodes[i]--; o.nodes[i] > 0 {
			continue
		}
		o.first[i] = 0
		t.slab.put(uint32(p>>unitOrder), 1)
	}
}

// attach makes a node visible that has its blocks and holders.
func (t *tree) attach(id uint32, parent *node) {
	n := t.node(id)
	r := n.at()
	first := t.hash(r.start).Load()
	t.children.put(fold(uint64(n.up()), first), id)
	if parent != nil {
		parent.children++
		parent.hint.Store(uint64(id)<<32 | uint64(r.start))
	}
}

// split cuts a node in two at block k. The upper half keeps its name.
func (t *tree) split(id uint32, k int) bool {
	low, ok := t.nodes.take(1)
	if !ok {
		return false
	}
	n, l := t.node(id), t.node(low)
	r := n.at()
	cut := r.start + place(k)
	n.open()
	l.open()
	l.run.Store(run{start: cut, room: r.room - k, length: r.length - k}.word())
	l.depth, l.children, l.tail = n.depth+uint32(k), n.children, n.tail
	l.hint.Store(n.hint.Load())
	t.divide(&n.device, &l.device, k, r.length)
	l.link(cut-1, t.splitLower(n, k, r.length))
	n.run.Store(run{start: r.start, room: k, length: k}.word())
	n.children, n.tail = 0, low
	t.passOn(cut, cut+place(r.room-k), low)
	l.shut()
	t.attach(low, n)
	n.shut()
	return true
}

// passOn makes low the owner of units that another node had up to now; the
// first of them it may have in common with that.
func (t *tree) passOn(from, to place, low uint32) {
	p := from
	if p%unit != 0 {
		o, i := t.owner(p)
		o.nodes[i]++
		p = (p + unit - 1) &^ (unit - 1)
	}
	for ; p < to; p += unit {
		o, i := t.owner(p)
		o.first[i] = low
	}
}

// splitLower divides the covers of the lower tiers and returns those behind k.
func (t *tree) splitLower(n *node, k, length int) uint32 {
	id := n.lowerID()
	if id == 0 {
		return 0
	}
	below := t.newLower()
	up, low := t.lower(id), t.lower(below)
	for i := range up {
		t.divide(&up[i], &low[i], k, length)
	}
	n.link(n.up(), t.tidy(id))
	return t.tidy(below)
}

func (t *tree) newLower() uint32 {
	id, ok := t.lowers.take(1)
	if !ok {
		panic("kvindex: covers of lower tiers have outgrown 32 bits")
	}
	return id
}

// tidy gives covers back in which nobody holds anything, and returns their id
// or 0.
func (t *tree) tidy(id uint32) uint32 {
	l := t.lower(id)
	for i := range l {
		if !l[i].empty() {
			return id
		}
	}
	t.lowers.put(id, 1)
	return 0
}

// coverOf returns the cover of a tier, nil if nobody has used it.
func (t *tree) coverOf(n *node, tier int) *cover {
	if tier == 0 {
		return &n.device
	}
	if id := n.lowerID(); id != 0 {
		return &t.lower(id)[tier-1]
	}
	return nil
}

// makeCover returns the cover of a tier.
func (t *tree) makeCover(n *node, tier int) *cover {
	if tier > 0 && n.lowerID() == 0 {
		n.link(n.up(), t.newLower())
	}
	return t.coverOf(n, tier)
}

// eachCover calls yield for each tier that has a cover.
func (t *tree) eachCover(n *node, yield func(tier int, c *cover)) {
	yield(0, &n.device)
	if id := n.lowerID(); id != 0 {
		l := t.lower(id)
		for i := range l {
			yield(i+1, &l[i])
		}
	}
}

// alone says whether no other target than that of slot holds a block of n to
// its end in full.
func (t *tree) alone(n *node, slot uint32) bool {
	own := func(c *cover) bool {
		s := set(c.full.Load())
		return s == 0 || s == set(slot+1)
	}
	if !own(&n.device) {
		return false
	}
	if id := n.lowerID(); id != 0 {
		l := t.lower(id)
		return own(&l[0]) && own(&l[1]) && own(&l[2])
	}
	return true
}

// extend makes a node without children longer by blocks whose hashes lie in the
// slab already. Slot holds from..to-1 on tier, and to is the new length.
func (t *tree) extend(n *node, tier int, slot uint32, from, to int) {
	r := n.at()
	n.open()
	t.eachCover(n, func(i int, c *cover) {
		if i != tier || set(c.full.Load()) != set(slot+1) {
			t.lengthen(c, r.length)
		}
	})
	t.blocks += to - r.length
	r.length = to
	c := t.makeCover(n, tier)
	n.run.Store(r.word())
	t.hold(c, slot, from, to, to)
	n.shut()
}

// keep makes slot a holder on tier of the blocks from..to-1 of n.
func (t *tree) keep(n *node, tier int, slot uint32, from, to int) {
	n.open()
	t.hold(t.makeCover(n, tier), slot, from, to, n.at().length)
	n.shut()
}

// relieve splits a node in which so many have holes that looking through them
// takes long, and says whether it has. A run of one block has no holes, so that
// this comes to an end, and the list of spans always has room for one of each
// slot.
func (t *tree) relieve(id uint32, n *node) bool {
	length, most := n.at().length, 0
	t.eachCover(n, func(_ int, c *cover) { most = max(most, t.count(spans(c.part.Load()))) })
	return most > crowd && length > 1 && t.split(id, length/2)
}

// release takes the blocks from..to-1 of n from slot on tier, and then away if
// nobody needs them.
func (t *tree) release(id uint32, n *node, tier int, slot uint32, from, to int) {
	r := n.at()
	n.open()
	t.letGo(t.coverOf(n, tier), slot, from, to, r.length)
	if tier > 0 {
		n.link(n.up(), t.tidy(n.lowerID()))
	}
	t.settle(id, n, r)
}

// evict takes all of n from slot, on every tier, and then away if nobody needs
// it.
func (t *tree) evict(id uint32, n *node, slot uint32) {
	known := false
	t.eachCover(n, func(_ int, c *cover) { known = known || t.knows(c, slot) })
	if !known {
		return
	}
	n.open()
	t.eachCover(n, func(_ int, c *cover) { t.forget(c, slot) })
	if low := n.lowerID(); low != 0 {
		n.link(n.up(), t.tidy(low))
	}
	t.settle(id, n, n.at())
}

// settle ends a change of a node that was opened: blocks at its end that nobody
// holds and nothing stands on go away, and so may the node and those above.
func (t *tree) settle(id uint32, n *node, r run) {
	for {
		end := r.length
		if n.children == 0 {
			end = 0
			t.eachCover(n, func(_ int, c *cover) { end = max(end, t.reach(c, r.length)) })
		}
		if end > 0 {
			t.cutOff(n, r, end)
			n.shut()
			return
		}
		up := n.up()
		t.detach(id, n, r)
		gone := id
		if id, n, r = t.resolve(up); id == 0 {
			return
		}
		n.open()
		if n.children--; n.children == 0 {
			n.hint.Store(0)
		}
		if n.tail == gone {
			n.tail = 0
			r.room = roomAfter(r)
			n.run.Store(r.word())
		}
	}
}

// cutOff makes a node end at block end, and gives back what lies behind.
func (t *tree) cutOff(n *node, r run, end int) {
	if end == r.length {
		return
	}
	t.eachCover(n, func(_ int, c *cover) { t.shorten(c, end) })
	t.blocks -= r.length - end
	room := min(r.room, int((r.start+place(end)+unit-1)&^(unit-1)-r.start))
	if room < r.room {
		t.disown(r.start+place(room), r.start+place(r.room))
	}
	n.run.Store(run{start: r.start, room: room, length: end}.word())
}

// detach takes a node that nobody holds out of the tree.
func (t *tree) detach(id uint32, n *node, r run) {
	t.children.remove(fold(uint64(n.up()), t.hash(r.start).Load()), id)
	t.blocks -= r.length
	n.run.Store(0)
	n.shut()
	t.disown(r.start, r.start+place(r.room))
	t.nodes.put(id, 1)
}

// roomAfter returns how many blocks a run has room for up to the end of the
// unit it ends in, now that nothing follows it there.
func roomAfter(r run) int {
	end := r.start + place(r.length)
	if end%unit == 0 {
		return r.length
	}
	return int((end+unit-1)&^(unit-1) - r.start)
}

// isAncestor says whether the block at p is the one at q or stands above it.
func (t *tree) isAncestor(p, q place) bool {
	id, top, _ := t.resolve(p)
	for q != 0 {
		at, n, _ := t.resolve(q)
		if at == id {
			return p <= q
		}
		if n.depth <= top.depth {
			return false
		}
		q = n.up()
	}
	return false
}
