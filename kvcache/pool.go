// Package kvcache manages KV blocks: which slot of a memory holds which block,
// who is using it, and which one goes when room is needed. It moves no bytes,
// does no I/O, and has no goroutine, clock or lock: the caller owns
// synchronisation, and calls that change a pool must not overlap with any other
// call on it.
//
// The one idea: a slot is free, being written, or published under the sequence
// hash of what it holds, and a published block stays findable after its last
// user has gone, until its slot is needed. A block in use keeps its parent in
// use, and so a parent always falls idle after its children: the order in which
// blocks fall idle is the order in which they may go, and what is left of a
// sequence is always a prefix of it, which is the only part anyone can use.
//
//	Reset ──Allocate──▶ Mutable ──Register──▶ Primary ◀──Match── Inactive
//	  ▲                    │         │           └───last Release──▶ │
//	  │                 Release      └▶ Duplicate (keeps its primary)│
//	  └────────────────────┴───────────────┴── Release ── eviction ──┘
package kvcache

import (
	"fmt"
	"iter"
	"slices"

	"github.com/dynago/dynago/kv"
)

// Ref is one reference to a block, and the number of the slot that the block
// lies in: 0..N-1 of a pool of N. Every Ref that Allocate or Match returned is
// to be released exactly once.
type Ref uint32

// Root stands for the missing parent of a sequence's first block.
const Root = ^Ref(0)

// State is what a slot is in.
type State uint8

// States of a slot.
const (
	Reset     State = iota // free
	Mutable                // handed out for writing, not yet published
	Primary                // published and in use
	Duplicate              // holds the same as a primary; keeps that in use
	Inactive               // published and used by no one: findable, evictable
)

// String returns the state's lower-case name.
func (s State) String() string {
	return [...]string{"reset", "mutable", "primary", "duplicate", "inactive"}[min(s, Inactive)]
}

// none ends a list and marks the absence of a slot.
const none = int32(-1)

// block is one slot. It holds no pointers, and two of them fill a cache line.
type block struct {
	hash kv.SeqHash
	// up is the parent of a published block, or none; of a duplicate it is the
	// primary. A block that is not inactive holds a reference on it.
	up   int32
	refs int32 // references out, those of children and duplicates included
	// prev and next link the free list (next alone) and the inactive list.
	prev, next int32
	state      State
}

// list is a doubly linked list through block.prev and block.next.
type list struct{ head, tail int32 }

// Pool is one tier of cache: a fixed number of slots, plain least-recently-used
// eviction, leaves first. Every operation takes constant time per block.
type Pool struct {
	blocks   []block
	index    index
	free     list // FIFO
	inactive list // least recently used first, and every child before its parent
	count    [Inactive + 1]int
	evicted  []kv.SeqHash // scratch of Allocate
}

// New returns a pool of n free slots. It panics unless n is between 1 and 2^31-1.
func New(n int) *Pool {
	if n < 1 || int64(n) > 1<<31-1 {
		panic(fmt.Sprintf("kvcache: a pool of %d blocks", n))
	}
	p := &Pool{
		blocks:   make([]block, n),
		index:    newIndex(n),
		free:     list{none, none},
		inactive: list{none, none},
	}
	for i := range p.blocks {
		p.blocks[i] = block{up: none, prev: none, next: none}
		p.pushFree(int32(i))
	}
	p.count[Reset] = n
	return p
}

// Stats counts slots by state. They always sum to Total.
type Stats struct {
	Total, Free, Mutable, Primary, Duplicate, Inactive int
}

// Used returns the number of slots that someone holds.
func (s Stats) Used() int { return s.Mutable + s.Primary + s.Duplicate }

// Stats returns the present counts, in constant time.
func (p *Pool) Stats() Stats {
	return Stats{
		Total: len(p.blocks), Free: p.count[Reset], Mutable: p.count[Mutable],
		Primary: p.count[Primary], Duplicate: p.count[Duplicate], Inactive: p.count[Inactive],
	}
}

// Available returns how many blocks Allocate could give now, at most.
func (p *Pool) Available() int { return p.count[Reset] + p.count[Inactive] }

// State returns what slot r is in.
func (p *Pool) State(r Ref) State { return p.blocks[r].state }

// Hash returns the hash under which r is published, or 0 if it is not. For a
// duplicate it is that of its primary.
func (p *Pool) Hash(r Ref) kv.SeqHash { return p.blocks[r].hash }

// Parent returns the parent of a published block, or Root.
func (p *Pool) Parent(r Ref) Ref {
	b := &p.blocks[r]
	if b.state == Duplicate {
		b = &p.blocks[b.up]
	}
	return Ref(b.up) // none is Root
}

// Allocate appends n mutable blocks to dst, each with one reference. It takes
// free slots first, in the order in which they became free, and then evicts
// inactive blocks, least recently used first, children before parents. It is
// all or nothing: if fewer than n blocks are available, it reports false and
// changes nothing.
//
// The hashes that were evicted on the way are returned in order; the slice is
// valid until the next call of Allocate.
func (p *Pool) Allocate(dst []Ref, n int) (refs []Ref, evicted []kv.SeqHash, ok bool) {
	if n > p.Available() {
		return dst, nil, false
	}
	p.evicted = p.evicted[:0]
	for range n {
		i := p.free.head
		if i == none {
			i = p.evict()
		} else {
			p.popFree()
		}
		b := &p.blocks[i]
		b.refs = 1
		p.move(b, Mutable)
		dst = append(dst, Ref(i))
	}
	p.check()
	return dst, p.evicted, true
}

