package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/dynago/dynago/bench/stats"
	"github.com/dynago/dynago/router"
	"github.com/dynago/dynago/sim"
	"github.com/dynago/dynago/sim/trace"
)

// tier is how important a request is.
type tier struct {
	name     string
	share    float64
	priority float64 // seconds of earlier arrival
	strict   uint32
}

// tiers are those of the overloaded fleet: half of the requests can wait, a fifth
// cannot, and one in a hundred goes before everything.
var tiers = []tier{
	{"strict", 0.01, 120, 1},
	{"high", 0.20, 120, 0},
	{"medium", 0.30, 30, 0},
	{"low", 0.49, 0, 0},
}

// queued is a mode in which requests wait in the router while all workers have
// prompts for more than one step.
var queued = mode{"kv, queue", func(*sim.Clock) (router.Config, error) {
	return router.Config{QueueThreshold: new(1.0)}, nil
}}

// queueing is what priorities made of a fleet with too much to do, whose engines
// know none: what is gained is the router's.
type queueing struct {
	Capacity float64 // requests a second that the fleet sustains; in the short form, as found before
	Load     float64 // against that
	Requests int
	Tiers    []tierOutcome
	// Bound is what no request of the lowest tier may wait longer than, in
	// seconds: it is overtaken only by what comes less than the highest priority
	// later, and that would have waited as long as anyone in order of arrival.
	Bound float64
}

// tierOutcome compares requests of a tier with how the same ones fared in the
// order of their arrival. Times are those to the first token in milliseconds, and
// the longest wait for a batch in seconds.
type tierOutcome struct {
	Tier                string
	P50, P99, Longest   float64
	FCFS50, FCFS99, Old float64
}

// poisson returns independent requests at a rate, the same ones in the same
// order whatever the rate.
func poisson(rate float64, span time.Duration) ([]trace.Request, error) {
	return collect(trace.Synthetic{
		Sessions: max(1, int(rate*span.Seconds())),
		Input:    trace.Length{Mean: 4000, Deviation: 1000}, Output: trace.Length{Mean: 150, Deviation: 50},
		Arrival: trace.Poisson, Rate: rate, Seed: 42,
	}.Requests())
}

// overloaded gives a fleet more than it can do.
func overloaded(load float64, short bool) (any, error) {
	workers, span, capacity := 4, 10*time.Minute, 14.5
	if short {
		workers, span = 2, 2*time.Minute
	}
	f := newFleet(workers, "roofline")
	f.plain = true
	if !short {
		var err error
		if capacity, err = f.capacity(func(rate float64) ([]trace.Request, error) { return poisson(rate, span) }, 20, 40); err != nil {
			return nil, err
		}
	}
	w, err := poisson(load*capacity, span)
	if err != nil {
		return nil, err
	}
	return f.prioritise(w, queueing{Capacity: capacity, Load: load, Requests: len(w)})
}

// prioritise replays requests in the order of their arrival and by their tiers.
func (f fleet) prioritise(w []trace.Request, q queueing) (any, error) {
	_, before, err := f.replay(queued, w)
	if err != nil {
		return nil, err
	}
	random := rand.New(rand.NewPCG(42, 0))
	of := map[string]string{}
	for i := range w {
		t := drawTier(random.Float64())
		w[i].Priority, w[i].StrictPriority = t.priority, t.strict
		of[w[i].ID] = t.name
	}
	_, after, err := f.replay(queued, w)
	if err != nil {
		return nil, err
	}
	q.Tiers = outcomes(before, after, of)
	_, longest := waits(before, func(string) bool { return true })
	for _, t := range tiers {
		q.Bound = max(q.Bound, t.priority+longest)
	}
	return q, nil
}

func drawTier(u float64) tier {
	for _, t := range tiers {
		if u -= t.share; u < 0 {
			return t
		}
	}
	return tiers[len(tiers)-1]
}

