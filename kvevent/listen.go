package kvevent

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"sync"
	"time"

	"github.com/dynago/dynago/kv"
)

// Limits of the questions to publishers.
const (
	askLimit      = 30 * time.Second
	asksInProcess = 16
)

// processAsks bounds the questions that are open at a time in the process.
var processAsks = make(chan struct{}, asksInProcess)

// ListenConfig says of whom messages tell, and who can be asked.
type ListenConfig struct {
	Worker uint64
	// Ranks [First, First+Ranks) are those of the worker: events of others are
	// left out.
	First, Ranks uint32
	// Messages are those that the worker's [Republisher] has sent, until ctx ends.
	// The memory of one may be used again for the next.
	Messages func(ctx context.Context) iter.Seq2[[]RouterEvent, error]
	// Ask asks the worker's publisher, over whatever transport there is. It must
	// end with its context. If it is nil nobody can be asked, and each loss makes
	// a rank partial.
	Ask func(ctx context.Context, q Recovery) (Answer, error)
	// Replaced, if not nil, yields an item whenever another publisher begins to
	// tell of the worker, before the first of its messages.
	Replaced <-chan struct{}
	// Log, if not nil, hears of losses.
	Log *slog.Logger
}

// Listen makes of the messages of a worker the stream that the worker's engine
// yields where it runs: complete and in order, or marked with a gap. Messages
// may be lost, come twice, or out of order. The stream ends when the messages or
// ctx do, with the error of the messages if there was one. Each loop over it
// begins anew.
//
// Whether the worker itself has missed something of its engine is not in the
// messages.
func Listen(ctx context.Context, c ListenConfig) iter.Seq2[kv.Batch, error] {
	return func(yield func(kv.Batch, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		l := &listening{config: c, ctx: ctx, log: c.Log, answers: make(chan answered)}
		if l.log == nil {
			l.log = slog.New(slog.DiscardHandler)
		}
		defer l.run.Wait()
		defer cancel()
		in := make(chan heardMessage)
		l.run.Go(func() { hearMessages(ctx, c.Messages(ctx), in) })
		l.loop(in, yield)
	}
}

// heardMessage is one of the messages, or their end.
type heardMessage struct {
	events []RouterEvent
	err    error
	last   bool
	done   chan struct{} // closed when events are no longer needed
}

// hearMessages hands messages over one by one.
func hearMessages(ctx context.Context, messages iter.Seq2[[]RouterEvent, error], in chan<- heardMessage) {
	hand := func(m heardMessage) bool {
		m.done = make(chan struct{})
		select {
		case in <- m:
		case <-ctx.Done():
			return false
		}
		<-m.done
		return true
	}
	for events, err := range messages {
		if err != nil {
			hand(heardMessage{err: err, last: true})
			return
		}
		if !hand(heardMessage{events: events}) {
			return
		}
	}
	hand(heardMessage{last: true})
}

// listening is the loop of one Listen, to which all but run belongs.
type listening struct {
	config  ListenConfig
	ctx     context.Context
	log     *slog.Logger
	ranks   []*listenedRank
	answers chan answered
	run     sync.WaitGroup
	out     []kv.Batch
}

// listenedRank puts one rank in order. It implements [FollowEffects].
type listenedRank struct {
	*teller
	listening *listening
	follower  *Follower
	events    []kv.Event         // applied, and not yet told
	turn      uint64             // of the open question
	quit      context.CancelFunc // of it
}

// answered is the end of a question.
type answered struct {
	rank   *listenedRank
	turn   uint64
	answer Answer
	err    error
}

func (l *listening) loop(in <-chan heardMessage, yield func(kv.Batch, error) bool) {
	epoch := uint64(time.Now().UnixNano())
	for i := range max(1, l.config.Ranks) {
		r := &listenedRank{listening: l}
		r.teller = &teller{rank: l.config.First + i, epoch: epoch, send: func(b kv.Batch) { l.out = append(l.out, b) }}
		r.follower = NewFollower(l.config.Worker, r.rank, l.config.Ask != nil, r)
		l.ranks = append(l.ranks, r)
		r.follower.Activate()
	}
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		l.arm(timer)
		var end heardMessage
		select {
		case <-l.ctx.Done():
			return
		case m := <-in:
			l.hear(m.events)
			close(m.done)
			end = m
		case a := <-l.answers:
			a.rank.take(a)
		case <-timer.C:
			for _, r := range l.ranks {
				r.follower.Tick(time.Now())
			}
		case _, more := <-l.config.Replaced:
			if !more { // nobody will follow
				l.config.Replaced = nil
				continue
			}
			for _, r := range l.ranks {
				r.follower.Replaced(l.config.Ask != nil)
			}
		}
		for _, r := range l.ranks {
			r.flush()
		}
		for _, b := range l.out {
			if !yield(b, nil) {
				return
			}
		}
		clear(l.out)
		l.out = l.out[:0]
		if end.err != nil {
			yield(kv.Batch{}, end.err)
		}
		if end.last {
			return
		}
	}
}

