package trtllm

import (
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"slices"
	"strconv"
	"sync/atomic"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/httpapi"
)

const completions = "/v1/completions"

// Generate implements [engine.Engine]. Leaving the loop closes the connection,
// which the server notices within a second.
func (e *Engine) Generate(ctx context.Context, r *engine.Request) iter.Seq2[engine.Delta, error] {
	var begun atomic.Bool
	return func(yield func(engine.Delta, error) bool) {
		fail := func(err error) { yield(engine.Delta{}, err) }
		if begun.Swap(true) {
			fail(engine.Errorf(engine.Internal, "a second loop over one answer"))
			return
		}
		if e.closed.Load() {
			fail(engine.Errorf(engine.Unavailable, "the engine is closed"))
			return
		}
		if e.asleep.Load() {
			fail(engine.Errorf(engine.Unavailable, "the server sleeps"))
			return
		}
		if ctx.Err() != nil {
			fail(engine.CauseOf(ctx, ctx.Err()))
			return
		}
		if err := e.tooLong(r); err != nil {
			fail(err)
			return
		}
		body, err := e.encode(r)
		if err != nil {
			fail(err)
			return
		}
		a := answer{request: r}
		if r.Disagg.Phase == engine.PhasePrefill {
			e.prefill(ctx, &a, body, yield)
			return
		}
		for data, err := range e.client.Stream(ctx, completions, trace(r), body) {
			if err != nil {
				if a.finish != "" && ctx.Err() == nil {
					break // it is whole, only its tail is lost
				}
				fail(ofLeg(r, err))
				return
			}
			d, err := a.read(data)
			if err != nil {
				fail(engine.CauseOf(ctx, ofLeg(r, err)))
				return
			}
			if len(d.TokenIDs) > 0 && !yield(d, nil) {
				return
			}
		}
		switch {
		case ctx.Err() != nil:
			fail(engine.CauseOf(ctx, ctx.Err()))
		case a.finish == "":
			fail(engine.Errorf(engine.StreamIncomplete, "the stream ended without a reason"))
		default:
			yield(a.end(), nil)
		}
	}
}

// ofLeg turns a decode leg's refusal into a failure of the hand-off. What the
// client asked for, the prefill leg has accepted; what was computed there is gone,
// and may be computed anew.
func ofLeg(r *engine.Request, err error) error {
	if r.Disagg.Phase == engine.PhaseDecode && engine.KindOf(err) == engine.InvalidArgument {
		return &engine.Error{Kind: engine.Unavailable, Op: "decode leg", FromEngine: true, Err: err}
	}
	return err
}

// prefill runs a leg that streams nothing.
func (e *Engine) prefill(ctx context.Context, a *answer, body []byte, yield func(engine.Delta, error) bool) {
	text, err := e.client.Post(ctx, completions, trace(a.request), body)
	if err != nil {
		yield(engine.Delta{}, err)
		return
	}
	d, err := a.read(text)
	switch {
	case err != nil:
		yield(engine.Delta{}, engine.CauseOf(ctx, err))
		return
	case a.finish == "":
		yield(engine.Delta{}, engine.Errorf(engine.StreamIncomplete, "the answer of a prefill leg has no end"))
		return
	}
	last := a.end()
	last.TokenIDs, last.Logprobs = d.TokenIDs, d.Logprobs
	if last.Finish != engine.FinishLength {
		// The first token was the end: there is nothing for a decode leg to do.
		yield(last, nil)
		return
	}
	if len(a.params) == 0 {
		yield(engine.Delta{}, engine.Errorf(engine.Internal, "the server hands nothing over; is its cache_transceiver_config set?"))
		return
	}
	last.Handoff = a.handoff()
	yield(last, nil)
}

// tooLong refuses what cannot fit before the server sees it.
func (e *Engine) tooLong(r *engine.Request) error {
	limit := int(e.config.ContextLength)
	if n := len(r.TokenIDs) + r.Stop.MaxTokens; limit > 0 && n > limit {
		return &engine.Error{
			Kind: engine.InvalidArgument, Code: "context_length_exceeded",
			Message: "prompt and output have " + strconv.Itoa(n) + " tokens together, the model's context length is " + strconv.Itoa(limit),
		}
	}
	return nil
}

