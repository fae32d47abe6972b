package trtllm

import (
	"context"
	"encoding/json"
	"iter"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/httpapi"
)

const completions = "/v1/completions"

type deltas = iter.Seq2[engine.Delta, error]

// Generate implements [engine.Engine]. Leaving the loop closes the connection,
// which the server notices within a second. A leg of a request on which the other
// one relies goes on without its client for a while, as [engine.Outlive] says.
func (e *Engine) Generate(ctx context.Context, r *engine.Request) deltas {
	var begun atomic.Bool
	return func(yield func(engine.Delta, error) bool) {
		if begun.Swap(true) {
			yield(engine.Delta{}, engine.Errorf(engine.Internal, "a second loop over one answer"))
			return
		}
		phase := r.Disagg.Phase
		if phase == engine.PhaseWhole || phase == engine.PhasePrefill && !e.config.GenerationFirst {
			e.run(ctx, r)(yield)
			return
		}
		started := e.hold()
		defer started()
		for d, err := range engine.Outlive(ctx, e.linger(phase), func(ctx context.Context) deltas { return e.run(ctx, r) }) {
			started()
			if !yield(d, err) {
				return
			}
		}
	}
}

// run is Generate for as long as there is somebody who wants it.
func (e *Engine) run(ctx context.Context, r *engine.Request) deltas {
	return func(yield func(engine.Delta, error) bool) {
		if err := e.answer(ctx, r, yield); err != nil {
			yield(engine.Delta{}, engine.CauseOf(ctx, ofLeg(r, err)))
		}
	}
}

// answer yields the deltas of one answer. It returns nil once the consumer has the
// terminal one or has left.
func (e *Engine) answer(ctx context.Context, r *engine.Request, yield func(engine.Delta, error) bool) error {
	switch {
	case e.closed.Load():
		return engine.Errorf(engine.Unavailable, "the engine is closed")
	case e.asleep.Load():
		return engine.Errorf(engine.Unavailable, "the server sleeps")
	case ctx.Err() != nil:
		return ctx.Err()
	case e.stale(r):
		return engine.Errorf(engine.Stale, "the server was started anew")
	}
	if err := e.tooLong(r); err != nil {
		return err
	}
	body, err := e.encode(r)
	if err != nil {
		return err
	}
	a := answer{request: r}
	if r.Disagg.Phase == engine.PhasePrefill {
		last, err := e.prefill(ctx, &a, body)
		if err == nil {
			yield(last, nil)
		}
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var tail *time.Timer // runs once the answer has finished
	for data, err := range e.client.Stream(ctx, completions, httpapi.Traced(r.Trace), body) {
		var d engine.Delta
		if err == nil {
			d, err = a.read(data)
		}
		switch {
		case err != nil && tail != nil:
			continue // the answer is whole, only its tail is lost
		case err != nil:
			return err
		case a.finish != "" && tail == nil:
			tail = time.AfterFunc(httpapi.LastWords, stop)
			defer tail.Stop()
		}
		if len(d.TokenIDs) > 0 && !yield(d, nil) {
			return nil
		}
	}
	switch {
	case a.finish != "":
	case ctx.Err() != nil:
		return ctx.Err()
	default:
		return engine.Errorf(engine.StreamIncomplete, "the stream ended without a reason")
	}
	yield(a.end(), nil)
	return nil
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

// prefill runs a leg that streams nothing, and returns all of it.
func (e *Engine) prefill(ctx context.Context, a *answer, body []byte) (last engine.Delta, err error) {
	text, err := e.client.Post(ctx, completions, httpapi.Traced(a.request.Trace), body)
	if err != nil {
		return last, err
	}
	d, err := a.read(text)
	switch {
	case err != nil:
		return last, err
	case a.finish == "":
		return last, engine.Errorf(engine.StreamIncomplete, "the answer of a prefill leg has no end")
	}
	last = a.end()
	last.TokenIDs, last.Logprobs = d.TokenIDs, d.Logprobs
	switch {
	case last.Finish != engine.FinishLength:
		// The first token was the end: there is nothing for a decode leg to do.
		return last, nil
	case len(a.params) == 0:
		return last, engine.Errorf(engine.Internal, "the server hands nothing over; is its cache_transceiver_config set?")
	}
	last.Handoff = a.handoff()
	return last, nil
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

// answer is what has come so far.
type answer struct {
	request *engine.Request

	output  int           // ids that came, hidden ones included
	last    uint32        // of them, before this delta
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
	defer func() {
		if n := len(choice.TokenIDs); n > 0 {
			a.last = choice.TokenIDs[n-1]
		}
	}()
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

// close notes the end of a choice. The id that ended it counts, and is put back if
// the server has cut it off; it is taken away again if it is not to be seen.
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
		a.finish, a.word = engine.FinishStop, choice.Finish
		return nil
	}
	a.finish = engine.FinishEOS
	id, told := choice.stopID()
	if told && !a.endsWith(d, id) {
		a.output++
		if a.request.Logprobs == nil {
			d.TokenIDs = append(d.TokenIDs, id)
		}
	}
	last := len(d.TokenIDs) - 1
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

// endsWith says whether an id is the last one of the answer with a delta.
func (a *answer) endsWith(d *engine.Delta, id uint32) bool {
	if n := len(d.TokenIDs); n > 0 {
		return d.TokenIDs[n-1] == id
	}
	return a.output > 0 && a.last == id
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
