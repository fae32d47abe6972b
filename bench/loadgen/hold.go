package loadgen

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// openers is how many streams are being opened at a time: enough to be quick,
// and below any listener's backlog.
const openers = 64

// hold opens one stream on each connection and keeps all of them open until it
// is released. A stream that ends before that is a failure.
func hold(ctx context.Context, c Config, s *server) (Result, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	tallies := make([]tally, c.Concurrency)
	slots := make(chan struct{}, openers)
	var opening, done sync.WaitGroup
	var open atomic.Int64
	opening.Add(c.Concurrency)
	for i := range tallies {
		slots <- struct{}{}
		var once sync.Once
		opened := func(ok bool) {
			once.Do(func() {
				if ok {
					open.Add(1)
				}
				<-slots
				opening.Done()
			})
		}
		done.Go(func() {
			defer opened(false)
			holdOne(ctx, &c, uint64(i), &tallies[i], s, opened)
		})
	}
	opening.Wait()

	if c.Held != nil {
		c.Held(Result{URL: c.URL, Mode: c.Mode, Model: c.Model, Concurrency: c.Concurrency, Open: int(open.Load())})
	}
	select {
	case <-c.Release:
	case <-ctx.Done():
	}
	err := ctx.Err()
	cancel()
	done.Wait()
	return merge(tallies), err
}

func holdOne(ctx context.Context, c *Config, n uint64, t *tally, s *server, opened func(ok bool)) {
	conn, err := s.dial(ctx, c.HangAfter)
	if err != nil {
		t.fail(err)
		return
	}
	defer conn.close()

	body := c.body(chat{prompt: prompt(c.Seed, n, c.PromptWords), stream: true, seed: c.Seed})
	a, err := conn.ask(body, reading{stream: true, abortAfter: -1, onEvent: func(n int) {
		if n == 1 {
			conn.SetDeadline(time.Time{}) // from here on silence is what was asked for
			opened(true)
		}
	}})
	t.result.Events = a.events
	if a.events > 0 {
		t.first = append(t.first, a.first)
	}
	switch {
	case ctx.Err() != nil && a.events > 0:
		t.result.Open++
	case err == nil:
		t.fail(fmt.Errorf("stream ended after %d events, while it was to stay open", a.events))
	default:
		t.count(a, err)
	}
}