// outcomes compares two runs tier by tier.
func outcomes(before, after []*sim.Record, of map[string]string) []tierOutcome {
	var all []tierOutcome
	for _, t := range tiers {
		wanted := func(id string) bool { return of[id] == t.name }
		was, old := waits(before, wanted)
		is, longest := waits(after, wanted)
		if len(is) == 0 {
			continue
		}
		all = append(all, tierOutcome{
			Tier: t.name,
			P50:  stats.Quantile(is, 0.5), P99: stats.Quantile(is, 0.99), Longest: longest,
			FCFS50: stats.Quantile(was, 0.5), FCFS99: stats.Quantile(was, 0.99), Old: old,
		})
	}
	return all
}

// calls are those of a workflow that classifies a question, works on it four
// times at once, drafts an answer and reviews it.
var calls = []struct {
	name   string
	tier   string
	output int
	after  []int
}{
	{"classify", "high", 5, nil},
	{"work 1", "low", 500, []int{0}},
	{"work 2", "low", 500, []int{0}},
	{"work 3", "low", 500, []int{0}},
	{"work 4", "low", 500, []int{0}},
	{"draft", "medium", 500, []int{1, 2, 3, 4}},
	{"review", "high", 20, []int{5}},
}

// pressed are sizes of a worker's cache, in blocks, against the 640 that sixteen
// workflows would have in use on two workers if nobody waited.
var pressed = []int{640, 320, 240, 200}

// judged is the one of them that is taken with plain engines too.
const judged = 240

// pressure is what priorities make of workflows on workers with small caches.
type pressure struct {
	Blocks   int
	Plain    bool // engines know no priorities
	Requests int
	Tiers    []tierOutcome
}

// workflow runs sixteen workflows at a time on two workers, by the size of their
// caches.
func workflow(short bool) (any, error) {
	rounds := 20
	if short {
		rounds = 5
	}
	var all []pressure
	for _, blocks := range pressed {
		for _, plain := range []bool{false, true} {
			if plain && blocks != judged {
				continue
			}
			p, err := press(blocks, plain, rounds)
			if err != nil {
				return nil, err
			}
			all = append(all, p)
		}
	}
	return all, nil
}

// press runs them with caches of one size.
func press(blocks int, plain bool, rounds int) (pressure, error) {
	f := newFleet(2, "roofline")
	f.engine.NumGPUBlocks, f.plain = blocks, plain
	w, of := workflows(16, rounds)
	_, before, err := f.replay(queued, w)
	if err != nil {
		return pressure{}, err
	}
	for i := range w {
		w[i].Priority = tierOf(of[w[i].ID]).priority
	}
	_, after, err := f.replay(queued, w)
	if err != nil {
		return pressure{}, err
	}
	return pressure{Blocks: blocks, Plain: plain, Requests: len(w), Tiers: outcomes(before, after, of)}, nil
}

func tierOf(name string) tier {
	return tiers[slices.IndexFunc(tiers, func(t tier) bool { return t.name == name })]
}

// workflows returns the calls of workflows that follow each other in so many
// slots, and the tier of each.
func workflows(slots, rounds int) ([]trace.Request, map[string]string) {
	const system, question, more = 1500, 500, 200 // tokens
	piece := func(name string, tokens uint32) trace.Piece {
		return trace.Piece{Stream: trace.Named(name), Len: tokens}
	}
	of := map[string]string{}
	var w []trace.Request
	for slot := range slots {
		last := ""
		for round := range rounds {
			name := fmt.Sprintf("workflow %d.%d", slot, round)
			id := func(call int) string { return name + ", " + calls[call].name }
			answers := make([]trace.Piece, len(calls))
			for i, call := range calls {
				r := trace.Request{ID: id(i), At: time.Duration(slot) * 250 * time.Millisecond}
				r.Prompt = trace.Text{piece("system", system), piece(name, question), piece(r.ID, more)}
				for _, j := range call.after {
					r.After = append(r.After, id(j))
					r.Prompt = append(r.Prompt, answers[j])
				}
				if i == 0 && last != "" {
					r.After = []string{last}
				}
				answers[i] = piece(r.ID+": answer", uint32(call.output))
				r.Answer = trace.Text{answers[i]}
				of[r.ID] = call.tier
				w = append(w, r)
			}
			last = id(len(calls) - 1)
		}
	}
	return w, of
}
