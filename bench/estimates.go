package main

import (
	"context"
	"fmt"
)

// takeEstimates measures what it is worth on a simulated fleet to know how long answers
// will be and tools will take, and what of that is left if it is learned.
func takeEstimates(ctx context.Context, b *bench) ([]part, error) {
	var e struct {
		Runs []struct {
			Workload, Mode, By               string
			Tokens                           bool
			Requests                         int
			TTFT, TTFTTail, E2E, Hit, Device float64
			Error, Above                     float64
		}
	}
	if err := b.virtual(ctx, &e, "estimates"); err != nil {
		return nil, err
	}
	var parts []part
	for i := 0; i+2 < len(e.Runs); i += 3 {
		untold, learned, known := e.Runs[i], e.Runs[i+1], e.Runs[i+2]
		what := "times of tools"
		if untold.Tokens {
			what = "lengths of answers"
		}
		name := fmt.Sprintf("%s, %s, %s: ", what, untold.Workload, untold.Mode)
		parts = append(parts,
			part{What: name + "p50 to the first token, learned against not told", Value: learned.TTFT / untold.TTFT, Unit: "times"}.
				noted("%s, %s and with the truth %s ms; p99 %s, %s, %s; mean to the last token %s, %s, %s; %d requests",
					number(untold.TTFT), number(learned.TTFT), number(known.TTFT), number(untold.TTFTTail), number(learned.TTFTTail), number(known.TTFTTail),
					number(untold.E2E), number(learned.E2E), number(known.E2E), untold.Requests),
			part{What: name + "tokens of prompts that were cached on the device, learned", Value: learned.Device, Unit: "of them"}.
				noted("not told %.3f, truth %.3f; in all tiers %.3f, %.3f, %.3f", untold.Device, known.Device, untold.Hit, learned.Hit, known.Hit),
			part{What: name + "by how much the estimates were off", Value: learned.Error, Unit: "of what came"}.
				noted("%.3f of the requests came to more than nine in ten should", learned.Above),
		)
	}
	return parts, nil
}
