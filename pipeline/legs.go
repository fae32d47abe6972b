package pipeline

import (
	"context"
	"encoding/json"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/router"
)

// A request may have two legs: a prefill worker computes its prompt, and a decode
// worker gets the blocks and answers. Either the one begins when the other has
// ended, with what that hands over, or both begin at once and meet. The client sees
// the second leg alone; what was cached is what the first one found. Where one token
// is wanted, the prefill worker gives it, and nothing is handed over: many engines
// keep what nobody fetches for minutes.
//
// A leg that fails is an attempt that fails: the request goes on elsewhere, and its
// prompt is computed again. Only where the decode worker was never reached, another
// one gets what was computed. Whatever happens, the prefill engine is told once that
// it may let go, and it is the engines that go on for a while with legs which must
// not be cut short.

// Times of what stands beside the legs.
const (
	prepareTime = 5 * time.Second // for the prefill engine to name a hand-off
	releaseTime = 5 * time.Second // … and to let go of it
	// How long the end of an answer waits for a prefill leg that is known to have
	// done its work, and so long does the failure of one leg wait for that of the
	// other, which may be its cause.
	settleTime = 250 * time.Millisecond
)

// handoff is what stands between the legs of one attempt.
type handoff struct {
	engine.Handoff
	by   engine.Disaggregator
	p    *Pipeline
	told json.RawMessage // what the decode leg is told
	once sync.Once
}

// release lets the prefill engine let go of what it has computed. It may be called
// again, and does not wait.
func (h *handoff) release() {
	h.once.Do(func() {
		h.p.behind.run(func(ctx context.Context) {
			ctx, cancel := context.WithTimeout(ctx, releaseTime)
			defer cancel()
			if err := h.by.Release(ctx, h.ID); err != nil {
				h.p.Logger.Debug("a hand-off was not released", "handoff", h.ID, "error", err)
			}
		})
	})
}

// unplaced is the error of a request whose second leg found no worker.
type unplaced struct{ error }

type deltas = func(engine.Delta, error) bool

// legs runs a request whose prompt one worker computes for another.
func (c *carry) legs(ctx context.Context, yield deltas) error {
	c.count()
	c.handed, c.begun = time.Time{}, time.Time{}
	c.here = c.booking.plan.Prefill
	h, err := c.prepare(ctx)
	if err != nil {
		return c.abandoned(ctx, err, &c.p.count.prefillFailed)
	}
	c.asides.legs(new(c.here.Decision().Target))
	request, err := c.firstLeg(h)
	switch {
	case err != nil:
		h.release()
		return err
	case h.Concurrent:
		return c.atOnce(ctx, h, request, yield)
	}
	return c.inTurn(ctx, h, request, yield)
}

// prepare asks the prefill engine how the legs are to meet.
func (c *carry) prepare(ctx context.Context) (_ *handoff, err error) {
	d, err := disaggregator(c.here.Worker())
	if err != nil {
		return nil, err
	}
	q := engine.HandoffQuery{Request: c.attemptID(), Rank: c.here.Decision().Target.Rank}
	if c.booking.plan.Meeting != nil { // the other leg is placed already
		b := c.booking.booking
		q.Decode = b.Decision().Target
		if card := b.Worker().Card(); card != nil {
			q.DecodeLayout = card.Disagg.Layout
		}
	}
	called := c.p.calls(c.job, "prepare", q.Request, c.here.Worker())
	defer func() { called.end(err) }()
	ctx, cancel := context.WithTimeoutCause(ctx, prepareTime, engine.ErrFirstItem)
	defer cancel()
	h, err := d.Prepare(ctx, q)
	if err != nil {
		return nil, engine.CauseOf(ctx, err)
	}
	return &handoff{Handoff: h, by: d, p: c.p, told: h.Decode}, nil
}

