package router

import (
	"context"
	"slices"
	"sort"

	"github.com/dynago/dynago/kv"
)

// one block in the books, of which an answer's blocks may count a part. Sums are
// whole numbers, so that taking back what was added leaves exactly nothing.
const one = 1 << 16

// books say what this router has sent where. They are plain data: the router's
// lock guards them.
//
// A request holds the hashes of all blocks of its prompt. As each hash stands
// for everything before it, who holds one holds all before it: along a prompt
// the set of holders can only shrink.
type books struct {
	loads  []*load // by target, ascending
	blocks map[kv.SeqHash]*holders
	picks  uint64 // decisions so far

	// Memory to be used again.
	spareHolders []*holders
	spareHashes  [][]kv.SeqHash
}

// load is what is booked on one target in one life of its worker.
type load struct {
	target        kv.Target
	life          context.Context // done when the worker is lost
	requests      int
	prefillTokens int
	weight        int64 // of all blocks in use
	lastPick      uint64
	depth         int // leading blocks of the prompt under decision in use here
}

// holders are the targets on which one block is in use.
type holders struct{ by []hold }

type hold struct {
	load     *load
	requests int32
	weight   int64
}

// Spare memory is kept within these bounds.
const (
	mostSpareHolders = 1 << 16
	mostSpareHashes  = 256
	longestSpare     = 1 << 14 // blocks
)

func newBooks() books { return books{blocks: make(map[kv.SeqHash]*holders)} }

func (l *load) activeBlocks() int { return int((l.weight + one/2) / one) }

// search returns where the load of t is, or belongs.
func (b *books) search(t kv.Target) (int, bool) {
	return slices.BinarySearchFunc(b.loads, t, func(l *load, t kv.Target) int { return l.target.Compare(t) })
}

// find returns the load of t, or nil.
func (b *books) find(t kv.Target) *load {
	if i, ok := b.search(t); ok {
		return b.loads[i]
	}
	return nil
}

// open returns the load of t in this life of its worker. What was booked in an
// earlier life no longer counts.
func (b *books) open(t kv.Target, life context.Context) *load {
	i, ok := b.search(t)
	if !ok {
		b.loads = slices.Insert(b.loads, i, &load{target: t, life: life})
	} else if b.loads[i].life != life {
		b.loads[i] = &load{target: t, life: life}
	}
	return b.loads[i]
}

// dropIdle forgets the targets of a worker whose life is over and on which
// nothing is booked.
func (b *books) dropIdle(worker uint64) {
	b.loads = slices.DeleteFunc(b.loads, func(l *load) bool {
		return l.target.Worker == worker && l.requests == 0 && l.life.Err() != nil
	})
}

// depths sets for every target how many leading blocks are in use there. Equal
// numbers of holders mean equal sets, so whole stretches are skipped.
func (b *books) depths(hashes []kv.SeqHash) {
	holdersOf := func(i int) []hold {
		if h := b.blocks[hashes[i]]; h != nil {
			return h.by
		}
		return nil
	}
	for i := 0; i < len(hashes); {
		by := holdersOf(i)
		if len(by) == 0 {
			return
		}
		i += sort.Search(len(hashes)-i, func(n int) bool { return len(holdersOf(i+n)) != len(by) })
		for _, h := range by {
			h.load.depth = i
		}
	}
}

// enter adds a booking.
func (b *books) enter(k *Booking) {
	b.picks++
	l := k.load
	l.lastPick = b.picks
	l.requests += k.requests
	l.prefillTokens += k.prefillTokens
	at := 0
	for _, hash := range k.hashes {
		h := b.blocks[hash]
		if h == nil {
			h = b.newHolders()
			b.blocks[hash] = h
		}
		at = h.add(l, at)
	}
}

// leave takes out all that is left of a booking.
func (b *books) leave(k *Booking) {
	l := k.load
	l.requests -= k.requests
	b.prefilled(k)
	l.weight -= int64(k.outputBlocks) * k.outputWeight
	at := 0
	for _, hash := range k.hashes {
		h := b.blocks[hash]
		if at = h.remove(l, at); len(h.by) == 0 {
			delete(b.blocks, hash)
			b.recycle(h)
		}
	}
	if len(b.spareHashes) < mostSpareHashes && cap(k.hashes) <= longestSpare {
		b.spareHashes = append(b.spareHashes, k.hashes[:0])
	}
	k.hashes = nil
	if l.requests == 0 && l.life.Err() != nil {
		b.drop(l)
	}
}

// prefilled takes out a booking's outstanding prefill.
func (b *books) prefilled(k *Booking) {
	k.load.prefillTokens -= k.prefillTokens
	k.prefillTokens = 0
}

// grow books blocks of an answer. Each counts w, and so do from now on those
// before it, and the blocks of the prompt that no other request uses: the
// shorter an answer is expected to go on, the sooner they will be free.
func (b *books) grow(k *Booking, blocks int, w int64) {
	l := k.load
	l.weight += int64(k.outputBlocks+blocks)*w - int64(k.outputBlocks)*k.outputWeight
	k.outputBlocks += blocks
	k.outputWeight = w
	at := 0
	for _, hash := range slices.Backward(k.hashes) {
		by := b.blocks[hash]
		at = by.find(l, at)
		h := &by.by[at]
		if h.requests > 1 {
			break
		}
		l.weight += w - h.weight
		h.weight = w
	}
}

// drop removes a load from the books.
func (b *books) drop(l *load) {
	if i, ok := b.search(l.target); ok && b.loads[i] == l {
		b.loads = slices.Delete(b.loads, i, i+1)
	}
}

func (b *books) newHolders() *holders {
	n := len(b.spareHolders)
	if n == 0 {
		return &holders{}
	}
	h := b.spareHolders[n-1]
	b.spareHolders = b.spareHolders[:n-1]
	return h
}

func (b *books) recycle(h *holders) {
	if len(b.spareHolders) < mostSpareHolders {
		b.spareHolders = append(b.spareHolders, h)
	}
}

// spare returns an empty slice, with memory if there is some.
func (b *books) spare() []kv.SeqHash {
	n := len(b.spareHashes)
	if n == 0 {
		return nil
	}
	s := b.spareHashes[n-1]
	b.spareHashes = b.spareHashes[:n-1]
	return s
}

// find returns the position of l, or -1. Blocks of one prefix got their holders
// in the same order, so the position in the last block is a good guess.
func (h *holders) find(l *load, guess int) int {
	if guess < len(h.by) && h.by[guess].load == l {
		return guess
	}
	for i := range h.by {
		if h.by[i].load == l {
			return i
		}
	}
	return -1
}

// add notes one more request of l and returns its position. A block that is
// shared counts whole.
func (h *holders) add(l *load, guess int) int {
	at := h.find(l, guess)
	if at < 0 {
		h.by = append(h.by, hold{load: l, requests: 1, weight: one})
		l.weight += one
		return len(h.by) - 1
	}
	k := &h.by[at]
	k.requests++
	l.weight += one - k.weight
	k.weight = one
	return at
}

// remove takes back one request of l, which must be there, and returns where it
// was.
func (h *holders) remove(l *load, guess int) int {
	at := h.find(l, guess)
	k := &h.by[at]
	if k.requests--; k.requests > 0 {
		return at
	}
	l.weight -= k.weight
	last := len(h.by) - 1
	*k = h.by[last]
	h.by[last] = hold{}
	h.by = h.by[:last]
	return at
}
