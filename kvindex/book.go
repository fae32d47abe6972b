package kvindex

import "math/bits"

// book says which blocks of a chunk are free: a bit set for each order, without
// pointers.
type book struct {
	left   int // free units
	orders [mostOrder + 1]struct {
		start int32 // of its words
		low   int32 // no word before this one has a bit
		count int32
	}
	words [2<<mostOrder/64 + mostOrder + 1]uint64
}

// mostOrder is the highest order that a chunk may have.
const mostOrder = 14

// init prepares the book of a chunk of which nothing is free yet.
func (b *book) init(order int) {
	b.left = 1 << order
	start := int32(0)
	for o := range order + 1 {
		b.orders[o].start, b.orders[o].low = start, start
		start += int32(1<<(order-o)+63) / 64
	}
}

func (b *book) has(order, i int) bool {
	return b.words[int(b.orders[order].start)+i>>6]>>(i&63)&1 != 0
}

// set adds block i, which must not be there, and returns how many there are.
func (b *book) set(order, i int) int32 {
	o := &b.orders[order]
	at := o.start + int32(i>>6)
	b.words[at] |= 1 << (i & 63)
	o.low = min(o.low, at)
	o.count++
	return o.count
}

// clear takes block i out, which must be there, and returns how many are left.
func (b *book) clear(order, i int) int32 {
	o := &b.orders[order]
	b.words[int(o.start)+i>>6] &^= 1 << (i & 63)
	o.count--
	return o.count
}

// first returns the smallest block of an order that has one.
func (b *book) first(order int) int {
	o := &b.orders[order]
	for b.words[o.low] == 0 {
		o.low++
	}
	return int(o.low-o.start)<<6 + bits.TrailingZeros64(b.words[o.low])
}
