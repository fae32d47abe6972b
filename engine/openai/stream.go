package openai

import (
	"cmp"
	"context"
	"iter"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/answer"
	"github.com/dynago/dynago/engine/httpapi"
)

// chunk is one event of an answer.
type chunk struct {
	Object  string `json:"object"`
	Choices []struct {
		Index int    `json:"index"`
		Text  string `json:"text"` // of a completion
		Delta struct {
			Content          string `json:"content"`
			Refusal          string `json:"refusal"`
			ReasoningContent string `json:"reasoning_content"`
			Reasoning        string `json:"reasoning"` // the same, elsewhere
			ToolCalls        []call `json:"tool_calls"`
		} `json:"delta"`
		Finish string         `json:"finish_reason"`
		Stop   jsontext.Value `json:"stop_reason"` // a string, where one was matched
	} `json:"choices"`
	Usage *struct {
		Prompt        int `json:"prompt_tokens"`
		Completion    int `json:"completion_tokens"`
		PromptDetails struct {
			Cached *int `json:"cached_tokens"`
		} `json:"prompt_tokens_details"`
		CompletionDetails struct {
			Reasoning *int `json:"reasoning_tokens"`
		} `json:"completion_tokens_details"`
	} `json:"usage"`
	Error jsontext.Value `json:"error"`
}

// failed says whether the event tells of a failure, in one of the shapes in use.
func (c *chunk) failed() bool {
	return c.Object == "error" || len(c.Error) > 0 && c.Error.Kind() != 'n'
}

// call is a piece of a tool call.
type call struct {
	Index    int    `json:"index"`
	ID       string `json:"id"`
	Function struct {
		Name string `json:"name"`
		Args string `json:"arguments"`
	} `json:"function"`
}

// Chat runs one request. It is sent when the loop begins; leaving the loop closes
// the connection. The server's counts are yielded where it gives some, else the
// number of pieces stands for that of tokens.
func (e *Engine) Chat(ctx context.Context, r *engine.Request) iter.Seq2[chat.Event, error] {
	var ranged atomic.Bool
	return func(yield func(chat.Event, error) bool) {
		if ranged.Swap(true) {
			yield(chat.Event{}, engine.Errorf(engine.Internal, "openai: the sequence of request %s was ranged over twice", r.ID))
			return
		}
		if ctx.Err() != nil {
			yield(chat.Event{}, engine.CauseOf(ctx, ctx.Err()))
			return
		}
		if e.closed.Load() {
			yield(chat.Event{}, engine.Errorf(engine.Unavailable, "the engine is closed"))
			return
		}
		route, body, err := e.body(r)
		if err != nil {
			yield(chat.Event{}, err)
			return
		}
		e.running.Add(1)
		defer e.running.Add(-1)
		h := &hearing{out: answer.New(r, yield)}
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		if err := h.run(ctx, stop, e.client.Stream(ctx, route, httpapi.Traced(r.Trace), body)); err != nil {
			yield(chat.Event{}, without(err, route))
		}
	}
}

// without says which route a server lacks: of completions there may be none.
func without(err error, route string) error {
	kind := engine.KindOf(err)
	if route == completions && (kind == engine.Unsupported || kind == engine.NotFound) {
		return engine.Errorf(engine.Unsupported, "prompts without messages are not available on a server that has no %s", route)
	}
	return err
}

// hearing is what was heard of an answer so far.
type hearing struct {
	out    *answer.Writer
	call   call // the last one, by what it began with
	held   bool // call is not told yet: its id or its name may still come
	finish string
	stop   string
	usage  *chat.Usage
}

// run says what the stream says, and returns what ends it early. It stops a stream
// that has nothing to say after its end.
func (h *hearing) run(ctx context.Context, stop context.CancelFunc, stream iter.Seq2[[]byte, error]) error {
	var tail *time.Timer // runs once the answer has finished
	for data, err := range stream {
		switch {
		case err != nil && h.finish != "":
			return h.end() // the answer is whole, only its counts are missing
		case ctx.Err() != nil:
			return engine.CauseOf(ctx, ctx.Err())
		case err != nil:
			return err
		}
		var c chunk
		if err := json.Unmarshal(data, &c, httpapi.Lenient); err != nil {
			return &engine.Error{Kind: engine.Internal, Op: "read an event", FromEngine: true, Err: err}
		}
		if c.failed() {
			return httpapi.InStream(data)
		}
		goes, err := h.take(&c)
		if err != nil || !goes {
			return err
		}
		switch {
		case h.finish != "" && tail == nil:
			tail = time.AfterFunc(httpapi.LastWords, stop)
			defer tail.Stop()
		case h.finish != "" && h.usage != nil && len(c.Choices) == 0:
			defer time.AfterFunc(httpapi.RestTimeout, stop).Stop() // only the end of the stream is missing
		}
	}
	switch {
	case h.finish != "":
		return h.end()
	case ctx.Err() != nil:
		return engine.CauseOf(ctx, ctx.Err())
	}
	return engine.Errorf(engine.StreamIncomplete, "the server's stream ended without a finish reason")
}

