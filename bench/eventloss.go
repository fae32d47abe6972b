package main

import (
	"context"
	"os/exec"
)

// misled is what one way to lose events made of predictions, as the program events
// says it.
type misled struct {
	Name               string
	Requests           int
	Error, Wrong, Hits float64
	Converged          float64 // milliseconds; below 0: never
	Unheard            bool    // what is lost cannot be had again
}

// takeEventLoss measures how wrong the router is about caches whose events are lost,
// and for how long. Where what is lost cannot be had again, nobody can be right at
// once.
func takeEventLoss(ctx context.Context, b *bench) ([]part, error) {
	var all []misled
	args := []string{}
	if b.short {
		args = append(args, "-short")
	}
	if err := output(exec.CommandContext(ctx, b.programs.events, args...), &all); err != nil {
		return nil, err
	}
	var parts []part
	for _, m := range all {
		off := part{What: m.Name + ": error of predicted hits", Value: 100 * m.Error, Unit: "% of prompts"}.atMost(2).aim(0.5)
		wrong := part{What: m.Name + ": sent for blocks that were not there", Value: 100 * m.Wrong, Unit: "% of requests"}.atMost(2).aim(0.5)
		off = off.noted("%d requests, hits %.3f", m.Requests, m.Hits)
		parts = append(parts, off, wrong)
		switch converged := (part{What: m.Name + ": right again", Value: m.Converged, Unit: "ms"}); {
		case m.Converged >= 0 && m.Unheard:
			parts = append(parts, converged) // as requests show by and by what is there
		case m.Converged >= 0:
			parts = append(parts, converged.atMost(1000))
		case !m.Unheard:
			parts = append(parts, count(m.Name+": never right again", 1).atMost(0))
		}
	}
	return parts, nil
}
