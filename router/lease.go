package router

import (
	"context"
	"time"

	"github.com/dynago/dynago/fleet"
	"github.com/dynago/dynago/kv"
)

// lease keeps a binding for as long as a request runs.
type lease struct {
	*affinity
	leased
	binding *binding
	opens   bool // it has to see to the engine's part, and has not yet
	ended   bool
}

// end ends the lease, and that of the last request of a session the binding as
// well. served says whether there was an answer. It returns who may go on now, for
// whom no lock may be held. It may be called more than once.
func (l *lease) end(served bool) (woken []*sessionWaiter) {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.unlock()
	if l.ended {
		return nil
	}
	l.ended, l.served = true, served
	if l.opens {
		l.opens = false
		woken = l.table.unopened(l.binding)
	}
	l.table.release(l.binding, l.leased, l.now())
	return woken
}

// SessionTerms returns how the session of the request is kept, or false if it is
// bound to nothing.
func (b *Booking) SessionTerms() (terms SessionTerms, bound bool) {
	l := b.lease
	if l == nil {
		return SessionTerms{}, false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.binding.SessionTerms, true
}

// OpensSession says whether the caller has to let the worker's engine keep the
// request's session. If so, others of the session that want the same wait until
// [Booking.SessionOpened] or Release is called.
func (b *Booking) OpensSession() bool {
	l := b.lease
	if l == nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.opens
}

// SessionOpened tells what came of that. If the engine does not keep the session, it
// is bound all the same; where the router is strict, the request is to fail.
func (b *Booking) SessionOpened(err error) {
	l := b.lease
	l.mu.Lock()
	if !l.opens {
		l.mu.Unlock()
		return
	}
	l.opens = false
	woken := l.table.opened(l.binding, err)
	l.unlock()
	resume(woken, err)
}

// SessionKept says whether an engine keeps the request's session.
func (b *Booking) SessionKept() bool {
	l := b.lease
	if l == nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.binding.kept() && !l.binding.gone
}

// SessionEnd is a session that has ended and that an engine keeps.
type SessionEnd struct {
	Key     kv.SessionKey
	Worker  *fleet.Worker
	Life    context.Context // of the worker, in which it was opened
	Timeout time.Duration   // after which the engine forgets it too, some time later
	// Done must be called once when the engine has heard, or will not. Until then new
	// turns of the session are refused where the router is strict.
	Done func()
}

// OnSessionEnd says who tells engines of the ends of sessions that they keep: tell
// is called with a lock held, in the order in which they have ended, and must only
// take note. It must be set before the first request.
func (r *Router) OnSessionEnd(tell func(*SessionEnd)) {
	a := r.affinity
	a.mu.Lock()
	defer a.mu.Unlock()
	a.close = tell
}

// tell hands out a binding that has ended. The lock must be held.
func (a *affinity) tell(b *binding) {
	if a.close == nil {
		a.table.told(b)
		return
	}
	a.close(&SessionEnd{
		Key:    kv.SessionKey{Model: b.key.model, Salt: b.key.salt, ID: b.key.id},
		Worker: b.worker, Life: b.life, Timeout: b.Timeout,
		Done: func() {
			a.mu.Lock()
			defer a.unlock()
			a.table.told(b)
		},
	})
}
