package main

import (
	"context"
	"fmt"

	"github.com/dynago/dynago/bench/stats"
)

// takeTiny measures the model in the box, with weights of its shape: its arithmetic on
// one thread, and the engine around it. A rate is per second of processor time.
func takeTiny(ctx context.Context, b *bench) ([]part, error) {
	const pkg = "engine/tiny/llama"
	t := &codecs{bench: b, ctx: ctx}
	var parts []part
	for _, context := range []int{512, 2048} {
		// Each run decodes the whole context some times, from empty to full.
		decode := t.take(pkg, fmt.Sprintf("Decode/Q8_0/context=%d", context), pick(b, 10, 4)*2048, seconds)
		prefill := t.take(pkg, fmt.Sprintf("Prefill/Q8_0/context=%d", context), pick(b, 20, 8)*2048/context, func(r outcome) float64 {
			return seconds(r) / float64(context)
		})
		parts = append(
			parts,
			median(fmt.Sprintf("decode, contexts of up to %d", context), "tokens/s", inverses(decode)).atLeast(2500).aimAtLeast(4000),
			median(fmt.Sprintf("prefill of %d tokens, against decoding them", context), "times as fast", ratios(decode, prefill)).atLeast(2).aimAtLeast(4),
		)
	}
	cold := t.take(pkg, "FirstToken/cold", pick(b, 10, 5), seconds)
	cached := t.take(pkg, "FirstToken/cached", pick(b, 300, 100), seconds)
	parts = append(
		parts,
		median("first token after 2,047 tokens of which 2,032 are cached, against none", "times as fast", ratios(cold, cached)).atLeast(20).aimAtLeast(40),
		median("first token after 2,047 tokens, cached", "ms", scaled(cached, 1000)).against("cold", 1000*stats.Median(cold)),
	)
	return append(parts, t.engine()...), t.err
}

// engine measures requests to an engine that computes, from their streams.
func (t *codecs) engine() []part {
	const pkg, tokens = "engine/tiny", 256 // of one answer
	rate := func(streams int) []float64 {
		return t.take(pkg, fmt.Sprintf("Decode/%d", streams), pick(t.bench, 400, 100)/streams, func(r outcome) float64 {
			return float64(streams*tokens) / seconds(r)
		})
	}
	cold := t.take(pkg, "FirstToken/cached=false", pick(t.bench, 20, 10), seconds)
	cached := t.take(pkg, "FirstToken/cached=true", pick(t.bench, 500, 100), seconds)
	return []part{
		median("engine: an answer of 256 tokens", "tokens/s", rate(1)).atLeast(2500).aimAtLeast(4000),
		median("engine: 8 answers at once", "tokens/s", rate(8)).atLeast(2500).aimAtLeast(4000),
		median("engine: first token after 2,000 tokens of which 1,984 are cached, against none", "times as fast", ratios(cold, cached)).atLeast(20).aimAtLeast(40),
		median("engine: first token after 2,000 tokens, cached", "ms", scaled(cached, 1000)).against("cold", 1000*stats.Median(cold)),
	}
}

// seconds is what an operation costs.
func seconds(r outcome) float64 { return r.cpu.Seconds() }

func inverses(values []float64) []float64 {
	var result []float64
	for _, v := range values {
		result = append(result, 1/v)
	}
	return result
}

func scaled(values []float64, by float64) []float64 {
	var result []float64
	for _, v := range values {
		result = append(result, v*by)
	}
	return result
}

// ratios sets each run's value over that of the same run.
func ratios(over, under []float64) []float64 {
	var result []float64
	for i := range min(len(over), len(under)) {
		result = append(result, over[i]/under[i])
	}
	return result
}
