package sglang

import (
	"context"
	"iter"
	"slices"
	"sync/atomic"

	"github.com/go-json-experiment/json"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/kv"
)

type (
	deltas = iter.Seq2[engine.Delta, error]
	events = iter.Seq2[kv.Batch, error]
)

// Generate runs one request. It is submitted when the loop begins; leaving the
// loop closes the connection and tells the server to forget the request.
func (e *Engine) Generate(ctx context.Context, r *engine.Request) deltas {
	var ranged atomic.Bool
	return func(yield func(engine.Delta, error) bool) {
		if ranged.Swap(true) {
			yield(engine.Delta{}, engine.Errorf(engine.Internal, "sglang: the sequence of request %s was ranged over twice", r.ID))
			return
		}
		ctx, done := e.within(ctx)
		defer done()
		if err := e.answer(ctx, r, yield); err != nil {
			err = engine.CauseOf(ctx, err)
			if engine.KindOf(err).Inhibits() {
				e.doubt.Store(true)
			}
			yield(engine.Delta{}, err)
		}
	}
}

// answer yields the deltas of one answer. It returns nil once the consumer has
// the terminal one or has left.
func (e *Engine) answer(ctx context.Context, r *engine.Request, yield func(engine.Delta, error) bool) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if facts := e.facts.Load(); r.Epoch != 0 && facts != nil && facts.epoch != r.Epoch {
		return engine.Errorf(engine.Stale, "sglang: the server was started anew")
	}
	body, err := e.body(r)
	if err != nil {
		return err
	}
	e.outlive(ctx, r.ID)
	s := stream{r: r}
	complete := false // the server has nothing more to do
	defer func() {
		if !complete {
			e.abort(r.ID)
		}
	}()
	for data, err := range e.http.Stream(ctx, "/generate", trace(r), body) {
		if err == nil && ctx.Err() != nil {
			err = ctx.Err()
		}
		if err != nil {
			complete = ctx.Err() == nil
			return err
		}
		c, err := decode(data)
		if err != nil {
			return err
		}
		d, err := s.take(c)
		if err != nil {
			return err
		}
		complete = c.Meta.Finish != nil
		if !s.news(&d) {
			continue
		}
		if !yield(d, nil) || d.Finish != engine.Running {
			return nil
		}
	}
	complete = true
	return engine.Errorf(engine.StreamIncomplete, "sglang: the stream ended after %d tokens without a reason", s.ids.sent)
}

func trace(r *engine.Request) map[string][]string {
	h := map[string][]string{}
	if r.Trace.Parent != "" {
		h["Traceparent"] = []string{r.Trace.Parent}
	}
	if r.Trace.State != "" {
		h["Tracestate"] = []string{r.Trace.State}
	}
	return h
}

// stream is an answer as it comes in.
type stream struct {
	r      *engine.Request
	ids    follower
	prompt bool // the prompt's log probabilities were given
	told   bool // something was yielded
}

// news says whether a delta is worth yielding.
func (s *stream) news(d *engine.Delta) bool {
	is := len(d.TokenIDs) > 0 || d.PromptLogprobs != nil || d.Finish != engine.Running
	s.told = s.told || is
	return is
}

// take turns a chunk into what is new in it.
func (s *stream) take(c *chunk) (d engine.Delta, err error) {
	m := c.Meta
	if m.Finish != nil && m.Finish.Type == "abort" {
		return d, m.Finish.aborted()
	}
	s.untrim(c)
	total := *m.Completion
	before := s.ids.sent
	n, err := s.ids.next(len(c.IDs), total)
	if err != nil {
		return d, err
	}
	d.TokenIDs = c.IDs[len(c.IDs)-n:]
	if err := s.addLogprobs(&d, m); err != nil {
		return engine.Delta{}, err
	}
	if m.Finish != nil {
		if err := s.end(&d, m.Finish); err != nil {
			return engine.Delta{}, err
		}
	}
	s.cut(&d, before, &total)
	if d.Finish != engine.Running || !s.told {
		d.Usage = &engine.Usage{Prompt: len(s.r.TokenIDs), Output: total, Reasoning: m.Reasoning}
		if m.Cached != nil {
			cached := min(max(0, *m.Cached), len(s.r.TokenIDs))
			d.Usage.Cached = &cached
		}
	}
	return d, nil
}

