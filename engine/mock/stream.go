package mock

import (
	"context"
	"iter"
	"sync/atomic"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/kvcache"
)

// stream is one request between its consumer and its rank.
type stream struct {
	e       *Engine
	r       *engine.Request
	d       digest // for log probabilities
	rank    *rank
	box     mailbox
	handoff string // under which the prompt is kept for another engine; or ""
	keeps   bool   // it is
	fault   error  // how a script breaks it off; nil: with the whole engine
	answer  Answer // of a model that computes; or nil
	core    *Core  // that has it; a restart makes another
	id      ID
	epoch   uint64 // in which it runs

	// told says that the consumer was woken since the last post. It belongs to
	// the goroutine that drives the rank.
	told bool

	given int   // tokens yielded
	begun bool  // something was yielded
	spare []int // for the mailbox
}

// Generate runs one request. It is submitted when the loop begins, and removed
// when the loop ends.
func (e *Engine) Generate(ctx context.Context, r *engine.Request) iter.Seq2[engine.Delta, error] {
	var ranged atomic.Bool
	return func(yield func(engine.Delta, error) bool) {
		if ranged.Swap(true) {
			fail(yield, engine.Errorf(engine.Internal, "%s: the sequence of request %s was ranged over twice", e.cfg.Kind, r.ID))
			return
		}
		if ctx.Err() != nil {
			fail(yield, engine.CauseOf(ctx, ctx.Err()))
			return
		}
		s, err := e.submit(ctx, r)
		if err != nil {
			fail(yield, err)
			return
		}
		defer s.leave()
		if err := s.serve(ctx, yield); err != nil {
			s.leave()
			fail(yield, err)
		}
	}
}

// fail yields an error. A delta takes room on the stack of whoever yields it, which
// here would be held while the stream waits.
//
//go:noinline
func fail(yield func(engine.Delta, error) bool, err error) { yield(engine.Delta{}, err) }

// leave ends the stream, but for a prompt that is kept for another engine.
func (s *stream) leave() {
	if s.keeps {
		return
	}
	s.rank.leave(s)
	s.e.disappoint(s)
}

// submit checks a request and gives it to its rank.
func (e *Engine) submit(ctx context.Context, r *engine.Request) (*stream, error) {
	if err := e.refusal(); err != nil {
		return nil, err
	}
	if err := e.check(r); err != nil {
		return nil, err
	}
	s := &stream{e: e, r: r, d: e.origin(r), rank: e.rankFor(r), told: true}
	s.box.wake = make(chan struct{}, 1)
	q := Request{
		Prompt:    r.TokenIDs,
		Namespace: r.KV.Namespace,
		Session:   kvcache.SessionOf(kv.SessionKey{Model: e.cfg.Model, Salt: r.KV.Namespace.Salt, ID: r.KV.Session.ID}),
		MaxTokens: r.Stop.MaxTokens,
		MinTokens: r.Stop.MinTokens,
		Stop:      r.Stop.IDs,
		Hidden:    r.Stop.Hidden,
		Owner:     s,

		Directives: &r.KV,
	}
	if r.Priority != nil {
		q.Priority = *r.Priority
	}
	if err := e.plan(s, &q); err != nil {
		return nil, err
	}
	if err := e.leg(ctx, s, &q); err != nil {
		return nil, err
	}
	s.rank.look(ctx, q.Prompt, q.Namespace)
	e.expireKept()
	if err := s.rank.submit(s, q); err != nil {
		e.disappoint(s)
		return nil, err
	}
	return s, nil
}

// check refuses what the card does not promise.
func (e *Engine) check(r *engine.Request) error {
	if e.cfg.Computer == nil {
		if err := e.checkForm(r); err != nil {
			return err
		}
	}
	if len(r.Stop.Strings) > 0 {
		return engine.Errorf(engine.Unsupported, "stop strings are not available on the %s engine", e.cfg.Kind)
	}
	for _, asked := range []struct {
		field string
		k     *int
	}{{"logprobs", r.Logprobs}, {"prompt_logprobs", r.PromptLogprobs}} {
		if asked.k != nil && (*asked.k < 0 || *asked.k > maxLogprobs) {
			e := engine.Errorf(engine.InvalidArgument, "%s must be between 0 and %d, got %d", asked.field, maxLogprobs, *asked.k)
			e.Param = asked.field
			return e
		}
	}
	if n, most := len(r.TokenIDs)+r.Stop.MaxTokens, int(e.cfg.ContextLength); most > 0 && n > most {
		e := engine.Errorf(engine.InvalidArgument, "%d prompt tokens and up to %d of output exceed the model's context length of %d", len(r.TokenIDs), r.Stop.MaxTokens, most)
		e.Code = "context_length_exceeded"
		return e
	}
	if r.DPRank != nil && int(*r.DPRank) >= len(e.rank) {
		return engine.Errorf(engine.InvalidArgument, "data-parallel rank %d, want 0 to %d", *r.DPRank, len(e.rank)-1)
	}
	if n := e.cfg.VocabSize; n > 0 {
		for _, id := range r.TokenIDs {
			if int(id) >= n {
				return engine.Errorf(engine.InvalidArgument, "token id %d in the prompt, want 0 to %d", id, n-1)
			}
		}
	}
	return nil
}

