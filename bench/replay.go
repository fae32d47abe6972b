package main

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
)

// compared is what ways to route made of a workload at 80% of what the fleet
// sustains, or where Capacity is 0 at a rate of its own, as the program virtual
// says it.
type compared struct {
	Workload, Timing string
	Workers          int
	Unit             string
	Capacity, Rate   float64
	Requests         int
	Runs             []routed
}

type routed struct {
	Mode           string
	P50, P99, Mean float64 // milliseconds to the first token
	E2E            float64 // milliseconds to the last one, on average
	Hit, Imbalance float64
}

// run returns what a mode made of it; there are always all.
func (c *compared) run(mode string) routed {
	return c.Runs[slices.IndexFunc(c.Runs, func(r routed) bool { return r.Mode == mode })]
}

// parts returns one part for each mode.
func (c *compared) parts() []part {
	var parts []part
	for _, r := range c.Runs {
		parts = append(parts, part{What: fmt.Sprintf("%s, %s timing, %s: p50 to the first token", c.Workload, c.Timing, r.Mode), Value: r.P50, Unit: "ms"}.
			noted("p99 %s, mean %s ms; end %s ms; hits %.3f; imbalance %.2f", number(r.P99), number(r.Mean), number(r.E2E), r.Hit, r.Imbalance))
	}
	last := &parts[len(parts)-1]
	load := fmt.Sprintf("%.3g %s", c.Rate, c.Unit)
	if c.Capacity > 0 {
		load = fmt.Sprintf("%s of %.3g that are sustained", load, c.Capacity)
	}
	*last = last.noted("%s; %d requests to %d workers, %s", last.Note, c.Requests, c.Workers, load)
	return parts
}

// virtual runs the program that measures in virtual time.
func (b *bench) virtual(ctx context.Context, result any, args ...string) error {
	if b.short {
		args = append(args, "-short")
	}
	return output(exec.CommandContext(ctx, b.programs.virtual, args...), result)
}

// takeReplay compares ways to route on a simulated fleet: first what placement
// alone makes of recorded traces, which is known, and then each way under load.
func takeReplay(ctx context.Context, b *bench) ([]part, error) {
	var table struct {
		Cells, Off int
		Worst      float64
	}
	if err := b.virtual(ctx, &table, "place"); err != nil {
		return nil, err
	}
	parts := []part{
		count(fmt.Sprintf("hit rates of placement alone, of %d, that are not the published ones", table.Cells), table.Off).atMost(0).
			noted("the largest difference is %.4f", table.Worst),
	}
	var agents compared
	if err := b.virtual(ctx, &agents, "routing", "-workload", "agents"); err != nil {
		return nil, err
	}
	kv, reference := agents.run("kv"), agents.run("kv-reference")
	turns := part{What: "agents: p50 to the first token, round-robin against kv", Value: agents.run("round-robin").P50 / kv.P50, Unit: "×"}
	against := part{What: "agents: p50 to the first token, kv against kv with the reference's parameters", Value: kv.P50 / reference.P50, Unit: "×"}.
		noted("the mean %.2f×", kv.Mean/reference.Mean)
	if b.short {
		// A fleet whose caches are hardly full yet, at a load that was found before.
		return append(append(parts, turns, against), agents.parts()...), nil
	}
	parts = append(append(parts, turns.atLeast(5), against.aim(0.8)), agents.parts()...)
	for _, more := range [][]string{
		{"-workload", "agents", "-timing", "polynomial"},
		{"-workload", "conversation"},
		{"-workload", "synthetic"},
		{"-workload", "one-prefix"},
		{"-workload", "long-answers"},
	} {
		var c compared
		if err := b.virtual(ctx, &c, append([]string{"routing"}, more...)...); err != nil {
			return nil, err
		}
		parts = append(parts, c.parts()...)
	}
	return parts, nil
}
