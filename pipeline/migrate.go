package pipeline

import (
	"context"
	"iter"
	"strconv"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/fleet"
	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/router"
)

// deltas runs attempt after attempt and yields one continuous stream of tokens:
// if a worker fails, the next one carries on behind what was delivered, and the
// stages above notice nothing but a pause.
func (j *job) deltas(ctx context.Context) iter.Seq2[engine.Delta, error] {
	return func(yield func(engine.Delta, error) bool) {
		c := &carry{job: j, budget: j.budget}
		for {
			if len(c.delivered) >= j.prompt.Stop.MaxTokens {
				c.moved(MoveSuccess)
				c.yieldFull(yield)
				return
			}
			if c.budget.over() {
				if !c.cut(yield) {
					return
				}
				continue
			}
			err := c.attempt(ctx, yield)
			if err == nil {
				return
			}
			if err == errThoughtCut {
				if c.stays() {
					continue
				}
				err = c.again(ctx, c.ids(c.delivered))
			} else {
				err = c.next(ctx, err)
			}
			if err != nil {
				c.movedInVain(ctx, err)
				fail(yield, err)
				return
			}
		}
	}
}

// carry is what one attempt hands to the next.
type carry struct {
	*job
	attempts  int
	delivered []uint32 // tokens that went up already; kept only if a move is possible
	exclude   []uint64 // workers that failed
	stale     bool     // a worker had begun a new life, once
	cached    *int     // of the first attempt that told
	before    string   // names the span of the attempt, or leg, before this one
	pins      []kv.Pin // that the worker was sent
	budget    *budget  // for thinking; nil if there is none, or it is spent
	cuts      int      // attempts that ended when it was
	pace      pace     // of this attempt
	flight    flight   // of the leg that answers
	seen      *sighting

	// Of a request that moves: since when, or the zero time, and whether it had begun.
	lost        time.Time
	lostOngoing bool

	// Of a request in two legs.
	hand        *handoff // computed, and not fetched yet
	beside      *beside  // leg that runs at the same time
	fetchedHere bool     // the worker that answers has got the prompt
	// When the one leg had ended and the other one gave its first token; zero: not yet.
	handed, begun time.Time
}

// attempt runs the request on the booked worker. It returns nil when the answer
// is complete, or nobody wants the rest of it, and otherwise what ended it.
func (c *carry) attempt(ctx context.Context, yield func(engine.Delta, error) bool) error {
	switch {
	case c.hand != nil:
		return c.fetch(ctx, yield)
	case c.booking.plan.Prefill != nil && !c.fetchedHere:
		return c.legs(ctx, yield)
	}
	c.count()
	return c.run(ctx, engine.Disagg{}, yield)
}

// run runs the leg that answers, or the whole request.
//
// Most of a stream's life is spent below this loop, so what is needed to begin
// has a function, and a place on the stack, of its own.
func (c *carry) run(ctx context.Context, leg engine.Disagg, yield func(engine.Delta, error) bool) (err error) {
	worker := c.here.Worker()
	request, err := c.ask(c.here)
	if err != nil {
		return err
	}
	request.Disagg = leg
	sent := c.p.dispatched(c.job, request, c.here)
	defer func() { sent.end(err) }()
	c.flight = c.p.flow.send(phaseOf(leg))
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	lost := worker.Lost()
	defer context.AfterFunc(lost, func() { cancel(context.Cause(lost)) })()
	defer c.end()
	watchdog := &watchdog{limits: c.p.Limits, cancel: cancel}
	deltas := bounded(watch(watchdog, c.p.Spans.Generate(ctx, worker.Engine(), request)), request)
	for d, err := range c.budget.split(deltas) {
		if err != nil {
			return engine.CauseOf(ctx, err)
		}
		c.note(&d)
		if d.Finish != engine.Running {
			c.here.Completed()
			c.answered(&d)
		}
		if !yield(d, nil) || d.Finish != engine.Running {
			return nil
		}
		if c.budget.over() {
			return errThoughtCut
		}
	}
	return engine.CauseOf(ctx, errIncomplete)
}

var errIncomplete = engine.Errorf(engine.StreamIncomplete, "the stream ended without a finish")

