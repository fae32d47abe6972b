package pipeline

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/dynago/dynago/fleet"
	"github.com/dynago/dynago/kv"
)

// sightings is what was seen last of each rank: how long it took, and over what.
type sightings struct {
	fleet    *fleet.Fleet
	byTarget sync.Map // kv.Target → *sighting
}

type sighting struct {
	ttft, itl atomic.Int64 // nanoseconds; 0: none yet
	input     atomic.Int64 // tokens
}

// of returns where to note what is seen of a rank. A rank that is new is rare,
// and so that is the moment in which those of workers that have left go.
func (s *sightings) of(t kv.Target) *sighting {
	if v, ok := s.byTarget.Load(t); ok {
		return v.(*sighting)
	}
	s.byTarget.Range(func(t, _ any) bool {
		if s.fleet.Worker(t.(kv.Target).Worker) == nil {
			s.byTarget.Delete(t)
		}
		return true
	})
	v, _ := s.byTarget.LoadOrStore(t, new(sighting))
	return v.(*sighting)
}

// last returns what was seen of a rank, which may be nothing.
func (s *sightings) last(t kv.Target) *sighting {
	if v, ok := s.byTarget.Load(t); ok {
		return v.(*sighting)
	}
	return new(sighting)
}

// pace measures one attempt.
type pace struct {
	sent, first time.Time
	input       int // prompt tokens
	tokens      int // behind those of the first item
}

// item notes n tokens, and says whether they are the first. Only the first item
// looks at the clock.
func (p *pace) item(n int, seen *sighting) (first bool) {
	if p.begun() {
		p.tokens += n
		return false
	}
	p.first = time.Now()
	seen.ttft.Store(int64(p.first.Sub(p.sent)))
	seen.input.Store(int64(p.input))
	return true
}

// waited returns how long the first item took to come.
func (p *pace) waited() time.Duration { return p.first.Sub(p.sent) }

// begun says whether an item has come.
func (p *pace) begun() bool { return !p.first.IsZero() }

func (p *pace) end(seen *sighting) {
	if p.tokens > 0 {
		seen.itl.Store(int64(time.Since(p.first)) / int64(p.tokens))
	}
}
