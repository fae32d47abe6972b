package main

import "context"

// takeBlocks measures what the pool of KV blocks costs: the benchmark beside it
// sends the same requests through a plain list in the same process.
func takeBlocks(ctx context.Context, b *bench) ([]part, error) {
	t := &codecs{bench: b, ctx: ctx}
	rounds := pick(b, 2_000, 500)
	values := func(traffic, unit string) []float64 {
		return t.take("kvcache", "Cost/"+traffic, rounds, func(r outcome) float64 { return r.values[unit] })
	}
	speed := t.take("kvcache", "Cost/nothing", rounds, func(r outcome) float64 { return 1000 / r.values["cpu-ns/block"] })
	parts := []part{
		median("nothing asked: blocks matched, allocated and released", "M/s", speed).atLeast(3).aimAtLeast(7),
		median("nothing asked, against a plain list", "×", values("nothing", "times-lru")).atMost(1.05).aim(1.01),
		median("metadata per block, nothing asked", "B", values("nothing", "B/block")).atMost(200).aim(96),
	}
	for _, traffic := range []string{"sessions", "priorities", "pins"} {
		parts = append(
			parts,
			median(traffic+": processor time per block", "ns", values(traffic, "cpu-ns/block")).atMost(1000),
			median(traffic+": metadata per block", "B", values(traffic, "B/block")).atMost(200).aim(96),
		)
	}
	return parts, t.err
}
