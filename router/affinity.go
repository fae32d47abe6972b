package router

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/kv"
)

// SessionUse says what a session had to do with a decision.
type SessionUse uint8

// The uses of a session.
const (
	SessionNone     SessionUse = iota // none was named, or sessions bind nothing
	SessionBound                      // the first request; the next ones follow it
	SessionFollowed                   // the request has followed its session
	SessionPinned                     // the client has named another worker, and the session follows that
	SessionUnbound                    // there was no room for a binding, or no peace
)

// String names a use as records do; that of no session is empty.
func (u SessionUse) String() string {
	return [...]string{"", "bound", "followed", "pinned", "unbound"}[u]
}

// affinity sends the requests of a session to one target. It is the shell around
// [sessions]: it stands before whatever decides, pins what is bound, and binds
// what was decided. It has no goroutine: a request that waits for the first of its
// session is resumed by that one's.
type affinity struct {
	strict bool
	now    func() time.Time
	// decide is what decides about a request when its session has been heeded.
	decide func(ctx context.Context, q *Query, done func(*Booking, error))

	mu    sync.Mutex
	table *sessions
	reap  time.Time // when the table is looked through next
}

// reapEvery is how often bindings are looked through that nobody asks for; if
// they last less long, as often as that.
const reapEvery = 30 * time.Second

func newAffinity(ttl time.Duration, strict bool, now func() time.Time, decide func(context.Context, *Query, func(*Booking, error))) *affinity {
	return &affinity{strict: strict, now: now, decide: decide, table: newSessions(ttl, mostSessions)}
}

// visit is one request of a session on its way to a decision.
type visit struct {
	*affinity
	ctx   context.Context
	query *Query
	key   sessionKey
	done  func(*Booking, error)
	came  time.Time
	again bool // it was sent elsewhere already
	// waited is how long it has waited for the first of its session.
	waited time.Duration
}

// submit decides about a request of a session. model is the primary name of what
// it asks for.
func (a *affinity) submit(ctx context.Context, q *Query, model string, done func(*Booking, error)) {
	v := &visit{
		affinity: a, ctx: ctx, query: q, done: done,
		key: keyOf(q, model), came: a.now(),
	}
	if q.pinned() {
		v.pinned()
	} else {
		v.enter()
	}
}

// keyOf returns the key of a query's session. Whole requests and their second legs
// go to the same workers.
func keyOf(q *Query, model string) sessionKey {
	role := q.Role
	if role == engine.Decode {
		role = engine.Aggregated
	}
	return sessionKey{model: model, salt: q.Namespace.Salt, id: q.Session.ID, role: role}
}

// enter does what the table says.
func (v *visit) enter() {
	w, now := new(sessionWaiter), v.now()
	v.mu.Lock()
	b, turn := v.table.enter(v.key, w, now)
	if turn == waits {
		w.resume = func() {
			v.waited += v.now().Sub(now)
			v.enter()
		}
		w.stop = ignored(context.AfterFunc(v.ctx, func() { v.leave(b, w) }))
	}
	v.mu.Unlock()
	switch turn {
	case follow:
		v.follow(b)
	case selects:
		v.first(b)
	case free:
		v.unbound()
	}
}

func ignored(stop func() bool) func() { return func() { stop() } }

// leave ends the wait of a request whose client does not wait any longer.
func (v *visit) leave(b *binding, w *sessionWaiter) {
	v.mu.Lock()
	waited := v.table.cancel(b, w)
	v.mu.Unlock()
	if waited {
		v.done(nil, engine.CauseOf(v.ctx, v.ctx.Err()))
	}
}

// follow sends the request where its session is bound. If that target cannot
// take it, the binding is worth nothing, and the request goes where its session
// goes then. If it loses that too, it goes anywhere.
func (v *visit) follow(b *binding) {
	v.mu.Lock()
	target := b.target
	v.mu.Unlock()
	q := *v.query
	q.PinWorker, q.PinRank, q.follows, q.came = target.Worker, &target.Rank, true, v.came
	v.decide(v.ctx, &q, func(booking *Booking, err error) {
		switch {
		case err == nil:
			v.book(booking, b, SessionFollowed)
		case !about(err, target):
			v.mu.Lock()
			v.table.release(b, false, v.now())
			v.mu.Unlock()
			v.done(nil, err)
		default:
			v.mu.Lock()
			v.table.lose(b)
			v.mu.Unlock()
			if v.again {
				v.anywhere()
				return
			}
			v.again = true
			v.enter()
		}
	})
}

