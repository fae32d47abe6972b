package router

import (
	"container/heap"
	"time"
)

// A binding lives while it has leases and, idle, until it has been so too long or has
// to make room. Where an engine keeps the session as well, its end is told there before
// it is over.

// leased says how a lease was used.
type leased struct {
	final  bool // the session was to close behind it
	served bool // an answer has begun
	first  bool // it has made the binding
}

// lease notes a request in flight.
func (s *sessions) lease(b *binding, final bool) {
	b.leases++
	if final {
		b.closers++
		b.closing = true
	}
	s.unidle(b)
	s.used(b)
}

// release ends a lease. A session whose last request was served ends with the last
// lease; one whose first request was not, has never begun.
func (s *sessions) release(b *binding, l leased, now time.Time) {
	b.leases--
	s.used(b)
	if l.final {
		b.closers--
		if l.served && !b.over {
			b.over = true
			s.count.Closed++
		}
	}
	if b.closing && b.closers == 0 && !b.over {
		b.closing = false // nothing has come of it
	}
	switch {
	case b.leases > 0:
	case b.over || b.gone || l.first && !l.served && b.explicit:
		s.end(b)
	default:
		s.idle(b, now)
	}
}

func (s *sessions) idle(b *binding, now time.Time) { s.idleUntil(b, now.Add(b.Timeout)) }

func (s *sessions) idleUntil(b *binding, deadline time.Time) {
	b.deadline = deadline
	heap.Push(&s.dues, b)
	if !b.kept() {
		b.place = s.spare.PushBack(b)
		b.own = s.owners[b.tenant].spare.PushBack(b)
	}
}

func (s *sessions) unidle(b *binding) {
	if b.due > 0 {
		heap.Remove(&s.dues, b.due-1)
	}
	if b.place != nil {
		s.spare.Remove(b.place)
		s.owners[b.tenant].spare.Remove(b.own)
		b.place, b.own = nil, nil
	}
}

// end ends a binding without leases. If an engine keeps the session, that is to be
// told, see [sessions.endings], and the binding closes until it has been.
func (s *sessions) end(b *binding) {
	s.unidle(b)
	now := s.all[b.key]
	again := now != nil && now != b && now.target.Worker == b.target.Worker && (now.backed || now.opening)
	if !b.kept() && !(b.maybe && b.lives()) || again {
		s.remove(b)
		return
	}
	switch {
	case !b.backed:
		s.remove(b) // clients need not wait for what may be nothing
	case now == nil && len(s.all) < s.limit:
		s.in(b)
	}
	b.closing, b.backed, b.maybe = true, false, false // the engine is told once
	s.ended = append(s.ended, b)
}

// expire ends bindings that have been idle too long.
func (s *sessions) expire(now time.Time) {
	for len(s.dues) > 0 && !s.dues[0].deadline.After(now) {
		b := s.dues[0]
		s.count.Expired++
		b.lapsed = true
		s.end(b)
	}
}

// room says whether there is room for one more, if need be in the place of the
// one that has been idle longest and that no engine keeps.
func (s *sessions) room(a *wish) bool {
	if len(s.all) < s.limit || s.all[a.key] != nil {
		return true
	}
	first := s.spareOf(a.tenant).Front()
	if first == nil {
		return false
	}
	s.evict(first.Value.(*binding))
	return true
}

func (s *sessions) evict(b *binding) {
	s.count.Evicted++
	s.remove(b)
	s.forsake(b)
}

// forsake lets an engine be told that may keep the session of a binding that goes on
// without it.
func (s *sessions) forsake(b *binding) {
	if b.maybe && b.lives() {
		s.ended = append(s.ended, &binding{
			key: b.key, SessionTerms: b.SessionTerms, target: b.target, worker: b.worker, life: b.life, gone: true,
		})
	}
	b.maybe = false
}

func (s *sessions) remove(b *binding) {
	s.unidle(b)
	if b.gone = true; s.all[b.key] == b {
		s.out(b)
	}
}

// stranger returns a binding with a lease for the last turn of a session of which
// only the engine may know, or nil if there is no room.
func (s *sessions) stranger(a *wish, p place) *binding {
	if len(s.all) >= s.limit || len(a.key.salt) > longestSalt {
		return nil
	}
	return &binding{
		key: a.key, SessionTerms: a.SessionTerms, target: p.target, worker: p.worker, life: p.life,
		bound: true, backed: true, gone: true, leases: 1, closers: 1, closing: true,
	}
}

// endings returns the bindings that have ended and of which engines have to be told.
// Each is to be given back to [sessions.told].
func (s *sessions) endings() []*binding {
	ended := s.ended
	s.ended = nil
	return ended
}

// told ends a binding of whose end the engine knows, or will not be told.
func (s *sessions) told(b *binding) { s.remove(b) }

// dues is a heap of bindings, the first to expire on top.
type dues []*binding

func (d dues) Len() int           { return len(d) }
func (d dues) Less(i, j int) bool { return d[i].deadline.Before(d[j].deadline) }
func (d dues) Swap(i, j int) {
	d[i], d[j] = d[j], d[i]
	d[i].due, d[j].due = i+1, j+1
}

// Push implements [heap.Interface].
func (d *dues) Push(x any) {
	b := x.(*binding)
	*d = append(*d, b)
	b.due = len(*d)
}

// Pop implements [heap.Interface].
func (d *dues) Pop() any {
	last := len(*d) - 1
	b := (*d)[last]
	(*d)[last], b.due = nil, 0
	*d = (*d)[:last]
	return b
}
