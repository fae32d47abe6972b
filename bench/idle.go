package main

import (
	"context"
	"fmt"
	"time"
)

// takeIdle opens many streams whose engine falls silent after the first token,
// and measures how much memory each keeps.
func takeIdle(ctx context.Context, b *bench) ([]part, error) {
	streams := pick(b, 10_000, 2_000)
	const still = 3 * time.Second // a server that goes quiet collects its heap after two
	flags, err := b.silent(streams)
	if err != nil {
		return nil, err
	}
	s, err := b.serve(ctx, flags...)
	if err != nil {
		return nil, err
	}
	defer s.kill()

	// A few streams first, so that what the first request allocates once is not
	// counted for the others.
	for _, n := range []int{16, 16} {
		h, _, err := b.hold(ctx, s, n)
		if err != nil {
			return nil, err
		}
		if _, err := h.release(); err != nil {
			return nil, err
		}
	}
	before, _, err := s.settledRSS(ctx, still)
	if err != nil {
		return nil, err
	}

	h, held, err := b.hold(ctx, s, streams)
	if err != nil {
		return nil, err
	}
	defer h.kill()
	if held.Open != streams {
		end, err := h.release()
		return nil, fmt.Errorf("%d of %d streams opened: %v, %w: %s", held.Open, streams, end.Failed, err, s.lastWords(5))
	}
	after, settled, err := s.settledRSS(ctx, still)
	if err != nil {
		return nil, err
	}
	page, err := s.metrics(ctx)
	if err != nil {
		return nil, err
	}
	end, err := h.release()
	if err != nil {
		return nil, err
	}
	if end.Open != streams {
		return nil, fmt.Errorf("%d of %d streams stayed open: %v", end.Open, streams, end.Failed)
	}

	p := part{What: fmt.Sprintf("RSS per idle stream at %d", streams), Value: (after - before) / float64(streams) / 1e3, Unit: "KB"}
	p = p.atMost(40).aim(15).noted("%s goroutines per stream, RSS %s to %s MB",
		number(page["go_goroutines"]/float64(streams)), number(before/megabyte), number(after/megabyte))
	if !settled {
		p = p.noted("%s; RSS had not settled after a minute", p.Note)
	}
	return []part{p}, s.stop()
}
