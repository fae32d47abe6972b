package pipeline

import (
	"sync/atomic"
	"time"

	"github.com/dynago/dynago/engine"
)

// Flow knows where requests are on their way, and hands on how long parts of it took.
// It is safe for concurrent use.
type Flow struct {
	preprocess, route, routeDecode atomic.Int64
	dispatch                       [phases]atomic.Int64
	inflight                       atomic.Int64
	gauge                          atomic.Pointer[Gauge]
}

// Gauge is told how long parts of requests took. It is called from any goroutine, once
// for each answer of a worker, and must be quick.
type Gauge interface {
	// Dispatched is told how long it took from sending a request, or a leg of one, to a
	// worker until the first item came back.
	Dispatched(took time.Duration)
	// Detokenized is told how long it took to make text of so many tokens, of one answer.
	Detokenized(tokens int, took time.Duration)
}

// phase is what part of a request a worker does.
type phase uint8

const (
	aggregated phase = iota
	prefill
	decode
	phases
)

func (p phase) String() string { return [...]string{"aggregated", "prefill", "decode"}[p] }

// phaseOf returns the phase of the leg that answers.
func phaseOf(leg engine.Disagg) phase {
	if leg.Phase == engine.PhaseDecode {
		return decode
	}
	return aggregated
}

// Observe lets a gauge be told from now on.
func (f *Flow) Observe(g Gauge) { f.gauge.Store(&g) }

// Inflight returns how many requests, and legs of them, are with workers.
func (f *Flow) Inflight() int { return int(f.inflight.Load()) }

// Stages tells for each stage how many requests are in it: preprocess until its prompt is
// made, route until it has a worker, dispatch from there until the first item comes back.
// The phase is empty where it is not known yet.
func (f *Flow) Stages(tell func(stage, phase string, requests int)) {
	tell("preprocess", "", int(f.preprocess.Load()))
	tell("route", "", int(f.route.Load()))
	tell("route", decode.String(), int(f.routeDecode.Load()))
	for p := range phases {
		tell("dispatch", p.String(), int(f.dispatch[p].Load()))
	}
}

// flight is a request, or a leg of one, that is with a worker.
type flight struct {
	flow   *Flow
	phase  phase
	answer bool // an item has come
}

func (f *Flow) send(p phase) flight {
	f.inflight.Add(1)
	f.dispatch[p].Add(1)
	return flight{flow: f, phase: p}
}

// answered notes that the first item has come, so long after the request was sent.
func (f *flight) answered(took time.Duration) {
	if f.flow == nil || f.answer {
		return
	}
	f.answer = true
	f.flow.dispatch[f.phase].Add(-1)
	if g := f.flow.gauge.Load(); g != nil {
		(*g).Dispatched(took)
	}
}

// end notes that the worker is done with it.
func (f *flight) end() {
	if f.flow == nil {
		return
	}
	if !f.answer {
		f.flow.dispatch[f.phase].Add(-1)
	}
	f.flow.inflight.Add(-1)
	f.flow = nil
}

// detokenized hands on how long it took to make text of an answer.
func (f *Flow) detokenized(tokens int, took time.Duration) {
	if g := f.gauge.Load(); g != nil {
		(*g).Detokenized(tokens, took)
	}
}
