package main

import (
	"context"
	"fmt"
	"strconv"

	"github.com/dynago/dynago/bench/stats"
)

// answers are the latencies of some queries.
type answers struct {
	stats.Latency
	Disturbed float64 `json:"disturbed"`
	Wrong     int     `json:"wrong"`
}

// takeIndexDepth measures matches in indexes of a million and of ten million
// blocks, and those of agents.
func takeIndexDepth(ctx context.Context, b *bench) ([]part, error) {
	var parts []part
	wrong := 0
	for i, blocks := range []int{10_000_000, 1_000_000}[pick(b, 0, 1):] {
		deep, bad, err := b.depth(ctx, blocks)
		if err != nil {
			return nil, err
		}
		if i == 0 {
			for j := range deep {
				deep[j] = deep[j].atMost([]float64{2.5, 8}[j%2]).aim([]float64{1.3, 4}[j%2])
			}
		}
		parts, wrong = append(parts, deep...), wrong+bad
	}
	agents, bad, err := b.agents(ctx)
	if err != nil {
		return nil, err
	}
	return append(append(parts, agents...), count("events refused and answers that are wrong", wrong+bad).atMost(0)), nil
}

// depth returns p50 and p99 for prompts of which nothing, half and all is held.
func (b *bench) depth(ctx context.Context, blocks int) (parts []part, wrong int, err error) {
	type deep struct {
		Miss, Half, Full answers
		Failed           int
	}
	args := []string{"depth", "-blocks", strconv.Itoa(blocks), "-index"}
	our, err := indexRuns[deep](ctx, b, pick(b, 5, 1), append(args, ours)...)
	if err != nil {
		return nil, 0, err
	}
	var beside deep
	if err := b.index(ctx, &beside, append(args, other)...); err != nil {
		return nil, 0, err
	}
	for _, hit := range []struct {
		name string
		of   func(deep) answers
	}{
		{"nothing", func(d deep) answers { return d.Miss }},
		{"half", func(d deep) answers { return d.Half }},
		{"all", func(d deep) answers { return d.Full }},
	} {
		p50 := func(d deep) float64 { return hit.of(d).P50 }
		p99 := func(d deep) float64 { return hit.of(d).P99 }
		what := fmt.Sprintf("%d M blocks, 128 asked for, %s held", blocks/million, hit.name)
		parts = append(parts,
			median(what+", p50", "µs", each(our, p50)).against(other, p50(beside)),
			median(what+", p99", "µs", each(our, p99)).against(other, p99(beside)),
		)
		for _, d := range our {
			wrong += hit.of(d).Wrong
		}
		wrong += hit.of(beside).Wrong
	}
	for _, d := range our {
		wrong += d.Failed
	}
	return parts, wrong + beside.Failed, nil
}

// agents returns what agents cost whose conversations grow turn by turn.
func (b *bench) agents(ctx context.Context) (parts []part, wrong int, err error) {
	type agentic struct {
		mixture
		Late answers `json:"late"`
	}
	history, err := b.history(ctx, "AG")
	if err != nil {
		return nil, 0, err
	}
	our, err := indexRuns[agentic](ctx, b, pick(b, 5, 1), "agents", "-index", ours, "-corpus", history)
	if err != nil {
		return nil, 0, err
	}
	var beside agentic
	if err := b.index(ctx, &beside, "agents", "-index", other, "-corpus", history); err != nil {
		return nil, 0, err
	}
	for _, a := range append(our, beside) {
		wrong += a.Failed + a.Late.Wrong
		if a.Found != beside.Found {
			wrong++
		}
	}
	cost := func(a agentic) float64 { return 1e9 * a.Thread / float64(a.Blocks) }
	p50 := func(a agentic) float64 { return a.Late.P50 }
	p99 := func(a agentic) float64 { return a.Late.P99 }
	theirs, err := b.theirs(ctx, "AG")
	if err != nil {
		return nil, 0, err
	}
	return append([]part{
		median("agents, a block operation", "ns", each(our, cost)).against(other, cost(beside)).atMost(40).aim(25),
		median("agents, late query of 430 blocks, p50", "µs", each(our, p50)).against(other, p50(beside)).atMost(8).aim(4),
		median("agents, late query of 430 blocks, p99", "µs", each(our, p99)).against(other, p99(beside)),
	}, theirs...), wrong, nil
}
