package router

import (
	"container/list"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/kv"
)

// Bounds of how many bindings are kept, and for how long.
const (
	mostSessions   = 1 << 16
	mostSessionTTL = 365 * 24 * time.Hour
)

// sessionKey names a conversation. Two tenants may use one id, and the two legs of
// a request go to different pools.
type sessionKey struct {
	model, salt, id string
	role            engine.Role
}

// sessions remember which target each conversation is bound to, so that its next
// request goes there as well. They are plain data: time comes in, and whoever has
// to wait is told apart and called by the shell.
//
// A binding that has a lease, which is a request in flight, stays. The others
// wait in the order in which their last lease ended, which is both the order in
// which they expire and that in which they make room.
type sessions struct {
	ttl   time.Duration
	limit int
	all   map[sessionKey]*binding
	idle  list.List // of *binding
	count SessionStats
}

// binding is one conversation's. While bound is false somebody selects for it.
type binding struct {
	key      sessionKey
	bound    bool
	target   kv.Target
	leases   int
	deadline time.Time     // of an idle one
	place    *list.Element // among the idle; nil if it is none
	waiting  list.List     // of *sessionWaiter
	gone     bool          // it is no longer in the table
}

// sessionWaiter is a request that waits until somebody else has selected. What it
// does then is the shell's.
type sessionWaiter struct {
	resume, stop func()
	place        *list.Element // nil if it waits no more
}

// SessionStats count what has become of bindings.
type SessionStats struct {
	Bindings int    // that are there now
	Made     uint64 // and since the start
	Followed uint64 // requests that went where their session was
	Waited   uint64 // requests that waited for the first of their session
	Moved    uint64 // bindings that followed a pin
	Lost     uint64 // bindings whose target could not take the request
	Expired  uint64
	Evicted  uint64 // idle bindings that made room
	Unbound  uint64 // requests for which there was no room
}

func newSessions(ttl time.Duration, limit int) *sessions {
	return &sessions{ttl: ttl, limit: limit, all: make(map[sessionKey]*binding)}
}

// turn is what a request of a session is to do next.
type turn uint8

const (
	follow  turn = iota // go to the binding's target
	selects             // select, and then bind or fail
	waits               // wait to be resumed
	free                // go anywhere; there is no room for a binding
)

// enter says what a request of a session does. Who follows has a lease, and who
// selects the binding that it has to bind or fail; w is kept if it waits.
func (s *sessions) enter(key sessionKey, w *sessionWaiter, now time.Time) (*binding, turn) {
	s.expire(now)
	b := s.all[key]
	switch {
	case b == nil:
		if !s.room() {
			s.count.Unbound++
			return nil, free
		}
		b = &binding{key: key}
		s.all[key] = b
		return b, selects
	case !b.bound:
		s.count.Waited++
		w.place = b.waiting.PushBack(w)
		return b, waits
	}
	s.count.Followed++
	s.lease(b)
	return b, follow
}

// peek returns the binding of a session, or nil.
func (s *sessions) peek(key sessionKey, now time.Time) *binding {
	s.expire(now)
	if b := s.all[key]; b != nil && b.bound {
		return b
	}
	return nil
}

// bind ends a selection with a target. The selector has a lease then. It returns
// those who have waited.
func (s *sessions) bind(b *binding, target kv.Target) []*sessionWaiter {
	if !b.bound {
		b.bound, b.target = true, target
		s.count.Made++
	}
	s.lease(b)
	return b.wake()
}

// fail ends a selection without a target, and returns those who have waited.
func (s *sessions) fail(b *binding) []*sessionWaiter {
	if b.bound { // by a pin meanwhile
		return nil
	}
	s.remove(b)
	return b.wake()
}

// pin binds a session to where its client has sent it, wherever it was bound, and
// returns the binding with a lease, or nil if there is no room; and those who
// have waited for another target.
func (s *sessions) pin(key sessionKey, target kv.Target, now time.Time) (b *binding, use SessionUse, woken []*sessionWaiter) {
	s.expire(now)
	b, use = s.all[key], SessionBound
	switch {
	case b == nil:
		if !s.room() {
			s.count.Unbound++
			return nil, SessionUnbound, nil
		}
		b = &binding{key: key}
		s.all[key] = b
	case b.bound && b.target == target:
		use = SessionFollowed
		s.count.Followed++
	case b.bound:
		use = SessionPinned
		s.count.Moved++
		b.target = target
	}
	return b, use, s.bind(b, target)
}

// lose removes a binding whose target could not take the request, and its lease.
func (s *sessions) lose(b *binding) {
	if !b.gone {
		s.count.Lost++
		s.remove(b)
	}
	b.leases--
}

// lease notes a request in flight.
func (s *sessions) lease(b *binding) {
	b.leases++
	if b.place != nil {
		s.idle.Remove(b.place)
		b.place = nil
	}
}

// release ends a lease. A session that is at its end loses its binding; what else
// runs of it goes on.
func (s *sessions) release(b *binding, final bool, now time.Time) {
	b.leases--
	switch {
	case b.gone:
	case final:
		s.remove(b)
	case b.leases == 0:
		b.deadline = now.Add(s.ttl)
		b.place = s.idle.PushBack(b)
	}
}

// cancel takes out one who waits and has lost patience. It says whether it was
// still waiting.
func (s *sessions) cancel(b *binding, w *sessionWaiter) bool {
	if w.place == nil {
		return false
	}
	b.waiting.Remove(w.place)
	w.place = nil
	return true
}

// expire removes bindings that have been idle too long.
func (s *sessions) expire(now time.Time) {
	for first := s.idle.Front(); first != nil; first = s.idle.Front() {
		b := first.Value.(*binding)
		if b.deadline.After(now) {
			return
		}
		s.count.Expired++
		s.remove(b)
	}
}

// room says whether there is room for one more, if need be in the place of the
// one that has been idle longest.
func (s *sessions) room() bool {
	if len(s.all) < s.limit {
		return true
	}
	first := s.idle.Front()
	if first == nil {
		return false
	}
	s.count.Evicted++
	s.remove(first.Value.(*binding))
	return true
}

func (s *sessions) remove(b *binding) {
	b.gone = true
	delete(s.all, b.key)
	if b.place != nil {
		s.idle.Remove(b.place)
		b.place = nil
	}
}

// stats returns what was counted so far.
func (s *sessions) stats() SessionStats {
	c := s.count
	c.Bindings = len(s.all)
	return c
}

// wake returns those who wait, in the order in which they came.
func (b *binding) wake() []*sessionWaiter {
	var woken []*sessionWaiter
	for e := b.waiting.Front(); e != nil; e = e.Next() {
		w := e.Value.(*sessionWaiter)
		w.place = nil
		woken = append(woken, w)
	}
	b.waiting.Init()
	return woken
}
