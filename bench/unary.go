package main

import (
	"context"
	"fmt"
	"time"
)

// A short chat: some sixty tokens in with the template around them, sixteen out.
const (
	shortWords  = "40"
	shortTokens = "16"
)

// takeUnary measures what one short chat costs, and how much later its answer
// comes than the same bytes from a handler that does nothing else. Latency is
// taken with one request under way at a time, alternating between the two
// servers; cost with sixteen.
func takeUnary(ctx context.Context, b *bench) ([]part, error) {
	var cost, bareCost, added, bareLatency []float64
	for range pick(b, 5, 2) {
		c, l, err := b.unaryRun(ctx)
		if err != nil {
			return nil, err
		}
		cost, bareCost = append(cost, c[0]), append(bareCost, c[1])
		added, bareLatency = append(added, l[0]-l[1]), append(bareLatency, l[1])
	}
	bare := median("", "", bareCost).Value
	return []part{
		median("CPU per short unary chat", "µs", cost).against("bare net/http handler", bare).atMost(150).aim(100),
		median("p50 added by the server", "µs", added).atMost(150).aim(80).
			noted("the bare handler answers in %s µs", number(median("", "", bareLatency).Value)),
	}, nil
}

// unaryRun takes one run on fresh processes: cost per request and p50 latency in
// microseconds, each of dynago and of the bare handler.
func (b *bench) unaryRun(ctx context.Context) (cost, latency [2]float64, err error) {
	s, err := b.serve(ctx, instant...)
	if err != nil {
		return cost, latency, err
	}
	defer s.kill()
	answer, err := s.record(ctx, b.programs.dir, fmt.Sprintf(
		`{"model":%q,"max_tokens":%s,"messages":[{"role":"user","content":"What keeps a river on its way?"}]}`, s.model, shortTokens))
	if err != nil {
		return cost, latency, err
	}
	bare, bareURL, err := b.baseline(answer, 0)
	if err != nil {
		return cost, latency, err
	}
	defer bare.kill()

	chat := []string{"-mode", "unary", "-words", shortWords, "-max-tokens", shortTokens}
	for i, target := range []struct {
		*process
		url string
	}{{s.process, s.url}, {bare, bareURL}} {
		warm := append([]string{"-duration", "500ms"}, chat...)
		if _, err := b.cleanLoad(ctx, target.url, s.model, warm...); err != nil {
			return cost, latency, err
		}
		// Other prompts than in the warm-up: no prompt is asked twice.
		busy := append([]string{"-seed", "43", "-concurrency", "16", "-duration", pick(b, 5*time.Second, time.Second).String()}, chat...)
		r, cpu, err := b.cost(ctx, target.process, target.url, s.model, busy...)
		if err != nil {
			return cost, latency, err
		}
		cost[i] = micros(cpu, r.Requests)
	}

	calm := append([]string{"-seed", "44", "-concurrency", "1", "-against", bareURL, "-duration", pick(b, 4*time.Second, time.Second).String()}, chat...)
	r, err := b.cleanLoad(ctx, s.url, s.model, calm...)
	if err != nil {
		return cost, latency, err
	}
	latency = [2]float64{r.Whole.P50, r.Against.P50}
	return cost, latency, s.stop()
}