// take says what one event adds.
func (h *hearing) take(c *chunk) (goes bool, err error) {
	if u := c.Usage; u != nil {
		h.usage = &chat.Usage{Prompt: max(0, u.Prompt), Output: max(0, u.Completion)}
		h.usage.Cached = within(u.PromptDetails.Cached, h.usage.Prompt)
		h.usage.Reasoning = within(u.CompletionDetails.Reasoning, h.usage.Output)
	}
	if !h.out.Begin() {
		return false, nil
	}
	for _, choice := range c.Choices {
		if choice.Index != 0 || h.finish != "" {
			continue
		}
		d := &choice.Delta
		thought := d.ReasoningContent
		if thought == "" {
			thought = d.Reasoning
		}
		if h.held && thought+d.Content+choice.Text+d.Refusal != "" {
			if goes, err := h.begin(); err != nil || !goes {
				return false, err
			}
		}
		if !h.out.Say(chat.Thought, thought) || !h.out.Say(chat.Text, d.Content+choice.Text) || !h.out.Say(chat.Refusal, d.Refusal) {
			return false, nil
		}
		for i := range d.ToolCalls {
			if goes, err := h.calling(&d.ToolCalls[i]); err != nil || !goes {
				return false, err
			}
		}
		h.finish = choice.Finish
		if choice.Stop.Kind() == '"' {
			if text, err := jsontext.AppendUnquote(nil, choice.Stop); err == nil {
				h.stop = string(text)
			}
		}
	}
	return true, nil
}

// within returns a count that is a part of another one, nil if it is unknown.
func within(n *int, all int) *int {
	if n == nil {
		return nil
	}
	return new(min(max(0, *n), all))
}

// calling adds to a tool call. The calls of an answer come one after the other;
// a piece of one that is over belongs nowhere. Some servers count none of them:
// another id begins another call. Others say the id and the name one after the other.
func (h *hearing) calling(c *call) (goes bool, err error) {
	known := !h.held || h.call.ID != ""
	another := c.Index == h.call.Index && c.ID != "" && c.ID != h.call.ID && c.Function.Name != "" && known
	switch {
	case h.out.Calls() == 0 && !h.held || c.Index > h.call.Index || another:
		if goes, err := h.begin(); err != nil || !goes {
			return false, err
		}
		h.call, h.held = *c, true
	case c.Index < h.call.Index || !h.held && !h.out.Calling():
		return false, engine.Errorf(engine.Internal, "the server adds to tool call %d, which is over", c.Index)
	case h.held:
		f := &h.call.Function
		h.call.ID, f.Name, f.Args = cmp.Or(h.call.ID, c.ID), cmp.Or(f.Name, c.Function.Name), f.Args+c.Function.Args
	default:
		return h.out.Args(c.Function.Args), nil
	}
	if f := &h.call.Function; f.Args != "" || f.Name != "" && h.call.ID != "" {
		return h.begin()
	}
	return true, nil
}

// begin tells the call that is held, if one is.
func (h *hearing) begin() (goes bool, err error) {
	if !h.held {
		return true, nil
	}
	h.held = false
	f := &h.call.Function
	if f.Name == "" {
		return false, engine.Errorf(engine.Internal, "the server calls a tool and does not name it")
	}
	return h.out.Call(h.call.ID, f.Name) && h.out.Args(f.Args), nil
}

// end says the last word, if the server has one for an answer.
func (h *hearing) end() error {
	switch h.finish {
	case "error":
		return &engine.Error{Kind: engine.Internal, FromEngine: true, Message: "the server gave up and did not say why"}
	case "abort":
		return &engine.Error{Kind: engine.EngineShutdown, FromEngine: true, Message: "the server broke off"}
	}
	if goes, err := h.begin(); err != nil || !goes {
		return err
	}
	f := chat.Finish{Reason: chat.FinishStop}
	switch {
	case h.finish == "length":
		f.Reason = chat.FinishLength
	case h.finish == "content_filter":
		f.Reason = chat.FinishContentFilter
	case h.out.Calls() > 0:
		f.Reason = chat.FinishToolUse // whatever word the server has for it
	case h.stop != "":
		f.Reason, f.StopText = chat.FinishStopSequence, h.stop
	}
	h.out.End(f, h.usage)
	return nil
}
