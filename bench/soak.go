package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dynago/dynago/bench/loadgen"
	"github.com/dynago/dynago/bench/stats"
)

const (
	churnEvery  = 5 * time.Second
	sampleEvery = 5 * time.Second
	// A slope is judged over what remains after the warm-up, if that is long
	// enough to tell a leak from the noise of what is under way.
	soakWarmUp  = 3 * time.Minute
	judgedFrom  = 8 * time.Minute
	aimedSoak   = 2 * time.Hour
	soakClients = 64
)

// takeSoak puts a mixed load on a fleet whose workers come and go, and counts
// what goes wrong and what is left over at the end.
func takeSoak(ctx context.Context, b *bench) ([]part, error) {
	churn := min(churnEvery, b.soak/4)
	s, err := b.serve(ctx, "--speedup-ratio", "4", "--mock-churn", churn.String())
	if err != nil {
		return nil, err
	}
	defer s.kill()

	// What the first requests set up for good is no leftover.
	if _, err := b.load(ctx, s.url, s.model, "-mode", "stream", "-concurrency", "8", "-n", "32"); err != nil {
		return nil, err
	}
	idle, err := s.idleGoroutines(ctx)
	if err != nil {
		return nil, err
	}

	load, heap, err := b.soakLoad(ctx, s)
	if err != nil {
		return nil, err
	}
	left, err := s.leftovers(ctx, idle, 30*time.Second)
	if err != nil {
		return nil, err
	}
	page, err := s.metrics(ctx)
	if err != nil {
		return nil, err
	}
	moved := count("requests that lost their worker and went on on another one", int(page["dynamo_frontend_model_migration_total"]))
	if err := s.stop(); err != nil {
		return nil, err
	}
	return append(b.soakParts(load, heap, left), moved), nil
}

// soakLoad runs the load and samples the live heap meanwhile.
func (b *bench) soakLoad(ctx context.Context, s *server) (loadgen.Result, []stats.Point, error) {
	type report struct {
		load loadgen.Result
		err  error
	}
	done := make(chan report, 1)
	go func() {
		load, err := b.load(ctx, s.url, s.model, "-mode", "soak", "-duration", b.soak.String(), "-abort", "0.1",
			"-concurrency", fmt.Sprint(soakClients), "-prompts", "32", "-max-tokens", "64", "-hang-after", "1m")
		done <- report{load, err}
	}()

	start := time.Now()
	ticker := time.NewTicker(min(sampleEvery, b.soak/10))
	defer ticker.Stop()
	var heap []stats.Point
	for {
		select {
		case r := <-done:
			return r.load, heap, r.err
		case <-s.ended:
			return loadgen.Result{}, nil, s.death()
		case <-ticker.C:
		}
		bytes, err := s.liveHeap(ctx)
		if err != nil {
			pause(ctx, time.Second) // a death shows here first
			return loadgen.Result{}, nil, errors.Join(err, s.death())
		}
		heap = append(heap, stats.Point{At: time.Since(start), Value: bytes})
		if len(heap)%12 == 0 {
			b.progress("B16: %v, live heap %s MB", time.Since(start).Round(time.Second), number(bytes/megabyte))
		}
	}
}

// liveHeap is the heap in use right after a collection, in bytes.
func (s *server) liveHeap(ctx context.Context) (float64, error) {
	if err := s.collect(ctx); err != nil {
		return 0, err
	}
	page, err := s.metrics(ctx)
	if err != nil {
		return 0, err
	}
	return page.value("go_memstats_heap_inuse_bytes")
}

// soakParts judges a soak. What is aimed for are the same numbers after two hours.
func (b *bench) soakParts(load loadgen.Result, heap []stats.Point, left leftovers) []part {
	wrong := count("wrong answers", load.Wrong).atMost(0)
	if load.FirstWrong != "" {
		wrong = wrong.noted("%s", load.FirstWrong)
	}
	failed := count("answers that ended in an error", load.Failures())
	if len(load.Failed) > 0 {
		failed = failed.noted("%v", load.Failed)
	}
	leaked := count("leaked goroutines", left.goroutines.total()).atMost(0)
	if len(left.goroutines) > 0 {
		leaked = leaked.noted("%v", left.goroutines)
	}
	parts := []part{
		count("answers verified", load.Requests).noted("in %v, besides %d abandoned; %d tokens", time.Duration(load.Seconds*float64(time.Second)).Round(time.Second), load.Aborted, load.Tokens),
		count("hung requests", load.Hung).atMost(0),
		wrong,
		failed,
		count("leaked requests", int(left.requests)).atMost(0),
		count("leaked bookings, in KV blocks", int(left.blocks)).atMost(0),
		leaked,
		b.heapSlope(heap),
	}
	for i, p := range parts {
		if b.soak >= aimedSoak && p.PassLine != nil {
			parts[i] = p.aim(*p.PassLine)
		}
	}
	return parts
}

func (b *bench) heapSlope(heap []stats.Point) part {
	warmUp := min(soakWarmUp, b.soak/3)
	var steady []stats.Point
	for _, p := range heap {
		if p.At >= warmUp {
			steady = append(steady, p)
		}
	}
	p := part{What: fmt.Sprintf("slope of the live heap after %v", warmUp.Round(time.Second)), Value: 100 * stats.SlopePerMinute(steady), Unit: "%/min"}
	if len(steady) > 0 {
		p = p.noted("%s to %s MB", number(steady[0].Value/megabyte), number(steady[len(steady)-1].Value/megabyte))
	}
	if b.soak < judgedFrom {
		return p.noted("%s; too short to be judged", p.Note)
	}
	return p.atMost(1)
}
