package router

import (
	"container/list"
	"context"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/fleet"
	"github.com/dynago/dynago/kv"
)

// Bounds of how many bindings are kept, for how long, and of how long the part of
// a key may be that clients choose freely.
const (
	mostSessions   = 1 << 16
	mostSessionTTL = 365 * 24 * time.Hour
	longestSalt    = 1 << 10
)

// sessionKey names a conversation. Two tenants may use one id, and the two legs of
// a request go to different pools.
type sessionKey struct {
	model, salt, id string
	role            engine.Role
}

// sessions remember which target each conversation is bound to, so that its next
// request goes there as well. They are plain data: time comes in, and whoever has
// to wait or to be told is handed out and called by the shell.
//
//	choosing ── opening ── bound ── closing ── gone
//
// A binding that has a lease, which is a request in flight, stays. Idle ones end
// by their own timeouts. One that an engine keeps too is closing until the engine
// has been told; to clients it is as good as gone by then.
type sessions struct {
	strict bool // see [Config.StrictSessions]
	limit  int
	all    map[sessionKey]*binding
	owners map[string]*owner
	dues   dues      // idle ones, by deadline
	spare  list.List // of *binding: idle ones that may make room, the longest idle first
	ended  []*binding
	count  SessionStats

	// Where other routers are told of what is used:
	router  string // what they call us
	number  uint64 // the highest that a binding here has had
	tells   bool
	news    []*binding // what they have not heard of
	running list.List  // of *binding: those with leases
}

// owner is a tenant that has bindings.
type owner struct {
	bindings int
	spare    list.List // those of it in spare, in the same order
}

// binding is one conversation's.
type binding struct {
	key    sessionKey
	tenant string
	by     maker
	SessionTerms

	// bound says that target is where the session goes; before that somebody chooses
	// it, or opens the session there, and the others wait.
	bound  bool
	target kv.Target
	worker *fleet.Worker
	life   context.Context // of the worker

	told     time.Duration // the timeout that the engine knows
	wanted   bool          // the engine is to keep the session as well,
	backed   bool          // and does so in this life of the worker
	opening  bool          // somebody sees to that
	maybe    bool          // it has not said so, and may keep it all the same
	explicit bool          // the client has set it up itself

	leases  int
	closers int  // leases of requests behind which it is to close
	closing bool // to others it is unknown
	lapsed  bool // because it had been idle too long
	over    bool // it ends with its last lease
	gone    bool // it is no longer in the table

	deadline time.Time     // of an idle one
	said     time.Time     // when other routers were told of it last
	due      int           // its place among dues, from 1; 0: it is not idle
	place    *list.Element // in spare, or nil
	own      *list.Element // in its owner's, likewise
	running  *list.Element // in the list of that name, or nil
	waiting  list.List     // of *sessionWaiter
}

// kept says whether the engine keeps the session, as far as is known.
func (b *binding) kept() bool { return b.backed && b.lives() }

func (b *binding) lives() bool { return b.life == nil || b.life.Err() == nil }

// place is where a request has been placed.
type place struct {
	target kv.Target
	worker *fleet.Worker
	life   context.Context
	// second says that another worker computes the prompt: that one's engine is to
	// keep the session.
	second bool
}

// sessionWaiter is a request that waits until somebody else has bound its session.
// What it does then is the shell's.
type sessionWaiter struct {
	resume func(error) // with what the session's opening has failed of
	stop   func()
	opens  bool          // it would have opened the session itself
	place  *list.Element // nil if it waits no more
}

// wish is what one request wants of its session.
type wish struct {
	key          sessionKey
	tenant       string
	action       SessionAction
	control      bool      // the client speaks of the session, and not the operator
	binds        bool      // it makes a binding if there is none
	engine       bool      // it has the engine keep the session
	SessionTerms           // of a binding that it makes or sets up
	final        bool      // the session closes behind it
	pinned       bool      // its client has named a worker,
	pin          kv.Target // which is this one,
	anyRank      bool      // whatever its rank
	tried        bool      // the engine has been asked already
	known        bool      // it had a binding that was lost
}

// sets says whether the client sets the session up with this turn.
func (a *wish) sets() bool { return a.control && (a.action == BindSession || a.action == OpenSession) }

// elsewhere says whether the client has named another place than this one.
func (a *wish) elsewhere(t kv.Target) bool {
	return a.pinned && (a.pin.Worker != t.Worker || !a.anyRank && a.pin.Rank != t.Rank)
}

// SessionStats count what has become of bindings.
type SessionStats struct {
	Bindings int // that are there now
	Kept     int // of them by engines as well
	Closing  int // of them told to engines as closed, which have not heard

	Made     uint64 // and since the start
	Followed uint64 // requests that went where their session was
	Waited   uint64 // requests that waited for the first of their session
	Moved    uint64 // bindings that followed a pin
	Lost     uint64 // bindings whose target could not take the request
	Expired  uint64
	Evicted  uint64 // idle bindings that made room
	Unbound  uint64 // requests for which there was no room
	Unknown  uint64 // requests that went on in a session, or closed one, that is not there
	Closed   uint64 // sessions that their clients have ended
	Opened   uint64 // times that an engine was made to keep one
	Degraded uint64 // times that it was not
	Refused  uint64 // requests that were refused because of their session
	Adopted  uint64 // bindings taken over from other routers, and moved with them
}

