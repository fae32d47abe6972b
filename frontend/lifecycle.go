package frontend

import (
	"context"
	"sync"
)

// Stage says whether a server takes requests.
type Stage uint8

// The stages of a server's life, in their order.
const (
	Ready    Stage = iota
	Draining       // finishes what it has, refuses what is new
	Stopping       // cuts what is left
)

// String returns the name as health answers spell it.
func (s Stage) String() string {
	return [...]string{"ready", "draining", "stopping"}[min(s, Stopping)]
}

// lifecycle counts the requests in flight and holds the stage. The zero value
// is ready.
type lifecycle struct {
	mu       sync.Mutex
	stage    Stage
	inflight int
	idle     chan struct{} // closed when inflight falls to 0; nil if nobody waits
}

func (l *lifecycle) get() Stage {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.stage
}

// set moves on; there is no way back.
func (l *lifecycle) set(s Stage) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stage = max(l.stage, s)
}

// enter takes a permit, which the caller gives back by leave, unless the server
// takes no more requests.
func (l *lifecycle) enter() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stage != Ready {
		return false
	}
	l.inflight++
	return true
}

// join takes a further permit for one who holds one, whatever the stage.
func (l *lifecycle) join() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.inflight++
}

func (l *lifecycle) leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.inflight--; l.inflight == 0 && l.idle != nil {
		close(l.idle)
		l.idle = nil
	}
}

func (l *lifecycle) busy() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.inflight
}

// wait returns when no permit is out, or ctx is done.
func (l *lifecycle) wait(ctx context.Context) {
	l.mu.Lock()
	if l.inflight == 0 {
		l.mu.Unlock()
		return
	}
	if l.idle == nil {
		l.idle = make(chan struct{})
	}
	idle := l.idle
	l.mu.Unlock()
	select {
	case <-idle:
	case <-ctx.Done():
	}
}
