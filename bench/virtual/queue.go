package main

import (
	"time"

	"github.com/dynago/dynago/bench/agents"
	"github.com/dynago/dynago/router"
	"github.com/dynago/dynago/sim"
	"github.com/dynago/dynago/sim/trace"
)

// queued is a mode in which requests wait in the router while all workers have
// prompts for more than one step.
var queued = mode{"kv, queue", func(*sim.Clock) (router.Config, error) {
	return router.Config{QueueThreshold: new(1.0)}, nil
}}

// queueing is what priorities made of a fleet with too much to do.
type queueing struct {
	Capacity float64 // requests a second that the fleet sustains; in the short form, as found before
	Load     float64 // against that
	Requests int
	Tiers    []agents.TierOutcome
	// Bound is what no request of the lowest tier may wait longer than, in seconds.
	Bound float64
}

// crowd is a fleet, and how much comes to it.
type crowd struct {
	workers  int
	span     time.Duration
	capacity float64 // requests a second; 0 is to be found out
	// heed says that engines know priorities; otherwise what is gained is the router's.
	heed bool
}

// overloaded gives a fleet more than it can do.
func overloaded(load float64, c crowd) (any, error) {
	f := newFleet(c.workers, "roofline")
	f.plain = !c.heed
	poisson := func(rate float64) ([]trace.Request, error) {
		w, _, err := agents.Poisson(rate, c.span)
		return w, err
	}
	if c.capacity == 0 {
		var err error
		if c.capacity, err = f.capacity(poisson, 20, 40); err != nil {
			return nil, err
		}
	}
	w, of, err := agents.Poisson(load*c.capacity, c.span)
	if err != nil {
		return nil, err
	}
	before, after, err := f.prioritise(w, of)
	if err != nil {
		return nil, err
	}
	return queueing{
		Capacity: c.capacity, Load: load, Requests: len(w),
		Tiers: agents.Compare(before, after, of), Bound: agents.Bound(before),
	}, nil
}

// prioritise replays requests in the order of their arrival and by their tiers.
func (f fleet) prioritise(w []trace.Request, of map[string]string) (before, after []agents.Outcome, err error) {
	_, records, err := f.replay(queued, w)
	if err != nil {
		return nil, nil, err
	}
	_, tagged, err := f.replay(queued, agents.Tag(w, of))
	return outcomes(records), outcomes(tagged), err
}

// pressed are sizes of a worker's cache, in blocks, against the 640 that sixteen
// workflows would have in use on two workers if nobody waited.
var pressed = []int{640, 320, 240, 200}

// judged is the one of them that is taken with plain engines too, and, as the smallest
// one, with pauses between calls.
const judged = 240

// pressure is what priorities make of workflows on workers with small caches.
type pressure struct {
	Blocks   int
	Plain    bool // engines know no priorities
	Pause    time.Duration
	Requests int
	Tiers    []agents.TierOutcome
}

// workflow runs sixteen workflows at a time on two workers, so many of them one after
// the other, by the size of their caches.
func workflow(rounds int) (any, error) {
	var todo []pressure
	for _, blocks := range pressed {
		todo = append(todo, pressure{Blocks: blocks})
		if blocks == judged {
			todo = append(todo, pressure{Blocks: blocks, Plain: true})
		}
		if blocks <= judged {
			todo = append(todo, pressure{Blocks: blocks, Pause: agents.Pause})
		}
	}
	for i := range todo {
		var err error
		if todo[i], err = press(todo[i], rounds); err != nil {
			return nil, err
		}
	}
	return todo, nil
}

// press runs them with caches of one size, and returns what came of it.
func press(p pressure, rounds int) (pressure, error) {
	f := newFleet(2, "roofline")
	f.engine.NumGPUBlocks, f.plain = p.Blocks, p.Plain
	w, of := agents.Workflows(16, rounds, p.Pause)
	before, after, err := f.prioritise(w, of)
	if err != nil {
		return p, err
	}
	p.Requests, p.Tiers = len(w), agents.Compare(before, after, of)
	return p, nil
}
