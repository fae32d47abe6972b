package sim

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/router"
)

// Goodput is what a request must keep to be a good one; what is 0 does not
// matter.
type Goodput struct {
	TTFT time.Duration
	ITL  time.Duration // the mean of its gaps between tokens
	E2E  time.Duration
}

func (g Goodput) any() bool { return g != Goodput{} }

// keeps says whether a request was good.
func (g Goodput) keeps(j *job) bool {
	return (g.TTFT == 0 || j.first-j.arrived <= g.TTFT) &&
		(g.ITL == 0 || j.perToken() <= g.ITL) &&
		(g.E2E == 0 || j.last-j.arrived <= g.E2E)
}

// Report is what came of a workload. A request counts as completed if it was
// admitted and has given a token; all figures but the counts are of those.
type Report struct {
	Requests, Completed int
	Failed              map[engine.ErrorKind]int // requests that ended with an error
	InputTokens         int
	OutputTokens        int
	// Duration is when the last token came.
	Duration time.Duration
	// WallTime is how long the simulation took, and left to the caller: a
	// simulation has no clock of its own.
	WallTime time.Duration

	// In milliseconds: from the arrival to the first token, from there to the
	// second, the mean gap of each request, every gap, from the arrival to the end.
	TTFT, TTST, TPOT, ITL, E2E Distribution
	// PerUser is one over every gap: the tokens a second that a client sees.
	PerUser Distribution

	// Shares of the input tokens that were cached: at best, where a request was
	// admitted more than once, and when it was admitted first.
	Reused, FirstReused float64
	// Predicted is what the router expected to be cached, and Cached what was, in
	// tokens. PredictionError is the mean difference, as a share of the input.
	Predicted, Cached int
	PredictionError   float64

	Targets []TargetReport
	// Imbalance is that of the targets that compute prompts, and DecodeImbalance
	// that of those that only decode, if there are any.
	Imbalance, DecodeImbalance Imbalance
	// Classes are those that the router put requests into, or where requests never
	// wait those that they asked for, in the order of their names.
	Classes []ClassReport
	Caches  CacheReport
	Router  router.Counters

	Goodput    Goodput
	Good       int // requests that kept it
	GoodOutput int // their output tokens

	// How long workers were there, in all, and how many GPUs each is taken to have.
	// Those that do whole requests count as decoding.
	PrefillSeconds, DecodeSeconds float64
	PrefillGPUs, DecodeGPUs       int
}

// GPUHours is how long GPUs were there.
func (r *Report) GPUHours() float64 {
	return (r.PrefillSeconds*float64(r.PrefillGPUs) + r.DecodeSeconds*float64(r.DecodeGPUs)) / 3600
}

// TargetReport is what one rank of one worker has done.
type TargetReport struct {
	Worker   string
	Rank     uint32
	Role     engine.Role
	Requests int // whose prompt, or if it only decodes, whose answer was here first
	Uncached int // tokens of prompts that were computed here
	// Preemptions is how often a request was sent back from the batch for want of
	// blocks.
	Preemptions int
	Busy        time.Duration
}

// Imbalance is the maximum over some targets against their mean; 1 is none.
type Imbalance struct {
	Requests float64 `json:"requests"`
	Uncached float64 `json:"uncached_tokens"` // tokens of prompts that were computed
	Busy     float64 `json:"busy_time"`
}

// ClassReport is how the requests of one policy class fared in the router's
// queue.
type ClassReport struct {
	Class    string
	Requests int
	Parked   int          // for any time at all
	Wait     Distribution // in milliseconds, of those that were parked
	TTFT     Distribution // in milliseconds, of all
}

// perToken returns the mean gap between tokens.
func (j *job) perToken() time.Duration {
	if j.given < 2 {
		return 0
	}
	return (j.last - j.first) / time.Duration(j.given-1)
}