func newSessions(limit int, strict bool) *sessions {
	return &sessions{strict: strict, limit: limit, all: make(map[sessionKey]*binding), owners: make(map[string]*owner)}
}

// turn is what a request of a session is to do next.
type turn uint8

const (
	follow  turn = iota // go to the binding's target
	selects             // select, and then bind or fail
	waits               // wait to be resumed
	goes                // go where its client wants it, and then pin
	free                // go anywhere; the use says why there is no binding
)

// enter says what a request of a session does. Who follows has a lease, and who
// selects the binding that it has to bind or fail; w is kept if it waits.
func (s *sessions) enter(a *wish, w *sessionWaiter, now time.Time) (b *binding, t turn, use SessionUse, err error) {
	s.expire(now)
	b = s.all[a.key]
	if err := s.refusal(b, a); err != nil {
		s.count.Refused++
		return nil, free, SessionNone, err
	}
	if b == nil || b.closing {
		return s.begin(a)
	}
	if !b.bound {
		if a.pinned && !a.sets() {
			return nil, goes, SessionNone, nil
		}
		s.setUp(b, a)
		s.await(b, w, a)
		return b, waits, SessionNone, nil
	}
	s.setUp(b, a)
	if a.engine && b.opening && !a.tried {
		s.await(b, w, a)
		return b, waits, SessionNone, nil
	}
	if a.pinned {
		return nil, goes, SessionNone, nil
	}
	s.count.Followed++
	s.lease(b, a.final)
	return b, follow, SessionFollowed, nil
}

// begin is enter where there is no binding.
func (s *sessions) begin(a *wish) (*binding, turn, SessionUse, error) {
	if !a.binds && !s.beside(a) {
		if !a.control || a.known {
			return nil, free, SessionNone, nil
		}
		s.count.Unknown++
		return nil, free, SessionUnknown, nil
	}
	b := s.add(a)
	switch {
	case b != nil:
		return b, selects, SessionBound, nil
	case s.strict:
		s.count.Refused++
		return nil, free, SessionNone, engine.Errorf(engine.ResourceExhausted, "all %d sessions are in use", s.limit)
	}
	return nil, free, SessionUnbound, nil
}

// beside says whether the session is bound for another leg of requests: some of its
// turns have two, and others have one.
func (s *sessions) beside(a *wish) bool {
	key := a.key
	if key.role = engine.Prefill; a.key.role == engine.Prefill {
		key.role = engine.Aggregated
	}
	b := s.all[key]
	return b != nil && !b.closing && a.action == ContinueSession
}

// add makes a binding, or returns nil if there is no room.
func (s *sessions) add(a *wish) *binding {
	denied := a.engine && !s.keeps()
	if len(a.key.salt) > longestSalt || denied && s.strict || !s.room(a) {
		s.count.Unbound++
		return nil
	}
	if denied {
		s.count.Degraded++
	}
	b := &binding{key: a.key, tenant: a.tenant, by: s.mark(), SessionTerms: a.SessionTerms, wanted: a.engine && !denied, explicit: a.control}
	old := s.all[b.key]
	s.put(b)
	if old != nil {
		s.used(old) // it ends for others, too
	}
	return b
}

// keeps says whether engines may keep one more session. Idle ones that they keep make
// no room for others, and may last a year, so that they have half of the table.
func (s *sessions) keeps() bool { return len(s.dues)-s.spare.Len() < max(1, s.limit/2) }

// put puts a binding into the table, maybe in the place of one that closes.
func (s *sessions) put(b *binding) {
	if old := s.all[b.key]; old != nil {
		s.out(old)
	}
	s.in(b)
}

// in enters a binding, for whose key there is none.
func (s *sessions) in(b *binding) {
	s.all[b.key], b.gone = b, false
	o := s.owners[b.tenant]
	if o == nil {
		o = new(owner)
		s.owners[b.tenant] = o
	}
	o.bindings++
}

// out takes out a binding that is there.
func (s *sessions) out(b *binding) {
	delete(s.all, b.key)
	b.gone = true
	o := s.owners[b.tenant]
	if o.bindings--; o.bindings == 0 && o.spare.Len() == 0 {
		delete(s.owners, b.tenant)
	}
}

// setUp gives a binding what its client says anew: the newest timeout counts, and
// what an engine was to keep it goes on keeping.
func (s *sessions) setUp(b *binding, a *wish) {
	if !a.sets() {
		return
	}
	b.Timeout, b.explicit, b.by = a.Timeout, true, s.mark()
	b.Ephemeral = b.Ephemeral || a.Ephemeral
	b.wanted = b.wanted || a.engine && !a.tried && s.keeps()
}

func (s *sessions) await(b *binding, w *sessionWaiter, a *wish) {
	s.count.Waited++
	w.opens = a.engine
	w.place = b.waiting.PushBack(w)
}

