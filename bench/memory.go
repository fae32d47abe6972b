package main

import (
	"context"
	"fmt"
	"strconv"
)

// takeIndexMemory measures what the index holds, gives back, and costs the
// collector.
func takeIndexMemory(ctx context.Context, b *bench) ([]part, error) {
	type footprint struct {
		Blocks             int
		One, Further, Left float64
		Resident           float64
		ResidentLeft       float64 `json:"resident_left"`
		Empty              float64 `json:"collect_empty"`
		Full               float64 `json:"collect_full"`
		Failed             int
	}
	var small, large, smallBeside, largeBeside []footprint
	many := strconv.Itoa(pick(b, 10_000_000, 1_000_000))
	for _, run := range []struct {
		index, blocks string
		n             int
		into          *[]footprint
	}{
		{ours, "1000000", pick(b, 5, 1), &small},
		{ours, many, pick(b, 5, 1), &large},
		{other, "1000000", 1, &smallBeside},
		{other, many, 1, &largeBeside},
	} {
		runs, err := indexRuns[footprint](ctx, b, run.n, "memory", "-index", run.index, "-blocks", run.blocks)
		if err != nil {
			return nil, err
		}
		*run.into = runs
	}
	one := func(f footprint) float64 { return f.One }
	further := func(f footprint) float64 { return f.Further }
	left := func(f footprint) float64 { return 100 * f.Left }
	collect := func(f footprint) float64 { return f.Full / f.Empty }
	against := func(what, unit string, our, beside []footprint, f func(footprint) float64) part {
		return median(what, unit, each(our, f)).against(other, f(beside[0]))
	}
	failed := 0
	for _, f := range append(append(small, large...), append(smallBeside, largeBeside...)...) {
		failed += f.Failed
	}
	name := fmt.Sprintf("%d M blocks, ", large[0].Blocks/million+large[0].Blocks%million/500_000)
	return []part{
		against("1 M blocks, live bytes per block, one owner", "B", small, smallBeside, one).atMost(64).aim(40),
		against("for each further owner", "B", small, smallBeside, further).atMost(28).aim(24),
		against("heap after all were removed, of the peak", "%", small, smallBeside, left).atMost(10),
		against(name+"live bytes per block, one owner", "B", large, largeBeside, one).atMost(64).aim(40),
		against(name+"heap after all were removed, of the peak", "%", large, largeBeside, left).atMost(10),
		against(name+"full collection against an empty index", "×", large, largeBeside, collect).atMost(1.2),
		median(name+"full collection", "µs", each(large, func(f footprint) float64 { return f.Full })),
		median(name+"resident bytes per block", "B", each(large, func(f footprint) float64 { return f.Resident })),
		median(name+"resident after all were removed, of the peak", "%", each(large, func(f footprint) float64 { return 100 * f.ResidentLeft })),
		count("events refused", failed).atMost(0),
	}, nil
}
