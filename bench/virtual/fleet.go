package main

import (
	"fmt"
	"time"

	"github.com/dynago/dynago/bench/agents"
	"github.com/dynago/dynago/bench/stats"
	"github.com/dynago/dynago/engine/mock"
	"github.com/dynago/dynago/router"
	"github.com/dynago/dynago/router/thompson"
	"github.com/dynago/dynago/sim"
	"github.com/dynago/dynago/sim/trace"
)

// fleet is what a workload is replayed on.
type fleet struct {
	workers int
	engine  mock.Args
	plain   bool // engines know no priorities
	// What is told of requests, and who is told of those that have ended; nil: nobody.
	expect func(*trace.Request) (uint32, time.Duration)
	ended  func(*sim.Record)
}

func newFleet(workers int, timing string) fleet {
	args := mock.DefaultArgs()
	args.TimingModel = timing
	return fleet{workers: workers, engine: args}
}

// mode is a way to route.
type mode struct {
	name   string
	config func(*sim.Clock) (router.Config, error)
}

// plain is a mode without parameters.
func plain(m router.Mode) mode {
	return mode{string(m), func(*sim.Clock) (router.Config, error) { return router.Config{Mode: m}, nil }}
}

// tuned is mode kv with other parameters than the default ones.
func tuned(name string, change func(*router.Tuning)) mode {
	return mode{name, func(*sim.Clock) (router.Config, error) {
		t := router.DefaultTuning()
		change(&t)
		return router.Config{Tuning: &t}, nil
	}}
}

// modes are what is compared. The reference's parameters are written out, so
// that they stay what they are whatever ours become.
var modes = []mode{
	plain(router.RoundRobin),
	plain(router.LeastLoaded),
	tuned("kv-reference", func(t *router.Tuning) {
		t.OverlapScoreCredit, t.OverlapScoreCreditDecay, t.PrefillLoadScale = 1, 0, 1
		t.DecodeActiveRequestWeight, t.Temperature = 0, 0
	}),
	plain(router.KV),
	best,
	{"kv+sessions", func(*sim.Clock) (router.Config, error) {
		return router.Config{SessionTTL: 5 * time.Minute}, nil
	}},
	{"thompson", func(clock *sim.Clock) (router.Config, error) {
		c := thompson.Default()
		c.Seed, c.Now = 1, clock.Now
		policy, err := thompson.New(c)
		return router.Config{Policy: policy}, err
	}},
}

// best is what the capacity of a fleet is measured with.
var best = tuned("kv-prefill-8", func(t *router.Tuning) { t.PrefillLoadScale = 8 })

// replay runs a workload and returns the report, and what came of each request.
func (f fleet) replay(m mode, w []trace.Request) (*sim.Report, []*sim.Record, error) {
	clock := new(sim.Clock)
	config, err := m.config(clock)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", m.name, err)
	}
	var records []*sim.Record
	report, err := sim.Run(sim.Config{
		Workers: f.workers, Engine: f.engine, PlainEngines: f.plain, Router: config, Clock: clock,
		Expect: f.expect,
		Record: func(r *sim.Record) {
			if records = append(records, r); f.ended != nil {
				f.ended(r)
			}
		},
	}, w)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", m.name, err)
	}
	if report.Completed != len(w) {
		return nil, nil, fmt.Errorf("%s: %d of %d requests have been answered", m.name, report.Completed, len(w))
	}
	return report, records, nil
}

// sustained says whether the fleet keeps up with a workload. Of the time in which
// requests come by themselves, those who come in the last third wait hardly longer
// for their first token than those of the middle third: 1.4 times, at the median.
// If more comes than is done, waits grow with time, and it is 5/3 or more. What
// comes later meets a fleet that comes to rest, and does not count.
func sustained(w []trace.Request, records []*sim.Record) bool {
	var span time.Duration
	for i := range w {
		if len(w[i].After) == 0 {
			span = max(span, w[i].At)
		}
	}
	var middle, last []float64
	for _, r := range records {
		switch ttft := (r.First - r.Arrived).Seconds(); {
		case r.Arrived > span:
		case r.Arrived > span/3*2:
			last = append(last, ttft)
		case r.Arrived > span/3:
			middle = append(middle, ttft)
		}
	}
	return stats.Median(last) <= 1.4*stats.Median(middle)
}

// capacity returns the highest rate that the fleet sustains in the best mode, to
// a few percent, found by halving the range between low, which it sustains, and
// high, which it does not.
func (f fleet) capacity(workload func(rate float64) ([]trace.Request, error), low, high float64) (float64, error) {
	for high/low > 1.04 {
		rate := (low + high) / 2
		w, err := workload(rate)
		if err != nil {
			return 0, err
		}
		_, records, err := f.replay(best, w)
		if err != nil {
			return 0, err
		}
		if sustained(w, records) {
			low = rate
		} else {
			high = rate
		}
	}
	return low, nil
}

// outcomes are records as they are compared.
func outcomes(records []*sim.Record) []agents.Outcome {
	all := make([]agents.Outcome, len(records))
	for i, r := range records {
		all[i] = agents.Outcome{
			ID: r.ID, Session: r.Session, Input: r.Input, Cached: r.Cached, Pinned: r.Pinned,
			Arrived: r.Arrived, Admitted: r.Admitted, First: r.First, Ended: r.Ended,
		}
	}
	return all
}
