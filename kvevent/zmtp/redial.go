package zmtp

import (
	"context"
	"time"
)

// Redials begin after about firstRedial and become rarer up to about lastRedial.
const (
	firstRedial = 100 * time.Millisecond
	lastRedial  = 5 * time.Second
)

// redialAfter is the wait after as many failures in a row: doubled each time,
// and spread by a number in [0, 1) over its upper half.
func redialAfter(failures int, jitter float64) time.Duration {
	d := lastRedial
	if failures < 6 { // 100 ms × 2⁶ is beyond 5 s
		d = min(firstRedial<<failures, lastRedial)
	}
	return d/2 + time.Duration(jitter*float64(d/2))
}

// rest waits, or returns early when ctx ends.
func rest(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