// report sums up.
func (s *Simulation) report() *Report {
	r := &Report{
		Requests: len(s.intake.jobs), Failed: map[engine.ErrorKind]int{},
		Goodput: s.cfg.Goodput, Router: s.router.Counters(),
	}
	var ttft, ttst, tpot, e2e []time.Duration
	reused, missed := 0, 0
	for _, j := range s.intake.jobs {
		if j.err != nil {
			r.Failed[engine.KindOf(j.err)]++
		}
		if !j.completed() {
			continue
		}
		r.Completed++
		r.InputTokens += j.Prompt.Len()
		r.OutputTokens += j.given
		r.Duration = max(r.Duration, j.last)
		ttft = append(ttft, j.first-j.arrived)
		e2e = append(e2e, j.last-j.arrived)
		if j.given > 1 {
			ttst = append(ttst, j.second-j.first)
			tpot = append(tpot, j.perToken())
		}
		reused += j.reused
		r.Cached += j.cached
		r.Predicted += j.predicted
		missed += max(j.predicted-j.cached, j.cached-j.predicted)
		if r.Goodput.any() && r.Goodput.keeps(j) {
			r.Good++
			r.GoodOutput += j.given
		}
	}
	r.TTFT, r.TTST, r.TPOT, r.E2E = inMilliseconds(ttft), inMilliseconds(ttst), inMilliseconds(tpot), inMilliseconds(e2e)
	r.ITL = inMilliseconds(s.gaps)
	r.PerUser = perSecond(s.gaps)
	r.Reused, r.FirstReused = share(reused, r.InputTokens), share(r.Cached, r.InputTokens)
	r.PredictionError = share(missed, r.InputTokens)
	s.reportTargets(r)
	s.reportClasses(r)
	s.reportCaches(r)
	return r
}

func (j *job) completed() bool { return j.ran && j.given > 0 }

func share(part, whole int) float64 {
	if whole == 0 {
		return 0
	}
	return float64(part) / float64(whole)
}

func (s *Simulation) reportTargets(r *Report) {
	r.PrefillGPUs, r.DecodeGPUs = max(1, s.cfg.PrefillGPUs), max(1, s.cfg.GPUs)
	var computing, decoding []TargetReport
	for _, w := range s.workers {
		until := r.Duration
		if w.gone {
			until = min(until, w.left)
		}
		there, group := &r.DecodeSeconds, &computing
		switch w.card.Role {
		case engine.Prefill:
			there = &r.PrefillSeconds
		case engine.Decode:
			group = &decoding
		}
		*there += max(0, until-w.joined).Seconds()
		for _, k := range w.ranks {
			t := TargetReport{
				Worker: w.name, Rank: k.number, Role: w.card.Role,
				Requests: k.requests, Uncached: k.computed, Preemptions: k.preempted, Busy: k.busy,
			}
			r.Targets = append(r.Targets, t)
			*group = append(*group, t)
		}
	}
	r.Imbalance, r.DecodeImbalance = imbalance(computing), imbalance(decoding)
}

// imbalance of no targets at all is the zero value.
func imbalance(targets []TargetReport) Imbalance {
	if len(targets) == 0 {
		return Imbalance{}
	}
	return Imbalance{
		Requests: overMean(targets, func(t TargetReport) float64 { return float64(t.Requests) }),
		Uncached: overMean(targets, func(t TargetReport) float64 { return float64(t.Uncached) }),
		Busy:     overMean(targets, func(t TargetReport) float64 { return t.Busy.Seconds() }),
	}
}

// overMean returns the greatest value against the mean, 1 if all are 0.
func overMean(targets []TargetReport, value func(TargetReport) float64) float64 {
	sum, most := 0.0, 0.0
	for _, t := range targets {
		sum += value(t)
		most = max(most, value(t))
	}
	if sum == 0 {
		return 1
	}
	return most * float64(len(targets)) / sum
}

func (s *Simulation) reportClasses(r *Report) {
	type times struct{ wait, ttft []time.Duration }
	classes := map[string]*times{}
	for _, j := range s.intake.jobs {
		if !j.completed() {
			continue
		}
		name := cmp.Or(j.class, j.Class)
		c := classes[name]
		if c == nil {
			c = &times{}
			classes[name] = c
		}
		c.ttft = append(c.ttft, j.first-j.arrived)
		if j.parked > 0 {
			c.wait = append(c.wait, j.parked)
		}
	}
	for name, c := range classes {
		r.Classes = append(r.Classes, ClassReport{
			Class: name, Requests: len(c.ttft), Parked: len(c.wait),
			Wait: inMilliseconds(c.wait), TTFT: inMilliseconds(c.ttft),
		})
	}
	slices.SortFunc(r.Classes, func(a, b ClassReport) int { return cmp.Compare(a.Class, b.Class) })
}

// perSecond returns a count over the duration.
func (r *Report) perSecond(count int) float64 {
	if r.Duration <= 0 {
		return 0
	}
	return float64(count) / r.Duration.Seconds()
}

// kinds returns the kinds of errors, in order.
func (r *Report) kinds() []engine.ErrorKind { return slices.Sorted(maps.Keys(r.Failed)) }
