package remote

import (
	"context"
	"sync"

	"github.com/dynago/dynago/engine"
)

// gate counts the requests that run, and lets no more in than there is room for. At
// most queue others wait, and go in in the order in which they came.
type gate struct {
	limit, queue int // limit 0: nothing is bounded

	mu      sync.Mutex
	running int
	entered uint64 // that ran, or run
	refused uint64
	waiting []chan struct{} // closed for whom there is room
	idle    chan struct{}   // closed when nothing runs any more; nil: nobody waits for that
}

// enter waits for room. The caller must call leave once.
func (g *gate) enter(ctx context.Context) (leave func(), err error) {
	if ctx.Err() != nil {
		return nil, engine.CauseOf(ctx, ctx.Err())
	}
	g.mu.Lock()
	if g.limit <= 0 || g.running < g.limit && len(g.waiting) == 0 {
		g.running++
		g.entered++
		g.mu.Unlock()
		return g.leave, nil
	}
	if len(g.waiting) >= g.queue {
		g.refused++
		g.mu.Unlock()
		return nil, engine.Errorf(engine.WorkerOverloaded, "the worker runs %d requests, and %d wait: it takes no more", g.limit, g.queue)
	}
	turn := make(chan struct{})
	g.waiting = append(g.waiting, turn)
	g.mu.Unlock()
	select {
	case <-turn:
		return g.leave, nil
	case <-ctx.Done():
	}
	g.mu.Lock()
	for i, w := range g.waiting {
		if w == turn {
			g.waiting = append(g.waiting[:i], g.waiting[i+1:]...)
			g.mu.Unlock()
			return nil, engine.CauseOf(ctx, ctx.Err())
		}
	}
	g.mu.Unlock()
	g.leave() // it was given room at the same moment
	return nil, engine.CauseOf(ctx, ctx.Err())
}

func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.waiting) > 0 { // the place goes on to the next
		close(g.waiting[0])
		g.waiting = g.waiting[1:]
		g.entered++
		return
	}
	if g.running--; g.running == 0 && g.idle != nil {
		close(g.idle)
		g.idle = nil
	}
}

// counts tells how many run and wait, and what has become of those that came.
func (g *gate) counts() Counts {
	g.mu.Lock()
	defer g.mu.Unlock()
	return Counts{Running: g.running, Waiting: len(g.waiting), Begun: g.entered, Refused: g.refused}
}

// empty waits until nothing runs or waits.
func (g *gate) empty(ctx context.Context) error {
	for {
		g.mu.Lock()
		if g.running == 0 {
			g.mu.Unlock()
			return nil
		}
		if g.idle == nil {
			g.idle = make(chan struct{})
		}
		idle := g.idle
		g.mu.Unlock()
		select {
		case <-idle:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
