package frontend

import (
	"sync/atomic"
	"time"

	"github.com/dynago/dynago/pipeline"
)

// Statistics are how the requests of one model fared since the server began, by all
// APIs together.
type Statistics struct {
	// Success and Fail go from arrival to end. Queue is the part of Success until a
	// worker was chosen, and Infer the rest.
	Success, Fail, Queue, Infer Tally
	// Last is when a request succeeded for the last time.
	Last time.Time
}

// Tally counts requests, and the time that they took together.
type Tally struct {
	Count uint64
	Time  time.Duration
}

// Statistics returns those of a model, by its primary name.
func (s *Server) Statistics(model string) Statistics {
	m := s.metrics
	m.mu.RLock()
	of := m.statistics[model]
	m.mu.RUnlock()
	if of == nil {
		return Statistics{}
	}
	return of.read()
}

// statistics are those of one model while requests come and go. Each number grows,
// and that is all that readers rely on: they subtract two readings.
type statistics struct {
	successes, failures         atomic.Uint64
	success, fail, queue, infer atomic.Int64 // nanoseconds
	last                        atomic.Int64 // Unix time in nanoseconds
}

// statisticsOf returns those of a model. The caller holds mu.
func (m *metrics) statisticsOf(model string) *statistics {
	of := m.statistics[model]
	if of == nil {
		of = new(statistics)
		m.statistics[model] = of
	}
	return of
}

// succeed counts a request that was answered.
func (s *statistics) succeed(took time.Duration, notes []pipeline.Notes) {
	var queue time.Duration
	if len(notes) > 0 {
		n := &notes[0]
		queue = min(n.Template+n.Tokenize+n.Routing+n.Queue, took)
	}
	s.success.Add(int64(took))
	s.queue.Add(int64(queue))
	s.infer.Add(int64(took - queue))
	s.last.Store(time.Now().UnixNano())
	s.successes.Add(1)
}

// refuse counts a request that was not.
func (s *statistics) refuse(took time.Duration) {
	s.fail.Add(int64(took))
	s.failures.Add(1)
}

func (s *statistics) read() Statistics {
	n := s.successes.Load()
	of := func(n uint64, took *atomic.Int64) Tally { return Tally{n, time.Duration(took.Load())} }
	r := Statistics{
		Success: of(n, &s.success), Fail: of(s.failures.Load(), &s.fail), Queue: of(n, &s.queue), Infer: of(n, &s.infer),
	}
	if last := s.last.Load(); last != 0 {
		r.Last = time.Unix(0, last)
	}
	return r
}