// bind ends a selection with a place, and gives the selector a lease. It says
// whether the selector is to open the session there, in which case [sessions.opened]
// or [sessions.unopened] is to follow, and else returns those who have waited.
func (s *sessions) bind(b *binding, p place, final bool) (opens bool, woken []*sessionWaiter) {
	if !b.bound && !b.opening {
		b.target, b.worker, b.life = p.target, p.worker, p.life
		s.count.Made++
	}
	s.lease(b, final)
	if s.order(b, p) {
		return true, nil
	}
	return false, s.settle(b)
}

// settle lets a binding be bound unless it is yet to be opened, and returns those who
// have waited.
func (s *sessions) settle(b *binding) []*sessionWaiter {
	if b.opening && !b.bound {
		return nil
	}
	b.bound = true
	return b.wake()
}

// order says whether a request that has a lease and runs at a place has to open the
// session there, which nobody else does then.
func (s *sessions) order(b *binding, p place) bool {
	if b.backed && b.life != nil && b.life.Err() != nil && p.target == b.target {
		b.backed, b.wanted = false, true // what the worker kept has gone with its last life
	}
	due := b.wanted && !b.backed || b.backed && b.told != b.Timeout
	if p.second || !due || b.opening || b.gone || p.target != b.target {
		return false
	}
	b.opening, b.worker, b.life = true, p.worker, p.life
	return true
}

// opened notes what came of opening a session. An error makes the binding one like
// any other; where operators are strict and nothing ran in the session, it ends.
// Those who have waited are returned.
func (s *sessions) opened(b *binding, err error) []*sessionWaiter {
	b.opening, b.told = false, b.Timeout
	if b.maybe = err != nil; err == nil {
		b.backed = true
		s.count.Opened++
	} else {
		b.wanted = false
		s.count.Degraded++
	}
	if err != nil && s.strict && !b.bound {
		s.remove(b)
	} else {
		b.bound = true
	}
	s.used(b)
	return b.wake()
}

// unopened ends the attempt of one who has gone away before it knew what came of
// it. The engine may have opened the session all the same.
func (s *sessions) unopened(b *binding) []*sessionWaiter {
	b.opening, b.backed, b.told = false, true, b.Timeout
	if !b.bound {
		s.remove(b)
	} else {
		b.wanted = false
	}
	return b.wake()
}

// fail ends a selection without a target, and returns those who have waited.
func (s *sessions) fail(b *binding) []*sessionWaiter {
	if b.bound || b.opening { // by a pin meanwhile
		return nil
	}
	s.remove(b)
	return b.wake()
}

// pin binds a session to where its client has sent it, unless an engine keeps it
// elsewhere. It returns the binding with a lease, or nil if there is none; whether
// the request is to open the session; and those who have waited for another target.
func (s *sessions) pin(a *wish, p place, now time.Time) (b *binding, use SessionUse, opens bool, woken []*sessionWaiter) {
	s.expire(now)
	b, use = s.all[a.key], SessionBound
	overtakes := b != nil && !b.closing && !b.bound // who selects, and may yet have it opened
	switch {
	case b == nil || b.closing:
		if !a.binds && !s.beside(a) {
			use = SessionNone
			if a.control && !a.known {
				s.count.Unknown++
				use = SessionUnknown
			}
			return nil, use, false, nil
		}
		if b = s.add(a); b == nil {
			return nil, SessionUnbound, false, nil
		}
	case (b.bound || b.opening) && b.target == p.target:
		use = SessionFollowed
		s.count.Followed++
	case b.opening || b.bound && b.kept():
		use = SessionPinned
	case b.bound:
		use = SessionPinned
		s.count.Moved++
		s.forsake(b)
		s.moved(b)
		b.target, b.worker, b.life, b.backed, b.by = p.target, p.worker, p.life, false, s.mark()
	}
	if !overtakes {
		opens, woken = s.bind(b, p, a.final)
		return b, use, opens, woken
	}
	if !b.opening {
		b.target, b.worker, b.life = p.target, p.worker, p.life
		s.count.Made++
	}
	s.lease(b, a.final)
	return b, use, false, s.settle(b)
}

// lose takes a binding away whose target could not take the request, and its lease.
// It returns what takes its place, for which the request has to select, or nil if
// that is there already or there is to be none.
func (s *sessions) lose(b *binding, a *wish, now time.Time) (next *binding) {
	a.known = true
	if s.all[b.key] == b {
		s.count.Lost++
		if b.closing {
			s.remove(b)
		} else {
			next = &binding{
				key: b.key, tenant: b.tenant, by: s.mark(),
				SessionTerms: b.SessionTerms, wanted: b.backed || b.wanted, explicit: b.explicit,
			}
			s.put(next)
		}
	}
	b.over = true
	s.release(b, leased{final: a.final}, now)
	return next
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

// stats returns what was counted so far.
func (s *sessions) stats() SessionStats {
	c := s.count
	c.Bindings = len(s.all)
	for _, b := range s.all {
		switch {
		case b.closing:
			c.Closing++
		case b.kept():
			c.Kept++
		}
	}
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
