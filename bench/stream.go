package main

import (
	"context"
	"fmt"
	"time"

	"github.com/dynago/dynago/bench/loadgen"
)

// takeStreams measures what one streamed event costs: paced, where each event is
// a wake-up and a write of its own, and unpaced, where whatever is ready may
// leave in one write. The baseline writes the very same events from a bare
// handler, each flushed.
func takeStreams(ctx context.Context, b *bench) ([]part, error) {
	seconds := pick(b, 12, 3)
	pacing, err := b.paced()
	if err != nil {
		return nil, err
	}
	paced := streamLoad{
		name:     "paced, 200 streams at 50/s",
		serve:    pacing,
		interval: 20 * time.Millisecond,
		streams:  200, requests: 200, tokens: 50 * seconds,
	}
	unpaced := streamLoad{
		name:    "unpaced, 16 streams",
		serve:   instant,
		streams: 16, requests: pick(b, 320, 64), tokens: 1000,
	}

	pacedPart, gaps, err := b.streamPart(ctx, paced, pick(b, 5, 1))
	if err != nil {
		return nil, err
	}
	unpacedPart, _, err := b.streamPart(ctx, unpaced, pick(b, 5, 2))
	if err != nil {
		return nil, err
	}
	return []part{
		pacedPart.atMost(20).aim(8).noted("gaps p50 %s, p99 %s ms; %s", number(gaps.Gap.P50/1e3), number(gaps.Gap.P99/1e3), pacedPart.Note),
		unpacedPart.atMost(1.5).aim(0.8),
	}, nil
}

// streamLoad is one kind of streaming load.
type streamLoad struct {
	name                      string
	serve                     []string
	interval                  time.Duration
	streams, requests, tokens int
}

func (l streamLoad) flags() []string {
	return []string{
		"-mode", "stream", "-words", shortWords, "-ignore-eos",
		"-concurrency", fmt.Sprint(l.streams), "-n", fmt.Sprint(l.requests), "-max-tokens", fmt.Sprint(l.tokens),
	}
}

// streamPart repeats the load and returns the cost per event, with what the
// clients saw in the last run.
func (b *bench) streamPart(ctx context.Context, l streamLoad, runs int) (part, loadgen.Result, error) {
	var cost, bareCost []float64
	var seen loadgen.Result
	for range runs {
		own, bare, r, err := b.streamRun(ctx, l)
		if err != nil {
			return part{}, seen, fmt.Errorf("%s: %w", l.name, err)
		}
		cost, bareCost, seen = append(cost, own), append(bareCost, bare), r
	}
	p := median("CPU per streamed event, "+l.name, "µs", cost).against("bare net/http handler", median("", "", bareCost).Value)
	return p.noted("%s tokens per event", number(float64(seen.Tokens)/float64(seen.Events))), seen, nil
}

// streamRun takes one run on fresh processes: cost per event in microseconds of
// dynago and of the bare handler.
func (b *bench) streamRun(ctx context.Context, l streamLoad) (own, bare float64, seen loadgen.Result, err error) {
	s, err := b.serve(ctx, l.serve...)
	if err != nil {
		return 0, 0, seen, err
	}
	defer s.kill()
	if _, err := b.cleanLoad(ctx, s.url, s.model, "-mode", "stream", "-seed", "7", "-n", "64", "-max-tokens", "16"); err != nil {
		return 0, 0, seen, err
	}
	seen, cpu, err := b.cost(ctx, s.process, s.url, s.model, l.flags()...)
	if err != nil {
		return 0, 0, seen, err
	}
	if want := l.requests * l.tokens; seen.Tokens != want {
		return 0, 0, seen, fmt.Errorf("%d tokens came, %d were asked for", seen.Tokens, want)
	}
	answer, err := s.record(ctx, b.programs.dir, fmt.Sprintf(
		`{"model":%q,"stream":true,"stream_options":{"include_usage":true},"ignore_eos":true,"max_tokens":%d,"messages":[{"role":"user","content":"What keeps a river on its way?"}]}`, s.model, l.tokens))
	if err != nil {
		return 0, 0, seen, err
	}
	if err := s.stop(); err != nil {
		return 0, 0, seen, err
	}

	handler, url, err := b.baseline(answer, l.interval)
	if err != nil {
		return 0, 0, seen, err
	}
	defer handler.kill()
	same, bareCPU, err := b.cost(ctx, handler, url, s.model, l.flags()...)
	if err != nil {
		return 0, 0, seen, err
	}
	return micros(cpu, seen.Events), micros(bareCPU, same.Events), seen, nil
}
