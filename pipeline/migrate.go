package pipeline

import (
	"context"
	"iter"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/fleet"
	"github.com/dynago/dynago/router"
)

// shared is a booking that several choices use. It is made by the first of them,
// and released when the last has left.
type shared struct {
	once    sync.Once
	booking *router.Booking // nil until it is made
	err     error           // why there is none
	users   atomic.Int32
}

func share(users int) *shared {
	s := new(shared)
	s.users.Store(int32(users))
	return s
}

// place makes the booking if that was not tried yet, and says what came of it.
func (s *shared) place(book func() (*router.Booking, error)) error {
	s.once.Do(func() {
		s.err = engine.Errorf(engine.Internal, "the request was not placed") // if book panics
		s.booking, s.err = book()
	})
	return s.err
}

func (s *shared) release() {
	if s.users.Add(-1) == 0 && s.booking != nil {
		s.booking.Release()
	}
}

// deltas runs attempt after attempt and yields one continuous stream of tokens:
// if a worker fails, the next one carries on behind what was delivered, and the
// stages above notice nothing but a pause.
func (j *job) deltas(ctx context.Context) iter.Seq2[engine.Delta, error] {
	return func(yield func(engine.Delta, error) bool) {
		c := &carry{job: j, budget: j.budget}
		for {
			if len(c.delivered) >= j.prompt.Stop.MaxTokens {
				yield(c.full(), nil)
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
				continue
			}
			if err = c.next(ctx, err); err != nil {
				yield(engine.Delta{}, err)
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
	budget    *budget  // for thinking; nil if there is none, or it is spent
	cuts      int      // attempts that ended when it was
	pace      pace     // of this attempt
	seen      *sighting
}

// attempt runs the request on the booked worker. It returns nil when the answer
// is complete, or nobody wants the rest of it, and otherwise what ended it.
//
// Most of a stream's life is spent below this loop, so what is needed to begin
// has a function, and a place on the stack, of its own.
func (c *carry) attempt(ctx context.Context, yield func(engine.Delta, error) bool) error {
	worker := c.booking.booking.Worker()
	request, err := c.begin(worker)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	lost := worker.Lost()
	defer context.AfterFunc(lost, func() { cancel(context.Cause(lost)) })()
	defer c.end()
	watchdog := &watchdog{limits: c.p.Limits, cancel: cancel}
	deltas := watch(watchdog, worker.Engine().Generate(ctx, request))
	for d, err := range c.budget.split(deltas) {
		if err != nil {
			return engine.CauseOf(ctx, err)
		}
		c.note(&d)
		if d.Finish != engine.Running {
			c.booking.booking.Completed()
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

// begin makes the request of an attempt.
func (c *carry) begin(worker *fleet.Worker) (*engine.Request, error) {
	c.attempts++
	c.pace = pace{}
	if c.alone {
		c.request.Notes.Attempts = c.attempts
	}
	status := worker.Status()
	if status.Card == nil {
		return nil, &engine.Error{Kind: engine.CannotConnect, Worker: worker.ID(), Message: "the worker has left"}
	}
	if err := unsupported(c.request, status.Card); err != nil {
		return nil, err
	}
	request := c.engineRequest(c.attempts, c.delivered, status.Card)
	request.Epoch = status.Epoch
	if c.door == engine.InputText {
		var err error
		if request.Prompt, err = c.model.Text(request.TokenIDs); err != nil {
			return nil, err
		}
		request.Stop.Strings = c.request.Chat.Sampling.Stop
	}
	c.seen = c.p.seen.of(c.booking.booking.Decision().Target)
	c.pace = pace{sent: time.Now(), input: len(c.routed(c.delivered))}
	return request, nil
}

// note books an item before it goes up.
func (c *carry) note(d *engine.Delta) {
	booking := c.booking.booking
	if c.pace.item(len(d.TokenIDs), c.seen) {
		booking.Prefilled()
	}
	booking.Output(len(d.TokenIDs))
	if d.Usage != nil && d.Usage.Cached != nil {
		booking.Cached(*d.Usage.Cached)
	}
	c.remember(d)
}

func (c *carry) end() { c.pace.end(c.seen) }

// remember keeps what a later attempt needs, and makes a delta of a later
// attempt look like one of the first.
func (c *carry) remember(d *engine.Delta) {
	if c.p.MigrationLimit > 0 || c.budget != nil {
		c.delivered = append(c.delivered, d.TokenIDs...)
	}
	if d.Usage == nil {
		return
	}
	// Behind a cut the same worker finds all that it has just computed.
	if c.cached == nil && c.cuts == 0 && d.Usage.Cached != nil {
		c.cached = d.Usage.Cached
	}
	if c.attempts > 1 {
		u := *d.Usage
		u.Output += u.Prompt - min(u.Prompt, len(c.prompt.IDs))
		u.Prompt, u.Cached = len(c.prompt.IDs), c.cached
		d.Usage = &u
	}
}

// full is the end of an answer whose worker failed behind its last token.
func (c *carry) full() engine.Delta {
	return engine.Delta{Finish: engine.FinishLength, Usage: &engine.Usage{
		Prompt: len(c.prompt.IDs), Cached: c.cached, Output: len(c.delivered),
	}}
}

// next books another worker after a failure, or returns the error that the
// client is to see.
func (c *carry) next(ctx context.Context, failure error) error {
	kind := engine.KindOf(failure)
	worker := c.booking.booking.Worker()
	if ctx.Err() == nil {
		worker.Inhibit(time.Now(), kind) // heeds only what says something about the worker
		if kind.Retry() != engine.RetryNever {
			c.booking.booking.Failed()
		}
	}
	ongoing := len(c.delivered) > 0
	if ctx.Err() != nil || !c.movable(kind, ongoing) {
		return failure
	}
	ids := c.routed(c.delivered)
	if limit := c.p.MigrationMaxTokens; limit > 0 && len(ids) > limit {
		c.p.count.tooLong.Add(1)
		return failure
	}
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
	c.p.Logger.Info("request moves to another worker", "request", c.request.ID, "from", worker.Name(), "kind", string(kind), "delivered", len(c.delivered))

	// Nothing runs there any more, and who waits for another worker may wait long.
	c.booking.release()
	c.booking = share(1)
	err := c.booking.place(func() (*router.Booking, error) { return c.route(ctx, ids, 1, c.exclude) })
	if err != nil {
		if engine.KindOf(err) == engine.Unavailable && kind == engine.WorkerOverloaded {
			return engine.Errorf(engine.ResourceExhausted, "all eligible workers rejected the request as overloaded")
		}
		if engine.KindOf(err) == engine.Unavailable && (kind == engine.Unsupported || kind == engine.NotFound) {
			return failure // it says what is wrong, and nobody is there to say otherwise
		}
		return err
	}
	if c.alone {
		c.request.Notes.booked(c.booking.booking)
	}
	return nil
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
	case c.counted() > c.p.MigrationLimit, pinned(c.request):
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
	// A constraint's state cannot be carried over, nor can the position of one
	// choice among several.
	return !ongoing || c.held.format == nil && c.request.Chat.Sampling.Choices() == 1
}

func attemptID(id string, choice, attempt int) string {
	if choice > 0 {
		id += "." + strconv.Itoa(choice)
	}
	return id + "-" + strconv.Itoa(attempt)
}
