package positional

import "github.com/dynago/dynago/kv"

// root is the number of the block before every first one.
const root uint32 = 0

// block is one block under everything before it. It lives as long as somebody
// holds it or something below it.
type block struct {
	seq      kv.SeqHash // chain hash of everything up to here
	local    kv.LocalHash
	device   set
	lower    uint32 // index into arena.lower; 0 while nobody used another tier
	position uint32 // of the block in its prompt, from 0 on
	parent   uint32
	child    uint32 // the first of those below
	next     uint32 // the next one below the same parent; the next free block
	previous uint32
	chain    uint32 // the next block of the same slot of the table
}

// lowerSets are the holders of one block on the tiers below the device.
type lowerSets [tiers - 1]set

// chunk is the number of blocks of one piece of the arena.
const chunk = 1 << 12

// arena keeps blocks in place, in memory without pointers.
type arena struct {
	chunks    []*[chunk]block
	size      uint32 // numbers ever given out, the root included
	free      uint32 // the first of those given back
	used      int    // blocks in use, without the root
	lower     []lowerSets
	freeLower []uint32
}

func (a *arena) reset() {
	*a = arena{chunks: []*[chunk]block{new([chunk]block)}, size: 1, lower: make([]lowerSets, 1)}
}

func (a *arena) at(i uint32) *block { return &a.chunks[i/chunk][i%chunk] }

func (a *arena) take() uint32 {
	a.used++
	if i := a.free; i != 0 {
		a.free = a.at(i).next
		return i
	}
	if int(a.size) == len(a.chunks)*chunk {
		a.chunks = append(a.chunks, new([chunk]block))
	}
	a.size++
	return a.size - 1
}

func (a *arena) give(i uint32) {
	b := a.at(i)
	if b.lower != 0 { // which has no holders, or b would not go
		a.freeLower = append(a.freeLower, b.lower)
	}
	*b = block{next: a.free}
	a.free = i
	a.used--
}

// holders returns the set of those that hold block i on tier, to be changed.
func (a *arena) holders(i uint32, tier kv.Tier) *set {
	b := a.at(i)
	if tier == kv.TierDevice {
		return &b.device
	}
	if b.lower == 0 {
		if n := len(a.freeLower); n > 0 {
			b.lower = a.freeLower[n-1]
			a.freeLower = a.freeLower[:n-1]
		} else {
			b.lower = uint32(len(a.lower))
			a.lower = append(a.lower, lowerSets{})
		}
	}
	return &a.lower[b.lower][tier-1]
}

// idle says that nobody holds b and nothing is below it.
func (a *arena) idle(b *block) bool {
	return b.child == 0 && b.device == 0 && a.lower[b.lower] == lowerSets{}
}

// child returns the block of content l below at, made if need be.
func (x *Index) child(at uint32, l kv.LocalHash) uint32 {
	parent := x.blocks.at(at)
	seq, position := kv.SeqHash(l), uint32(0)
	if at != root {
		seq, position = parent.seq.Next(l), parent.position+1
	}
	for i := x.table.first(position, l); i != 0; {
		b := x.blocks.at(i)
		if b.seq == seq && b.local == l && b.parent == at {
			return i
		}
		i = b.chain
	}
	i := x.blocks.take()
	*x.blocks.at(i) = block{seq: seq, local: l, position: position, parent: at, next: parent.child}
	if at != root {
		if parent.child != 0 {
			x.blocks.at(parent.child).previous = i
		}
		parent.child = i
	} else {
		x.blocks.at(i).next = 0
	}
	x.table.put(&x.blocks, i)
	return i
}

// prune forgets block i if nothing needs it any more, and then what stands above
// it.
func (x *Index) prune(i uint32) {
	for i != root {
		b := x.blocks.at(i)
		if !x.blocks.idle(b) {
			return
		}
		parent := b.parent
		x.table.remove(&x.blocks, i)
		if parent != root {
			x.unlink(b)
		}
		x.blocks.give(i)
		i = parent
	}
	if x.blocks.used == 0 {
		x.blocks.reset()
		x.table, x.wide = table{}, bitsets{}
	}
}

// unlink takes b from the list of those below its parent.
func (x *Index) unlink(b *block) {
	if b.previous != 0 {
		x.blocks.at(b.previous).next = b.next
	} else {
		x.blocks.at(b.parent).child = b.next
	}
	if b.next != 0 {
		x.blocks.at(b.next).previous = b.previous
	}
}

// above says whether block i is at or stands above it.
func (x *Index) above(i, at uint32) bool {
	position := x.blocks.at(i).position
	for at != root && x.blocks.at(at).position > position {
		at = x.blocks.at(at).parent
	}
	return at == i
}

// hold notes that one more key of h stands for block i on tier.
func (x *Index) hold(h *holder, i uint32, tier kv.Tier) {
	if !x.add(x.blocks.holders(i, tier), h.slot) {
		if h.twins == nil {
			h.twins = make(map[place]int)
		}
		h.twins[place{i, tier}]++
		return
	}
	if tier != kv.TierDevice {
		x.lower++
		return
	}
	b := x.blocks.at(i)
	if b.parent != root && !x.has(x.blocks.at(b.parent).device, h.slot) {
		h.orphans++
	}
	if h.orphans > 0 {
		h.orphans -= x.below(b, h.slot)
	}
	setBit(x.open, h.slot, h.orphans > 0)
}

// letGo takes one key for block i on tier back and says whether it was the last.
func (x *Index) letGo(h *holder, i uint32, tier kv.Tier) bool {
	p := place{i, tier}
	if h.twins[p] > 0 {
		if h.twins[p]--; h.twins[p] == 0 {
			delete(h.twins, p)
		}
		return false
	}
	x.drop(h, i, tier)
	if tier != kv.TierDevice {
		return true
	}
	b := x.blocks.at(i)
	if b.parent != root && !x.has(x.blocks.at(b.parent).device, h.slot) {
		h.orphans--
	}
	h.orphans += x.below(b, h.slot)
	setBit(x.open, h.slot, h.orphans > 0)
	return true
}

// drop takes h from the holders of block i on tier and says whether it was one.
func (x *Index) drop(h *holder, i uint32, tier kv.Tier) bool {
	if tier != kv.TierDevice && x.blocks.at(i).lower == 0 || !x.del(x.blocks.holders(i, tier), h.slot) {
		return false
	}
	if tier != kv.TierDevice {
		x.lower--
	}
	return true
}

// below counts the blocks right below b that slot holds on the device.
func (x *Index) below(b *block, slot int) int {
	n := 0
	for i := b.child; i != 0; i = x.blocks.at(i).next {
		if x.has(x.blocks.at(i).device, slot) {
			n++
		}
	}
	return n
}
