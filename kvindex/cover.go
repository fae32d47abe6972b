package kvindex

import "sync/atomic"

// cover says who holds which blocks of a run on one tier. Most hold all of it
// and stand in full. The others have spans: one from the start for a holder
// that has dropped its end or not yet reached it, several for one that has
// lost blocks in the middle. The spans of a holder never touch one another, and
// never make up the whole run: then it stands in full.
type cover struct {
	full atomic.Uint64 // a set
	part atomic.Uint64 // spans
}

func (c *cover) empty() bool { return c.full.Load()|c.part.Load() == 0 }

// span is what a holder has of a run without a gap: slot, from, to in 16 bits
// each. The last block is to - 1.
type span uint64

func newSpan(slot uint32, from, to int) span {
	return span(slot)<<32 | span(from)<<16 | span(to)
}

func (s span) slot() uint32 { return uint32(s >> 32) }
func (s span) from() int    { return int(s >> 16 & 0xffff) }
func (s span) to() int      { return int(s & 0xffff) }

// spans are none (0), one, or a list with their number in its first word.
type spans uint64

func (p spans) inline() bool { return p&elsewhere == 0 }

func (p spans) list() list { return list{unit: uint32(p), order: int(p >> 56 & 0x1f)} }

func spanList(l list) spans { return elsewhere | spans(l.order)<<56 | spans(l.unit) }

func (t *tree) count(p spans) int {
	switch {
	case p == 0:
		return 0
	case p.inline():
		return 1
	}
	return int(t.words(p.list())[0].Load())
}

func (t *tree) span(p spans, i int) span {
	if p.inline() {
		return span(p)
	}
	return span(t.words(p.list())[1+i].Load())
}

// peek returns the number of spans and, unless there is but one, where they
// lie. It is for readers, whose p may be no longer true.
func (t *tree) peek(p spans) (n int, words []atomic.Uint64) {
	if p.inline() {
		return min(1, int(p)), nil
	}
	if words = t.words(p.list()); len(words) == 0 {
		return 0, nil
	}
	n = int(min(words[0].Load(), uint64(len(words)-1)))
	return n, words[1:]
}

// at returns span i of what peek has found.
func (p spans) at(words []atomic.Uint64, i int) span {
	if words == nil {
		return span(p)
	}
	return span(words[i].Load())
}

// push returns p with one more span.
func (t *tree) push(p spans, s span) spans {
	n := t.count(p)
	if n == 0 {
		return spans(s)
	}
	l := p.list()
	switch {
	case p.inline():
		l = t.newList(2)
		t.words(l)[1].Store(uint64(p))
	case n+1 == 1<<l.order:
		l = t.resize(l, l.order+1)
	}
	words := t.words(l)
	words[0].Store(uint64(n + 1))
	words[n+1].Store(uint64(s))
	return spanList(l)
}

// drop returns p without span i. The last takes its number.
func (t *tree) drop(p spans, i int) spans {
	n := t.count(p)
	if n == 1 {
		return 0
	}
	l := p.list()
	words := t.words(l)
	words[1+i].Store(words[n].Load())
	words[0].Store(uint64(n - 1))
	switch {
	case n == 2:
		p = spans(words[1].Load())
		t.freeList(l)
		return p
	case l.order > 2 && n < 1<<(l.order-2):
		l = t.resize(l, l.order-1)
	}
	return spanList(l)
}

func (t *tree) resize(l list, order int) list {
	to := t.newList(order)
	from, words := t.words(l), t.words(to)
	for i := range min(len(from), len(words)) {
		words[i].Store(from[i].Load())
	}
	t.freeList(l)
	return to
}

// touches says whether slot holds any of the blocks from..to-1.
func (t *tree) touches(c *cover, slot uint32, from, to int) bool {
	if t.has(set(c.full.Load()), slot) {
		return true
	}
	p := spans(c.part.Load())
	for k := range t.count(p) {
		if s := t.span(p, k); s.slot() == slot && s.from() < to && from < s.to() {
			return true
		}
	}
	return false
}

