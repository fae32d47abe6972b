package kvindex

import "math/bits"

// bitmap is a set of small numbers that remembers where its smallest may be.
type bitmap struct {
	words []uint64
	low   int // no word before this one has a bit
	count int
}

// set adds i, which must not be there.
func (b *bitmap) set(i int) {
	for len(b.words) <= i>>6 {
		b.words = append(b.words, 0)
	}
	b.words[i>>6] |= 1 << (i & 63)
	b.low = min(b.low, i>>6)
	b.count++
}

// clear takes i out, which must be there.
func (b *bitmap) clear(i int) {
	b.words[i>>6] &^= 1 << (i & 63)
	b.count--
}

// first returns the smallest member of a set that is not empty.
func (b *bitmap) first() int {
	for b.words[b.low] == 0 {
		b.low++
	}
	return b.low<<6 + bits.TrailingZeros64(b.words[b.low])
}
