package main

import (
	"context"

	"github.com/dynago/dynago/bench/stats"
)

// paired is what a writer and a reader beside each other took.
type paired struct {
	Blocks  int           `json:"blocks"`
	Wall    float64       `json:"wall"`
	Writer  float64       `json:"writer"`
	Reader  float64       `json:"reader"`
	Lag     float64       `json:"lag"`
	Latency stats.Latency `json:"latency"`
	Clock   float64       `json:"clock"`
	Failed  int           `json:"failed"`
}

// rate is what the two threads do on two cores that nobody else uses: the busier
// one sets it.
func (p paired) rate() float64 { return float64(p.Blocks) / max(p.Writer, p.Reader) / million }

// takeIndexPair measures the index with a thread that writes and one that reads.
func takeIndexPair(ctx context.Context, b *bench) ([]part, error) {
	history, err := b.history(ctx, "B1")
	if err != nil {
		return nil, err
	}
	our, err := indexRuns[paired](ctx, b, pick(b, 5, 1), "pair", "-index", ours, "-corpus", history)
	if err != nil {
		return nil, err
	}
	// What is not judged has fewer turnovers, so that all of it takes two minutes.
	brief, err := b.history(ctx, "C44")
	if err != nil {
		return nil, err
	}
	var beside paired
	if err := b.index(ctx, &beside, "pair", "-index", other, "-corpus", brief); err != nil {
		return nil, err
	}
	type submitted struct {
		Submitted, Drained float64
		Blocks, Failed     int
	}
	handed, err := indexRuns[submitted](ctx, b, pick(b, 3, 1), "submit", "-index", ours, "-corpus", brief)
	if err != nil {
		return nil, err
	}
	failed := beside.Failed
	for _, p := range our {
		failed += p.Failed
	}
	for _, s := range handed {
		failed += s.Failed
	}
	p50 := func(p paired) float64 { return p.Latency.P50 }
	p99 := func(p paired) float64 { return p.Latency.P99 }
	return []part{
		median("writer and reader, block operations by the busier one's time", "M/s", each(our, paired.rate)).against(other, beside.rate()).atLeast(16).aimAtLeast(30),
		median("match while writing, p99", "µs", each(our, p99)).against(other, p99(beside)).atMost(10).aim(5).noted("the clock's %.2f µs included", our[0].Clock),
		median("match while writing, p50", "µs", each(our, p50)).against(other, p50(beside)),
		median("in wall time", "M/s", each(our, func(p paired) float64 { return float64(p.Blocks) / p.Wall / million })),
		median("writer's processor time", "s", each(our, func(p paired) float64 { return p.Writer })),
		median("reader's time in queries", "s", each(our, func(p paired) float64 { return p.Reader })),
		median("from the last event to the last answer", "ms", each(our, func(p paired) float64 { return p.Lag * 1e3 })),
		median("handed over, in wall time, removals not counted, queue not drained", "M/s", each(handed, func(s submitted) float64 { return float64(s.Blocks) / s.Submitted / million })).
			noted("the method behind the 170 M that were published for another index; says nothing of what is finished"),
		median("the same until the queue is drained", "M/s", each(handed, func(s submitted) float64 { return float64(s.Blocks) / s.Drained / million })),
		count("events refused", failed).atMost(0),
	}, nil
}
