package kvindex

import (
	"iter"
	"math/bits"
	"sync/atomic"
)

// set is a set of slots in one word: up to four of them in 16 bits each, the
// highest bit of all clear; or that bit, log2 of the words of a bit set, its
// number of members and where it lies among the lists. The order of slots in
// the word means nothing.
type set uint64

const (
	elsewhere = 1 << 63 // marks a word whose content lies among the lists
	maxSlots  = 1<<15 - 1
)

// listChunk is 256 KiB of what does not fit into a node: bit sets and spans.
type listChunk [1 << (pairOrder + listOrder)]atomic.Uint64

const (
	pairOrder = 1 // a unit of the lists is two words
	listOrder = 14
)

// list names 1<<order words in the lists.
type list struct {
	unit  uint32
	order int
}

// words returns what a list holds. For a reader whose list is no longer true it
// may be empty or hold anything.
func (t *tree) words(l list) []atomic.Uint64 {
	c := t.lists.chunk(l.unit >> listOrder)
	i := int(l.unit&(1<<listOrder-1)) << pairOrder
	if c == nil || i+1<<l.order > len(c) {
		return nil
	}
	return c[i : i+1<<l.order]
}

// newList returns 1<<order words, all zero.
func (t *tree) newList(order int) list {
	unit, ok := t.lists.take(1 << (order - pairOrder))
	if !ok {
		panic("kvindex: lists have outgrown 32 bits")
	}
	l := list{unit, order}
	for w := range t.each(l) {
		w.Store(0)
	}
	return l
}

func (t *tree) freeList(l list) { t.lists.put(l.unit, 1<<(l.order-pairOrder)) }

func (t *tree) each(l list) iter.Seq[*atomic.Uint64] {
	words := t.words(l)
	return func(yield func(*atomic.Uint64) bool) {
		for i := range words {
			if !yield(&words[i]) {
				return
			}
		}
	}
}

func (s set) inline() bool { return s&elsewhere == 0 }

func (s set) list() list { return list{unit: uint32(s), order: int(s >> 56 & 0x1f)} }

func (s set) count() int {
	if s.inline() {
		return (bits.Len64(uint64(s)) + 15) / 16
	}
	return int(s >> 32 & 0xffff)
}

func bitSet(l list, count int) set {
	return elsewhere | set(l.order)<<56 | set(count)<<32 | set(l.unit)
}

// inlineAt returns where slot stands in an inline set, or -1.
func (s set) inlineAt(slot uint32) int {
	for i := 0; s != 0; i++ {
		if uint32(s&0xffff) == slot+1 {
			return i
		}
		s >>= 16
	}
	return -1
}

func (t *tree) has(s set, slot uint32) bool {
	if s.inline() {
		return s.inlineAt(slot) >= 0
	}
	words := t.words(s.list())
	return int(slot>>6) < len(words) && words[slot>>6].Load()>>(slot&63)&1 != 0
}

// add returns s with slot, which must not be in it.
func (t *tree) add(s set, slot uint32) set {
	n := s.count()
	if s.inline() && n < 4 {
		return s | set(slot+1)<<(16*n)
	}
	l := s.list()
	switch {
	case s.inline():
		top := slot
		for m := range t.members(s) {
			top = max(top, m)
		}
		l = t.newList(max(pairOrder, bits.Len32(top>>6)))
		words := t.words(l)
		for m := range t.members(s) {
			turn(&words[m>>6], m)
		}
	case int(slot>>6) >= 1<<l.order:
		wide := t.newList(bits.Len32(slot >> 6))
		from, to := t.words(l), t.words(wide)
		for i := range from {
			to[i].Store(from[i].Load())
		}
		t.freeList(l)
		l = wide
	}
	turn(&t.words(l)[slot>>6], slot)
	return bitSet(l, n+1)
}

// remove returns s without slot, which must be in it.
func (t *tree) remove(s set, slot uint32) set {
	if s.inline() {
		i := 16 * s.inlineAt(slot)
		return s&(1<<i-1) | s>>(i+16)<<i
	}
	l, n := s.list(), s.count()-1
	turn(&t.words(l)[slot>>6], slot)
	if n > 3 {
		return bitSet(l, n)
	}
	var small set
	for m := range t.members(bitSet(l, n)) {
		small = t.add(small, m)
	}
	t.freeList(l)
	return small
}

// turn puts slot into the word of a bit set, or takes it out.
func turn(w *atomic.Uint64, slot uint32) { w.Store(w.Load() ^ 1<<(slot&63)) }

// clone returns a set of its own with the members of s.
func (t *tree) clone(s set) set {
	if s.inline() {
		return s
	}
	l := t.newList(s.list().order)
	from, to := t.words(s.list()), t.words(l)
	for i := range from {
		to[i].Store(from[i].Load())
	}
	return bitSet(l, s.count())
}

func (t *tree) members(s set) iter.Seq[uint32] {
	return func(yield func(uint32) bool) {
		if s.inline() {
			for ; s != 0; s >>= 16 {
				if !yield(uint32(s&0xffff) - 1) {
					return
				}
			}
			return
		}
		for i, words := 0, t.words(s.list()); i < len(words); i++ {
			for w := words[i].Load(); w != 0; w &= w - 1 {
				if !yield(uint32(i<<6 + bits.TrailingZeros64(w))) {
					return
				}
			}
		}
	}
}
