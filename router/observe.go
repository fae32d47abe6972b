package router

import (
	"time"

	"github.com/dynago/dynago/engine"
)

// Observer is told what a router does, so that others can count and record it.
// Its methods may be called from any goroutine. They must be quick and call
// nothing of the router, whose lock may be held.
type Observer interface {
	// Routed is told of each booking, before anybody has it. Neither must be kept.
	Routed(d *Decision, w *Work)
	// Ended is told of each booking when it is released.
	Ended(o *Outcome)
}

// Work is what it took to decide.
type Work struct {
	ID           string // of the query
	Role         engine.Role
	PromptTokens int
	Candidates   int
	// SharedBlocks of the prompt lie in a cache beside the workers, of them
	// BeyondBlocks where the device of the chosen worker has nothing. SharedAsked
	// says that such a cache was asked.
	SharedAsked                bool
	SharedBlocks, BeyondBlocks int
	// LostBlocks is how much less is cached where the request goes than where most
	// is, by tier weight.
	LostBlocks float64

	Hashing    time.Duration // naming the blocks of the prompt
	Matching   time.Duration // finding out where they are
	Shared     time.Duration // waiting for the cache beside the workers
	Scheduling time.Duration // load, costs, choice and booking

	query  *Query
	rows   *scratch
	choice int
}

// Rows returns what there was to choose from, in the order of the targets, and
// which of it was taken. It can be asked only while [Observer.Routed] runs, and
// takes longer than most decisions.
func (w *Work) Rows() (rows []Row, taken int) {
	rows = w.rows.priced(w.query)
	chances(rows, w.rows.tuning.Temperature)
	return rows, w.choice
}

// Observers are several observers in the place of one.
type Observers []Observer

// Routed implements [Observer].
func (l Observers) Routed(d *Decision, w *Work) {
	for _, o := range l {
		o.Routed(d, w)
	}
}

// Ended implements [Observer].
func (l Observers) Ended(o *Outcome) {
	for _, each := range l {
		each.Ended(o)
	}
}

// tell lets the observer know of a booking that was made of row choice of s.
func (r *Router) tell(b *Booking, q *Query, s *scratch, choice int) {
	p, c, w := &s.prompts[s.sides[choice].prompt], &s.rows[choice], &s.work
	w.ID, w.Role, w.PromptTokens, w.Candidates = q.ID, q.Role, b.prompt, len(s.rows)
	w.SharedAsked, w.SharedBlocks, w.BeyondBlocks = p.asked, 0, c.Shared
	for _, span := range p.shared {
		w.SharedBlocks += span.End - span.Start
	}
	w.LostBlocks = 0
	if !q.pinned() {
		w.LostBlocks = max(0, s.most/float64(c.BlockSize)-s.tuning.overlap(c))
	}
	w.query, w.rows, w.choice = q, s, choice
	w.Scheduling = b.decision.Routing - w.Hashing - w.Matching - w.Shared
	r.observer.Routed(&b.decision, w)
	w.query, w.rows = nil, nil
}

// stopwatch tells how long one thing after another has taken, if anybody wants to
// know: it would cost more than some of them.
type stopwatch struct {
	now  func() time.Time // or nil
	last time.Time
}

func (r *Router) stopwatch() stopwatch {
	if r.observer == nil {
		return stopwatch{}
	}
	return stopwatch{r.now, r.now()}
}

func (w *stopwatch) lap() time.Duration {
	if w.now == nil {
		return 0
	}
	was := w.last
	w.last = w.now()
	return w.last.Sub(was)
}
