package router

import (
	"context"
	"fmt"
	"time"

	"github.com/dynago/dynago/engine"
)

// Whoever dispatches requests by other means than a [Booking] in hand speaks of
// them by their ids: it books, tells how they go, and frees. What it never frees
// is forgotten once nothing was heard of it for [Config.Expiry].

// Codes of errors about ids.
const (
	CodeDuplicateRequest = "duplicate_request" // kind invalid_argument: the id is booked already
	CodeRequestNotFound  = "request_not_found" // kind not_found: it is not, or no more
	CodeTooManyBooked    = "too_many_booked"   // kind resource_exhausted: too many are, and nobody frees them
)

// DefaultMostBooked is how many requests may be booked by their ids.
const DefaultMostBooked = 1 << 16

// mostBookedBlocks bounds what they hold: 128 MiB of hashes, but for the last one.
const mostBookedBlocks = 1 << 24

// Book is [Router.Route] for a request that is spoken of by its id from now on,
// until it is freed. The booking may be used besides; its Release frees the id.
func (r *Router) Book(ctx context.Context, q *Query) (*Booking, error) {
	if q.ID == "" {
		return nil, engine.Errorf(engine.InvalidArgument, "a request that is to be booked needs an id")
	}
	if err := r.register(q.ID); err != nil {
		return nil, err
	}
	b, err := r.Route(ctx, q)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		delete(r.requests, q.ID)
		return nil, err
	}
	b.named = true
	r.requests[q.ID] = b
	r.bookedBlocks += b.decision.Blocks
	return b, nil
}

// register keeps an id for a request that is about to be booked, if there is room
// for it.
func (r *Router) register(id string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, taken := r.requests[id]; taken {
		return &engine.Error{Kind: engine.InvalidArgument, Code: CodeDuplicateRequest, Message: "request " + id + " is booked already"}
	}
	if len(r.requests) >= r.mostBooked || r.bookedBlocks >= mostBookedBlocks {
		return &engine.Error{
			Kind: engine.ResourceExhausted, Code: CodeTooManyBooked,
			Message: fmt.Sprintf("%d requests of %d blocks are booked by their ids: free those that have ended", len(r.requests), r.bookedBlocks),
		}
	}
	r.requests[id] = nil
	return nil
}

// PrefillDone tells that the prompt of a request is computed.
func (r *Router) PrefillDone(id string) error {
	b, err := r.request(id)
	if err == nil {
		b.Prefilled()
	}
	return err
}

// Output tells that so many more tokens of a request's answer have come.
func (r *Router) Output(id string, tokens int) error {
	b, err := r.request(id)
	if err == nil {
		b.Output(tokens)
	}
	return err
}

// Free ends a request.
func (r *Router) Free(id string) error {
	b, err := r.request(id)
	if err == nil {
		b.Release()
	}
	return err
}

// request returns the booking of an id.
func (r *Router) request(id string) (*Booking, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if b := r.requests[id]; b != nil {
		return b, nil
	}
	return nil, &engine.Error{Kind: engine.NotFound, Code: CodeRequestNotFound, Message: "no request " + id + " is booked"}
}

// forget takes a booking out of the books, and its id from those that are known.
// The lock must be held.
func (r *Router) forget(b *Booking, now time.Time) {
	r.books.leave(b, now)
	if b.named {
		b.named = false
		delete(r.requests, b.id)
		r.bookedBlocks -= b.decision.Blocks
		if woken := b.lease.end(b.served()); len(woken) > 0 { // nobody else may do it
			go resume(woken, nil)
		}
	}
}

// sweep forgets requests of which nothing was heard for too long. A sign of life
// counts from the sweep on that notices it. Those that are known by id are
// returned: nobody else will release them. The lock must be held.
func (r *Router) sweep(now time.Time) (lost []*Booking) {
	for b := r.books.open.first; b != nil; {
		next := b.younger
		switch output := b.output.Load(); {
		case output != b.heardOutput:
			b.heard, b.heardOutput = now, output
		case now.Sub(b.heard) < r.expiry:
		case b.named:
			r.counted.Expired++
			lost = append(lost, b)
		default:
			r.counted.Expired++
			r.forget(b, now)
		}
		b = next
	}
	return lost
}

// orphans returns the requests that are known by id on a worker whose life is
// over: nobody else will tell that they have ended. The lock must be held.
func (r *Router) orphans(worker uint64) (list []*Booking) {
	for _, b := range r.requests {
		if b != nil && b.decision.Target.Worker == worker && b.load.life.Err() != nil {
			list = append(list, b)
		}
	}
	return list
}
