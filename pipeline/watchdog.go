package pipeline

import (
	"context"
	"iter"
	"sync"
	"time"

	"github.com/dynago/dynago/engine"
)

// Limits are the times that a request may wait.
type Limits struct {
	FirstItem  time.Duration // from dispatch to the first item; 0 = for ever
	Inactivity time.Duration // between items; 0 = for ever
}

// watchdog notices the silence of one attempt, and cancels it with a cause. It
// is the only thing between engine and edge that has a timer.
//
// Its one timer is armed lazily: while it runs and is due no later than the
// deadline, a new deadline leaves it alone, and when it fires too early it is
// armed again for what is left. So an item costs a look at the clock, and a
// timer operation only once in a limit.
type watchdog struct {
	limits Limits
	cancel context.CancelCauseFunc

	mu       sync.Mutex
	deadline time.Time // when the silence becomes too long; zero: nobody waits
	cause    error     // what it is then
	timer    *time.Timer
	due      time.Time // when the timer fires; zero: it does not run
}

// await says that the next item is being waited for.
func (w *watchdog) await(limit time.Duration, cause error) {
	if limit <= 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.deadline, w.cause = time.Now().Add(limit), cause
	if w.due.IsZero() || w.deadline.Before(w.due) {
		w.arm()
	}
}

// item says that an item has come: time spent from here on is the client's.
func (w *watchdog) item() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.deadline = time.Time{}
}

// arm makes the timer fire at the deadline. The lock must be held.
func (w *watchdog) arm() {
	w.due = w.deadline
	if w.timer == nil {
		w.timer = time.AfterFunc(time.Until(w.due), w.fire)
		return
	}
	w.timer.Reset(time.Until(w.due))
}

// fire runs when the timer is due. Most often the deadline has moved since.
func (w *watchdog) fire() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.due = time.Time{}
	if w.deadline.IsZero() {
		return // the next await arms again
	}
	if time.Now().Before(w.deadline) {
		w.arm()
		return
	}
	w.cancel(w.cause)
}

// stop ends the watch; nothing of it is left behind.
func (w *watchdog) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.deadline = time.Time{}
	if w.timer != nil {
		w.timer.Stop()
	}
}

// watch passes the items of an attempt on and marks them. Without it a slow
// client would look like a hung engine.
func watch[T any](w *watchdog, items iter.Seq2[T, error]) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		defer w.stop()
		w.await(w.limits.FirstItem, engine.ErrFirstItem)
		for it, err := range items {
			w.item()
			if !yield(it, err) || err != nil {
				return
			}
			w.await(w.limits.Inactivity, engine.ErrInactive)
		}
	}
}
