package main

import (
	"context"
	"fmt"

	"github.com/dynago/dynago/bench/agents"
)

// takePins measures what pins are worth to agents in a simulated cache that is much
// too small: whether what is pinned is there after a pause, what is computed again,
// and who pays for it.
func takePins(ctx context.Context, b *bench) ([]part, error) {
	var p struct {
		Requests, WorkingSet, Capacity, Budget, Pinned, Leads int
		Runs                                                  []agents.PinRun
	}
	if err := b.virtual(ctx, &p, "pins"); err != nil {
		return nil, err
	}
	var parts []part
	for i, r := range p.Runs[1:] {
		parts = append(parts, judgePins(r.Name, r, p.Runs[0], i == len(p.Runs)-2)...)
	}
	last := &parts[len(parts)-1]
	*last = last.noted("%d requests; %d of %d leads pin; cache of %d blocks for a working set of %d, %d of them for pins", p.Requests, p.Pinned, p.Leads, p.Capacity, p.WorkingSet, p.Budget)
	return parts, nil
}

// judgePins compares a way to keep blocks with plain LRU.
func judgePins(name string, r, lru agents.PinRun, judged bool) []part {
	present := part{What: name + ": pinned blocks that are there after tools and sub-agents", Value: r.Present, Unit: "of them"}.
		noted("%d pauses", r.Pauses)
	if r.Held > 0 {
		present = present.noted("%s; %s of the budget held on average", present.Note, number(r.Held))
	}
	again := part{What: name + ": tokens computed again by agents that pin", Value: float64(r.AgainPinned), Unit: "tokens"}.
		against("plain LRU", float64(lru.AgainPinned)).
		noted("hits %.3f against %.3f, p50 to the first token %s ms against %s", r.HitPinned, lru.HitPinned, number(r.TTFTPinned), number(lru.TTFTPinned))
	others := part{What: name + ": what all others lose in hits", Value: 100 * (lru.HitOthers - r.HitOthers), Unit: "points"}.
		noted("hits %.3f against %.3f, p50 to the first token %s ms against %s", r.HitOthers, lru.HitOthers, number(r.TTFTOthers), number(lru.TTFTOthers))
	all := part{What: name + ": tokens computed again by all", Value: float64(r.AgainPinned + r.AgainOthers), Unit: "tokens"}.
		against("plain LRU", float64(lru.AgainPinned+lru.AgainOthers))
	if judged {
		present = present.atLeast(0.99)
		again = again.atMost(float64(lru.AgainPinned) / 3).aim(float64(lru.AgainPinned) / 5)
		others = others.atMost(5)
	}
	return []part{present, again, others, all}
}

// takeShared measures what four sub-agents on four workers compute whose prompts
// begin with the same, with and without a store that the workers share.
func takeShared(ctx context.Context, b *bench) ([]part, error) {
	var s struct {
		Prefix, Own int
		Runs        []struct {
			Begin            string
			Store            bool
			Computed, Loaded int
			Prefills         float64
			Slowest          float64
			Workers          int
		}
	}
	if err := b.virtual(ctx, &s, "subagents"); err != nil {
		return nil, err
	}
	var parts []part
	alone := map[string]int{}
	for _, r := range s.Runs {
		if !r.Store {
			alone[r.Begin] = r.Computed
			continue
		}
		p := part{What: fmt.Sprintf("%s: prompt tokens computed with the store, on %d workers", r.Begin, r.Workers), Value: float64(r.Computed), Unit: "tokens"}.
			against("without", float64(alone[r.Begin])).
			noted("%s prefills of %d tokens, and %d of each agent's own; %d loaded; %s ms to the last first token", number(r.Prefills), s.Prefix, s.Own, r.Loaded, number(r.Slowest))
		if r.Begin == s.Runs[0].Begin {
			p = p.atMost(1.1 * float64(s.Prefix))
		}
		parts = append(parts, p)
	}
	return parts, nil
}
