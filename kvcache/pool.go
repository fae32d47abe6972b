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
// sequence is always a prefix of it, which is the only part anyone can use. What
// somebody wants kept longer, or gone sooner, is put into another order, and costs
// those nothing of whom nothing is asked.
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
	"time"

	"github.com/dynago/dynago/kv"
)

// PoolConfig is how a pool is made. Only Blocks must be given.
type PoolConfig struct {
	Blocks   int // slots, 1 to 2^31-1
	Eviction Eviction
	// Reject makes [Pool.Publish] give up a block that is known already, instead
	// of keeping it as a duplicate. A pool whose slots are written by engines
	// needs duplicates, one that is shared does not.
	Reject bool
	// PinBudget is how many blocks may be pinned at a time. 0 = none.
	PinBudget int64
	// HardPins allows them; without, they are taken for soft ones.
	HardPins       bool
	SessionTimeout time.Duration // 0 = DefaultSessionTimeout
}

// Pool is one tier of cache: a fixed number of slots. Blocks of which nobody has
// asked anything go in the order of their last use, leaves first. Every operation
// takes constant time per block, and logarithmic time per block with a deadline.
type Pool struct {
	index  index
	free   list // FIFO
	reject bool
	count  [Inactive + 1]int
	gone   []kv.SeqHash // scratch of Allocate
	keeper
	removed []kv.SeqHash // went otherwise, and were not yet told
}

// New returns a pool of n free slots with the default order and no room for pins.
// It panics unless n is between 1 and 2^31-1.
func New(n int) *Pool { return NewPool(PoolConfig{Blocks: n}) }

