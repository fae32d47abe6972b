package main

import (
	"fmt"
	"time"

	"github.com/dynago/dynago/router"
	"github.com/dynago/dynago/sim/trace"
)

// Sub-agents of one kind: what all prompts begin with, and what only one has, in
// tokens.
const (
	commonPrefix = 32_000
	ownTask      = 400
	agents4      = 4
)

// storeBandwidth is that of a network of 100 Gbit/s, in GB/s. With the 2 GB/s that
// are the engine's default it takes twice as long to load a token of this model as to
// compute it, and so nothing is loaded.
const storeBandwidth = 12.5

// sharing is what four sub-agents on four workers compute, whose prompts begin with
// the same.
type sharing struct {
	Prefix, Own int // tokens
	Runs        []shareRun
}

// shareRun is what came of one way to begin, with or without a store that the
// workers share.
type shareRun struct {
	Begin    string
	Store    bool
	Computed int     // tokens of prompts, by all that have the prefix
	Prefills float64 // of the prefix, beside what each has to compute for itself
	Loaded   int     // tokens that came from the store
	Slowest  float64 // time to the first token of a sub-agent, milliseconds
	Workers  int     // that sub-agents were sent to
}

// subAgents lets a lead send out four sub-agents to four workers in turn.
func subAgents(bool) (any, error) {
	s := sharing{Prefix: commonPrefix, Own: ownTask}
	for _, begin := range []struct {
		name   string
		parent bool
		apart  time.Duration
		mode   router.Mode
	}{
		{"together, after their parent", true, 0, router.RoundRobin},
		{"two seconds apart", false, 2 * time.Second, router.RoundRobin},
		{"together, and cold", false, 0, router.RoundRobin},
		{"together, after their parent, by cost", true, 0, router.KV},
	} {
		for _, store := range []bool{false, true} {
			run, err := share(team(begin.parent, begin.apart), begin.mode, store)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", begin.name, err)
			}
			run.Begin = begin.name
			s.Runs = append(s.Runs, run)
		}
	}
	return s, nil
}

// team is four sub-agents, and the parent whose answer sends them out, if it has
// computed what they begin with.
func team(parent bool, apart time.Duration) []trace.Request {
	prefix := trace.Piece{Stream: trace.Named("tools and system"), Len: commonPrefix}
	of := func(name string) trace.Request {
		return trace.Request{
			ID: name, Session: name,
			Prompt: trace.Text{prefix, {Stream: trace.Named(name), Len: ownTask}}, Answer: trace.Text{{Stream: trace.Named(name + ": answer"), Len: 200}},
		}
	}
	var w []trace.Request
	if parent {
		w = append(w, of("lead"))
	}
	for i := range agents4 {
		r := of(fmt.Sprintf("agent %d", i))
		r.At = time.Duration(i) * apart
		if parent {
			r.After, r.Parent = []string{"lead"}, "lead"
		}
		w = append(w, r)
	}
	return w
}

// share replays a team on four workers.
func share(w []trace.Request, m router.Mode, store bool) (shareRun, error) {
	f := newFleet(agents4, "roofline")
	if store {
		f.engine.HostBlocks = 2 * f.engine.NumGPUBlocks
		f.engine.SharedBlocks = 4 * f.engine.NumGPUBlocks
		f.engine.BandwidthG4 = storeBandwidth
	}
	report, records, err := f.replay(plain(m), w)
	if err != nil {
		return shareRun{}, err
	}
	run := shareRun{Store: store}
	workers := map[string]bool{}
	for _, r := range records {
		run.Computed += r.Input - r.Cached
		if r.Session != "lead" {
			workers[r.Worker] = true
			run.Slowest = max(run.Slowest, (r.First-r.Arrived).Seconds()*1000)
		}
	}
	for tier := 1; tier < len(report.Caches.Tiers); tier++ {
		run.Loaded += report.Caches.Tiers[tier].HitTokens
	}
	run.Workers = len(workers)
	run.Prefills = float64(run.Computed-len(w)*ownTask) / commonPrefix
	return run, nil
}
