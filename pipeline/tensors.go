package pipeline

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"math/rand/v2"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/fleet"
	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/nvext"
	"github.com/dynago/dynago/router"
)

// Tensors mean nothing here: a call goes to a worker as it came, and what the worker
// says goes back. What is left of a request's way is to find the worker, to notice
// when it dies, and to let nothing through that contradicts itself.

// Inference is one call of a model that takes tensors.
type Inference struct {
	ID string // UUID by which the call is known here; workers are told the client's own
	// Tensors is what the worker is sent, under the model's name. It must not change
	// until the call has ended.
	Tensors *engine.TensorRequest
	Ext     *nvext.Ext // where the call is to run, and how soon; nil: nothing is said
	// Class is the policy class or family that the client asks for; empty is the
	// default one.
	Class    string
	Deadline time.Time // the client's own; zero = none
	// Notes is filled on the way and may be read once the first response or the error
	// has come. It is nil if nobody wants to know.
	Notes *Notes
}

// CodeBadTensors is the code of errors of kind internal about responses whose tensors
// contradict themselves. The worker is at fault, and the client's call was good.
const CodeBadTensors = "malformed_response"

// Infer runs a call on a worker of its model and yields its responses as they come: any
// number of them, and then nothing more or one error. Their tensors are consistent,
// and share memory with what the worker has sent.
//
// A worker that fails before its first response is replaced by another one, up to
// [Config.MigrationLimit] times, unless the client has chosen it. A response cannot
// be carried on, so what fails behind it is an error.
//
// The sequence is for one loop. Leaving it, or cancelling ctx, ends the call on the
// worker.
func (p *Pipeline) Infer(ctx context.Context, call *Inference) iter.Seq2[*engine.TensorResponse, error] {
	return func(yield func(*engine.TensorResponse, error) bool) {
		if !call.Deadline.IsZero() {
			var cancel context.CancelFunc
			ctx, cancel = context.WithDeadlineCause(ctx, call.Deadline, engine.ErrDeadline)
			defer cancel()
		}
		for i := range call.Tensors.Inputs {
			if err := call.Tensors.Inputs[i].Check(); err != nil {
				yield(nil, err)
				return
			}
		}
		c := &inferring{Inference: call, p: p, yield: yield}
		if c.Notes == nil {
			c.Notes = new(Notes)
		}
		for {
			err := c.attempt(ctx)
			if err == nil {
				return
			}
			if err = c.next(ctx, err); err != nil {
				if ctx.Err() != nil {
					c.moved(MoveCancelled)
				}
				c.moved(MoveFailure)
				yield(nil, err)
				return
			}
		}
	}
}

// inferring is a call on its way from one worker to the next. All that the way needs is
// in it: calls may be small, and then what they leave behind is most of their cost.
type inferring struct {
	*Inference
	p        *Pipeline
	yield    func(*engine.TensorResponse, error) bool
	attempts int
	begun    bool // a response has gone out
	stale    bool // a worker had begun a new life, once

	failure error    // why it left the last worker
	exclude []uint64 // workers that failed
	lost    time.Time

	// Of this attempt.
	booking *router.Booking
	silence *watchdog
	left    bool  // nobody wants the rest
	err     error // what has ended it

	query  router.Query
	hashes router.Hashes
	block  [1]kv.SeqHash
}

// attempt runs the call on one worker. It returns nil when the worker has said all, or
// nobody wants to hear the rest, and otherwise what ended it.
func (c *inferring) attempt(ctx context.Context) error {
	booking, err := c.p.Router.Route(ctx, c.ask())
	if err != nil {
		return unplaced{engine.CauseOf(ctx, err)}
	}
	defer booking.Release()
	c.booking = booking
	c.attempts++
	c.Notes.Model, c.Notes.Attempts = booking.Decision().Model, c.attempts
	c.Notes.booked(booking)
	switch err = c.run(ctx); {
	case err == nil || ctx.Err() != nil:
		return err
	case engine.KindOf(err).Retry() != engine.RetryNever:
		booking.Failed()
	}
	booking.Worker().Inhibit(time.Now(), engine.KindOf(err)) // heeds only what says something about the worker
	c.failure = err
	return err
}

// run runs the call where it is booked.
func (c *inferring) run(ctx context.Context) error {
	worker := c.booking.Worker()
	infer, ok := engine.As[engine.Tensorer](worker.Engine())
	if card := worker.Card(); !ok || card == nil || !card.Accept(engine.InputTensor) {
		return &engine.Error{Kind: engine.Unsupported, Worker: worker.ID(), Message: "the worker takes no tensors"}
	}
	c.err = nil
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// What is told of the worker's end may come when the next attempt runs already.
	lost := worker.Lost()
	defer context.AfterFunc(lost, func() { cancel(context.Cause(lost)) })()
	c.silence = &watchdog{limits: c.p.Limits, cancel: cancel}
	defer c.silence.stop()
	c.silence.await(c.p.Limits.FirstItem, engine.ErrFirstItem)
	infer.Infer(ctx, c.Tensors)(c.receive)
	switch {
	case c.err != nil:
		return engine.CauseOf(ctx, c.err)
	case c.left:
		return nil
	case ctx.Err() != nil:
		return engine.CauseOf(ctx, ctx.Err())
	}
	c.moved(MoveSuccess)
	c.booking.Completed()
	return nil
}

