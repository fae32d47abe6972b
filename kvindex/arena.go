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
	chunks atomic.Pointer[[]atomic.Pointer[C]]
	books  []*book  // by chunk; nil where there is none
	room   []bitmap // by order: the chunks with a free block of it
	used   int      // units
	whole  int      // chunks that are there and empty
}

// book says which blocks of a chunk are free.
type book struct {
	free []bitmap // by order
	left int      // free units
}

// newBook returns the book of a chunk of which nothing is free yet.
func newBook(order int) *book {
	b := &book{free: make([]bitmap, order+1), left: 1 << order}
	words := make([]uint64, 2<<order/64+order+1)
	for o := range b.free {
		n := (1<<(order-o) + 63) / 64
		b.free[o].words, words = words[:n:n], words[n:]
	}
	return b
}

func newArena[C any](order, limit int) *arena[C] {
	a := &arena[C]{order: order, limit: limit, books: make([]*book, 1), room: make([]bitmap, order+1)}
	a.chunks.Store(new(make([]atomic.Pointer[C], 1)))
	return a
}

// chunk returns a chunk by its number, or nil if there is none.
func (a *arena[C]) chunk(i uint32) *C {
	chunks := *a.chunks.Load()
	if int(i) >= len(chunks) {
		return nil
	}
	return chunks[i].Load()
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
	b := a.books[c]
	i := b.free[from].first()
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
	b := a.books[c]
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
		for order < a.order && a.books[c].free[order].has(at^1) {
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
	f := &a.books[c].free[order]
	if f.set(i); f.count == 1 {
		a.room[order].set(c)
	}
}

func (a *arena[C]) unmark(c, order, i int) {
	f := &a.books[c].free[order]
	if f.clear(i); f.count == 0 {
		a.room[order].clear(c)
	}
}

// vacant returns the smallest number without a chunk.
func (a *arena[C]) vacant() int {
	for c := 1; c < len(a.books); c++ {
		if a.books[c] == nil {
			return c
		}
	}
	return len(a.books)
}

func (a *arena[C]) open(c int) {
	if c == len(a.books) {
		a.books = append(a.books, nil)
	}
	chunks := *a.chunks.Load()
	if c >= len(chunks) {
		grown := make([]atomic.Pointer[C], 2*c)
		for i := range chunks {
			grown[i].Store(chunks[i].Load())
		}
		chunks = grown
		a.chunks.Store(&grown)
	}
	chunks[c].Store(new(C))
	a.books[c] = newBook(a.order)
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
	for c, b := range a.books {
		if b != nil {
			a.free(c)
		}
	}
}

func (a *arena[C]) free(c int) {
	a.unmark(c, a.order, 0)
	a.books[c] = nil
	a.whole--
	(*a.chunks.Load())[c].Store(nil)
}
