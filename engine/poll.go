package engine

import (
	"context"
	"iter"
	"math/rand/v2"
	"time"
)

// probeTimeout ends a probe that brings nothing: the next one may.
const probeTimeout = 2 * time.Second

// Poll asks again and again, and yields what each probe brought, be it an error,
// until ctx ends. It waits in the caller's goroutine, one probe at a time, for
// about the time given; jitter is how much of it a wait may be shorter or longer,
// so that many pollers do not ask in step.
func Poll[T any](ctx context.Context, every time.Duration, jitter float64, probe func(context.Context) (T, error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		timer := time.NewTimer(0)
		defer timer.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-timer.C:
			}
			once, cancel := context.WithTimeout(ctx, probeTimeout)
			v, err := probe(once)
			cancel()
			if ctx.Err() != nil || !yield(v, err) {
				return
			}
			timer.Reset(time.Duration(float64(every) * (1 + jitter*(2*rand.Float64()-1))))
		}
	}
}
