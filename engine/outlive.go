package engine

import (
	"context"
	"iter"
	"sync"
	"sync/atomic"
	"time"
)

// Outliving says how long a source goes on after its consumer has left.
type Outliving[T any] struct {
	// Life ends the source whatever else is said, and Group holds its goroutine.
	Life  context.Context
	Group *sync.WaitGroup
	// Enough says of an item that the source may be ended from then on; nil: only
	// its own end will do.
	Enough func(T) bool
	// Most is how long the source goes on without a consumer.
	Most time.Duration
}

// Outlive ranges over a source in a goroutine of its own, for legs of a request
// that must not be cut short: an engine that is told to give up a prompt half-way
// leaves the other one waiting for it, or falls over. The consumer is free at once
// when it leaves the loop or when ctx ends, and the source is read on, for nobody,
// until it has ended or done enough.
//
// That is how a request ends with which nothing is wrong: its client has gone, or
// its time is over. If ctx ends for another reason, such as a failure of the other
// leg, the source ends with it.
func Outlive[T any](ctx context.Context, o Outliving[T], source func(context.Context) iter.Seq2[T, error]) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		if ctx.Err() != nil || o.Life.Err() != nil {
			for v, err := range source(ctx) { // which ends at once
				yield(v, err)
				return
			}
			return
		}
		s := outlived[T]{Outliving: o, items: make(chan result[T]), left: make(chan struct{})}
		s.ctx, s.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
		o.Group.Go(func() { s.run(source) })
		var none T
		for {
			select {
			case r, ok := <-s.items:
				if !ok {
					return
				}
				if !yield(r.item, r.err) {
					s.leave(nil)
					return
				}
			case <-ctx.Done():
				s.leave(context.Cause(ctx))
				yield(none, CauseOf(ctx, ctx.Err()))
				return
			}
		}
	}
}

type result[T any] struct {
	item T
	err  error
}

// outlived is a source that is being ranged over.
type outlived[T any] struct {
	Outliving[T]
	ctx    context.Context
	cancel context.CancelCauseFunc
	items  chan result[T] // closed with the source
	left   chan struct{}  // closed when the consumer has left
	enough atomic.Bool
}

func (s *outlived[T]) run(source func(context.Context) iter.Seq2[T, error]) {
	defer context.AfterFunc(s.Life, func() { s.cancel(context.Cause(s.Life)) })()
	defer s.cancel(nil)
	defer close(s.items)
	for v, err := range source(s.ctx) {
		if err == nil && s.Enough != nil && s.Enough(v) {
			s.enough.Store(true)
		}
		select {
		case s.items <- result[T]{v, err}:
		case <-s.left:
			if s.enough.Load() {
				return
			}
		}
	}
}

// leave lets the source go on alone, unless it has done enough or the request has
// failed.
func (s *outlived[T]) leave(cause error) {
	close(s.left)
	kind := Cancelled
	if cause != nil {
		kind = KindOf(cause)
	}
	if s.enough.Load() || kind != Cancelled && kind != DeadlineExceeded {
		s.cancel(cause)
		return
	}
	late := time.AfterFunc(s.Most, func() { s.cancel(ErrClientGone) })
	context.AfterFunc(s.ctx, func() { late.Stop() })
}
