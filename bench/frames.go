package main

import (
	"context"
	"fmt"
	"strconv"
)

// takeFrames measures what it costs to read what engines publish, and to apply
// it.
func takeFrames(ctx context.Context, b *bench) ([]part, error) {
	type ingested struct {
		Blocks, Stored, Bytes, Failed, Lost int
		Process, Allocs                     float64
	}
	rate := func(n ingested) float64 { return float64(n.Blocks) / n.Process / million }
	history, err := b.history(ctx, "EN")
	if err != nil {
		return nil, err
	}
	var parts []part
	failed := 0
	for i, tokens := range []int{16, 64} {
		args := []string{"frames", "-corpus", history, "-tokens", strconv.Itoa(tokens), "-index"}
		our, err := indexRuns[ingested](ctx, b, pick(b, 5, 1), append(args, ours)...)
		if err != nil {
			return nil, err
		}
		var read ingested
		if err := b.index(ctx, &read, append(args, "none")...); err != nil {
			return nil, err
		}
		what := fmt.Sprintf("vLLM's messages, blocks of %d tokens", tokens)
		all := median(what+", read, decoded and applied", "M blocks/s", each(our, rate)).against("reading and decoding alone", rate(read)).
			noted("stored and removed alike; %.0f bytes each", float64(our[0].Bytes)/float64(our[0].Blocks))
		allocs := median(what+", allocations per block", "", each(our, func(n ingested) float64 { return n.Allocs }))
		if i == 0 {
			all, allocs = all.atLeast(3).aimAtLeast(6), allocs.atMost(0.01).noted("less than one in a hundred blocks is none: buffers of the connection")
		}
		parts = append(parts, all, allocs)
		for _, n := range append(our, read) {
			failed += n.Failed + n.Lost
		}
	}
	return append(parts, count("messages and events lost or refused", failed).atMost(0)), nil
}
