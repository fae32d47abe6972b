package main

import (
	"runtime"
	"time"

	"github.com/dynago/dynago/bench/workload"
)

// mixture is what one pass over a history took.
type mixture struct {
	spent
	Blocks int       `json:"blocks"` // block operations
	Ops    int       `json:"ops"`    // queries and events
	Tenths []float64 `json:"tenths"` // block operations per second of this thread, for each tenth
	Steady int       `json:"steady"` // first tenth that began with full caches
	Failed int       `json:"failed"` // events that the index refused
	Found  int       `json:"found"`  // sum of all answers
	Held   int       `json:"held"`   // blocks held at the end
	Heap   int       `json:"heap"`   // live bytes at the end
}

// mixed replays a history on one thread.
func mixed(c contestant, h *workload.Corpus) (mixture, error) {
	oneThread()
	all := workload.CountsOf(h.Ops)
	m := mixture{Blocks: all.All(), Ops: len(h.Ops), Steady: h.Steady(), Held: all.Held()}
	capacity := h.Capacity()
	before := live()
	x := c.new()
	match := x.matcher()
	began := now()
	reserve(x, h, capacity)
	last := now()
	for _, ops := range h.Tenths() {
		m.replay(x, match, h, ops)
		at := now()
		m.Tenths = append(m.Tenths, float64(workload.CountsOf(ops).All())/at.since(last).Thread)
		last = at
	}
	m.spent = last.since(began)
	m.Heap = live() - before
	runtime.KeepAlive(x)
	return m, nil
}

func (m *mixture) replay(x index, match match, h *workload.Corpus, ops []workload.Op) {
	for _, op := range ops {
		if op.Kind == workload.Query {
			m.Found += match(h.Prompt(op))
		} else if x.Apply(op.Target(), h.Event(op)) != nil {
			m.Failed++
		}
	}
}

// kinds is what each kind of operation took, in nanoseconds per block.
type kinds struct {
	Query  float64 `json:"query"`
	Store  float64 `json:"store"`
	Remove float64 `json:"remove"`
}

// apart replays a part of a history and times every operation on its own, less
// what reading the clock takes.
func apart(x index, match match, h *workload.Corpus, ops []workload.Op) kinds {
	reading := threadClockCost()
	var took [workload.Remove + 1]time.Duration
	for _, op := range ops {
		began := threadTime()
		if op.Kind == workload.Query {
			match(h.Prompt(op))
		} else {
			_ = x.Apply(op.Target(), h.Event(op))
		}
		took[op.Kind] += threadTime() - began - reading
	}
	n := workload.CountsOf(ops)
	per := func(d time.Duration, blocks int) float64 { return float64(d) / float64(max(blocks, 1)) }
	return kinds{
		Query:  per(took[workload.Query], n.Queried),
		Store:  per(took[workload.Store]+took[workload.Extend], n.Stored),
		Remove: per(took[workload.Remove], n.Removed),
	}
}

// split replays a history and tells the kinds of operations of its last two
// tenths apart.
func split(c contestant, h *workload.Corpus) (kinds, error) {
	oneThread()
	x := c.new()
	match := x.matcher()
	reserve(x, h, h.Capacity())
	var m mixture
	tenths := h.Tenths()
	for _, ops := range tenths[:8] {
		m.replay(x, match, h, ops)
	}
	return apart(x, match, h, h.Ops[len(h.Ops)-len(tenths[8])-len(tenths[9]):]), nil
}