func trace(r *engine.Request) http.Header {
	h := http.Header{}
	if r.Trace.Parent != "" {
		h.Set("traceparent", r.Trace.Parent)
	}
	if r.Trace.State != "" {
		h.Set("tracestate", r.Trace.State)
	}
	return h
}

// answer is what has come so far.
type answer struct {
	request *engine.Request

	output  int           // ids that came, hidden ones included
	finish  engine.Finish // "" until it is known
	matched []uint32
	word    string // the server's own, if it is none that we know
	usage   *usage
	params  json.RawMessage // of a prefill leg
	prompt  json.RawMessage
}

// read returns what one chunk brings.
func (a *answer) read(data []byte) (engine.Delta, error) {
	c, err := decodeChunk(data)
	if err != nil {
		return engine.Delta{}, err
	}
	if c.Usage != nil {
		a.usage = c.Usage
	}
	if len(c.Prompt) > 0 {
		a.prompt = slices.Clone(json.RawMessage(c.Prompt))
	}
	if len(c.Choices) == 0 || a.finish != "" {
		return engine.Delta{}, nil
	}
	choice := &c.Choices[0]
	if len(choice.Params) > 0 && choice.Params.Kind() == '{' {
		a.params = slices.Clone(json.RawMessage(choice.Params))
	}
	d := engine.Delta{TokenIDs: choice.TokenIDs}
	a.output += len(d.TokenIDs)
	if a.request.Logprobs != nil {
		if d.Logprobs, err = choice.logprobs(); err != nil {
			return engine.Delta{}, err
		}
	}
	if choice.Finish == "" {
		return d, nil
	}
	return d, a.close(choice, &d)
}

// close notes the end of a choice, and takes the id away that ended it and is
// not to be seen.
func (a *answer) close(choice *choice, d *engine.Delta) error {
	stop := &a.request.Stop
	switch choice.Finish {
	case "length", "not_finished":
		a.finish = engine.FinishLength
		return nil
	case "cancelled":
		return engine.Errorf(engine.EngineShutdown, "the server has cancelled the request")
	case "timeout":
		return engine.Errorf(engine.ResponseTimeout, "the server's own time for the request is over")
	case "error":
		return engine.Errorf(engine.Internal, "the server ended the request with an error")
	case "content_filter":
		a.finish = engine.FinishContentFilter
		return nil
	case "stop":
	default:
		a.word = choice.Finish
	}
	a.finish = engine.FinishEOS
	last := len(d.TokenIDs) - 1
	id, told := choice.stopID()
	if !told && last >= 0 {
		id = d.TokenIDs[last]
	}
	switch {
	case slices.Contains(stop.IDs, id) && (told || last >= 0):
		a.finish, a.matched = engine.FinishStop, []uint32{id}
	case last >= 0 && d.TokenIDs[last] == id && slices.Contains(stop.Hidden, id):
		d.TokenIDs = d.TokenIDs[:last]
		if d.Logprobs != nil {
			d.Logprobs = d.Logprobs[:last]
		}
	}
	return nil
}

// end returns the terminal delta.
func (a *answer) end() engine.Delta {
	u := &engine.Usage{Prompt: len(a.request.TokenIDs), Output: a.output}
	if a.usage != nil {
		// What the server cut off is counted by it alone.
		u.Output = max(u.Output, a.usage.Completion)
		if d := a.usage.Details; d != nil && d.Cached != nil {
			cached := max(0, min(*d.Cached, u.Prompt))
			u.Cached = &cached
		}
	}
	d := engine.Delta{Finish: a.finish, MatchedIDs: a.matched, Usage: u}
	if a.word != "" {
		d.EngineData, _ = json.Marshal(map[string]string{"finish_reason": a.word}) // a string always can be
	}
	return d
}

// handoff returns what the decode leg begins with.
func (a *answer) handoff() json.RawMessage {
	prompt := []byte(a.prompt)
	if len(prompt) == 0 {
		prompt = httpapi.AppendIDs(nil, a.request.TokenIDs)
	}
	out := append([]byte(`{"prompt_token_ids":`), prompt...)
	out = append(append(out, `,"disaggregated_params":`...), a.params...)
	return append(out, '}')
}
