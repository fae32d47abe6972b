package router

import (
	"context"
	"slices"
	"time"

	"github.com/dynago/dynago/kv"
)

// one block in the books, of which an answer's blocks may count a part. Sums are
// whole numbers, so that taking back what was added leaves exactly nothing.
const one = 1 << 16

// books say what this router has sent where. They are plain data: the router's
// lock guards them.
type books struct {
	loads  []*load // by target, ascending
	open   bookings
	blocks runs   // in use
	picks  uint64 // decisions so far
	asked  uint64 // questions after depths so far
}

// load is what is booked on one target in one life of its worker.
type load struct {
	target        kv.Target
	life          context.Context // done when the worker is lost
	requests      int
	prefillTokens int // of all prefills, whatever is done of them
	prefills      prefills
	weight        int64 // of all blocks in use
	lastPick      uint64
	// depth is how many leading blocks of a prompt are in use here, as far as it
	// was asked last; another question's answer means nothing.
	depth int
	asked uint64
}

// activePrefill returns how many tokens of prompts are not yet computed.
func (l *load) activePrefill(now time.Time) int { return l.prefills.left(l.prefillTokens, now) }

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

// walk finds loads of targets that are asked for in their order.
type walk struct {
	loads []*load
	at    int
}

func (b *books) walk() walk { return walk{loads: b.loads} }

// load returns the load of t in this life of its worker, or nil.
func (w *walk) load(t kv.Target, life context.Context) *load {
	for w.at < len(w.loads) {
		l := w.loads[w.at]
		if l.target == t {
			if w.at++; l.life == life {
				return l
			}
			return nil
		}
		if l.target.Compare(t) > 0 {
			return nil
		}
		w.at++
	}
	return nil
}

// depths finds out for every load how many leading blocks of a prompt are in use
// there. Loads where there are some carry the number that is returned.
func (b *books) depths(hashes []kv.SeqHash) uint64 {
	b.asked++
	b.blocks.depths(hashes, b.asked)
	return b.asked
}

// load returns the load of t in this life of its worker. What was booked in an
// earlier life no longer counts.
func (b *books) load(t kv.Target, life context.Context) *load {
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

// enter adds a booking of a prompt's blocks. The hashes are not kept.
func (b *books) enter(k *Booking, hashes []kv.SeqHash) {
	b.picks++
	l := k.load
	l.lastPick = b.picks
	l.requests += k.requests
	if p := &k.prefill; p.tokens > 0 {
		l.prefillTokens += p.tokens
		l.prefills.add(p, k.placed)
	}
	k.last = b.blocks.enter(l, hashes)
	b.open.add(k)
}

// leave takes out all that is left of a booking. It may be called again.
func (b *books) leave(k *Booking, now time.Time) {
	if k.last == nil {
		return
	}
	l := k.load
	l.requests -= k.requests
	b.prefilled(k, now)
	l.weight -= int64(k.outputBlocks) * k.outputWeight
	b.blocks.leave(k.last, l)
	k.last = nil
	b.open.remove(k)
	if l.requests == 0 && l.life.Err() != nil {
		b.drop(l)
	}
}

// prefilled takes out a booking's outstanding prefill.
func (b *books) prefilled(k *Booking, now time.Time) {
	if p := &k.prefill; p.tokens > 0 {
		k.load.prefillTokens -= p.tokens
		k.load.prefills.remove(p, now)
	}
}

// grow books blocks of an answer. Each counts w, and so do from now on those
// before it, and the blocks of the prompt that no other request uses: the
// shorter an answer is expected to go on, the sooner they will be free.
func (b *books) grow(k *Booking, blocks int, w int64) {
	l := k.load
	l.weight += int64(k.outputBlocks+blocks)*w - int64(k.outputBlocks)*k.outputWeight
	k.outputBlocks += blocks
	k.outputWeight = w
	k.last.weigh(l, w)
}

// drop removes a load from the books.
func (b *books) drop(l *load) {
	if i, ok := b.search(l.target); ok && b.loads[i] == l {
		b.loads = slices.Delete(b.loads, i, i+1)
	}
}

// bookings are those that stand in the books, the oldest first.
type bookings struct{ first, last *Booking }

func (l *bookings) add(k *Booking) {
	k.older, k.younger = l.last, nil
	if l.last == nil {
		l.first = k
	} else {
		l.last.younger = k
	}
	l.last = k
}

func (l *bookings) remove(k *Booking) {
	if k.older == nil {
		l.first = k.younger
	} else {
		k.older.younger = k.younger
	}
	if k.younger == nil {
		l.last = k.older
	} else {
		k.younger.older = k.older
	}
	k.older, k.younger = nil, nil
}