// untrim puts the id back that ended the answer, where the server counts it and
// does not show it.
func (s *stream) untrim(c *chunk) {
	f := c.Meta.Finish
	if f == nil || f.Type != "stop" {
		return
	}
	ids, _ := f.matched()
	n, total := len(c.IDs), *c.Meta.Completion
	if len(ids) == 1 && (n+1 == total && n >= s.ids.sent || s.ids.sent+n+1 == total) {
		c.IDs = append(c.IDs, ids[0])
	}
}

func (s *stream) addLogprobs(d *engine.Delta, m *meta) error {
	if k := s.r.PromptLogprobs; k != nil && !s.prompt && len(m.InputLogprobs) > 0 {
		if len(m.InputLogprobs) != len(s.r.TokenIDs) {
			return engine.Errorf(engine.Internal, "sglang: log probabilities for %d of the %d ids of the prompt", len(m.InputLogprobs), len(s.r.TokenIDs))
		}
		s.prompt = true
		d.PromptLogprobs = promptLogprobs(m, *k)
	}
	n := len(d.TokenIDs)
	if s.r.Logprobs == nil || n == 0 {
		return nil
	}
	// These may be all so far even where the ids are not.
	entries, ok := last(m.OutputLogprobs, n)
	if !ok {
		return engine.Errorf(engine.Internal, "sglang: %d log probabilities for %d ids", len(m.OutputLogprobs), n)
	}
	tops, _ := last(m.OutputTop, n)
	d.Logprobs = logprobs(entries, tops, *s.r.Logprobs)
	return nil
}

// end says why the answer ended.
func (s *stream) end(d *engine.Delta, f *finish) error {
	switch f.Type {
	case "length":
		d.Finish = engine.FinishLength
	case "stop":
		ids, text := f.matched()
		listed := func(id uint32) bool { return slices.Contains(s.r.Stop.IDs, id) }
		switch {
		case text != "":
			d.Finish, d.MatchedText = engine.FinishStop, text
		case slices.ContainsFunc(ids, listed):
			d.Finish, d.MatchedIDs = engine.FinishStop, ids
		default:
			d.Finish = engine.FinishEOS
			s.hide(d, ids)
		}
	default:
		word, err := json.Marshal(f.Type)
		if err != nil {
			return engine.Errorf(engine.Internal, "sglang: a reason to finish that is no text")
		}
		d.Finish, d.EngineData = engine.FinishStop, word
	}
	return nil
}

// hide takes the end of sequence off the ids. It stays in the count.
func (s *stream) hide(d *engine.Delta, matched []uint32) {
	n := len(d.TokenIDs)
	if n == 0 {
		return
	}
	if id := d.TokenIDs[n-1]; !slices.Contains(matched, id) && !slices.Contains(s.r.Stop.Hidden, id) {
		return
	}
	d.TokenIDs = d.TokenIDs[:n-1]
	if d.Logprobs != nil {
		d.Logprobs = d.Logprobs[:n-1]
	}
}

// cut ends an answer at a listed stop id that the server went past: told to
// ignore the end of a sequence, it ignores listed ids as well.
func (s *stream) cut(d *engine.Delta, before int, total *int) {
	for i, id := range d.TokenIDs {
		if before+i < s.r.Stop.MinTokens || !slices.Contains(s.r.Stop.IDs, id) {
			continue
		}
		d.TokenIDs = d.TokenIDs[:i+1]
		if d.Logprobs != nil {
			d.Logprobs = d.Logprobs[:i+1]
		}
		d.Finish, d.MatchedIDs, d.MatchedText, d.EngineData = engine.FinishStop, []uint32{id}, "", nil
		*total = before + i + 1
		return
	}
}
