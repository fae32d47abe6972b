package mock

import (
	"runtime"
	"time"

	"github.com/dynago/dynago/engine"
)

// Computer is a model that computes what the scheduler plans. With one an engine
// imitates nothing: its answers are the model's, and a pass takes as long as it takes.
type Computer interface {
	// Card completes what the engine tells of itself.
	Card(c *engine.Card)
	// Begin reads a request, and returns what will be its answer or the error that
	// refuses it. It is called from several goroutines at once.
	Begin(r *engine.Request) (Answer, error)
	// Compute computes one pass of a rank. The generators of the spans are what Begin
	// has returned; those that give are asked for one token afterwards. It is called
	// from the goroutine of the rank, so that ranks compute at the same time. Spans are
	// valid until it returns. An error ends all requests of the engine, and after it
	// nothing is cached any more.
	Compute(rank uint32, spans []Span) error
}

// Answer is the answer of a model to one request. It may be asked of tokens that were
// given while further ones are computed.
type Answer interface {
	Generator
	// Logprob tells how likely the token was that was given as number i, counted from 0.
	Logprob(i int) engine.Logprob
	// PromptLogprobs tells the same of the prompt, once the first token was given.
	PromptLogprobs() []engine.Logprob
}

// compute lets the model compute passes until nothing is left to do.
func (r *rank) compute() {
	var posted readers
	for {
		pass, next, ok := r.computePass()
		switch {
		case !ok:
			return
		case pass == nil:
			continue
		case pass.Idle:
			r.e.clock.Wait(max(0, next-r.e.clock.Now()), r.wake)
			r.e.expireKept()
			continue
		}
		for i := range pass.Outputs {
			r.deliver(&pass.Outputs[i], &posted)
		}
		posted.wake()
		r.e.loads.ring()
		runtime.Gosched() // where there is one processor, readers have waited for it
	}
}

// computePass makes one pass. While the model computes, the lock of the rank is free,
// and requests come and go. There is no result where the pass does not count, because
// the engine was restarted under it or had to be. If it is idle, next is when to try
// again; it is not ok if nothing will come by itself.
func (r *rank) computePass() (pass *Result, next time.Duration, ok bool) {
	r.passing.Lock()
	defer r.passing.Unlock()
	r.mu.Lock()
	core, epoch := r.core, r.journal.epoch
	pass = core.Plan(r.e.clock.Now())
	r.tell(pass.Events, pass.Stores)
	r.e.cfg.Shared.announce()
	if pass.Idle {
		next, ok = r.rest()
	}
	r.mu.Unlock()
	if pass.Idle {
		return pass, next, ok
	}
	if err := r.e.cfg.Computer.Compute(r.journal.rank, pass.Spans); err != nil {
		r.e.die(epoch, &engine.Error{Kind: engine.Internal, Op: "compute", Err: err, FromEngine: true})
		return nil, 0, true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.core != core {
		return nil, 0, true
	}
	pass = core.Finish(r.e.clock.Now())
	r.tell(pass.Events, pass.Stores)
	return pass, 0, true
}
