package main

import (
	"fmt"

	"github.com/dynago/dynago/bench/agents"
	"github.com/dynago/dynago/engine/mock"
	"github.com/dynago/dynago/router"
	"github.com/dynago/dynago/sim"
	"github.com/dynago/dynago/sim/trace"
)

// pinned is what pins, and the order in which blocks go, make of agents whose
// working set is three times as large as the cache.
type pinned struct {
	Requests   int
	WorkingSet int // blocks
	Capacity   int // blocks, a third of it
	Budget     int // blocks that may be pinned
	Pinned     int // leads that pin
	Leads      int
	Runs       []agents.PinRun
}

// pins replays agents on one worker with a cache of a third of their working set, a
// fifth of which may be pinned. It computes sixteen times as fast as an engine on
// one GPU, so that what is computed again is paid for in time but does not pile up.
// With keep nothing of answers is lost to thinking.
func pins(leads int, part float64, keep bool) (any, error) {
	w, err := agents.NewPinning(leads, part, keep)
	if err != nil {
		return nil, err
	}
	h := agents.NewHistory(w.Asking)
	args := mock.DefaultArgs()
	args.SpeedupRatio = 16
	args.NumGPUBlocks = h.Blocks + 1
	_, records, err := oneWorker(args, true, w.Asking)
	if err != nil {
		return nil, err
	}
	p := pinned{Requests: len(w.Asking), Leads: w.Leads, Pinned: len(w.Pin), WorkingSet: h.WorkingSet(outcomes(records))}
	p.Capacity = p.WorkingSet / 3
	p.Budget = p.Capacity / 5
	args.NumGPUBlocks, args.PinBudgetG1 = p.Capacity, 0.2
	lru := args
	lru.Evictor = "lru"
	for _, run := range []struct {
		name  string
		args  mock.Args
		plain bool
		work  []trace.Request
	}{
		{"lru", lru, true, w.Asking},
		{"pins", args, false, w.Asking},
		{"pins, sessions end", args, false, w.Telling},
	} {
		report, records, err := oneWorker(run.args, run.plain, run.work)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", run.name, err)
		}
		r := h.Judge(outcomes(records), w.Pin)
		r.Name = run.name
		r.Held = report.Caches.Tiers[0].PinnedSeconds / report.Duration.Seconds() / float64(p.Budget)
		p.Runs = append(p.Runs, r)
	}
	return p, nil
}

// oneWorker replays a workload where nothing is to be routed.
func oneWorker(args mock.Args, plain bool, w []trace.Request) (*sim.Report, []*sim.Record, error) {
	return fleet{workers: 1, engine: args, plain: plain}.replay(mode{"kv", func(*sim.Clock) (router.Config, error) { return router.Config{}, nil }}, w)
}