// firstLeg makes the request of a prefill leg: that of the whole one, with one token
// that nobody sees. Where no more is wanted, and no other leg waits, it is that of the
// whole one.
func (c *carry) firstLeg(h *handoff) (*engine.Request, error) {
	request, err := c.ask(c.here)
	if err != nil {
		return nil, err
	}
	if c.left() == 1 && !h.Concurrent {
		return request, nil
	}
	// A prompt whose answer may not end at once must not end with the leg either.
	request.Stop.MaxTokens, request.Stop.MinTokens, request.Expected = 1, min(request.Stop.MinTokens, 1), 0
	request.Disagg = engine.Disagg{Phase: engine.PhasePrefill, Handoff: h.Prefill}
	return request, nil
}

// left returns how many tokens may follow those that were delivered.
func (c *carry) left() int { return c.prompt.Stop.MaxTokens - len(c.delivered) }

// compute runs a prefill leg to its end and returns all that it said in one delta.
// It uses nothing of the attempt that changes while the other leg runs.
func (c *carry) compute(ctx context.Context, b *router.Booking, request *engine.Request) (all engine.Delta, err error) {
	worker := b.Worker()
	sent := c.p.dispatched(c.job, request, b)
	defer func() { sent.end(err) }()
	flight := c.p.flow.send(prefill)
	defer flight.end()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	lost := worker.Lost()
	defer context.AfterFunc(lost, func() { cancel(context.Cause(lost)) })()
	seen := c.p.seen.of(b.Decision().Target)
	took := pace{sent: time.Now(), input: len(request.TokenIDs)}
	watchdog := &watchdog{limits: c.p.Limits, cancel: cancel}
	for d, err := range bounded(watch(watchdog, c.p.Spans.Generate(ctx, worker.Engine(), request)), request) {
		if err != nil {
			return all, engine.CauseOf(ctx, err)
		}
		if took.item(len(d.TokenIDs), seen) {
			flight.answered(took.waited())
			b.Prefilled()
		}
		b.Output(len(d.TokenIDs))
		gather(&all, &d)
		if d.Usage != nil && d.Usage.Cached != nil {
			b.Cached(*d.Usage.Cached)
		}
		if d.Finish != engine.Running {
			b.Completed()
			return all, nil
		}
	}
	return all, engine.CauseOf(ctx, errIncomplete)
}

// gather adds a delta to those before it.
func gather(all, d *engine.Delta) {
	all.TokenIDs, all.Text = append(all.TokenIDs, d.TokenIDs...), all.Text+d.Text
	all.Logprobs = append(all.Logprobs, d.Logprobs...)
	if len(d.EngineData) > 0 {
		all.EngineData = d.EngineData
	}
	all.Finish, all.MatchedIDs, all.MatchedText = d.Finish, d.MatchedIDs, d.MatchedText
	if d.Usage != nil {
		all.Usage = d.Usage
	}
	if len(d.Handoff) > 0 {
		all.Handoff = d.Handoff
	}
}

// inTurn runs the prefill leg, and then the other one.
func (c *carry) inTurn(ctx context.Context, h *handoff, request *engine.Request, yield deltas) error {
	first, err := c.compute(ctx, c.here, request)
	if err != nil {
		h.release()
		return c.abandoned(ctx, err, &c.p.count.prefillFailed)
	}
	c.found(&first)
	c.handed = time.Now()
	c.asides.prefilled(c.handed)
	if request.Disagg.Phase == engine.PhaseWhole || c.whole(&first) {
		h.release()
		c.p.count.prefillAnswered.Add(1)
		c.pace.item(len(first.TokenIDs), c.seen)
		c.moved(MoveSuccess)
		first.Handoff = nil
		c.remember(&first)
		yield(first, nil)
		return nil
	}
	c.computed = true
	c.booking.computed()
	h.told = first.Handoff
	c.hand = h
	return c.fetch(ctx, yield)
}

// found keeps what a prefill leg says of the cache.
func (c *carry) found(first *engine.Delta) {
	if u := first.Usage; c.cached == nil && u != nil && u.Cached != nil {
		c.cached = new(min(*u.Cached, len(c.prompt.IDs)))
	}
}

