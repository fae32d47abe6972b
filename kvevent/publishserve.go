package kvevent

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/dynago/dynago/kv"
)

// RepublisherConfig says whose events are passed on, and how.
type RepublisherConfig struct {
	Worker uint64
	// Raw and Wait are those of [PublisherConfig].
	Raw  bool
	Wait time.Duration
	// Send sends one message to the routers, over whatever transport there is;
	// [AppendRouterEvents] writes it. The events are only read, and good until
	// Send returns. An error does not end anything: who has missed a message asks.
	Send func(ctx context.Context, events []RouterEvent) error
}

// Republisher passes on what a worker's engine tells of its caches, and answers
// routers that have missed some of it. Its methods may be called from any
// goroutine.
type Republisher struct {
	config RepublisherConfig

	sending sync.Mutex // held while messages go out, in the order of their numbers
	mu      sync.Mutex // guards what follows
	ranks   map[uint32]*Publisher
	failed  uint64
}

// NewRepublisher returns a republisher that has passed nothing on.
func NewRepublisher(c RepublisherConfig) (*Republisher, error) {
	if c.Send == nil {
		return nil, fmt.Errorf("kvevent: republisher: nothing sends")
	}
	if _, err := NewPublisher(PublisherConfig{Wait: c.Wait}); err != nil {
		return nil, err
	}
	return &Republisher{config: c, ranks: make(map[uint32]*Publisher)}, nil
}

// Run passes events on until they or ctx end, and returns the error with which
// they did.
func (r *Republisher) Run(ctx context.Context, events iter.Seq2[kv.Batch, error]) error {
	ctx, cancel := context.WithCancel(ctx)
	var waiting sync.WaitGroup
	defer waiting.Wait()
	defer cancel()
	due := make(chan struct{}, 1)
	if r.config.Wait > 0 {
		waiting.Go(func() { r.sendDue(ctx, due) })
	}
	for b, err := range events {
		if err != nil {
			return err
		}
		if ctx.Err() != nil {
			break
		}
		r.send(ctx, func() [][]RouterEvent { return r.take(b) })
		select {
		case due <- struct{}{}:
		default:
		}
	}
	return ctx.Err()
}

// send sends what next returns.
func (r *Republisher) send(ctx context.Context, next func() [][]RouterEvent) {
	r.sending.Lock()
	defer r.sending.Unlock()
	r.mu.Lock()
	messages := next()
	r.mu.Unlock()
	for _, m := range messages {
		if r.config.Send(ctx, m) != nil {
			r.mu.Lock()
			r.failed++
			r.mu.Unlock()
		}
	}
}

func (r *Republisher) take(b kv.Batch) [][]RouterEvent {
	p := r.ranks[b.Rank]
	if p == nil {
		p, _ = NewPublisher(PublisherConfig{Worker: r.config.Worker, Rank: b.Rank, Raw: r.config.Raw, Wait: r.config.Wait}) // checked
		r.ranks[b.Rank] = p
	}
	return p.Take(time.Now(), b)
}

func (r *Republisher) tick() (out [][]RouterEvent) {
	for _, p := range r.ranks {
		out = append(out, p.Tick(time.Now())...)
	}
	return out
}

// sendDue sends what has waited long enough, until ctx ends. Due has something
// when something new waits.
func (r *Republisher) sendDue(ctx context.Context, due <-chan struct{}) {
	for {
		var timer <-chan time.Time
		if wait, ok := r.untilDeadline(); ok {
			timer = time.After(wait)
		}
		select {
		case <-ctx.Done():
			return
		case <-due:
		case <-timer:
			r.send(ctx, r.tick)
		}
	}
}

// untilDeadline is how long it is until something has waited long enough.
func (r *Republisher) untilDeadline() (next time.Duration, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	next = longestWait
	for _, p := range r.ranks {
		if at, pending := p.Deadline(); pending {
			next, ok = min(next, time.Until(at)), true
		}
	}
	return next, ok
}

// Answer answers a router. The answer is the caller's own. Of a rank of which
// nothing was passed on, nothing is there.
func (r *Republisher) Answer(q Recovery) Answer {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.ranks[q.Rank]
	if p == nil {
		return Answer{Kind: AnswerDump, Worker: r.config.Worker, Rank: q.Rank}
	}
	a := p.Answer(q)
	a.Events = slices.Clone(a.Events)
	return a
}

// Failed returns how many messages could not be sent.
func (r *Republisher) Failed() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failed
}