// begin counts an attempt and makes its request.
func (c *carry) begin(*fleet.Worker) (*engine.Request, error) {
	c.count()
	return c.ask(c.here)
}

// count begins one more attempt.
func (c *carry) count() {
	c.attempts++
	c.pace = pace{}
	c.asides.attempt()
	if c.alone {
		c.request.Notes.Attempts = c.attempts - c.cuts
	}
}

func (c *carry) attemptID() string { return attemptID(c.request.ID, c.choice, c.attempts) }

// ask makes the request that goes to a booked worker.
func (c *carry) ask(b *router.Booking) (*engine.Request, error) {
	worker := b.Worker()
	status := worker.Status()
	if status.Card == nil {
		return nil, &engine.Error{Kind: engine.CannotConnect, Worker: worker.ID(), Message: "the worker has left"}
	}
	if err := unsupported(c.request, status.Card); err != nil {
		return nil, err
	}
	request := c.engineRequest(c.attempts, c.delivered, status.Card, b.Decision().Target)
	request.Epoch = status.Epoch
	c.trace(request)
	c.pins = c.pinsFor(worker, status.Card, time.Now())
	request.KV.Pins = c.pins
	if c.door == engine.InputText {
		var err error
		if request.Prompt, err = c.model.Text(request.TokenIDs); err != nil {
			return nil, err
		}
		request.Stop.Strings = c.request.Chat.Sampling.Stop
	}
	c.seen = c.p.seen.of(b.Decision().Target)
	c.pace = pace{sent: time.Now(), input: len(c.routed(c.delivered))}
	c.asides.asked()
	return request, nil
}

// note books an item before it goes up.
func (c *carry) note(d *engine.Delta) {
	first := c.pace.item(len(d.TokenIDs), c.seen)
	if first {
		c.flight.answered(c.pace.waited())
		c.here.Prefilled()
		c.moved(MoveSuccess)
	}
	c.here.Output(len(d.TokenIDs))
	if two := c.hand != nil || c.beside != nil || c.fetchedHere; two {
		if first {
			c.fetched()
		}
		c.settle(d.Finish != engine.Running)
		if first && d.Usage == nil {
			d.Usage = &engine.Usage{Prompt: len(c.prompt.IDs) + len(c.delivered), Output: len(d.TokenIDs)}
		}
		if d.Usage != nil {
			d.Usage.Cached = nil // it counts what came from the other worker
		}
	} else if d.Usage != nil && d.Usage.Cached != nil {
		c.here.Cached(*d.Usage.Cached)
	}
	c.remember(d)
}

func (c *carry) end() {
	c.pace.end(c.seen)
	c.flight.end()
}

// remember keeps what a later attempt needs, and makes a delta of a later
// attempt look like one of the first.
func (c *carry) remember(d *engine.Delta) {
	c.asides.delta(d, c.here.Decision().Target)
	if c.p.MigrationLimit > 0 || c.budget != nil {
		c.delivered = append(c.delivered, d.TokenIDs...)
	}
	if d.Usage == nil {
		return
	}
	// Behind a cut the same worker finds all that it has just computed.
	if c.cached == nil && c.cuts == 0 && d.Usage.Cached != nil {
		c.cached = new(min(*d.Usage.Cached, len(c.prompt.IDs)))
	}
	if c.attempts > 1 || c.booking.plan.Prefill != nil || c.fetchedHere {
		u := *d.Usage
		u.Output += u.Prompt - min(u.Prompt, len(c.prompt.IDs))
		u.Prompt, u.Cached = len(c.prompt.IDs), c.cached
		d.Usage = &u
	}
}

// yieldFull yields the end of an answer whose worker failed behind its last token.
//
//go:noinline // see fail
func (c *carry) yieldFull(yield func(engine.Delta, error) bool) {
	yield(engine.Delta{Finish: engine.FinishLength, Usage: &engine.Usage{
		Prompt: len(c.prompt.IDs), Cached: c.cached, Output: len(c.delivered),
	}}, nil)
}

