package kvindex

import "github.com/dynago/dynago/kv"

// node is one block under everything before it. It lives as long as somebody
// holds it or something below it.
type node struct {
	local    kv.LocalHash
	parent   *node // nil for the root, and for what was unlinked
	children children
	device   bitset
	lower    *[tiers - 1]bitset // the other tiers; nil while nobody used one
}

// holders returns the set of those that hold n on tier, to be changed.
func (n *node) holders(tier kv.Tier) *bitset {
	if tier == kv.TierDevice {
		return &n.device
	}
	if n.lower == nil {
		n.lower = new([tiers - 1]bitset)
	}
	return &n.lower[tier-1]
}

// word returns 64 slots of the set of those that hold n on tier.
func (n *node) word(tier, i int) uint64 {
	switch {
	case tier == 0:
		return n.device.word(i)
	case n.lower == nil:
		return 0
	}
	return n.lower[tier-1].word(i)
}

// idle says that nobody holds n and nothing is below it.
func (n *node) idle() bool {
	if !n.children.empty() || !n.device.empty() {
		return false
	}
	if n.lower != nil {
		for i := range n.lower {
			if !n.lower[i].empty() {
				return false
			}
		}
	}
	return true
}

// isAncestorOf says whether n is at or stands above it. The usual case, that n
// is a child of at, costs one look.
func (n *node) isAncestorOf(at *node) bool {
	if n.parent == at {
		return false
	}
	for ; at != nil; at = at.parent {
		if at == n {
			return true
		}
	}
	return false
}

// children are the nodes below one. Most nodes of a conversation have a single
// child, which is found without a map.
type children struct {
	only *node
	more map[kv.LocalHash]*node
}

func (c *children) get(l kv.LocalHash) *node {
	if c.only != nil && c.only.local == l {
		return c.only
	}
	return c.more[l]
}

func (c *children) put(n *node) {
	if c.only == nil {
		c.only = n
		return
	}
	if c.more == nil {
		c.more = make(map[kv.LocalHash]*node)
	}
	c.more[n.local] = n
}

func (c *children) remove(l kv.LocalHash) {
	if c.only != nil && c.only.local == l {
		c.only = nil
		return
	}
	delete(c.more, l)
}

func (c *children) empty() bool { return c.only == nil && len(c.more) == 0 }

// bitset is a set of slots. The first 64 need no memory of their own.
type bitset struct {
	low  uint64
	high []uint64
}

func (b *bitset) word(i int) uint64 {
	if i == 0 {
		return b.low
	}
	if i <= len(b.high) {
		return b.high[i-1]
	}
	return 0
}

func (b *bitset) at(i int) *uint64 {
	if i == 0 {
		return &b.low
	}
	for len(b.high) < i {
		b.high = append(b.high, 0)
	}
	return &b.high[i-1]
}

// add puts slot into the set and says whether it was not there before.
func (b *bitset) add(slot int) bool {
	w, bit := b.at(slot/64), uint64(1)<<(slot%64)
	fresh := *w&bit == 0
	*w |= bit
	return fresh
}

func (b *bitset) remove(slot int) {
	if i := slot / 64; i <= len(b.high) {
		*b.at(i) &^= 1 << (slot % 64)
	}
}

func (b *bitset) empty() bool {
	any := b.low
	for _, w := range b.high {
		any |= w
	}
	return any == 0
}

// slots hands out the smallest free numbers.
type slots struct {
	used bitset
	size int // all numbers handed out are below
}

func (s *slots) take() int {
	for slot := range s.size {
		if s.used.add(slot) {
			return slot
		}
	}
	s.used.add(s.size)
	s.size++
	return s.size - 1
}

func (s *slots) free(slot int) { s.used.remove(slot) }
