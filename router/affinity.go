package router

import (
	"cmp"
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
	SessionPinned                     // the client has named another worker than that of the session, which follows unless its engine keeps it
	SessionUnbound                    // there was no room for a binding, or no peace
	SessionUnknown                    // the client goes on in a session, or closes one, that is not there
)

// String names a use as records do; that of no session is empty.
func (u SessionUse) String() string {
	return [...]string{"", "bound", "followed", "pinned", "unbound", "unknown"}[u]
}

// affinity sends the requests of a session to one target. It is the shell around
// [sessions]: it stands before whatever decides, pins what is bound, and binds
// what was decided. It has no goroutine: a request that waits for the first of its
// session is resumed by that one's.
type affinity struct {
	ttl    time.Duration // of those whose clients do not speak of them; 0 binds none
	direct bool          // see [Direct]
	now    func() time.Time
	// decide is what decides about a request when its session has been heeded.
	decide func(ctx context.Context, q *Query, done func(*Booking, error))

	mu    sync.Mutex
	table *sessions
	reap  time.Time // not before that the table is looked through again
	close func(*SessionEnd)
	note  func(BindingEvent)
}

// reapEvery is how often the table is looked through at the most for bindings that
// nobody asks for any more.
const reapEvery = time.Second

func newAffinity(ttl time.Duration, strict bool, now func() time.Time, decide func(context.Context, *Query, func(*Booking, error))) *affinity {
	return &affinity{ttl: ttl, now: now, decide: decide, table: newSessions(mostSessions, strict)}
}

// visit is one request of a session on its way to a decision.
type visit struct {
	*affinity
	wish
	ctx   context.Context
	query *Query
	done  func(*Booking, error)
	came  time.Time
	again bool // it was sent elsewhere already
	// waited is how long it has waited for the first of its session.
	waited time.Duration
}

// submit decides about a request of a session. model is the primary name of what
// it asks for.
func (a *affinity) submit(ctx context.Context, q *Query, model string, done func(*Booking, error)) {
	if a.direct && q.Session.Control != nil && !q.pinned() {
		done(nil, misuse("worker ID is required for every session request in Direct routing mode"))
		return
	}
	v := &visit{affinity: a, wish: a.wishOf(q, model), ctx: ctx, query: q, done: done, came: a.now()}
	v.enter()
}

// heeds says whether a session may matter: not while there is none, and nobody
// would bind one.
func (a *affinity) heeds(q *Query) bool {
	if a.ttl > 0 || q.Session.Control != nil {
		return true
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.table.all) > 0
}

// wishOf returns what a query wants of its session. Whole requests and their second
// legs go to the same workers. The engine that computes the prompt keeps a session.
func (a *affinity) wishOf(q *Query, model string) wish {
	role := q.Role
	if role == engine.Decode {
		role = engine.Aggregated
	}
	k := wish{
		key: sessionKey{model: model, salt: q.Namespace.Salt, id: q.Session.ID, role: role}, tenant: q.Session.Tenant,
		binds: a.ttl > 0, SessionTerms: SessionTerms{Timeout: a.ttl}, final: q.Session.Final,
		pinned: q.pinned(), pin: kv.Target{Worker: q.PinWorker}, anyRank: q.PinRank == nil,
	}
	if q.PinRank != nil {
		k.pin.Rank = *q.PinRank
	}
	if c := q.Session.Control; c != nil {
		k.control, k.action = true, c.Action
		k.final = k.final || c.Action == CloseSession
		k.engine = c.Action == OpenSession && q.Role != engine.Decode
		k.Ephemeral = c.Ephemeral && k.sets()
		if k.sets() || k.Timeout == 0 {
			k.Timeout = min(cmp.Or(c.Timeout, DefaultSessionTimeout), mostSessionTTL)
		}
		k.binds = k.binds || k.sets()
	}
	return k
}

// enter does what the table says.
func (v *visit) enter() {
	w, now := new(sessionWaiter), v.now()
	v.mu.Lock()
	b, turn, use, err := v.table.enter(&v.wish, w, now)
	if turn == waits {
		w.resume = func(err error) { v.resumed(err, w.opens, now) }
		w.stop = ignored(context.AfterFunc(v.ctx, func() { v.leave(b, w) }))
	}
	v.unlock()
	switch {
	case err != nil:
		v.done(nil, err)
	case turn == follow:
		v.follow(b)
	case turn == selects:
		v.first(b)
	case turn == goes:
		v.goes()
	case turn == free:
		v.free(use)
	}
}

// unlock lets go of the table, once engines are told of what has ended in it, and
// other routers of what was used.
func (a *affinity) unlock() {
	for _, b := range a.table.endings() {
		a.tell(b)
	}
	if len(a.table.news) > 0 {
		for _, e := range a.table.unsaid(a.now()) {
			a.note(e)
		}
	}
	a.mu.Unlock()
}

func ignored(stop func() bool) func() { return func() { stop() } }

// resumed lets a request go on that has waited since then. Whoever would have
// opened the session itself shares what came of that.
func (v *visit) resumed(err error, opens bool, since time.Time) {
	v.waited += v.now().Sub(since)
	if opens && err != nil {
		v.tried = true
		if v.table.strict {
			v.done(nil, err)
			return
		}
	}
	v.enter()
}

// leave ends the wait of a request whose client does not wait any longer.
func (v *visit) leave(b *binding, w *sessionWaiter) {
	v.mu.Lock()
	waited := v.table.cancel(b, w)
	v.unlock()
	if waited {
		v.done(nil, engine.CauseOf(v.ctx, v.ctx.Err()))
	}
}

