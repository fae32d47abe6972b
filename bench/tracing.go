package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"time"

	"github.com/dynago/dynago/bench/stats"
)

// takeTracing measures what it costs to record requests to files as they are by
// default. Two servers, of which one records, take turns with the same load, so that
// what else runs on the machine bears on both.
func takeTracing(ctx context.Context, b *bench) ([]part, error) {
	var parts []part
	for _, of := range []struct{ what, mode, words string }{
		{"short unary chat, 16 at a time", "unary", shortWords},
		{"streamed chat of 4,000 words, 16 at a time", "stream", "4000"},
	} {
		var more, plain []float64
		for range pick(b, 5, 1) {
			off, on, err := b.tracingRun(ctx, of.mode, of.words)
			if err != nil {
				return nil, err
			}
			more, plain = append(more, 100*(on/off-1)), append(plain, off)
		}
		parts = append(parts, median(of.what+": CPU per request that a trace adds", "%", more).atMost(5).aim(2).
			noted("without one a request takes %s µs", number(stats.Median(plain))))
	}
	return parts, nil
}

// tracingRun returns what a request costs without and with a trace, in microseconds.
func (b *bench) tracingRun(ctx context.Context, mode, words string) (off, on float64, err error) {
	quiet, err := b.serve(ctx, instant...)
	if err != nil {
		return 0, 0, err
	}
	defer quiet.kill()
	telling, err := b.serve(ctx, append([]string{"--request-trace", "--request-trace-file-path", filepath.Join(b.programs.dir, "trace")}, instant...)...)
	if err != nil {
		return 0, 0, err
	}
	defer telling.kill()

	chat := []string{"-mode", mode, "-words", words, "-max-tokens", shortTokens, "-concurrency", "16"}
	var spent [2]time.Duration
	var requests [2]int
	turns := pick(b, 8, 1)
	for turn := range turns + 1 {
		for i, s := range []*server{quiet, telling} {
			flags := append([]string{"-seed", strconv.Itoa(100 + turn), "-duration", pick(b, time.Second, 500*time.Millisecond).String()}, chat...)
			r, cpu, err := b.cost(ctx, s.process, s.url, s.model, flags...)
			if err != nil {
				return 0, 0, err
			}
			if turn > 0 { // the first turn warms them up
				spent[i] += cpu
				requests[i] += r.Requests
			}
		}
	}
	if err := quiet.stop(); err != nil {
		return 0, 0, err
	}
	if err := telling.stop(); err != nil {
		return 0, 0, err
	}
	if files, err := filepath.Glob(filepath.Join(b.programs.dir, "trace.*")); err != nil || len(files) == 0 {
		return 0, 0, fmt.Errorf("nothing was recorded: %w", err)
	}
	return micros(spent[0], requests[0]), micros(spent[1], requests[1]), nil
}
