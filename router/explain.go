package router

import (
	"context"
	"math"

	"github.com/dynago/dynago/fleet"
	"github.com/dynago/dynago/kv"
)

// Row is a candidate, with what its cost is made of.
type Row struct {
	Candidate
	Terms Terms
	// Chance is how likely mode [KV] is to take it, 0..1.
	Chance float64
	// SharedSpans are the blocks of the prompt that a cache beside the workers has.
	SharedSpans []kv.Span
}

// Explain returns what Route would choose from for a request, in the order of
// the targets. It books nothing, and asks no policy. ctx bounds how long a shared
// cache is waited for. The errors are those of Route.
func (r *Router) Explain(ctx context.Context, q *Query) ([]Row, error) {
	var rows []Row
	err := r.peek(ctx, q, func(s *scratch) error {
		all := s.priced(q)
		rows = all[:0]
		for i := range all {
			if s.sides[i].life.Err() == nil {
				rows = append(rows, all[i])
			}
		}
		chances(rows, s.tuning.Temperature)
		return nil
	})
	return rows, err
}

// priced returns the rows with what their costs are made of.
func (s *scratch) priced(q *Query) []Row {
	a, rows := s.ask(q), make([]Row, len(s.rows))
	for i := range rows {
		rows[i] = s.row(a, i)
	}
	return rows
}

func (s *scratch) row(a ask, i int) Row {
	row := Row{
		Candidate: s.rows[i], Terms: s.tuning.terms(a, &s.rows[i]).finite(),
		SharedSpans: s.prompts[s.sides[i].prompt].shared,
	}
	row.Cost = min(row.Cost, math.MaxFloat64)
	return row
}

// Advise returns the decision that Route would come to, and books nothing. It
// never waits for room, and neither makes nor refreshes the binding of a session.
func (r *Router) Advise(ctx context.Context, q *Query) (Decision, error) {
	t, bound, err := r.SessionTarget(q)
	if err != nil {
		return Decision{}, err
	}
	if bound && !q.pinned() {
		follows := *q
		follows.PinWorker, follows.PinRank, follows.follows = t.Worker, &t.Rank, true
		d, err := r.advise(ctx, &follows)
		if err == nil || !about(err, t) {
			d.Session = SessionFollowed
			return d, err
		}
	}
	return r.advise(ctx, q)
}

func (r *Router) advise(ctx context.Context, q *Query) (d Decision, err error) {
	start := r.now()
	err = r.suppose(ctx, q, func(s *scratch, choice int) {
		d = s.decision(q, choice)
		if w := &s.work; r.observer != nil {
			d.Took = Took{Hashing: w.Hashing, Matching: w.Matching, Shared: w.Shared, SharedAsked: s.prompts[s.sides[choice].prompt].asked}
		}
	})
	d.Routing = r.now().Sub(start)
	return d, err
}

// suppose shows what a request would be given, which the policy is asked for. The
// lock is held meanwhile.
func (r *Router) suppose(ctx context.Context, q *Query, see func(s *scratch, choice int)) error {
	advisory := *q
	advisory.Advisory = true
	return r.peek(ctx, &advisory, func(s *scratch) error {
		choice, err := r.choose(ctx, &advisory, s)
		if err == nil {
			see(s, choice)
		}
		return err
	})
}

// peek shows what there is to choose from for a request. The lock is held
// meanwhile.
func (r *Router) peek(ctx context.Context, q *Query, see func(*scratch) error) error {
	s, now := r.scratch.Get().(*scratch), r.now()
	defer r.recycle(s)
	r.mu.Lock()
	r.expire(now)
	r.mu.Unlock()
	if err := r.consider(ctx, q, s); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.weigh(q, s, now)
	return see(s)
}

// PotentialLoad is what a target would carry with one more request.
type PotentialLoad struct {
	Target        kv.Target
	PrefillTokens int // outstanding, with those of the request that are not cached
	DecodeBlocks  int
	Requests      int // without the request
}

// PotentialLoads returns what each target that may serve a request would carry
// with it, in the order of the targets.
func (r *Router) PotentialLoads(ctx context.Context, q *Query) ([]PotentialLoad, error) {
	var loads []PotentialLoad
	err := r.peek(ctx, q, func(s *scratch) error {
		for i := range s.rows {
			c := &s.rows[i]
			loads = append(loads, PotentialLoad{
				Target:        c.Target,
				PrefillTokens: c.PrefillTokens + q.Length() - min(s.tuning.cachedTokens(c), q.Length()),
				DecodeBlocks:  c.DecodeBlocks,
				Requests:      c.Requests,
			})
		}
		return nil
	})
	return loads, err
}

// Barred is a worker that serves a query's model, and may not serve the query.
type Barred struct {
	Worker *fleet.Worker
	Code   string // one of the codes of refusals
	Reason string // for people
}

// Barred returns the workers that may not serve a request, in the order of their
// ids, each with the first reason why.
func (r *Router) Barred(q *Query) []Barred {
	var list []Barred
	c := r.check(q, r.fleet.Snapshot())
	for _, w := range r.fleet.Snapshot() {
		if card := w.Card(); serves(card, q) {
			if bar := c.bar(w, card, w.Lost()); bar != unbarred {
				list = append(list, Barred{Worker: w, Code: bar.code(), Reason: bar.String()})
			}
		}
	}
	return list
}

// chances fills in how likely each row is to be taken at a temperature.
func chances(rows []Row, temperature float64) {
	if len(rows) == 0 {
		return
	}
	c := make([]Candidate, len(rows))
	for i := range rows {
		c[i] = rows[i].Candidate
	}
	for i, p := range shares(c, temperature) {
		rows[i].Chance = p
	}
}

// shares returns how likely each candidate is to be taken, all together 1.
func shares(c []Candidate, temperature float64) []float64 {
	p, sum := make([]float64, len(c)), 0.0
	if temperature > 0 {
		f := flatten(c, temperature)
		for i := range c {
			p[i] = f.weight(&c[i])
			sum += p[i]
		}
	} else {
		low := math.Inf(1)
		for i := range c {
			low = min(low, tokens(&c[i]))
		}
		room := roomy(c, low)
		for i := range c {
			if tokens(&c[i]) == low {
				p[i] = room(&c[i])
				sum += p[i]
			}
		}
	}
	for i := range p {
		p[i] /= sum
	}
	return p
}