// anywhere lets the request choose for itself, and for its session unless that is
// bound elsewhere by then. The errors are those of all workers: it is nobody's
// fault but the fleet's that one worker after another was lost.
func (v *visit) anywhere() {
	q := *v.query
	q.came = v.came
	v.decide(v.ctx, &q, func(booking *Booking, err error) {
		if err != nil {
			v.done(nil, err)
			return
		}
		target, now := booking.decision.Target, v.now()
		var b *binding
		var woken []*sessionWaiter
		use := SessionUnbound
		v.mu.Lock()
		if other := v.table.peek(v.key, now); other == nil || other.target == target {
			b, use, woken = v.table.pin(v.key, target, now)
		}
		v.mu.Unlock()
		v.book(booking, b, use)
		resume(woken)
	})
}

// about says whether an error is one of this worker, so that another may do.
func about(err error, t kv.Target) bool {
	e, ok := errors.AsType[*engine.Error](err)
	return ok && e.Worker == t.Worker
}

// first lets the request choose for its session.
func (v *visit) first(b *binding) {
	q := *v.query
	q.came = v.came
	v.decide(v.ctx, &q, func(booking *Booking, err error) {
		v.mu.Lock()
		var woken []*sessionWaiter
		if err == nil {
			woken = v.table.bind(b, booking.decision.Target)
		} else {
			woken = v.table.fail(b)
		}
		v.mu.Unlock()
		if err == nil {
			v.book(booking, b, SessionBound)
		} else {
			v.done(nil, err)
		}
		resume(woken)
	})
}

// pinned sends the request where its client wants it, and its session with it.
func (v *visit) pinned() {
	q := *v.query
	if q.PinRank == nil {
		v.mu.Lock()
		if b := v.table.peek(v.key, v.now()); b != nil && b.target.Worker == q.PinWorker {
			rank := b.target.Rank
			q.PinRank = &rank
		}
		v.mu.Unlock()
	}
	v.decide(v.ctx, &q, func(booking *Booking, err error) {
		if err != nil {
			v.done(nil, err)
			return
		}
		v.mu.Lock()
		b, use, woken := v.table.pin(v.key, booking.decision.Target, v.now())
		v.mu.Unlock()
		v.book(booking, b, use)
		resume(woken)
	})
}

// unbound serves a request for whose session there is no room.
func (v *visit) unbound() {
	if v.strict {
		v.done(nil, engine.Errorf(engine.ResourceExhausted, "all %d sessions are in use", mostSessions))
		return
	}
	v.decide(v.ctx, v.query, func(booking *Booking, err error) {
		if err != nil {
			v.done(nil, err)
			return
		}
		v.book(booking, nil, SessionUnbound)
	})
}

// book hands a booking on that holds a lease of b until it is released.
func (v *visit) book(booking *Booking, b *binding, use SessionUse) {
	booking.decision.Session = use
	booking.decision.Queue = max(booking.decision.Queue, v.waited)
	if b != nil {
		booking.lease = &lease{affinity: v.affinity, binding: b, final: v.query.Session.Final}
	}
	v.done(booking, nil)
}

// resume lets requests go on that have waited.
func resume(woken []*sessionWaiter) {
	for _, w := range woken {
		w.stop()
		w.resume()
	}
}

// lease keeps a binding for as long as a request runs.
type lease struct {
	*affinity
	binding *binding
	final   bool
	ended   bool
}

// end ends the lease, and that of the last request of a session the binding as
// well. It may be called more than once, also with the router's lock held.
func (l *lease) end() {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.ended {
		l.ended = true
		l.table.release(l.binding, l.final, l.now())
	}
}

// tick removes bindings that have been idle too long, and returns when it wants
// to be called next.
func (a *affinity) tick(now time.Time) time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !now.Before(a.reap) {
		a.table.expire(now)
		a.reap = now.Add(min(reapEvery, a.table.ttl))
	}
	return a.reap
}

// next tells when tick wants to be called.
func (a *affinity) next() time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.reap
}

// SessionTarget returns where the session of a request is bound. It makes and
// refreshes nothing.
func (r *Router) SessionTarget(q *Query) (kv.Target, bool) {
	a := r.affinity
	if a == nil || q.Session.ID == "" {
		return kv.Target{}, false
	}
	key := keyOf(q, r.primary(q.Model))
	a.mu.Lock()
	defer a.mu.Unlock()
	if b := a.table.peek(key, a.now()); b != nil {
		return b.target, true
	}
	return kv.Target{}, false
}

// Sessions tells what has become of sessions. All is 0 where they bind nothing.
func (r *Router) Sessions() SessionStats {
	a := r.affinity
	if a == nil {
		return SessionStats{}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.table.stats()
}
