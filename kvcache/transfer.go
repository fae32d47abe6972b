package kvcache

import (
	"fmt"
	"slices"
	"time"

	"github.com/dynago/dynago/kv"
)

// Transfer is a batch of blocks to be copied from the slots of one tier to those
// of another. It belongs to the caller from Start to Finish, and is not changed
// by it.
type Transfer struct {
	ID         uint64
	Edge       Edge
	Background bool // gives way to others
	Bytes      int64
	Began      time.Duration
	Copies     []Copy

	moves []*move
}

func (x *Transfer) way() *way { return x.moves[0].way }

// Copy is one block of a transfer.
type Copy struct {
	Block    Block
	From, To Ref
}

// Fault is what became of one block of a transfer.
type Fault uint8

// Faults.
const (
	Arrived     Fault = iota // whole and checked
	Lost                     // what was to be read is gone or wrong; it is forgotten
	Unreachable              // it could not be read or written now
)

// move is one block on its way, or waiting to be.
type move struct {
	way        *way
	block      Block
	record     Record // its retention, which goes with it, from its arrival on
	from, to   Ref
	state      moveState
	background bool
	transfer   *Transfer
	// A move to the device fills a slot of a load, until the load gives it up.
	load *load
	pos  int
	// Those who wait for the block.
	waiters []waiter
	early   bool // by a prefetch, and nobody else has asked for it
}

type moveState uint8

const (
	moveQueued  moveState = iota
	moveOngoing           // part of a transfer
	moveArrived           // in its slot; not published before what precedes it
)

// moveKey finds a move by where it goes.
type moveKey struct {
	to   kv.Tier
	hash kv.SeqHash
}

// waiter is a position of a load, or a prefetch, that a move is of use to.
type waiter struct {
	load     *load
	pos      int
	prefetch *prefetch
}

// Start appends the transfers that are to begin now. Reads go before writes, and
// both before what is done in advance.
func (r *Registry) Start(dst []*Transfer, now time.Duration) []*Transfer {
	r.tick(now)
	r.promoteWrites()
	for _, w := range r.ways {
		for w.busy < w.cfg.Transfers && w.gate.until <= r.now {
			moves := w.nextReads()
			if w.down() {
				moves = r.nextWrites(w)
			}
			if len(moves) == 0 {
				break
			}
			dst = append(dst, r.start(w, moves))
		}
	}
	return dst
}

func (r *Registry) start(w *way, moves []*move) *Transfer {
	r.nextID++
	x := &Transfer{
		ID: r.nextID, Edge: w.Edge, Background: moves[0].background, Began: r.now,
		Bytes: int64(len(moves)) * r.cfg.BlockBytes, moves: moves,
	}
	for _, m := range moves {
		m.state, m.transfer = moveOngoing, x
		x.Copies = append(x.Copies, Copy{m.block, m.from, m.to})
	}
	w.busy++
	w.stats.Moving += len(moves)
	r.underway[x.ID] = x
	return x
}

// nextReads takes the moves of the next transfer upwards out of their queue.
func (w *way) nextReads() []*move {
	for lane := range w.reads {
		if q := w.reads[lane]; len(q) > 0 {
			n := min(len(q), w.cfg.Batch)
			w.reads[lane] = q[n:]
			return slices.Clone(q[:n])
		}
	}
	return nil
}

// Promoted returns the transfers that began in the background and that someone
// waits for since the last call. The slice is valid until the next call.
func (r *Registry) Promoted() []uint64 {
	ids := r.promoted
	r.promoted = r.promoted[len(r.promoted):]
	return ids
}

// Finish says how a transfer went: faults has one entry for each copy, or is nil
// if all have arrived. After an error of the way itself nothing starts on it for
// a while, which grows from 100 ms to 30 s.
func (r *Registry) Finish(now time.Duration, id uint64, faults []Fault) {
	r.tick(now)
	x := r.underway[id]
	if x == nil || faults != nil && len(faults) != len(x.moves) {
		panic(fmt.Sprintf("kvcache: transfer %d is not under way, or not with %d blocks", id, len(faults)))
	}
	delete(r.underway, id)
	w := x.way()
	w.busy--
	w.stats.took(r.now - x.Began)
	w.stats.Moving -= len(x.moves)
	w.gate.judge(r.now, faults)
	for i, m := range x.moves {
		fault := Arrived
		if faults != nil {
			fault = faults[i]
		}
		if fault == Arrived {
			m.record = w.from.pool.Record(m.from, r.cfg.Zero) // with what was asked meanwhile
			w.stats.Blocks++
			w.stats.Bytes += r.cfg.BlockBytes
		} else {
			w.stats.Failed++
		}
		switch {
		case w.down():
			r.written(m, fault)
		case w.To == kv.TierHost:
			r.lifted(m, fault)
		default:
			r.arrived(m, fault)
		}
	}
	if !w.down() && w.gate.until > r.now {
		r.turnAway(w.gate)
	}
	r.progress()
}

// turnAway ends the waiting of those who want to read from a tier that has just failed:
// it may be long until that is tried again, and what they want can be computed.
func (r *Registry) turnAway(g *gate) {
	for _, w := range r.ways {
		if w.gate != g || w.down() {
			continue
		}
		for lane := range w.reads {
			for len(w.reads[lane]) > 0 {
				m := w.reads[lane][0]
				w.reads[lane] = w.reads[lane][1:]
				if w.To == kv.TierHost {
					r.lifted(m, Unreachable)
				} else {
					r.arrived(m, Unreachable)
				}
			}
		}
	}
}

const (
	shortestPause = 100 * time.Millisecond
	longestPause  = 30 * time.Second
)

// gate closes a way for a while after an error. The ways up from one tier have
// one together.
type gate struct {
	until time.Duration
	pause time.Duration // the last one; 0 = all is well
}

func (g *gate) judge(now time.Duration, faults []Fault) {
	switch {
	case slices.Contains(faults, Unreachable):
		g.pause = min(max(2*g.pause, shortestPause), longestPause)
		g.until = now + g.pause
	case !slices.Contains(faults, Lost):
		g.pause = 0
	}
}

// publish puts a block that has arrived into its tier and lets go of its slot,
// so that it lies there for whoever wants it.
func (r *Registry) publish(m *move) {
	w := m.way
	ref, outcome := w.to.Register(m.to, m.block, Root)
	if outcome == Added {
		w.to.pool.Inherit(ref, m.record, r.cfg.Zero)
		r.fulfil(w.to, ref)
		if m.early {
			w.to.unread[m.block.Hash] = true
			r.prefetchStats.Blocks[w.To]++
		}
	}
	w.to.Release([]Ref{ref})
}

// carry returns the move of a block that the caller holds in slot from.
func (r *Registry) carry(w *way, from, to Ref) *move {
	return &move{way: w, block: w.from.Block(from), from: from, to: to}
}