// follow sends the request where its session is bound. If that target cannot
// take it, the binding is worth nothing, and the request chooses for its session
// anew, or goes where that goes by then. If it loses that too, it goes anywhere.
func (v *visit) follow(b *binding) {
	v.mu.Lock()
	target := b.target
	v.unlock()
	q := *v.query
	q.PinWorker, q.PinRank, q.follows, q.came = target.Worker, &target.Rank, true, v.came
	v.decide(v.ctx, &q, func(booking *Booking, err error) {
		switch {
		case err == nil:
			v.mu.Lock()
			opens := v.table.order(b, booking.place())
			v.unlock()
			v.book(booking, b, SessionFollowed, opens, false)
		case !about(err, target):
			v.mu.Lock()
			v.table.release(b, leased{final: v.final}, v.now())
			v.unlock()
			v.done(nil, err)
		default:
			v.mu.Lock()
			next := v.table.lose(b, &v.wish, v.now())
			v.unlock()
			switch {
			case next != nil:
				v.first(next)
			case v.again:
				v.anywhere()
			default:
				v.again = true
				v.enter()
			}
		}
	})
}

// anywhere lets the request choose for itself, and for its session unless that is
// bound elsewhere by then. The errors are those of all workers: it is nobody's
// fault but the fleet's that one worker after another was lost.
func (v *visit) anywhere() {
	v.decideHere(func(booking *Booking) {
		p, now := booking.place(), v.now()
		var b *binding
		var woken []*sessionWaiter
		use, opens := SessionUnbound, false
		v.mu.Lock()
		if other, bound, _ := v.table.look(&v.wish, now); !bound || other == p.target {
			b, use, opens, woken = v.table.pin(&v.wish, p, now)
		}
		v.unlock()
		v.book(booking, b, use, opens, false)
		resume(woken, nil)
	})
}

// decideHere decides about the request as it came.
func (v *visit) decideHere(then func(*Booking)) {
	q := *v.query
	q.came = v.came
	v.decide(v.ctx, &q, func(booking *Booking, err error) {
		if err != nil {
			v.done(nil, err)
			return
		}
		then(booking)
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
		var opens bool
		var woken []*sessionWaiter
		v.mu.Lock()
		if err == nil {
			opens, woken = v.table.bind(b, booking.place(), v.final)
		} else {
			woken = v.table.fail(b)
		}
		v.unlock()
		if err == nil {
			v.book(booking, b, SessionBound, opens, true)
		} else {
			v.done(nil, err)
		}
		resume(woken, nil)
	})
}

// goes sends the request where its client wants it, and its session with it unless
// an engine keeps that.
func (v *visit) goes() {
	q := *v.query
	q.came = v.came
	if q.PinRank == nil {
		v.mu.Lock()
		if t, bound, _ := v.table.look(&v.wish, v.now()); bound && t.Worker == q.PinWorker {
			q.PinRank = &t.Rank
		}
		v.unlock()
	}
	v.decide(v.ctx, &q, func(booking *Booking, err error) {
		if err != nil {
			v.done(nil, err)
			return
		}
		v.mu.Lock()
		b, use, opens, woken := v.table.pin(&v.wish, booking.place(), v.now())
		v.unlock()
		v.book(booking, b, use, opens, false)
		resume(woken, nil)
	})
}

// free serves a request that no session binds, as the use says. The engine may know
// of a session that is closed and not known here.
func (v *visit) free(use SessionUse) {
	v.decideHere(func(booking *Booking) {
		var b *binding
		if use == SessionUnknown && v.action == CloseSession {
			v.mu.Lock()
			b = v.table.stranger(&v.wish, booking.place())
			v.unlock()
		}
		v.book(booking, b, use, false, false)
	})
}

// book hands a booking on that holds a lease of b until it is released.
func (v *visit) book(booking *Booking, b *binding, use SessionUse, opens, first bool) {
	booking.decision.Session = use
	booking.decision.Queue = max(booking.decision.Queue, v.waited)
	if b != nil {
		booking.lease = &lease{
			affinity: v.affinity, binding: b, opens: opens,
			leased: leased{final: v.final, first: first},
		}
	}
	v.done(booking, nil)
}

// place is where a booking is.
func (b *Booking) place() place {
	return place{b.decision.Target, b.worker, b.load.life, b.role == engine.Decode}
}

// resume lets requests go on that have waited.
func resume(woken []*sessionWaiter, err error) {
	for _, w := range woken {
		w.stop()
		w.resume(err)
	}
}

// tick ends bindings that have been idle too long.
func (a *affinity) tick(now time.Time) {
	a.mu.Lock()
	defer a.unlock()
	a.table.expire(now)
	a.table.remind(now)
	a.reap = now.Add(reapEvery)
}

// next tells when tick wants to be called, if there is anything to end.
func (a *affinity) next() (due time.Time, some bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.table.dues) == 0 {
		return time.Time{}, false
	}
	if due = a.table.dues[0].deadline; due.Before(a.reap) {
		due = a.reap
	}
	return due, true
}

// SessionTarget returns where the session of a request is bound. It makes and
// refreshes nothing. The error is what a strict router has to say of the turn.
func (r *Router) SessionTarget(q *Query) (t kv.Target, bound bool, err error) {
	a := r.affinity
	if q.Session.ID == "" {
		return kv.Target{}, false, nil
	}
	k := a.wishOf(q, r.primary(q.Model))
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.table.look(&k, a.now())
}

// Sessions tells what has become of sessions.
func (r *Router) Sessions() SessionStats {
	a := r.affinity
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.table.stats()
}
