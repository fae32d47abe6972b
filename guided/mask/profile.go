package mask

import "slices"

// profile is what a vocabulary is to a state: the tokens that may come, and the
// places in the trie at which a text of the state may end in the middle of a
// token, so that what stands behind the state has to say how the token may go on.
type profile struct {
	few   []uint32 // the tokens that may come, if they are few
	bits  []uint64 // or else a bit for each
	exits []int32
}

// tally is a profile in the making.
type tally struct {
	v     *Vocabulary
	bits  []uint64
	exits []int32
}

// maxMasks bounds the bytes of masks that a grammar keeps.
const maxMasks = 8 << 20

// profileOf returns the profile of a state.
//
// The walk through the whole vocabulary is done for what is inside of frames only,
// once for each state of them: inside a string, for instance, whatever object the
// string is in. What stands behind the frame then sees just those tokens that
// leave it.
func (g *Grammar) profileOf(n *node) *profile {
	if n.profile != nil {
		return n.profile
	}
	t := &tally{v: g.vocabulary, bits: make([]uint64, g.vocabulary.Words())}
	g.tally(n, t)
	slices.Sort(t.exits)
	p := &profile{exits: slices.Compact(t.exits)}
	count := 0
	for range ones(t.bits) {
		count++
	}
	if count*4 < len(t.bits)*8 {
		p.few = make([]uint32, 0, count)
		for id := range ones(t.bits) {
			p.few = append(p.few, id)
		}
	} else {
		p.bits = t.bits
	}
	g.keep(n, p)
	return p
}

// keep stores a profile, and forgets all others if they become too many.
func (g *Grammar) keep(n *node, p *profile) {
	a := g.arena
	size := 64 + 4*len(p.few) + 8*len(p.bits) + 4*len(p.exits)
	if a.kept+size > maxMasks {
		for _, other := range a.masked {
			other.profile = nil
		}
		a.kept, a.masked = 0, a.masked[:0]
	}
	a.kept += size
	a.masked = append(a.masked, n)
	n.profile = p
}

func (g *Grammar) tally(n *node, t *tally) {
	a := g.arena
	switch {
	case n.op == opFrame:
		t.add(g.profileOf(a.clamp(n.a, g.vocabulary.longest)))
	case n.op == opSeq && n.a.op == opFrame:
		inside := g.profileOf(a.clamp(n.a.a, g.vocabulary.longest))
		t.addTokens(inside)
		for _, at := range inside.exits {
			a.walk(at, n.b, t)
		}
		if n.a.null {
			t.add(g.profileOf(n.b))
		}
	case n.op == opAlt && slices.ContainsFunc(n.list, framed):
		var rest []*node
		for _, part := range n.list {
			if framed(part) {
				t.add(g.profileOf(part))
			} else {
				rest = append(rest, part)
			}
		}
		a.walk(0, a.alt(rest), t)
	default:
		a.walk(0, n, t)
	}
}

func framed(n *node) bool { return n.op == opFrame || n.op == opSeq && n.a.op == opFrame }

func (t *tally) add(p *profile) {
	t.addTokens(p)
	t.exits = append(t.exits, p.exits...)
}

func (t *tally) addTokens(p *profile) {
	for _, id := range p.few {
		t.bits[id>>6] |= 1 << (id & 63)
	}
	for i, w := range p.bits {
		t.bits[i] |= w
	}
}

func (t *tally) token(n *trieNode) {
	if n.token < 0 {
		return
	}
	t.bits[n.token>>6] |= 1 << (n.token & 63)
	if n.same >= 0 {
		for _, id := range t.v.same[n.same] {
			t.bits[id>>6] |= 1 << (id & 63)
		}
	}
}

// walk reads the tokens below a node of the trie, from the state at that node.
func (a *arena) walk(from int32, n *node, t *tally) {
	if n.op == opVoid || n.op == opEmpty {
		return
	}
	trie := t.v.trie
	base := int(trie[from].depth)
	states := make([]*node, 1, 64) // by depth below the node
	states[0] = n
	seen := 0
	for i, end := from+1, trie[from].skip; i < end; {
		seen++
		at := &trie[i]
		depth := int(at.depth) - base
		state := a.next(states[depth-1], int(a.classes[at.byte]))
		if state.op == opVoid {
			i = at.skip
			continue
		}
		t.token(at)
		i++
		if at.skip == i {
			continue
		}
		if state.null {
			t.exits = append(t.exits, i-1)
		}
		states = append(states[:depth], state)
	}
	a.step(seen / 64)
}

// clamp returns a state with the same profile, which more states have: a repetition
// that no token can come to the end of is one without an end. That is done where a
// state begins, for there it has been counted. Where texts are intersected each
// count may matter.
func (a *arena) clamp(n *node, longest int) *node {
	if n.hasAnd {
		return n
	}
	if n.clamped != nil {
		return n.clamped
	}
	c := n
	switch n.op {
	case opSeq:
		c = a.seq(a.clamp(n.a, longest), n.b)
	case opFrame:
		c = a.frame(a.clamp(n.a, longest))
	case opAlt:
		parts := make([]*node, len(n.list))
		for i, part := range n.list {
			parts[i] = a.clamp(part, longest)
		}
		c = a.alt(parts)
	case opRepeat:
		low, high := min(n.min, int32(longest)+1), n.max
		if int(high) > longest {
			high = noLimit
		}
		c = a.repeat(n.a, low, high)
	}
	n.clamped = c
	return c
}