// whole says whether what a prefill leg gave is all of the answer: a model that ends
// at its first token has nothing to hand over.
func (c *carry) whole(first *engine.Delta) bool {
	if len(first.Logprobs) < len(first.TokenIDs) && c.request.Chat.Sampling.Logprobs != nil {
		return false // the engine keeps them to itself on this leg
	}
	return first.Finish != engine.FinishLength
}

// fetch runs the second leg of a request whose prompt is computed.
func (c *carry) fetch(ctx context.Context, yield deltas) error {
	b, err := c.placeAnswer(ctx)
	if err != nil {
		c.drop()
		c.abandoned(ctx, err, &c.p.count.decodeFailed) //nolint:errcheck // it is the same
		return unplaced{err}
	}
	c.here = b
	leg := engine.Disagg{Phase: engine.PhaseDecode, Handoff: c.hand.told}
	if len(leg.Handoff) == 0 { // as for prompts that are too short for it
		leg.Phase = engine.PhaseWhole
	}
	err = c.run(ctx, leg, yield)
	if c.hand == nil {
		return err // the answer has begun
	}
	return c.abandoned(ctx, err, &c.p.count.decodeFailed) // next sees to the hand-off
}

// placeAnswer finds a place for the leg that answers.
func (c *carry) placeAnswer(ctx context.Context) (*router.Booking, error) {
	c.p.flow.routeDecode.Add(1)
	defer c.p.flow.routeDecode.Add(-1)
	return c.booking.answer(ctx, c.noteAnswer)
}

// fetched notes that the second leg has what the first one has computed.
func (c *carry) fetched() {
	if c.hand != nil || c.beside != nil {
		c.p.count.handedOver.Add(1)
		c.fetchedHere = true
		if c.begun.IsZero() {
			c.begun = time.Now()
		}
		c.transferred()
	}
	c.drop()
	if c.beside != nil {
		c.beside.fetched.Store(true)
		c.beside.hand.release()
	}
}

// transferred tells the booking of the second leg how long it took to begin behind the
// first one, once the ends of both are known.
func (c *carry) transferred() {
	if !c.handed.IsZero() && !c.begun.IsZero() && !c.begun.Before(c.handed) {
		c.here.Transferred(c.begun.Sub(c.handed))
	}
}

// drop ends the hand-off that is open, if there is one.
func (c *carry) drop() {
	if c.hand != nil {
		c.hand.release()
		c.hand = nil
	}
}

// beside is a prefill leg that runs beside the other one.
type beside struct {
	hand    *handoff
	done    chan struct{}
	fetched atomic.Bool // the other leg has what it needs
	first   engine.Delta
	err     error
	ended   time.Time
}

// atOnce runs both legs at once. The prefill leg belongs to this call, and has ended
// when it returns; where its engine must go on, the engine does so.
func (c *carry) atOnce(ctx context.Context, h *handoff, request *engine.Request, yield deltas) error {
	defer h.release()
	prefill := c.here
	b, err := c.placeAnswer(ctx)
	if err != nil {
		c.abandoned(ctx, err, &c.p.count.decodeFailed) //nolint:errcheck // it is the same
		return unplaced{err}
	}
	c.here = b
	first, stop := context.WithCancelCause(ctx)
	second, abort := context.WithCancelCause(ctx)
	leg := &beside{hand: h, done: make(chan struct{})}
	c.beside, c.computed = leg, true
	go func() {
		defer close(leg.done)
		defer c.booking.computed()
		defer func() {
			if leg.err != nil && !leg.fetched.Load() {
				abort(leg.err)
			}
		}()
		leg.first, leg.err = c.guarded(first, prefill, request)
		leg.ended = time.Now()
	}()
	defer func() {
		stop(nil)
		abort(nil)
		<-leg.done
		c.beside = nil
	}()
	err = c.run(second, engine.Disagg{Phase: engine.PhaseDecode, Handoff: h.told}, yield)
	if err == nil || leg.fetched.Load() {
		return err
	}
	if ctx.Err() != nil {
		return c.abandoned(ctx, err, nil)
	}
	// The leg that failed first may have waited for the other one in vain.
	select {
	case <-leg.done:
	case <-time.After(settleTime):
		stop(err)
		<-leg.done
		return c.abandoned(ctx, err, &c.p.count.decodeFailed)
	}
	if leg.err == nil {
		return c.abandoned(ctx, err, &c.p.count.decodeFailed)
	}
	c.here = prefill
	return c.abandoned(ctx, leg.err, &c.p.count.prefillFailed)
}

