package router

import (
	"context"
	"time"
)

// sweepEvery is how often the books are looked through for requests that nobody
// speaks of any more.
const sweepEvery = time.Minute

// recheckEvery is how often those who wait are looked at where outstanding
// prefill shrinks as time passes. Otherwise they are at every sweep, though
// whatever makes room does so by itself.
const recheckEvery = 100 * time.Millisecond

// Tick does what is due: it forgets what has expired, and sends on whoever has
// been waiting. Calling it often does no harm; see [Router.NextTick].
func (r *Router) Tick(now time.Time) {
	r.mu.Lock()
	r.lastTick = now
	r.expire(now)
	var lost []*Booking
	if !now.Before(r.nextSweep) {
		lost = r.sweep(now)
		r.nextSweep = now.Add(sweepEvery)
	}
	r.monitor.forget()
	late := r.overdue(now)
	r.mu.Unlock()
	for _, b := range lost {
		b.Release()
	}
	for _, tell := range late {
		tell()
	}
	r.affinity.tick(now)
	r.drain()
}

// NextTick returns when [Router.Tick] is wanted next. It may be sooner after any
// other call.
func (r *Router) NextTick() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	next := r.nextSweep
	if p := r.waiting.oldest; p != nil && r.patience > 0 && p.since.Add(r.patience).Before(next) {
		next = p.since.Add(r.patience)
	}
	if r.prefillModel != nil && r.waiting.oldest != nil && r.lastTick.Add(recheckEvery).Before(next) {
		next = r.lastTick.Add(recheckEvery)
	}
	if reap, some := r.affinity.next(); some && reap.Before(next) {
		next = reap
	}
	return next
}

// Run ticks in real time, and whenever the fleet changes, until ctx ends. A
// router needs it once; without it requests that nobody ends count for ever.
func (r *Router) Run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		changed := r.fleet.Changed()
		r.Tick(r.now())
		timer.Reset(min(time.Second, max(0, r.NextTick().Sub(r.now()))))
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-r.sooner:
		case <-timer.C:
		}
	}
}
