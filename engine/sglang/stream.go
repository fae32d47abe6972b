package sglang

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/httpapi"
	"github.com/dynago/dynago/kv"
)

type (
	deltas = iter.Seq2[engine.Delta, error]
	events = iter.Seq2[kv.Batch, error]
)

// Generate runs one request. It is submitted when the loop begins; leaving the
// loop closes the connection and tells the server to forget the request. A leg of
// a request that two servers share goes on without its client, for a while, as
// [engine.Outlive] says: the other leg relies on it.
func (e *Engine) Generate(ctx context.Context, r *engine.Request) deltas {
	var ranged atomic.Bool
	return func(yield func(engine.Delta, error) bool) {
		if ranged.Swap(true) {
			yield(engine.Delta{}, engine.Errorf(engine.Internal, "sglang: the sequence of request %s was ranged over twice", r.ID))
			return
		}
		if r.Disagg.Phase == engine.PhaseWhole {
			e.run(ctx, r)(yield)
			return
		}
		begun := e.hold()
		defer begun()
		for d, err := range engine.Outlive(ctx, e.linger(r.Disagg.Phase), func(ctx context.Context) deltas { return e.run(ctx, r) }) {
			begun()
			if !yield(d, err) {
				return
			}
		}
	}
}

// run is Generate within the life of the engine.
func (e *Engine) run(ctx context.Context, r *engine.Request) deltas {
	return func(yield func(engine.Delta, error) bool) {
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
	facts, parked := e.facts.Load(), e.parked.Load()
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case r.Epoch != 0 && facts != nil && facts.epoch != r.Epoch:
		return engine.Errorf(engine.Stale, "sglang: the server was started anew")
	case parked != nil:
		return engine.Errorf(engine.Unavailable, "sglang: %s", *parked)
	}
	defer e.inFlight.begin(r)()
	t, useless := e.sessions.join(r)
	if useless {
		e.closeLater(session{salt: r.KV.Namespace.Salt, id: r.KV.Session.ID})
	}
	s := stream{r: r, turn: t}
	err := e.attempt(ctx, &s, yield)
	if t != nil && !s.told && gone(err) {
		// The session has ended meanwhile, or is another one's: that is no failure of
		// its turn.
		e.sessions.drop(t)
		e.closeLater(t.session)
		s = stream{r: r}
		return e.explain(r, e.attempt(ctx, &s, yield))
	}
	if t != nil && e.sessions.leave(t, s.whole(), s.ended) {
		e.closeLater(t.session)
	}
	return e.explain(r, err)
}

// attempt sends the request and yields what comes.
func (e *Engine) attempt(ctx context.Context, s *stream, yield func(engine.Delta, error) bool) error {
	body, err := e.body(s.r, s.turn)
	if err != nil {
		return err
	}
	e.awaitAbort(ctx, s.r.ID)
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	complete, over := false, false // the server has nothing more to do; the consumer wants nothing more
	defer func() {
		if !complete {
			e.abort(s.r.ID)
		}
	}()
	for data, err := range e.http.Stream(ctx, "/generate", httpapi.Traced(s.r.Trace), body) {
		if over {
			continue // up to [DONE], behind which the connection can be used again
		}
		if err == nil && ctx.Err() != nil {
			err = ctx.Err()
		}
		if err != nil {
			complete = ctx.Err() == nil
			return err
		}
		c, err := decode(data)
		if err != nil {
			told, ok := errors.AsType[*engine.Error](err)
			complete = ok && told.FromEngine
			return err
		}
		complete = c.Meta.Finish != nil
		d, err := s.take(c)
		if err != nil {
			return err
		}
		s.ended = complete
		if !s.news(&d) {
			continue
		}
		if complete {
			e.compare(s.ids.form)
		}
		over = !yield(d, nil) || d.Finish != engine.Running
		switch {
		case over && complete:
			defer time.AfterFunc(httpapi.RestTimeout, stop).Stop()
		case over:
			return nil
		}
	}
	complete = true
	if over {
		return nil
	}
	return engine.Errorf(engine.StreamIncomplete, "sglang: the stream ended after %d tokens without a reason", s.ids.sent)
}

// gone says whether a request was refused because of its session.
func gone(err error) bool {
	told, ok := errors.AsType[*engine.Error](err)
	return ok && told.Kind == engine.InvalidArgument && told.FromEngine && strings.Contains(strings.ToLower(told.Message), "session")
}

// explain says what a failure is about where the server's own word does not: an
// adapter that it has not, which another one may have, or an address that a decode
// server did not reach.
func (e *Engine) explain(r *engine.Request, err error) error {
	told, ok := errors.AsType[*engine.Error](err)
	if !ok || !told.FromEngine {
		return err
	}
	switch lora := r.KV.Namespace.LoRA; {
	case told.Kind == engine.InvalidArgument && lora != "" && strings.Contains(strings.ToLower(told.Message), "lora"):
		told.Kind, told.Code = engine.NotFound, "model_not_found"
	case r.Disagg.Phase == engine.PhaseDecode:
		told.Op = "decode leg of a prompt from " + address(r.Disagg.Handoff)
	}
	return told
}

// compare tells an operator, once, of a server whose streams are not as it says.
func (e *Engine) compare(seen form) {
	f := e.facts.Load()
	if f == nil || f.form == undecided || seen == undecided || seen == f.form || e.odd.Swap(true) {
		return
	}
	e.log.Warn("sglang: the server's streams are not as its flags say: is there another server behind this address?",
		"url", e.http.URL(), "incremental", seen == pieces)
}

// stream is an answer as it comes in.
type stream struct {
	r      *engine.Request
	turn   *turn // nil: it belongs to no session
	ids    follower
	made   []uint32 // all of them, for the session that holds them
	prompt bool     // the prompt's log probabilities were given
	told   bool     // something was yielded
	ended  bool     // the server says so
}

// whole is what a session holds after the answer.
func (s *stream) whole() []uint32 { return slices.Concat(s.r.TokenIDs, s.made) }

// news says whether a delta is worth yielding.
func (s *stream) news(d *engine.Delta) bool {
	is := len(d.TokenIDs) > 0 || d.PromptLogprobs != nil || d.Finish != engine.Running
	s.told = s.told || is
	return is
}

// take turns a chunk into what is new in it.
func (s *stream) take(c *chunk) (d engine.Delta, err error) {
	m := c.Meta
	if m.aborts() {
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
	if s.turn != nil && s.turn.kind == streaming {
		s.made = append(s.made, d.TokenIDs...)
	}
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
	if d.Finish != engine.Running {
		d.EngineData = m.own(jsontext.Value(d.EngineData))
	}
	return d, nil
}

// own is what the server tells besides, in its own words: from which tier the
// cached tokens came, which experts have computed each token, and a reason to finish
// that is none of ours.
func (m *meta) own(word jsontext.Value) json.RawMessage {
	var out []byte
	for _, member := range []struct {
		name  string
		value jsontext.Value
	}{{"finish_reason", word}, {"cached_tokens_details", m.CachedDetails}, {"routed_experts", m.Experts}} {
		if len(member.value) == 0 || member.value.Kind() == 'n' {
			continue
		}
		out = append(out, ',', '"')
		out = append(out, member.name...)
		out = append(append(out, '"', ':'), member.value...)
	}
	if out == nil {
		return nil
	}
	out[0] = '{'
	return append(out, '}')
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
