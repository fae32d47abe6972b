package main

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/dynago/dynago/bench/agents"
	"github.com/dynago/dynago/sim/trace"
)

// player sends a workload at its times.
type player struct {
	url, model string
	speed      float64
	tag        bool
	// whole lets answers come as a whole, with their tokens, which later prompts repeat;
	// otherwise they stream, and nobody repeats them.
	whole bool

	client http.Client
	begun  time.Time

	mu      sync.Mutex
	answers map[uint64][]uint32 // tokens of answers, by their streams
}

// play sends all requests, and returns what came of them in their order. It ends with
// the first one that fails.
func (p *player) play(ctx context.Context, w []trace.Request) ([]agents.Outcome, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	p.client.Transport = &http.Transport{MaxIdleConnsPerHost: len(w), DisableCompression: true}
	defer p.client.CloseIdleConnections()
	p.answers = make(map[uint64][]uint32)
	all := make([]agents.Outcome, len(w))
	ended := make(map[string]chan struct{}, len(w))
	for i := range w {
		ended[w[i].ID] = make(chan struct{})
	}
	bodies := make([][]byte, len(w))
	for i := range w {
		if len(w[i].After) == 0 { // these come at their times, whatever it takes to write them
			bodies[i] = p.body(&w[i])
		}
	}
	p.begun = time.Now()
	var running sync.WaitGroup
	for i := range w {
		running.Go(func() {
			r := &w[i]
			defer close(ended[r.ID])
			due := p.after(r.At)
			for _, id := range r.After {
				select {
				case <-ended[id]:
					due = time.Now().Add(p.faster(r.Delay)) // of the last one
				case <-ctx.Done():
				}
			}
			if bodies[i] == nil && ctx.Err() == nil {
				bodies[i] = p.body(r)
			}
			select {
			case <-time.After(time.Until(due)):
			case <-ctx.Done():
				return
			}
			var err error
			if all[i], err = p.ask(ctx, r, bodies[i], due); err != nil {
				cancel(fmt.Errorf("%s: %w", r.ID, err))
			}
			bodies[i] = nil
		})
	}
	running.Wait()
	return all, context.Cause(ctx)
}

// faster returns how long something takes here that takes d in life.
func (p *player) faster(d time.Duration) time.Duration { return time.Duration(float64(d) / p.speed) }

// after returns when it is so much later than the beginning.
func (p *player) after(d time.Duration) time.Time { return p.begun.Add(p.faster(d)) }

// at returns when something was that was at t, as it would have been in life.
func (p *player) at(t time.Time) time.Duration {
	return time.Duration(float64(t.Sub(p.begun)) * p.speed)
}