// NewPool returns a pool of free slots. It panics if the number of blocks is out
// of range.
func NewPool(c PoolConfig) *Pool {
	n := c.Blocks
	if n < 1 || int64(n) > 1<<31-1 {
		panic(fmt.Sprintf("kvcache: a pool of %d blocks", n))
	}
	p := &Pool{index: newIndex(n), free: list{none, none}, reject: c.Reject}
	p.blocks = make([]block, n)
	p.init(c)
	p.room = func() bool { return p.Spare() > 0 }
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

// Available returns how many blocks Allocate could give now, at most: what is
// free or idle, but for hard pins and what they stand on.
func (p *Pool) Available() int {
	return p.count[Reset] + p.count[Inactive] - p.locked[byHard]
}

// Spare returns how many blocks AllocateSpare could give now: those that
// Allocate could give without breaking a pin.
func (p *Pool) Spare() int {
	return p.count[Reset] + p.count[Inactive] - p.locked[byAny]
}

// State returns what slot r is in.
func (p *Pool) State(r Ref) State { return p.blocks[r].state }

// Hash returns the hash under which r is published, or 0 if it is not. For a
// duplicate it is that of its primary.
func (p *Pool) Hash(r Ref) kv.SeqHash { return p.blocks[r].hash }

// Parent returns the parent of a published block, or Root.
func (p *Pool) Parent(r Ref) Ref {
	return Ref(p.blocks[p.original(r)].up) // none is Root
}

// Allocate appends n mutable blocks to dst, each with one reference. It takes
// free slots first, in the order in which they became free, and then evicts
// inactive blocks, least recently used first unless somebody has asked for
// something else, children before parents. Soft pins are broken where nothing else
// is left, those that would expire first before others. It is all or nothing: if
// fewer than n blocks are available, it reports false and evicts nothing.
//
// The hashes that were evicted on the way are returned in order; the slice is
// valid until the next call of Allocate.
func (p *Pool) Allocate(dst []Ref, n int) (refs []Ref, evicted []kv.SeqHash, ok bool) {
	return p.allocate(dst, n, p.Available())
}

// AllocateSpare is Allocate for work that can be left undone, such as copying
// blocks from another tier: it fails where Allocate would break a pin.
func (p *Pool) AllocateSpare(dst []Ref, n int) (refs []Ref, evicted []kv.SeqHash, ok bool) {
	return p.allocate(dst, n, p.Spare())
}

func (p *Pool) allocate(dst []Ref, n, available int) (refs []Ref, evicted []kv.SeqHash, ok bool) {
	if n < 0 {
		panic(fmt.Sprintf("kvcache: %d blocks allocated", n))
	}
	if n > available {
		return dst, nil, false
	}
	p.gone = p.gone[:0]
	if p.plain {
		dst = p.takePlain(dst, n)
	} else {
		dst = p.take(dst, n)
	}
	p.index.removeAll(p.gone, dst[len(dst)-len(p.gone):])
	p.count[Mutable] += n
	p.count[Inactive] -= len(p.gone)
	p.count[Reset] -= n - len(p.gone)
	p.check()
	return dst, p.gone, true
}

// Prefix says how many of the leading hashes are present, and how many of those
// are idle and count in [Pool.Available], so that taking them would leave fewer
// blocks to allocate. It touches nothing.
func (p *Pool) Prefix(hashes []kv.SeqHash) (present, idle int) {
	for i := range p.leading(hashes) {
		present++
		b := &p.blocks[i]
		if b.state == Inactive && (b.flags&noted == 0 || p.notes.at(p.noteOf[i]).locks[byHard] == 0) {
			idle++
		}
	}
	return present, idle
}

// SpareIn says how many of the leading hashes that are present lie idle and count in
// [Pool.Spare], so that taking them would leave fewer.
func (p *Pool) SpareIn(hashes []kv.SeqHash) (blocks int) {
	for i := range p.leading(hashes) {
		b := &p.blocks[i]
		if b.state == Inactive && (b.flags&noted == 0 || p.notes.at(p.noteOf[i]).locks[byAny] == 0) {
			blocks++
		}
	}
	return blocks
}

// Match appends a reference for each of the leading hashes that are present,
// stopping at the first one that is not. Soft pins of these blocks are renewed.
func (p *Pool) Match(dst []Ref, hashes []kv.SeqHash) []Ref { return p.MatchFor(0, dst, hashes) }

// MatchFor is Match by a request of a session, or of none if id is 0. Blocks are
// tagged with the session. A block that was ephemeral for others is so no more;
// see [Pool.TakePromoted].
func (p *Pool) MatchFor(id SessionID, dst []Ref, hashes []kv.SeqHash) []Ref {
	session, known := p.number(id)
	if p.plain {
		dst = p.matchPlain(dst, hashes, session, known)
		p.check()
		return dst
	}
	for i := range p.leading(hashes) {
		p.hold(i)
		p.hit(i, session, known)
		dst = append(dst, Ref(i))
	}
	p.check()
	return dst
}

// MatchScattered appends a reference for each hash that is present, and Root,
// which is not to be released, for each that is not. What lies above a block that
// was found is in use with it.
func (p *Pool) MatchScattered(id SessionID, dst []Ref, hashes []kv.SeqHash) []Ref {
	n, known := p.number(id)
	for _, h := range hashes {
		i := p.find(h)
		if i != none {
			p.hold(i)
			p.hit(i, n, known)
		}
		dst = append(dst, Ref(i)) // none is Root
	}
	p.check()
	return dst
}

// Hold takes one more reference on each of these published blocks, without
// counting as a hit: for those who read a block to copy it.
func (p *Pool) Hold(refs []Ref) {
	for _, r := range refs {
		if !p.blocks[r].published() {
			panic(fmt.Sprintf("kvcache: block %d held while %s", r, p.blocks[r].state))
		}
		p.hold(int32(r))
	}
	p.check()
}

// Find returns the block that is published under a hash, without holding it.
func (p *Pool) Find(h kv.SeqHash) (r Ref, ok bool) {
	i := p.find(h)
	return Ref(i), i != none
}

// Touch makes blocks the most recently used ones, the head of the sequence last,
// and renews their pins. It is nobody's use: an ephemeral block stays so.
func (p *Pool) Touch(hashes []kv.SeqHash) {
	for _, h := range slices.Backward(hashes) {
		i := p.find(h)
		if i == none {
			continue
		}
		p.hold(i)
		if p.blocks[i].flags&noted != 0 {
			p.refresh(i)
		}
		p.drop(i)
	}
	p.check()
}

// Outcome is what became of a block that was published.
type Outcome uint8

// Outcomes of Publish.
const (
	Added    Outcome = iota // it is what everybody finds
	Doubled                 // it is a duplicate of what everybody finds
	Rejected                // it is free, and the caller has what everybody finds
)

// Register publishes a mutable block, which has been written in full, under
// hash, as the child of parent, which is Root or a published block that is held
// by the caller. It reports whether the hash is new to the pool. If not, the
// block becomes a duplicate: it stays with the caller, and keeps the block that
// everybody finds from being evicted. It is not for pools that reject duplicates.
func (p *Pool) Register(r Ref, hash kv.SeqHash, parent Ref) (added bool) {
	if p.reject {
		panic("kvcache: Register in a pool that rejects duplicates, want Publish")
	}
	_, outcome := p.Publish(r, hash, parent)
	return outcome == Added
}

// Publish is Register for pools of both kinds. It returns the reference that the
// caller has from now on in place of r: where duplicates are rejected, and the
// hash is known, that is one on the block that was there.
func (p *Pool) Publish(r Ref, hash kv.SeqHash, parent Ref) (Ref, Outcome) {
	b := &p.blocks[r]
	if b.state != Mutable {
		panic(fmt.Sprintf("kvcache: block %d registered while %s", r, b.state))
	}
	if i := p.find(hash); i != none {
		return p.double(r, i)
	}
	b.hash = hash
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
	if p.kind > EvictLRU {
		p.published(int32(r))
	}
	p.check()
	return r, Added
}

// double settles what becomes of block r, which holds the same as block i.
func (p *Pool) double(r Ref, i int32) (Ref, Outcome) {
	p.hold(i)
	x, b := &p.blocks[i], &p.blocks[r]
	if len(p.owners(i)) == 0 {
		x.flags |= foreign
		p.raise(i)
	}
	if p.reject {
		p.drop(int32(r))
		p.check()
		return Ref(i), Rejected
	}
	b.hash, b.up, b.flags = x.hash, i, foreign // until somebody says whose it is
	p.move(b, Duplicate)
	p.check()
	return r, Doubled
}

// Release gives references back, from the last to the first, so that of a
// sequence given in its own order the head is kept longest. A published block
// without references becomes inactive, any other one free.
//
// Releasing what is not held is a fault of the caller, and panics where it can
// be seen.
func (p *Pool) Release(refs []Ref) {
	if p.plain {
		p.dropPlain(refs)
	} else {
		for _, r := range slices.Backward(refs) {
			p.drop(int32(r))
		}
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
