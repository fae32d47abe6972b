package kvindex

import (
	"math/bits"
	"sync/atomic"
)

// arena hands out runs of units from chunks of type C, and gives a chunk back
// to the collector when nothing in it is used any more.
//
// Units are numbered through: the number of the chunk, then 1<<order units in
// each. Chunk 0 is never made, so that small numbers, 0 among them, name
// nothing. Free units are kept by the buddy system: blocks of 2^n aligned
// units, which join with their neighbours when those are free too.
//
// One writer at a time. Readers may look a chunk up at any moment; what a unit
// holds is for the caller to guard.
type arena[C any] struct {
	order  int // log2 of the units in a chunk
	limit  int // chunks there may be
	chunks atomic.Pointer[[]atomic.Pointer[chunk[C]]]
	room   []bitmap // by order: the chunks with a free block of it
	used   int      // units
	whole  int      // chunks that are there and empty
}

// chunk is one object without pointers, which the collector has nothing to do
// with but to see that it is in use.
type chunk[C any] struct {
	units C
	book  book // for the writer alone
}

func newArena[C any](order, limit int) *arena[C] {
	a := &arena[C]{order: order, limit: limit, room: make([]bitmap, order+1)}
	a.chunks.Store(new(make([]atomic.Pointer[chunk[C]], 1)))
	return a
}

// chunk returns a chunk by its number, or nil if there is none.
func (a *arena[C]) chunk(i uint32) *C {
	chunks := *a.chunks.Load()
	if int(i) >= len(chunks) {
		return nil
	}
	c := chunks[i].Load()
	if c == nil {
		return nil
	}
	return &c.units
}

// book returns the book of a chunk, nil if there is no such chunk.
func (a *arena[C]) book(c int) *book {
	if at := (*a.chunks.Load())[c].Load(); at != nil {
		return &at.book
	}
	return nil
}

// take returns the first of n consecutive units of one chunk. It fails if the
// arena is full.
func (a *arena[C]) take(n int) (unit uint32, ok bool) {
	order := bits.Len(uint(n - 1))
	for o := order; o <= a.order; o++ {
		if a.room[o].count > 0 {
			return a.cut(a.room[o].first(), o, order, n), true
		}
	}
	c := a.vacant()
	if c > a.limit {
		return 0, false
	}
	a.open(c)
	return a.cut(c, a.order, order, n), true
}

// cut takes n units from the first block of order from in chunk c.
func (a *arena[C]) cut(c, from, order, n int) uint32 {
	b := a.book(c)
	i := b.first(from)
	if b.left == 1<<a.order {
		a.whole--
	}
	a.unmark(c, from, i)
	for from > order {
		from--
		i <<= 1
		a.mark(c, from, i+1)
	}
	unit := uint32(c)<<a.order | uint32(i)<<order
	b.left -= n
	a.used += n
	a.join(unit+uint32(n), 1<<order-n)
	return unit
}

// put gives n consecutive units back, which need not have been taken together.
func (a *arena[C]) put(unit uint32, n int) {
	c := int(unit >> a.order)
	b := a.book(c)
	b.left += n
	a.used -= n
	a.join(unit, n)
	if b.left == 1<<a.order {
		a.whole++
		a.close(c)
	}
}

// join marks n units as free, in the largest blocks there can be.
func (a *arena[C]) join(unit uint32, n int) {
	c, i := int(unit>>a.order), int(unit)&(1<<a.order-1)
	for n > 0 {
		o := bits.Len(uint(n)) - 1
		if i != 0 {
			o = min(o, bits.TrailingZeros(uint(i)))
		}
		at, order := i>>o, o
		for order < a.order && a.book(c).has(order, at^1) {
			a.unmark(c, order, at^1)
			at >>= 1
			order++
		}
		a.mark(c, order, at)
		i += 1 << o
		n -= 1 << o
	}
}

func (a *arena[C]) mark(c, order, i int) {
	if a.book(c).set(order, i) == 1 {
		a.room[order].set(c)
	}
}

func (a *arena[C]) unmark(c, order, i int) {
	if a.book(c).clear(order, i) == 0 {
		a.room[order].clear(c)
	}
}

// vacant returns the smallest number without a chunk.
func (a *arena[C]) vacant() int {
	chunks := *a.chunks.Load()
	for c := 1; c < len(chunks); c++ {
		if chunks[c].Load() == nil {
			return c
		}
	}
	return len(chunks)
}

func (a *arena[C]) open(c int) {
	chunks := *a.chunks.Load()
	if c >= len(chunks) {
		grown := make([]atomic.Pointer[chunk[C]], 2*c)
		for i := range chunks {
			grown[i].Store(chunks[i].Load())
		}
		chunks = grown
		a.chunks.Store(&grown)
	}
	made := new(chunk[C])
	made.book.init(a.order)
	chunks[c].Store(made)
	a.whole++
	a.mark(c, a.order, 0)
}

// close gives an empty chunk back, and the other empty ones when nothing is in
// use at all. One is kept for what comes next.
func (a *arena[C]) close(c int) {
	if a.used > 0 {
		if a.whole > 1 {
			a.free(c)
		}
		return
	}
	for c := range *a.chunks.Load() {
		if a.book(c) != nil {
			a.free(c)
		}
	}
}

func (a *arena[C]) free(c int) {
	a.unmark(c, a.order, 0)
	a.whole--
	(*a.chunks.Load())[c].Store(nil)
}