// serve yields deltas until the terminal one, or returns the error that ends
// the stream. It returns nil, too, when the consumer leaves. Waiting and
// delivering are apart, so that a stream that waits has a small stack.
func (s *stream) serve(ctx context.Context, yield func(engine.Delta, error) bool) error {
	for {
		select {
		case <-s.box.wake:
		case <-ctx.Done():
			return engine.CauseOf(ctx, ctx.Err())
		}
		if ended, err := s.deliver(ctx, yield); ended {
			return err
		}
	}
}

// deliver yields what is in the mailbox, and says whether that was the end.
func (s *stream) deliver(ctx context.Context, yield func(engine.Delta, error) bool) (ended bool, err error) {
	ids, ends, e := s.box.take(s.spare)
	if e.done && e.err == nil && len(ends) == 0 {
		ends = append(ends, 0) // a terminal delta without ids
	}
	from := 0
	for i, to := range ends {
		if ctx.Err() != nil {
			return true, engine.CauseOf(ctx, ctx.Err())
		}
		d := engine.Delta{TokenIDs: ids[from:to:to]}
		terminal := e.done && e.err == nil && i == len(ends)-1
		given := s.given
		s.given += to - from
		if !s.begun || terminal {
			s.account(&d, e, terminal)
		}
		s.addLogprobs(&d, given)
		s.begun, from = true, to
		if !yield(d, nil) || terminal {
			return true, nil
		}
	}
	s.spare = ends
	return e.done && e.err != nil, e.err
}

// account adds what the first and the last delta tell besides their ids.
func (s *stream) account(d *engine.Delta, e end, terminal bool) {
	output := s.given
	if !s.begun && s.r.PromptLogprobs != nil {
		d.PromptLogprobs = s.promptLogprobs()
	}
	if terminal {
		output = e.generated
		if d.Finish = e.finish; e.finish == engine.FinishStop {
			d.MatchedIDs = []uint32{e.matched}
		}
		d.Handoff = s.handOver(e.finish)
		if len(s.r.KV.Pins) > 0 {
			d.Pinned = &engine.PinResult{Requested: e.toPin, Pinned: e.pinned}
			if e.pinned > 0 {
				d.Pinned.Deadline = s.pinnedUntil()
			}
		}
	}
	cached := e.cached
	d.Usage = &engine.Usage{Prompt: len(s.r.TokenIDs), Cached: &cached, Output: output}
}

// pinnedUntil returns when the last of the request's pins ends.
func (s *stream) pinnedUntil() time.Time {
	var ttl time.Duration
	for _, p := range s.r.KV.Pins {
		ttl = max(ttl, p.TTL)
	}
	return time.Now().Add(ttl)
}

// addLogprobs tells how likely the tokens of a delta were, before which some were given.
func (s *stream) addLogprobs(d *engine.Delta, given int) {
	if s.r.Logprobs == nil || len(d.TokenIDs) == 0 {
		return
	}
	d.Logprobs = make([]engine.Logprob, len(d.TokenIDs))
	for i, id := range d.TokenIDs {
		if s.answer != nil {
			d.Logprobs[i] = s.answer.Logprob(given + i)
			continue
		}
		d.Logprobs[i] = s.e.logprob(s.d, len(s.r.TokenIDs)+given+i, id, *s.r.Logprobs)
	}
}

func (s *stream) promptLogprobs() []engine.Logprob {
	if s.answer != nil {
		return s.answer.PromptLogprobs()
	}
	return s.e.promptLogprobs(s.d, s.r.TokenIDs, *s.r.PromptLogprobs)
}
