package store

import "time"

// What opens a breaker, and how often an open one lets a try through.
const (
	BreakerFailures = 5
	BreakerPause    = 5 * time.Second
)

// Breaker keeps callers from what does not answer: after BreakerFailures
// failures in a row it is open, and lets one try through every BreakerPause,
// until one goes well. It is plain data; the caller locks. The zero value is
// ready, and closed.
type Breaker struct {
	failures int
	next     time.Time // of an open one: when a try may go through
}

// Allow reports whether to try. Whoever is allowed reports the outcome.
func (b *Breaker) Allow(now time.Time) bool {
	if b.failures < BreakerFailures {
		return true
	}
	if now.Before(b.next) {
		return false
	}
	b.next = now.Add(BreakerPause)
	return true
}

// Failed is told of a failure.
func (b *Breaker) Failed(now time.Time) {
	b.failures++
	if b.failures == BreakerFailures {
		b.next = now.Add(BreakerPause)
	}
}

// Succeeded is told of a success, which closes the breaker.
func (b *Breaker) Succeeded() { *b = Breaker{} }

// Open reports whether the breaker is open.
func (b *Breaker) Open() bool { return b.failures >= BreakerFailures }
