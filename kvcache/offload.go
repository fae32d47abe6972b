package kvcache

import (
	"container/heap"
	"time"

	"github.com/dynago/dynago/kv"
)

// Skip is why a block was not written to a lower tier.
type Skip uint8

// Reasons, in the order in which they are looked for.
const (
	SkipEphemeral Skip = iota // it will not be wanted again
	SkipPresent               // the tier has it, or it is on its way
	SkipForbidden             // its owner does not want it written
	SkipPriority              // it, or one before it, is not important enough
	SkipFrequency             // it was seen only once
	SkipSpace                 // the tier is full of what is worth more
	SkipOverflow              // too many wait already
	SkipGone                  // it was evicted before its turn came
	SkipDown                  // the tier cannot be reached
	Skips         = iota
)

// String returns the reason as a label.
func (s Skip) String() string {
	return [...]string{"ephemeral", "present", "forbidden", "priority", "frequency", "space", "overflow", "gone", "down"}[s]
}

// WriteThrough offers blocks of the device, which are one request's and in its
// order, to the tiers below. They may be evicted before their turn comes.
func (r *Registry) WriteThrough(now time.Duration, run []Ref) {
	r.tick(now)
	if len(r.ways) == 0 {
		return // the device is all there is
	}
	stopped := false // by the priority of an earlier one
	for _, ref := range run {
		b := r.device.Block(ref)
		if b.Hash == 0 {
			continue
		}
		worth := r.device.worth(ref)
		stopped = stopped || worth.known < r.cfg.MinPriority
		r.offer(r.device, b, worth, stopped && !worth.pinned)
	}
}

// promoteWrites offers what was ephemeral and turned out to be of use to others.
func (r *Registry) promoteWrites() {
	r.refs = r.device.pool.TakePromoted(r.refs[:0])
	for i := range r.refs {
		r.WriteThrough(r.now, r.refs[i:i+1])
	}
}

// offer queues a block of a tier on the ways down from it. Stopped says that its
// priority, or that of one before it, is too low for that.
func (r *Registry) offer(from *Tier, b Block, worth worth, stopped bool) {
	for _, w := range r.ways {
		if w.from != from || !w.down() {
			continue
		}
		if reason, skip := r.skips(w, b.Hash, worth, stopped); skip {
			w.stats.Skipped[reason]++
			continue
		}
		w.queued[b.Hash] = true
		r.nextID++
		heap.Push(&w.writes, pendingWrite{b.Hash, worth.priority, r.nextID})
	}
}

func (r *Registry) skips(w *way, h kv.SeqHash, worth worth, stopped bool) (Skip, bool) {
	switch {
	case worth.ephemeral:
		return SkipEphemeral, true
	case w.queued[h] || r.there(w.to, h):
		return SkipPresent, true
	case worth.skip:
		return SkipForbidden, true
	case w.to.down:
		return SkipDown, true
	case stopped:
		return SkipPriority, true
	case !worth.pinned && w.filter != nil && !w.filter.Pass(r.now, h):
		return SkipFrequency, true
	}
	if len(w.writes) >= w.cfg.Queue {
		return SkipOverflow, true
	}
	return 0, false
}

// there says whether a tier has a block or is about to.
func (r *Registry) there(t *Tier, h kv.SeqHash) bool {
	return t.holds(h) || r.moves[moveKey{t.kind, h}] != nil
}

// nextWrites takes the moves of the next transfer downwards: those of the highest
// priority that can still be read, and that there is room for.
func (r *Registry) nextWrites(w *way) []*move {
	var moves []*move
	for len(w.writes) > 0 && len(moves) < w.cfg.Batch {
		q := heap.Pop(&w.writes).(pendingWrite)
		delete(w.queued, q.hash)
		m, reason := r.writable(w, q)
		if m == nil {
			w.stats.Skipped[reason]++
			continue
		}
		r.moves[moveKey{w.To, q.hash}] = m
		moves = append(moves, m)
	}
	return moves
}

func (r *Registry) writable(w *way, q pendingWrite) (*move, Skip) {
	if r.there(w.to, q.hash) {
		return nil, SkipPresent
	}
	if w.to.down {
		return nil, SkipDown
	}
	from, ok := w.from.peek(q.hash)
	if !ok {
		return nil, SkipGone
	}
	worth := w.from.worth(from)
	if r.wished(q.hash) {
		worth.class, worth.ephemeral = SoftPinned, false
	}
	if worth.ephemeral {
		w.from.Release([]Ref{from})
		return nil, SkipEphemeral
	}
	to := w.to.fit(r.refs[:0], 1, worth.class)
	if len(to) == 0 {
		w.from.Release([]Ref{from})
		return nil, SkipSpace
	}
	return r.carry(w, from, to[0]), 0
}

// written ends a move downwards. What has arrived goes on to the next tier.
func (r *Registry) written(m *move, fault Fault) {
	w := m.way
	delete(r.moves, moveKey{w.To, m.block.Hash})
	if fault == Arrived {
		r.publish(m)
		r.offer(w.to, m.block, w.from.worth(m.from), false)
	} else {
		w.to.Release([]Ref{m.to})
	}
	r.letGo(m, fault)
}

// pendingWrite waits in a queue, most important first, and of equals the first to come.
type pendingWrite struct {
	hash     kv.SeqHash
	priority uint8
	seq      uint64
}

type writeQueue []pendingWrite

func (q writeQueue) Len() int { return len(q) }

func (q writeQueue) Less(i, j int) bool {
	if q[i].priority != q[j].priority {
		return q[i].priority > q[j].priority
	}
	return q[i].seq < q[j].seq
}

func (q writeQueue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }

func (q *writeQueue) Push(x any) { *q = append(*q, x.(pendingWrite)) }

func (q *writeQueue) Pop() any {
	old := *q
	x := old[len(old)-1]
	*q = old[:len(old)-1]
	return x
}
