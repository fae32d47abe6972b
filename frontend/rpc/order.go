package rpc

import (
	"context"
	"slices"
	"sync"
)

// order lets the calls of a stream that have one response each answer in the order in
// which they came. Calls that answer in pieces take no part: they leave as soon as
// that is known.
type order struct {
	mu      sync.Mutex
	waiting []*place // the first has its turn
}

// place is a call's place in the order.
type place struct {
	order *order
	turn  chan struct{} // closed when nobody is before it, or it has left
}

// join takes the last place.
func (o *order) join() *place {
	p := &place{order: o, turn: make(chan struct{})}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.waiting = append(o.waiting, p)
	if len(o.waiting) == 1 {
		close(p.turn)
	}
	return p
}

// leave gives the place up. It may be called more than once.
func (p *place) leave() {
	o := p.order
	o.mu.Lock()
	defer o.mu.Unlock()
	i := slices.Index(o.waiting, p)
	if i < 0 {
		return
	}
	o.waiting = slices.Delete(o.waiting, i, i+1)
	switch {
	case i > 0:
		close(p.turn)
	case len(o.waiting) > 0:
		close(o.waiting[0].turn)
	}
}

// wait returns when all who came before have left, or the place is left itself, or ctx
// is done.
func (p *place) wait(ctx context.Context) {
	select {
	case <-p.turn:
	case <-ctx.Done():
	}
}
