package pipeline

import (
	"context"
	"iter"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dynago/dynago/engine"
)

// Limits are the times that a request may wait.
type Limits struct {
	FirstItem  time.Duration // from dispatch to the first item; 0 = for ever
	Inactivity time.Duration // between items; 0 = for ever
}

// DefaultLimits are generous: a long prompt on a loaded engine is no fault.
func DefaultLimits() Limits {
	return Limits{FirstItem: 600 * time.Second, Inactivity: 300 * time.Second}
}

// watchdog notices the silence of one attempt, and cancels it with a cause. It
// is the only thing between engine and edge that knows the time: one timer,
// armed lazily, so that an item costs two stores and no timer operation.
type watchdog struct {
	limits Limits
	cancel context.CancelCauseFunc
	start  time.Time

	// deadline is when the silence becomes too long, in nanoseconds since start;
	// 0 while the time spent is the client's.
	deadline atomic.Int64
	first    atomic.Bool // no item yet

	mu    sync.Mutex
	timer *time.Timer
	armed atomic.Bool
}

func newWatchdog(l Limits, cancel context.CancelCauseFunc) *watchdog {
	return &watchdog{limits: l, cancel: cancel, start: time.Now()}
}

// sent starts the wait for the first item.
func (w *watchdog) sent() {
	w.first.Store(true)
	w.await(w.limits.FirstItem)
}

// item says that an item has come: time spent from here on is the client's.
func (w *watchdog) item() {
	w.first.Store(false)
	w.deadline.Store(0)
}

// await says that the next item is being waited for.
func (w *watchdog) await(limit time.Duration) {
	if limit <= 0 {
		return
	}
	w.deadline.Store(int64(time.Since(w.start) + limit))
	if w.armed.CompareAndSwap(false, true) {
		w.arm(limit)
	}
}

func (w *watchdog) arm(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.timer == nil {
		w.timer = time.AfterFunc(d, w.fire)
		return
	}
	w.timer.Reset(d)
}

// fire runs when the deadline that was known at arming has passed. Most often
// it has moved since.
func (w *watchdog) fire() {
	w.armed.Store(false)
	deadline := w.deadline.Load()
	if deadline == 0 {
		return // the next await arms again
	}
	if left := time.Duration(deadline) - time.Since(w.start); left > 0 {
		if w.armed.CompareAndSwap(false, true) {
			w.arm(left)
		}
		return
	}
	if w.first.Load() {
		w.cancel(engine.ErrFirstItem)
	} else {
		w.cancel(engine.ErrInactive)
	}
}

func (w *watchdog) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.timer != nil {
		w.timer.Stop()
	}
	w.deadline.Store(0)
}

// watch marks the items of an attempt as they pass. Without it a slow client
// would look like a hung engine.
func (w *watchdog) watch(deltas iter.Seq2[engine.Delta, error]) iter.Seq2[engine.Delta, error] {
	return func(yield func(engine.Delta, error) bool) {
		w.sent()
		defer w.stop()
		for d, err := range deltas {
			w.item()
			if !yield(d, err) || err != nil {
				return
			}
			w.await(w.limits.Inactivity)
		}
	}
}
