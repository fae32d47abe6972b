package fleet

import (
	"log/slog"
	"sync/atomic"
	"time"
)

// EventCounts is what came of a worker's KV events, in batches, since it joined.
type EventCounts struct {
	// Applied were handed on. So were Voided, and made what had been told of a
	// rank before void: the engine said so, or it had to be told anew.
	Applied, Voided uint64
	// Ignored told nothing new, or nothing at all.
	Ignored uint64
	// Torn had events missing in them or before them, and Foreign named a rank
	// that the worker does not have; neither was handed on.
	Torn, Foreign uint64
	// Opened counts how often the events were read from the engine anew.
	Opened uint64
}

// told is EventCounts as it grows.
type told struct{ applied, voided, ignored, torn, foreign, opened atomic.Uint64 }

// EventCounts returns what came of the worker's KV events so far.
func (w *Worker) EventCounts() EventCounts {
	t := &w.told
	return EventCounts{
		Applied: t.applied.Load(), Voided: t.voided.Load(), Ignored: t.ignored.Load(),
		Torn: t.torn.Load(), Foreign: t.foreign.Load(), Opened: t.opened.Load(),
	}
}

// quiet is how long the same complaint is not repeated.
const quiet = time.Minute

// complaint is something to log that may come in floods: once in a while, with
// how often it came.
type complaint struct {
	next  time.Time
	times int // since it was logged
}

func (c *complaint) warn(log *slog.Logger, message string, args ...any) {
	c.times++
	now := time.Now()
	if now.Before(c.next) {
		return
	}
	log.Warn(message, append(args, "times", c.times)...)
	c.next, c.times = now.Add(quiet), 0
}
