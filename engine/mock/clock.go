package mock

import (
	"sync"
	"sync/atomic"
	"time"
)

// Clock is where the live engine takes its time from.
type Clock interface {
	// Now returns the time since some fixed moment.
	Now() time.Duration
	// Wait returns once d has passed or wake gives something, whichever comes
	// first. A negative d never passes.
	Wait(d time.Duration, wake <-chan struct{})
}

// wall is the real clock.
type wall struct{ start time.Time }

func newWall() wall { return wall{time.Now()} }

func (w wall) Now() time.Duration { return time.Since(w.start) }

func (w wall) Wait(d time.Duration, wake <-chan struct{}) {
	if d < 0 {
		<-wake
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-wake:
	}
}

// bell wakes everyone who listens. Nobody waits for a listener: one that was
// not there finds its bell rung.
type bell struct {
	listeners atomic.Int32
	mu        sync.Mutex
	wake      map[chan struct{}]struct{}
}

// listen returns a channel that gets a value after every ring, and a function
// that ends it.
func (b *bell) listen() (wake chan struct{}, stop func()) {
	wake = make(chan struct{}, 1)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.wake == nil {
		b.wake = make(map[chan struct{}]struct{})
	}
	b.wake[wake] = struct{}{}
	b.listeners.Add(1)
	return wake, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.wake, wake)
		b.listeners.Add(-1)
	}
}

func (b *bell) ring() {
	if b.listeners.Load() == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for wake := range b.wake {
		nudge(wake)
	}
}

// nudge leaves a value in a channel of capacity 1, if there is none.
func nudge(wake chan struct{}) {
	select {
	case wake <- struct{}{}:
	default:
	}
}
