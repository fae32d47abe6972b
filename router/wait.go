package router

import (
	"context"
	"time"
)

// Submit routes a request as [Router.Route] does, and waits for nothing: done is
// called once, with no lock held, either before Submit returns or later, by
// whoever makes room. Until then q must not be changed.
func (r *Router) Submit(ctx context.Context, q *Query, done func(*Booking, error)) {
	done(r.place(ctx, q, r.now()))
}

// drain sends on whoever was waiting for room, now that there may be some.
func (r *Router) drain(time.Time) {}
