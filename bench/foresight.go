package main

import (
	"context"
	"fmt"
)

// takeForesight measures what it is worth to agents on a simulated fleet that what is
// known of their next prompts is computed while their tools run.
func takeForesight(ctx context.Context, b *bench) ([]part, error) {
	var parts []part
	for _, of := range []struct {
		timing string
		line   float64
	}{{"polynomial", 1.5}, {"roofline", 2.5}} {
		var f struct {
			Runs []struct {
				Agents                                     string
				Requests, Ahead, Used                      int
				TTFT, TTFTWithout, TTFTTail, TTFTTailWhole float64
				Foreseen, Late, Elsewhere                  int
			}
		}
		if err := b.virtual(ctx, &f, "foresight", "-timing", of.timing); err != nil {
			return nil, err
		}
		for i, r := range f.Runs {
			name := fmt.Sprintf("agents %s, %s timing: ", r.Agents, of.timing)
			faster := part{What: name + "p50 to the first token of later turns, without against with", Value: r.TTFTWithout / r.TTFT, Unit: "times"}.
				noted("%s ms against %s, p99 %s against %s; %d requests", number(r.TTFTWithout), number(r.TTFT), number(r.TTFTTailWhole), number(r.TTFTTail), r.Requests)
			used := part{What: name + "tokens computed ahead that the next turn used", Value: float64(r.Used) / float64(r.Ahead), Unit: "of them"}.
				noted("%d of %d, in %d requests, of which %d were late and %d elsewhere", r.Used, r.Ahead, r.Foreseen, r.Late, r.Elsewhere)
			if i == 0 {
				faster, used = faster.atLeast(of.line), used.atLeast(0.9)
			}
			parts = append(parts, faster, used)
		}
	}
	return parts, nil
}
