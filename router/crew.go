package router

import (
	"maps"
	"math"

	"github.com/dynago/dynago/engine"
)

// crew is who may serve requests for a model that want nothing in particular. As
// long as the fleet does not change, each decision begins with the same rows, and
// looks at no worker.
type crew struct {
	rows     []Candidate
	sides    []side
	pools    []pool
	shortest int // context of all, tokens
}

// crews are those of one version of the fleet. They do not change; another one
// takes their place.
type crews struct {
	version uint64
	all     map[crewKey]*crew
}

type crewKey struct {
	model string // as it is asked for
	role  engine.Role
}

// plain says that a request leaves it to the workers' state alone which of them
// may serve it.
func (q *Query) plain() bool {
	return q.PinWorker == 0 && q.PinRank == nil && q.Exclude == nil && q.Allow == nil &&
		q.Require == nil && len(q.Prefer) == 0 && q.style == "" && q.Namespace.LoRA == ""
}

// reset empties the rows.
func (s *scratch) reset() {
	clear(s.rows) // which may be a crew's that is no more
	clear(s.sides)
	s.rows, s.sides, s.pools, s.crew = s.rows[:0], s.sides[:0], s.pools[:0], nil
}

// muster fills in the rows of the crew for q, and says whether that is all there
// is to say. If not, each worker has to be looked at.
func (r *Router) muster(q *Query, s *scratch) bool {
	if !r.begun.Load() || !q.plain() {
		return false
	}
	c := r.crew(crewKey{q.Model, q.Role})
	if c == nil || q.Length() >= c.shortest {
		return false
	}
	all := r.fleet.Calm() && !r.watchful.Load()
	if s.crew == c && all {
		return true // they are there from the last time
	}
	s.reset()
	s.pools = append(s.pools, c.pools...)
	if all {
		s.rows, s.sides, s.crew = append(s.rows, c.rows...), append(s.sides, c.sides...), c
		return true
	}
	busy := r.check(q, r.fleet.Snapshot()).busy
	for i := range c.rows {
		if w := c.rows[i].Worker; w.Ready() && !w.Overloaded() && !busy[w.ID()] {
			s.rows, s.sides = append(s.rows, c.rows[i]), append(s.sides, c.sides[i])
		}
	}
	return len(s.rows) > 0
}

// crew returns the crew for a key, or nil if there is nobody.
func (r *Router) crew(key crewKey) *crew {
	version := r.fleet.Version()
	last := r.crews.Load()
	if last == nil || last.version != version {
		last = &crews{version: version}
	}
	if c := last.all[key]; c != nil {
		return c
	}
	c := r.gather(key)
	if c == nil {
		return nil // of names that nobody has there is no end
	}
	next := &crews{version: version, all: map[crewKey]*crew{key: c}}
	maps.Copy(next.all, last.all)
	r.crews.Store(next)
	return c
}

// gather looks at every worker.
func (r *Router) gather(key crewKey) *crew {
	q, workers := &Query{Model: key.model, Role: key.role}, r.fleet.Snapshot()
	check, s, shortest := newCheck(q, workers), new(scratch), math.MaxInt
	for _, w := range workers {
		card := w.Card()
		if !serves(card, q) {
			continue
		}
		life := w.Lost()
		if !w.Admitted() || life.Err() != nil || !check.needed(card) {
			continue
		}
		if card.ContextLength > 0 {
			shortest = min(shortest, int(card.ContextLength))
		}
		if err := s.add(q, w, card, life, r.pool(card)); err != nil {
			return nil
		}
	}
	if len(s.rows) == 0 {
		return nil
	}
	return &crew{rows: s.rows, sides: s.sides, pools: s.pools, shortest: shortest}
}