// hold makes slot a holder of the blocks from..to-1 of a run of the length
// given.
func (t *tree) hold(c *cover, slot uint32, from, to, length int) {
	if full := set(c.full.Load()); t.has(full, slot) {
		return
	}
	p := spans(c.part.Load())
	for i := 0; i < t.count(p); {
		s := t.span(p, i)
		if s.slot() != slot || s.from() > to || from > s.to() {
			i++
			continue
		}
		from, to = min(from, s.from()), max(to, s.to())
		p = t.drop(p, i)
	}
	if from == 0 && to == length {
		c.full.Store(uint64(t.add(set(c.full.Load()), slot)))
	} else {
		p = t.push(p, newSpan(slot, from, to))
	}
	c.part.Store(uint64(p))
}

// letGo makes slot hold none of the blocks from..to-1 any more.
func (t *tree) letGo(c *cover, slot uint32, from, to, length int) {
	p := spans(c.part.Load())
	if full := set(c.full.Load()); t.has(full, slot) {
		c.full.Store(uint64(t.remove(full, slot)))
		p = t.push(p, newSpan(slot, 0, length))
	}
	left, right := from, to // what remains are left..from-1 and to..right-1
	for i := 0; i < t.count(p); {
		s := t.span(p, i)
		if s.slot() != slot || s.from() >= to || from >= s.to() {
			i++
			continue
		}
		left, right = min(left, s.from()), max(right, s.to())
		p = t.drop(p, i)
	}
	if left < from {
		p = t.push(p, newSpan(slot, left, from))
	}
	if to < right {
		p = t.push(p, newSpan(slot, to, right))
	}
	c.part.Store(uint64(p))
}

// forget makes slot hold nothing, and says whether it held something.
func (t *tree) forget(c *cover, slot uint32) bool {
	if full := set(c.full.Load()); t.has(full, slot) {
		c.full.Store(uint64(t.remove(full, slot)))
		return true
	}
	p, found := spans(c.part.Load()), false
	for i := 0; i < t.count(p); {
		if t.span(p, i).slot() != slot {
			i++
			continue
		}
		p, found = t.drop(p, i), true
	}
	if found {
		c.part.Store(uint64(p))
	}
	return found
}

// knows says whether slot holds any block at all.
func (t *tree) knows(c *cover, slot uint32) bool { return t.touches(c, slot, 0, 1<<16) }

// reach returns the end of the last block that somebody holds.
func (t *tree) reach(c *cover, length int) int {
	if c.full.Load() != 0 {
		return length
	}
	end := 0
	p := spans(c.part.Load())
	for i := range t.count(p) {
		end = max(end, t.span(p, i).to())
	}
	return end
}

// shorten makes the run end where it says; nobody holds more. The holders of
// all that is left then hold it in full.
func (t *tree) shorten(c *cover, length int) {
	p, full := spans(c.part.Load()), set(c.full.Load())
	for i := 0; i < t.count(p); {
		s := t.span(p, i)
		if s.from() == 0 && s.to() == length {
			p = t.drop(p, i)
			full = t.add(full, s.slot())
		} else {
			i++
		}
	}
	c.part.Store(uint64(p))
	c.full.Store(uint64(full))
}

// lengthen turns those who hold the whole of a run of the length given into
// holders of a part, since it is going to be longer.
func (t *tree) lengthen(c *cover, length int) {
	full, p := set(c.full.Load()), spans(c.part.Load())
	for slot := range t.members(full) {
		p = t.push(p, newSpan(slot, 0, length))
	}
	t.freeSet(full)
	c.full.Store(0)
	c.part.Store(uint64(p))
}

func (t *tree) freeSet(s set) {
	if !s.inline() {
		t.freeList(s.list())
	}
}

// divide parts a cover in two at block k of a run of the length given: what is
// before stays, what is behind goes to low, which must be empty.
func (t *tree) divide(c, low *cover, k, length int) {
	full, p := set(c.full.Load()), spans(c.part.Load())
	behind := t.clone(full)
	var above, below spans
	for i := range t.count(p) {
		s := t.span(p, i)
		from, to := s.from(), s.to()
		switch {
		case from == 0 && to >= k:
			full = t.add(full, s.slot())
		case from < k:
			above = t.push(above, newSpan(s.slot(), from, min(to, k)))
		}
		switch {
		case from <= k && to == length:
			behind = t.add(behind, s.slot())
		case to > k:
			below = t.push(below, newSpan(s.slot(), max(from, k)-k, to-k))
		}
	}
	if !p.inline() {
		t.freeList(p.list())
	}
	c.full.Store(uint64(full))
	c.part.Store(uint64(above))
	low.full.Store(uint64(behind))
	low.part.Store(uint64(below))
}
