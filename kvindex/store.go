package kvindex

import "github.com/dynago/dynago/kv"

// slice is how many blocks of an event are applied under one lock. It bounds
// how long a writer waits for another's event.
const slice = 128

// cursor is where a store event has got to in the tree: behind block off-1 of a
// node. What the target newly holds of that node is from..to-1, which the tree
// does not know yet; of that, the blocks from the node's length on are in the
// slab alone. Before the cursor leaves the node, flush tells the tree.
type cursor struct {
	*tree
	holder *holder
	tier   int
	id     uint32 // 0 = the root
	n      *node
	run    run // as the tree knows it
	off    int
	from   int
	to     int
}

// store applies a store event. The holder must be locked.
func (x *Index) store(h *holder, e *kv.Event) error {
	var at place
	for blocks, first := e.Blocks, true; first || len(blocks) > 0; first = false {
		n := min(len(blocks), slice)
		h.keys.reserve(max(n, 1))
		h.keys.touch(blocks[:n], e.Parent)
		if first && e.HasParent {
			parent, ok := h.keys.find(e.Parent)
			if !ok {
				return ErrParentNotFound
			}
			at = h.keys.at(parent).place()
		}
		x.tree.mu.Lock()
		c := cursor{tree: &x.tree, holder: h, tier: int(e.Tier)}
		c.moveTo(at)
		before := h.keys.count
		conflicts, duplicates, err := c.store(blocks[:n], len(blocks))
		h.on[e.Tier] += h.keys.count - before // and those that c has found on another
		c.flush()
		at = c.place()
		x.stats.Conflicts += conflicts
		x.stats.Duplicates += duplicates
		x.tree.check()
		x.tree.mu.Unlock()
		if err != nil {
			return err
		}
		blocks = blocks[n:]
	}
	return nil
}

// store applies blocks, of which the event has more in total.
func (c *cursor) store(blocks []kv.Block, more int) (conflicts, duplicates uint64, err error) {
	h, tier := c.holder, kv.Tier(c.tier)
	for i := range blocks {
		b := &blocks[i]
		home := h.keys.homes[i]
		s, ok := h.keys.findFrom(home, b.Engine)
		if !ok {
			if !c.descend(uint64(b.Local), more-i) {
				return conflicts, duplicates, ErrFull
			}
			h.keys.add(home, b.Engine, newHeld(c.place(), tier))
			c.take()
			continue
		}
		known := h.keys.at(s)
		switch {
		case c.follow(known.place(), uint64(b.Local)):
			if !known.on(tier) {
				*known = known.with(tier)
				h.on[tier]++
				c.take()
			} else {
				duplicates++
			}
			continue
		case c.isAncestor(known.place(), c.place()):
			return conflicts, duplicates, ErrInvalidSequence
		}
		conflicts++
		c.moveTo(known.place())
	}
	return conflicts, duplicates, nil
}

// place returns where the cursor is.
func (c *cursor) place() place {
	if c.id == 0 {
		return 0
	}
	return c.run.start + place(c.off) - 1
}

// moveTo goes behind the block at p.
func (c *cursor) moveTo(p place) {
	c.flush()
	if c.id, c.n, c.run = c.resolve(p); c.id != 0 {
		c.enter(c.id, c.n, int(p-c.run.start)+1)
	}
}

func (c *cursor) enter(id uint32, n *node, off int) {
	c.id, c.n, c.run = id, n, n.at()
	c.off, c.from, c.to = off, off, off
}

// take notes that the target now holds the block before the cursor.
func (c *cursor) take() {
	if c.to != c.off-1 {
		c.flush()
		c.from = c.off - 1
	}
	c.to = c.off
}

// flush tells the tree what the target newly holds.
func (c *cursor) flush() {
	if c.from == c.to {
		return
	}
	slot := c.holder.slot
	if known := c.coverOf(c.n, c.tier); known != nil && c.touches(known, slot, c.from, c.to) {
		c.holder.count(c.tree, known, c.tier, c.run, c.from, c.to)
	}
	if c.to <= c.run.length {
		c.keep(c.n, c.tier, slot, c.from, c.to)
	} else {
		c.extend(c.n, c.tier, slot, c.from, c.to)
		if c.run.length == 0 {
			c.attach(c.id, c.above())
		}
	}
	c.run = c.n.at()
	if p := c.place(); c.off <= c.run.length && c.relieve(c.id, c.n) {
		c.id, c.n, c.run = c.resolve(p)
		c.off = int(p-c.run.start) + 1
	}
	c.from, c.to = c.off, c.off
}

// above returns the node that the cursor's hangs on, nil for the root.
func (c *cursor) above() *node {
	_, n, _ := c.resolve(c.n.up())
	return n
}

// follow goes on to the block at p if that is the child with the hash given.
func (c *cursor) follow(p place, local uint64) bool {
	if c.off > c.run.length {
		c.flush()
	}
	if c.id != 0 && c.off < c.run.length {
		if p != c.run.start+place(c.off) || c.hash(p).Load() != local {
			return false
		}
		c.off++
		return true
	}
	id, n, r := c.resolve(p)
	if r.start != p || n.up() != c.place() || c.hash(p).Load() != local {
		return false
	}
	c.flush()
	c.enter(id, n, 1)
	return true
}

// descend goes on to the child with the hash given, which is made if need be;
// the event has more blocks from this one on. It fails if there is no room.
func (c *cursor) descend(local uint64, more int) bool {
	switch {
	case c.id != 0 && c.off < c.run.length:
		if c.hash(c.run.start+place(c.off)).Load() == local {
			c.off++
			return true
		}
		c.flush()
		if c.off < c.run.length && !c.split(c.id, c.off) {
			return false
		}
		c.run = c.n.at()
		return c.branch(local, more)
	case c.id == 0 || c.n.children > 0:
		if id, n, _ := c.child(c.place(), local); id != 0 {
			c.flush()
			c.enter(id, n, 1)
			return true
		}
	case c.off < c.run.room && (c.off > c.run.length || c.alone(c.n, c.holder.slot)):
		c.hash(c.run.start + place(c.off)).Store(local)
		c.off++
		return true
	}
	c.flush()
	return c.branch(local, more)
}

// branch begins a new node with one block under the cursor. What continues a
// run that was full, as a conversation or decoding does, gets room for twice as
// much, so that a path of many small events is no path of many small nodes.
func (c *cursor) branch(local uint64, more int) bool {
	room, depth := more, 0
	if c.id != 0 {
		depth = int(c.n.depth) + c.run.length
		if c.n.children == 0 && c.run.length == c.run.room {
			room = max(more, min(2*c.run.length, maxGrowth))
		}
	}
	id, ok := c.newNode(c.place(), depth, min(room, maxRun))
	if !ok {
		return false
	}
	c.enter(id, c.node(id), 1)
	c.from, c.to = 0, 0
	c.hash(c.run.start).Store(local)
	return true
}

// maxGrowth is the most blocks that a run gets room for before they are there.
const maxGrowth = 256