// arm sets the timer to the first deadline.
func (l *listening) arm(timer *time.Timer) {
	next := time.Hour
	for _, r := range l.ranks {
		if at, ok := r.follower.Deadline(); ok {
			next = min(next, time.Until(at))
		}
	}
	timer.Reset(next)
}

func (l *listening) hear(events []RouterEvent) {
	for i := range events {
		e := &events[i]
		if n := int64(e.Rank) - int64(l.config.First); n >= 0 && n < int64(len(l.ranks)) {
			// What is told of a worker is told under the sender's name for it.
			own := *e
			own.Worker = l.config.Worker
			own.Event = keep([]kv.Event{e.Event})[0]
			l.ranks[n].follower.Live(own)
		}
	}
}

// Apply implements [FollowEffects].
func (r *listenedRank) Apply(e RouterEvent) { r.events = append(r.events, e.Event) }

// Clear implements [FollowEffects].
func (r *listenedRank) Clear(reason kv.GapReason) {
	r.flush()
	if r.told {
		r.listening.log.Warn("KV events of the rank are void", "rank", r.rank, "reason", reason)
	}
	r.begin(reason)
}

// Rebuild implements [FollowEffects].
func (r *listenedRank) Rebuild() {
	r.flush()
	r.teller.Rebuild()
}

// Complete implements [FollowEffects].
func (r *listenedRank) Complete() {
	r.flush()
	r.teller.Complete()
}

// flush tells what was applied.
func (r *listenedRank) flush() {
	r.tell(r.events)
	clear(r.events)
	r.events = r.events[:0]
}

// Recover implements [FollowEffects].
func (r *listenedRank) Recover(q Recovery) {
	r.Cancel()
	l, turn := r.listening, r.turn
	ctx, quit := context.WithTimeoutCause(l.ctx, askLimit, fmt.Errorf("no answer for %v", askLimit))
	r.quit = quit
	l.run.Go(func() {
		defer quit()
		a := answered{rank: r, turn: turn}
		select {
		case processAsks <- struct{}{}:
			a.answer, a.err = l.config.Ask(ctx, q)
			<-processAsks
		case <-ctx.Done():
			a.err = context.Cause(ctx)
		}
		select {
		case l.answers <- a:
		case <-l.ctx.Done():
		}
	})
}

// Cancel implements [FollowEffects].
func (r *listenedRank) Cancel() {
	r.turn++
	if r.quit != nil {
		r.quit()
		r.quit = nil
	}
}

// take takes an answer, unless it is to a question of before.
func (r *listenedRank) take(a answered) {
	switch {
	case a.turn != r.turn:
	case a.err != nil:
		if !errors.Is(a.err, context.Canceled) {
			r.listening.log.Warn("no recovery of KV events", "rank", r.rank, "error", a.err)
		}
		r.follower.Failed(time.Now())
	default:
		r.follower.Answered(time.Now(), a.answer)
	}
}
