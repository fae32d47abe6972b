package router

import (
	"math"
	"slices"
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

// Best returns the n cheapest of what there was to choose from, the cheapest first
// and equal ones in the order of the targets, and which of them was taken. If it
// is none of them it stands in the place of the last. It can be asked only while
// [Observer.Routed] runs.
func (w *Work) Best(n int) (rows []Row, taken int) {
	s := w.rows
	best, taken := s.best(n, w.choice)
	a, chances := s.ask(w.query), shares(s.rows, s.tuning.Temperature)
	rows = make([]Row, len(best))
	for i, at := range best {
		rows[i] = s.row(a, at)
		rows[i].Chance = chances[at]
	}
	return rows, taken
}

// best returns the places of the n cheapest rows, and where among them the one at
// choice is.
func (s *scratch) best(n, choice int) (places []int, taken int) {
	n = max(1, min(n, len(s.rows)))
	places = make([]int, 0, n+1)
	worst := math.Inf(1) // of n places
	for i := range s.rows {
		cost := tokens(&s.rows[i])
		if len(places) == n && cost >= worst {
			continue
		}
		at := len(places)
		for at > 0 && tokens(&s.rows[places[at-1]]) > cost { // who came first stays first
			at--
		}
		places = slices.Insert(places, at, i)
		places = places[:min(len(places), n)]
		worst = tokens(&s.rows[places[len(places)-1]])
	}
	if taken = slices.Index(places, choice); taken < 0 {
		taken = len(places) - 1
		places[taken] = choice
	}
	return places, taken
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
	b.decision.Took = Took{w.Hashing, w.Matching, w.Shared, w.Scheduling, w.SharedAsked}
	r.observer.Routed(&b.decision, w)
	w.query, w.rows = nil, nil
}

// Untold returns how many workers that are ready tell nothing of their caches,
// while the router listens: what is sent to them counts as cached there.
func (r *Router) Untold() int {
	n := 0
	for _, w := range r.fleet.Snapshot() {
		if card := w.Card(); !r.tuning.IgnoreEvents && w.Ready() && card != nil && !r.hears(card) {
			n++
		}
	}
	return n
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
