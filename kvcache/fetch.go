package kvcache

import (
	"slices"

	"github.com/dynago/dynago/kv"
)

// lift queues a block for the host tier, or returns nil if that has no room for
// it or does not want it.
func (r *Registry) lift(t *Tier, h kv.SeqHash, inBackground bool) *move {
	from, ok := t.peek(h)
	if !ok {
		return nil
	}
	host, worth := r.cfg.Host, t.worth(from)
	var to []Ref
	if !worth.ephemeral && !host.down && !r.there(host, h) {
		to = host.fit(nil, 1, worth.class)
	}
	if len(to) == 0 {
		t.Release([]Ref{from})
		return nil
	}
	m := r.carry(r.way(Edge{t.kind, kv.TierHost}), from, to[0])
	m.early = inBackground
	r.queue(m, inBackground)
	return m
}

func (r *Registry) queue(m *move, inBackground bool) {
	lane := front
	if m.background = inBackground; inBackground {
		lane = background
	}
	m.way.reads[lane] = append(m.way.reads[lane], m)
	r.moves[moveKey{m.way.To, m.block.Hash}] = m
}

// join makes someone wait for a move. If he is in a hurry, so is the move.
func (r *Registry) join(m *move, w waiter) {
	m.waiters = append(m.waiters, w)
	if w.load == nil {
		return
	}
	w.load.at[w.pos].move = m
	if m.way.To == kv.TierDevice && m.load == nil {
		r.handOver(m) // nobody wanted it any more
	}
	if w.load.prefetch != nil {
		return
	}
	if m.background {
		r.promote(m)
	}
}

func (r *Registry) promote(m *move) {
	m.background = false
	if m.state == moveQueued {
		m.way.unqueue(m)
		m.way.reads[front] = append(m.way.reads[front], m)
	}
	if x := m.transfer; m.state == moveOngoing && x.Background {
		x.Background = false
		r.promoted = append(r.promoted, x.ID)
	}
}

func (w *way) unqueue(m *move) {
	for lane := range w.reads {
		w.reads[lane] = slices.DeleteFunc(w.reads[lane], func(q *move) bool { return q == m })
	}
}

// lifted ends a move to the host tier: those who wait for it look again.
func (r *Registry) lifted(m *move, fault Fault) {
	delete(r.moves, moveKey{m.way.To, m.block.Hash})
	if fault == Arrived {
		r.publish(m)
	} else {
		m.way.to.Release([]Ref{m.to})
		if m.early {
			r.prefetchStats.Failed[kv.TierHost]++
		}
	}
	r.letGo(m, fault)
	r.wake(m, fault)
}

// arrived ends a move to the device. A block that could not be read there is
// looked for elsewhere.
func (r *Registry) arrived(m *move, fault Fault) {
	r.letGo(m, fault)
	key := moveKey{m.way.To, m.block.Hash}
	switch {
	case m.load == nil: // given up, and nobody else wanted it
		delete(r.moves, key)
		r.device.Release([]Ref{m.to})
	case fault == Arrived:
		m.state = moveArrived
		m.load.at[m.pos].state = posFilled
	default:
		delete(r.moves, key)
		l, i := m.load, m.pos
		l.at[i].state = posReserved
		r.resolve(l, i)
		r.wake(m, fault)
	}
}

// letGo ends the reading of a move's source.
func (r *Registry) letGo(m *move, fault Fault) {
	m.way.from.Release([]Ref{m.from})
	if fault == Lost && m.way.From != kv.TierDevice {
		m.way.from.Forget(m.block.Hash)
	}
}

func (r *Registry) wake(m *move, fault Fault) {
	waiters := m.waiters
	m.waiters = nil
	for _, w := range waiters {
		if w.prefetch != nil {
			w.prefetch.got(fault == Arrived)
		} else if w.pos < w.load.end && w.load.at[w.pos].move == m {
			r.resolve(w.load, w.pos)
		}
	}
}

// handOver gives a move to the first of those who wait for it.
func (r *Registry) handOver(m *move) bool {
	for k, w := range m.waiters {
		if w.load == nil {
			continue
		}
		p := &w.load.at[w.pos]
		r.vacate(p)
		p.ref, p.state = m.to, posMoving
		if m.state == moveArrived {
			p.state = posFilled
		}
		m.load, m.pos = w.load, w.pos
		m.waiters = slices.Delete(m.waiters, k, k+1)
		return true
	}
	return false
}

// dropUnwanted takes a move to the host tier back that has not begun and that
// nobody waits for.
func (r *Registry) dropUnwanted(m *move) {
	if m.state != moveQueued || m.load != nil || len(m.waiters) > 0 {
		return
	}
	m.way.unqueue(m)
	delete(r.moves, moveKey{m.way.To, m.block.Hash})
	m.way.to.Release([]Ref{m.to})
	r.letGo(m, Arrived)
}