// receive hands on what the worker says, and says whether it may go on.
func (c *inferring) receive(r *engine.TensorResponse, err error) bool {
	c.silence.item()
	if err == nil {
		err = checkResponse(r, c.booking.Worker())
	}
	if err != nil {
		c.err = err
		return false
	}
	if !c.begun {
		c.begun = true
		c.booking.Prefilled()
		c.moved(MoveSuccess)
	}
	if c.left = !c.yield(r, nil); c.left {
		return false
	}
	c.silence.await(c.p.Limits.Inactivity, engine.ErrInactive)
	return true
}

// ask returns what the router must know of the call. It counts as a prompt of one
// token, in a block that nobody else has, so that calls are counted and not weighed:
// what one costs its worker is not seen from how large it is.
func (c *inferring) ask() *router.Query {
	c.block[0] = kv.SeqHash(rand.Uint64())
	c.hashes = router.Hashes{Seq: c.block[:], Tokens: 1}
	c.query = router.Query{ID: c.ID, Model: c.Tensors.Model, Class: c.Class, Exclude: c.exclude, Hashes: &c.hashes}
	c.query.PinWorker, c.query.PinRank = c.pin()
	steer(&c.query, c.Ext)
	return &c.query
}

// pin returns the worker that the client has chosen, and its rank; 0: none.
func (c *inferring) pin() (worker uint64, rank *uint32) {
	legs := legsOf(c.Ext)
	return cmp.Or(legs.Backend, legs.Decode), legs.Rank
}

// next says whether another worker may be tried after a failure, or returns the error
// that the client is to see.
func (c *inferring) next(ctx context.Context, failure error) error {
	if u, ok := failure.(unplaced); ok {
		return c.nobody(u.error)
	}
	kind := engine.KindOf(failure)
	if ctx.Err() != nil || !c.movable(kind) {
		return failure
	}
	if kind == engine.Stale && !c.stale {
		// The worker began a new life between the decision and the call. That says
		// nothing against it, and costs no attempt.
		c.stale = true
	} else {
		c.exclude = append(c.exclude, c.Notes.Target.Worker)
	}
	if c.lost.IsZero() {
		c.lost = time.Now()
	}
	c.p.count.migratedNew.Add(1)
	c.p.Logger.Info("call moves to another worker", "request", c.ID, "from", c.Notes.Target.Worker, "kind", string(kind))
	return nil
}

// movable says whether another worker may do better.
func (c *inferring) movable(kind engine.ErrorKind) bool {
	limit := c.p.MigrationLimit
	if c.stale {
		limit++
	}
	pin, _ := c.pin()
	switch {
	case c.begun, kind.Retry() == engine.RetryNever:
		return false
	case kind == engine.Stale && !c.stale:
		return true
	}
	return pin == 0 && c.attempts <= limit
}

// nobody returns the error for a call that no worker takes. If some have failed it,
// what they said tells more than that nobody is left.
func (c *inferring) nobody(err error) error {
	switch {
	case c.failure == nil || engine.KindOf(err) != engine.Unavailable:
		return err
	case engine.KindOf(c.failure) == engine.WorkerOverloaded:
		return engine.Errorf(engine.ResourceExhausted, "all eligible workers rejected the request as overloaded")
	}
	return c.failure
}

// moved tells what came of a move, if one is going on.
func (c *inferring) moved(end MoveEnd) {
	if !c.lost.IsZero() {
		if c.p.Moved != nil {
			c.p.Moved(Move{Model: c.Notes.Model, Took: time.Since(c.lost), End: end})
		}
		c.lost = time.Time{}
	}
}

// checkResponse holds a response against itself. Nobody in front of us can do anything
// with one that is not consistent, and clients read beyond the end of it.
func checkResponse(r *engine.TensorResponse, from *fleet.Worker) error {
	for i := range r.Outputs {
		if err := r.Outputs[i].Check(); err != nil {
			bad := &engine.Error{Kind: engine.Internal, Worker: from.ID(), Code: CodeBadTensors, Message: err.Error(), FromEngine: true}
			if e, ok := errors.AsType[*engine.Error](err); ok {
				bad.Message = e.Message
			}
			return bad
		}
	}
	return nil
}