// guarded is compute, where a fault of ours ends this request and not the process.
func (c *carry) guarded(ctx context.Context, b *router.Booking, request *engine.Request) (first engine.Delta, err error) {
	defer func() {
		if v := recover(); v != nil {
			c.p.Logger.ErrorContext(ctx, "a prefill leg panicked", "request", c.request.ID, "panic", v, "stack", string(debug.Stack()))
			err = engine.Errorf(engine.Internal, "a prefill leg panicked")
		}
	}()
	return c.compute(ctx, b, request)
}

// settle takes over what a prefill leg beside this one has found. The end of an
// answer waits for it: the engine has no more to do there.
func (c *carry) settle(end bool) {
	leg := c.beside
	if leg == nil || c.cached != nil {
		return
	}
	select {
	case <-leg.done:
	default:
		if !end {
			return
		}
		select {
		case <-leg.done:
		case <-time.After(settleTime):
			return
		}
	}
	if leg.err == nil {
		c.found(&leg.first)
		c.handed = leg.ended
		c.transferred()
		c.asides.prefilled(c.handed)
	}
}

// abandoned counts how a hand-off failed, and returns why.
func (c *carry) abandoned(ctx context.Context, err error, failed *atomic.Int64) error {
	if ctx.Err() != nil || failed == nil {
		failed = &c.p.count.handoffLeft
	}
	failed.Add(1)
	return err
}

// resend finds another decode worker for what is computed, if the last one was never
// reached: what it was to fetch is still there.
func (c *carry) resend(kind engine.ErrorKind) bool {
	if c.hand == nil || kind != engine.CannotConnect && kind != engine.ConnectionTimeout {
		c.drop()
		return false
	}
	c.handed = time.Time{} // it would measure the attempt that has failed as well
	plan := c.booking.plan.Elsewhere(slices.Clone(c.exclude))
	c.booking.release()
	c.booking = share(1)
	c.booking.computing.Store(0)
	c.booking.place(&c.p.flow, func() (*router.Plan, *router.Booking, error) { return plan, nil, nil }, nil) //nolint:errcheck // there is none
	c.count()
	c.p.count.handoffResent.Add(1)
	return true
}

// stays says whether the worker that has answered so far can go on alone: it has
// everything that it needs, but some do not take what another one has not computed.
func (c *carry) stays() bool {
	card := c.here.Worker().Card()
	return card == nil || !slices.Contains(card.Needs, engine.Prefill)
}

// HandoffCounts are what became of hand-offs since the start.
type HandoffCounts struct {
	Done          int64 // the second leg has begun to answer
	Answered      int64 // the first leg's one token was the whole answer
	PrefillFailed int64
	DecodeFailed  int64 // before it had begun
	Abandoned     int64 // by the client
	Resent        int64 // to another decode worker, the first was never reached
	Whole         int64 // requests done by one worker since no prefill worker could take them
}

// Handoffs returns what became of hand-offs so far.
func (p *Pipeline) Handoffs() HandoffCounts {
	c := &p.count
	return HandoffCounts{
		Done: c.handedOver.Load(), Answered: c.prefillAnswered.Load(), PrefillFailed: c.prefillFailed.Load(),
		DecodeFailed: c.decodeFailed.Load(), Abandoned: c.handoffLeft.Load(), Resent: c.handoffResent.Load(), Whole: c.wholeInstead.Load(),
	}
}
