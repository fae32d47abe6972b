package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/dynago/dynago/engine/mock"
	"github.com/dynago/dynago/router"
	"github.com/dynago/dynago/sim"
	"github.com/dynago/dynago/sim/agenttrace"
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
	Runs       []pinRun
}

// pinRun is what one way to keep blocks made of the same requests.
type pinRun struct {
	Name string
	// Held is the share of the budget that was pinned, on average over the time in
	// which leads began.
	Held float64
	// Of the blocks that were pinned when a lead's tools or sub-agents set to work,
	// and that its next prompt begins with, Present is the share that was there then.
	Pauses  int
	Present float64
	// Tokens that leads who pin, and the others with all sub-agents, computed though
	// they had been computed before, and the shares of their prompts that were cached.
	AgainPinned, AgainOthers int
	HitPinned, HitOthers     float64
	TTFTPinned, TTFTOthers   float64 // median, milliseconds
}

// pins replays agents on one worker with a cache of a third of their working set, a
// fifth of which may be pinned. It computes sixteen times as fast as an engine on
// one GPU, so that what is computed again is paid for in time but does not pile up.
func pins(short bool) (any, error) {
	c := agenttrace.Default()
	c.Leads, c.Rate = 120, 0.12
	c.PinTTL, c.Pinned = 5*time.Minute, 1.0/20
	if short {
		c.Leads = 24
	}
	asking, err := collect(c.Requests())
	if err != nil {
		return nil, err
	}
	c.Tell = true
	telling, err := collect(c.Requests())
	if err != nil {
		return nil, err
	}
	h := newHistory(asking)
	args := mock.DefaultArgs()
	args.SpeedupRatio = 16
	args.NumGPUBlocks = h.blocks + 1
	_, records, err := oneWorker(args, true, asking)
	if err != nil {
		return nil, err
	}
	p := pinned{Requests: len(asking), Leads: c.Leads, WorkingSet: h.workingSet(records)}
	p.Capacity = p.WorkingSet / 3
	p.Budget = p.Capacity / 5
	args.NumGPUBlocks, args.PinBudgetG1 = p.Capacity, 0.2
	lru := args
	lru.Evictor = "lru"
	who := map[string]bool{}
	for _, r := range asking {
		if len(r.KV.Pins) > 0 {
			who[r.Session] = true
		}
	}
	p.Pinned = len(who)
	for _, run := range []struct {
		name  string
		args  mock.Args
		plain bool
		work  []trace.Request
	}{
		{"lru", lru, true, asking},
		{"pins", args, false, asking},
		{"pins, sessions end", args, false, telling},
	} {
		report, records, err := oneWorker(run.args, run.plain, run.work)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", run.name, err)
		}
		r := h.judge(records, who)
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

// judge looks at what came of the requests of leads that pin, and of the others.
func (h *history) judge(records []*sim.Record, pin map[string]bool) (p pinRun) {
	again := h.again(records)
	last := map[string]*sim.Record{} // request of each session
	input, cached := map[bool]int{}, map[bool]int{}
	ttft := map[bool][]float64{}
	promised, kept := 0, 0
	inOrder := slices.Clone(records)
	slices.SortStableFunc(inOrder, func(a, b *sim.Record) int { return int(a.Admitted - b.Admitted) })
	for _, r := range inOrder {
		mine := pin[r.Session]
		input[mine] += r.Input
		cached[mine] += r.Cached
		ttft[mine] = append(ttft[mine], (r.First-r.Arrived).Seconds()*1000)
		if mine {
			p.AgainPinned += again[r.ID]
		} else {
			p.AgainOthers += again[r.ID]
		}
		if before := last[r.Session]; before != nil && before.Pinned > 0 {
			want := min(before.Pinned, h.common(h.at[before.ID], h.at[r.ID]))
			p.Pauses++
			promised += want
			kept += min(want, r.Cached)
		}
		last[r.Session] = r
	}
	if promised > 0 {
		p.Present = float64(kept) / float64(promised)
	}
	for _, mine := range []bool{true, false} {
		slices.Sort(ttft[mine])
	}
	p.HitPinned, p.HitOthers = ratio(cached[true], input[true]), ratio(cached[false], input[false])
	p.TTFTPinned, p.TTFTOthers = middle(ttft[true]), middle(ttft[false])
	return p
}

func ratio(part, whole int) float64 { return float64(part) / float64(max(whole, 1)) }

// middle returns the median of sorted values, 0 if there are none.
func middle(sorted []float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[len(sorted)/2]
}
