package main

import "context"

// takeBlocks measures what the pool of KV blocks costs: the benchmark beside it
// sends the same requests through a plain list, in turn, in the same process.
func takeBlocks(ctx context.Context, b *bench) ([]part, error) {
	t := &codecs{bench: b, ctx: ctx}
	var parts []part
	for _, traffic := range []string{"nothing", "sessions", "ephemeral", "priorities", "pins"} {
		var speed, cpu, ratio, size []float64
		for range pick(b, 5, 1) {
			r, err := t.once("kvcache", "Cost/"+traffic, pick(b, 1_000, 200))
			if err != nil {
				return nil, err
			}
			cpu = append(cpu, r.values["cpu-ns/block"])
			speed = append(speed, 1000/r.values["cpu-ns/block"])
			ratio = append(ratio, r.values["times-lru"])
			size = append(size, r.values["B/block"])
		}
		if traffic == "nothing" {
			parts = append(
				parts,
				median("nothing asked: blocks matched, allocated and released", "M/s", speed).atLeast(3).aimAtLeast(7),
				median("nothing asked, against a plain list", "×", ratio).atMost(1.05).aim(1.01),
			)
		} else {
			parts = append(parts, median(traffic+": processor time per block", "ns", cpu), median(traffic+", against a plain list", "×", ratio))
		}
		parts = append(parts, median(traffic+": metadata per block", "B", size).atMost(200).aim(96))
	}
	return parts, nil
}