// next books another worker after a failure, or returns the error that the
// client is to see.
func (c *carry) next(ctx context.Context, failure error) error {
	if u, ok := failure.(unplaced); ok {
		return u.error
	}
	kind := engine.KindOf(failure)
	worker := c.here.Worker()
	if ctx.Err() == nil {
		worker.Inhibit(time.Now(), kind) // heeds only what says something about the worker
		if kind.Retry() != engine.RetryNever {
			c.here.Failed()
		}
	}
	ongoing := len(c.delivered) > 0
	if ctx.Err() != nil || !c.movable(kind, ongoing) {
		c.drop()
		return failure
	}
	ids := c.routed(c.delivered)
	if limit := c.p.MigrationMaxTokens; limit > 0 && len(ids) > limit {
		c.drop()
		c.p.count.tooLong.Add(1)
		c.tellMove(Move{Ongoing: ongoing, End: MoveRefused})
		return failure
	}
	c.lose(ongoing)
	if ongoing {
		c.p.count.migratedOngoing.Add(1)
	} else {
		c.p.count.migratedNew.Add(1)
	}
	if kind == engine.Stale && !c.stale {
		// The worker began a new life between the decision and the request. That
		// says nothing against it, and costs no attempt.
		c.stale = true
	} else {
		c.exclude = append(c.exclude, worker.ID())
	}
	c.p.Logger.InfoContext(ctx, "request moves to another worker", "request", c.request.ID, "from", worker.Name(), "kind", string(kind), "delivered", len(c.delivered))

	if c.resend(kind) {
		return nil
	}
	err := c.again(ctx, ids)
	switch {
	case err == nil:
		return nil
	case engine.KindOf(err) == engine.Unavailable && kind == engine.WorkerOverloaded:
		return engine.Errorf(engine.ResourceExhausted, "all eligible workers rejected the request as overloaded")
	case engine.KindOf(err) == engine.Unavailable && (kind == engine.Unsupported || kind == engine.NotFound || kind == engine.Denied):
		return failure // it says what is wrong, and nobody is there to say otherwise
	}
	return err
}

// again finds another place for the request, behind what was delivered. Nothing runs
// where it was any more, and who waits for another worker may wait long.
func (c *carry) again(ctx context.Context, ids []uint32) error {
	c.leave()
	c.booking, c.computed, c.fetchedHere = share(1), false, false
	c.asides.legs(nil)
	err := c.booking.place(&c.p.flow, func() (*router.Plan, *router.Booking, error) {
		return c.route(ctx, ids, 1, c.exclude)
	}, func(first *router.Booking) error {
		degraded, err := c.enter(ctx, first)
		if c.alone {
			c.request.Notes.Degraded = degraded
			c.onTerms(first)
			c.hold(first)
		}
		return err
	})
	if err != nil {
		return err
	}
	c.here = c.booking.first
	if c.alone {
		c.request.placed(c.booking.plan, c.booking.booking)
	}
	return nil
}

// noteAnswer notes where the leg that answers is. Only a request with one choice
// notes that it has moved.
func (c *carry) noteAnswer(b *router.Booking) {
	c.selected(b)
	switch {
	case c.alone:
		c.request.Notes.booked(b)
	case c.attempts == 1:
		c.noting.answer.Do(func() { c.request.Notes.booked(b) })
	}
}

// counted returns how many attempts count against the limit.
func (c *carry) counted() int {
	n := c.attempts - c.cuts
	if c.stale {
		n--
	}
	return n
}

// movable says whether a failure may be mended by another worker.
func (c *carry) movable(kind engine.ErrorKind, ongoing bool) bool {
	switch {
	case kind == engine.Stale && !c.stale && !c.pace.begun():
		return true
	case c.door != engine.InputTokens && c.pace.begun():
		return false // a text cannot be carried on
	case c.counted() > c.p.MigrationLimit, c.stuck():
		return false
	}
	if kind == engine.StreamIncomplete && c.settled() {
		return false
	}
	switch kind.Retry() {
	case engine.RetryNever:
		return false
	case engine.RetryEarly:
		// What earlier attempts delivered is safe: this one is to have no part.
		if c.pace.begun() {
			return false
		}
	}
	// The position of one choice among several cannot be carried over.
	return !ongoing || c.request.Chat.Sampling.Choices() == 1 && c.resumable()
}

func attemptID(id string, choice, attempt int) string {
	if choice > 0 {
		id += "." + strconv.Itoa(choice)
	}
	return id + "-" + strconv.Itoa(attempt)
}