// Prefix says how many of the leading hashes are present, and how many of those
// are inactive, so that taking them would leave fewer blocks to allocate. It
// touches nothing.
func (p *Pool) Prefix(hashes []kv.SeqHash) (present, inactive int) {
	for _, h := range hashes {
		i := p.find(h)
		if i == none {
			break
		}
		present++
		if p.blocks[i].state == Inactive {
			inactive++
		}
	}
	return present, inactive
}

// Match appends a reference for each of the leading hashes that are present,
// stopping at the first one that is not.
func (p *Pool) Match(dst []Ref, hashes []kv.SeqHash) []Ref {
	for _, h := range hashes {
		i := p.find(h)
		if i == none {
			break
		}
		p.hold(i)
		dst = append(dst, Ref(i))
	}
	p.check()
	return dst
}

// Register publishes a mutable block, which has been written in full, under
// hash, as the child of parent, which is Root or a published block that is held
// by the caller. It reports whether the hash is new to the pool. If not, the
// block becomes a duplicate: it stays with the caller, and keeps the block that
// everybody finds from being evicted.
func (p *Pool) Register(r Ref, hash kv.SeqHash, parent Ref) (added bool) {
	b := &p.blocks[r]
	if b.state != Mutable {
		panic(fmt.Sprintf("kvcache: block %d registered while %s", r, b.state))
	}
	b.hash = hash
	if i := p.find(hash); i != none {
		p.hold(i)
		b.up = i
		p.move(b, Duplicate)
		p.check()
		return false
	}
	if parent != Root {
		up := &p.blocks[parent]
		if up.state == Duplicate {
			parent = Ref(up.up)
			up = &p.blocks[parent]
		}
		if up.state != Primary {
			panic(fmt.Sprintf("kvcache: block %d registered below block %d, which is %s", r, parent, up.state))
		}
		b.up = int32(parent)
		up.refs++
	}
	p.index.put(hash, int32(r))
	p.move(b, Primary)
	p.check()
	return true
}

// Release gives references back, from the last to the first, so that of a
// sequence given in its own order the head is kept longest. A published block
// without references becomes inactive, any other one free.
//
// Releasing what is not held is a fault of the caller, and panics where it can
// be seen.
func (p *Pool) Release(refs []Ref) {
	for k := len(refs) - 1; k >= 0; k-- {
		p.drop(int32(refs[k]))
	}
	p.check()
}

// Chains yields everything that is published, each block once, as runs in which
// every block is the child of the one before it. A run begins at the root or
// below a block of an earlier run. The slice is reused; the pool must not be
// changed meanwhile.
func (p *Pool) Chains() iter.Seq[[]Ref] {
	return func(yield func([]Ref) bool) {
		parent := make([]bool, len(p.blocks))
		for i := range p.blocks {
			if b := &p.blocks[i]; b.published() && b.up != none {
				parent[b.up] = true
			}
		}
		seen := make([]bool, len(p.blocks))
		var run []Ref
		for i := range p.blocks {
			if parent[i] || !p.blocks[i].published() {
				continue
			}
			run = run[:0]
			for j := int32(i); j != none && !seen[j]; j = p.blocks[j].up {
				seen[j] = true
				run = append(run, Ref(j))
			}
			slices.Reverse(run)
			if !yield(run) {
				return
			}
		}
	}
}

func (p *Pool) find(h kv.SeqHash) int32 { return p.index.get(p.blocks, h) }

func (b *block) published() bool { return b.state == Primary || b.state == Inactive }

// hold takes a reference on a published block, and wakes its ancestors with it.
func (p *Pool) hold(i int32) {
	for i != none {
		b := &p.blocks[i]
		b.refs++
		if b.state != Inactive {
			return
		}
		p.unlink(i)
		p.move(b, Primary)
		i = b.up
	}
}

// drop gives one reference back, and with the last one also the hold on what
// lies above.
func (p *Pool) drop(i int32) {
	for i != none {
		b := &p.blocks[i]
		if b.refs <= 0 {
			panic(fmt.Sprintf("kvcache: block %d released while %s and without references", i, b.state))
		}
		if b.refs--; b.refs > 0 {
			return
		}
		up := b.up
		if b.state == Primary {
			p.move(b, Inactive)
			p.pushInactive(i)
		} else {
			b.hash, b.up = 0, none
			p.move(b, Reset)
			p.pushFree(i)
		}
		i = up
	}
}

// evict takes the least recently used block out of every list and returns its
// slot. There must be one. It has no children: they would lie before it.
func (p *Pool) evict() int32 {
	i := p.inactive.head
	p.unlink(i)
	b := &p.blocks[i]
	p.evicted = append(p.evicted, b.hash)
	p.index.remove(p.blocks, b.hash)
	b.hash, b.up = 0, none
	return i
}

func (p *Pool) move(b *block, to State) {
	p.count[b.state]--
	b.state = to
	p.count[to]++
}

func (p *Pool) pushFree(i int32) {
	p.blocks[i].next = none
	if p.free.tail == none {
		p.free.head = i
	} else {
		p.blocks[p.free.tail].next = i
	}
	p.free.tail = i
}

func (p *Pool) popFree() {
	p.free.head = p.blocks[p.free.head].next
	if p.free.head == none {
		p.free.tail = none
	}
}

func (p *Pool) pushInactive(i int32) {
	b := &p.blocks[i]
	b.prev, b.next = p.inactive.tail, none
	if b.prev == none {
		p.inactive.head = i
	} else {
		p.blocks[b.prev].next = i
	}
	p.inactive.tail = i
}

func (p *Pool) unlink(i int32) {
	b := &p.blocks[i]
	if b.prev == none {
		p.inactive.head = b.next
	} else {
		p.blocks[b.prev].next = b.next
	}
	if b.next == none {
		p.inactive.tail = b.prev
	} else {
		p.blocks[b.next].prev = b.prev
	}
	b.prev, b.next = none, none
}
