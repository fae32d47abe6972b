package openai

import (
	"context"
	"fmt"
	"iter"
	"net/http"
	"strconv"
	"sync/atomic"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/httpapi"
)

// chunk is one event of an answer.
type chunk struct {
	Choices []struct {
		Index int `json:"index"`
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

// call is a piece of a tool call.
type call struct {
	Index    int    `json:"index"`
	ID       string `json:"id"`
	Function struct {
		Name string `json:"name"`
		Args string `json:"arguments"`
	} `json:"function"`
}

// decoding is lenient: texts may be cut within a character.
var decoding = json.JoinOptions(jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true))

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
		body, err := e.body(r)
		if err != nil {
			yield(chat.Event{}, err)
			return
		}
		e.running.Add(1)
		defer e.running.Add(-1)
		a := &answer{r: r, yield: func(ev chat.Event) bool { return yield(ev, nil) }}
		if err := a.run(ctx, e.client.Stream(ctx, "/v1/chat/completions", traced(r.Trace), body)); err != nil {
			yield(chat.Event{}, err)
		}
	}
}

// answer is one on its way. Its methods that say something return false when
// nobody listens any more.
type answer struct {
	r     *engine.Request
	yield func(chat.Event) bool

	begun  bool
	block  chat.Kind // that is open, or ""
	blocks int       // opened so far
	call   int       // index of the last call in the server's count, if there were calls
	calls  int
	pieces int
	finish string
	stop   string
	usage  *chat.Usage
}

// run says what the stream says, and returns what ends it early.
func (a *answer) run(ctx context.Context, stream iter.Seq2[[]byte, error]) error {
	for data, err := range stream {
		switch {
		case ctx.Err() != nil:
			return engine.CauseOf(ctx, ctx.Err())
		case err != nil && a.finish != "":
			a.end() // the answer is whole, only its counts are missing
			return nil
		case err != nil:
			return err
		}
		var c chunk
		if err := json.Unmarshal(data, &c, decoding); err != nil {
			return &engine.Error{Kind: engine.Internal, Op: "read an event", FromEngine: true, Err: err}
		}
		if len(c.Error) > 0 && c.Error.Kind() != 'n' {
			return inStream(data)
		}
		goes, err := a.take(&c)
		if err != nil || !goes {
			return err
		}
		if a.finish != "" && a.usage != nil && len(c.Choices) == 0 {
			a.end()
			return nil
		}
	}
	switch {
	case ctx.Err() != nil:
		return engine.CauseOf(ctx, ctx.Err())
	case a.finish != "":
		a.end()
		return nil
	}
	return engine.Errorf(engine.StreamIncomplete, "the server's stream ended without a finish reason")
}

// take says what one event adds.
func (a *answer) take(c *chunk) (goes bool, err error) {
	if u := c.Usage; u != nil {
		a.usage = &chat.Usage{Prompt: u.Prompt, Cached: u.PromptDetails.Cached, Output: u.Completion, Reasoning: u.CompletionDetails.Reasoning}
	}
	if !a.begun {
		a.begun = true
		if !a.yield(chat.Event{Kind: chat.Start, Usage: chat.Usage{Prompt: len(a.r.TokenIDs)}}) {
			return false, nil
		}
	}
	for _, choice := range c.Choices {
		if choice.Index != 0 || a.finish != "" {
			continue
		}
		d := &choice.Delta
		thought := d.ReasoningContent
		if thought == "" {
			thought = d.Reasoning
		}
		if !a.piece(chat.Thought, chat.ThinkingDelta, thought) || !a.piece(chat.Text, chat.TextDelta, d.Content) || !a.piece(chat.Refusal, chat.RefusalDelta, d.Refusal) {
			return false, nil
		}
		for i := range d.ToolCalls {
			if goes, err := a.calling(&d.ToolCalls[i]); err != nil || !goes {
				return false, err
			}
		}
		a.finish = choice.Finish
		if choice.Stop.Kind() == '"' {
			if text, err := jsontext.AppendUnquote(nil, choice.Stop); err == nil {
				a.stop = string(text)
			}
		}
	}
	return true, nil
}

// piece adds to the open block, or opens another one.
func (a *answer) piece(kind chat.Kind, delta chat.EventKind, text string) bool {
	if text == "" {
		return true
	}
	a.pieces++
	if a.block != kind && !(a.close(false) && a.open(kind, nil)) {
		return false
	}
	return a.yield(chat.Event{Kind: delta, Index: a.blocks - 1, Text: text})
}

// calling adds to a tool call. The calls of an answer come one after the other;
// a piece of one that is over belongs nowhere.
func (a *answer) calling(c *call) (goes bool, err error) {
	a.pieces++
	switch {
	case a.calls == 0 || c.Index > a.call:
		if c.Function.Name == "" {
			return false, engine.Errorf(engine.Internal, "the server calls a tool and does not name it")
		}
		id := c.ID
		if id == "" {
			id = fmt.Sprintf("call_%s_%d", a.r.ID, a.calls)
		}
		if !a.close(false) || !a.open(chat.ToolCall, &chat.ToolUse{ID: id, Name: c.Function.Name, Kind: chat.ToolFunction}) {
			return false, nil
		}
		a.call, a.calls = c.Index, a.calls+1
	case c.Index < a.call || a.block != chat.ToolCall:
		return false, engine.Errorf(engine.Internal, "the server adds to tool call %d, which is over", c.Index)
	}
	if c.Function.Args == "" {
		return true, nil
	}
	return a.yield(chat.Event{Kind: chat.ArgsDelta, Index: a.blocks - 1, Text: c.Function.Args}), nil
}

func (a *answer) open(kind chat.Kind, use *chat.ToolUse) bool {
	a.block = kind
	a.blocks++
	return a.yield(chat.Event{Kind: chat.BlockStart, Index: a.blocks - 1, BlockKind: kind, Tool: use})
}

func (a *answer) close(truncated bool) bool {
	if a.block == "" {
		return true
	}
	truncated = truncated && a.block == chat.ToolCall
	a.block = ""
	return a.yield(chat.Event{Kind: chat.BlockStop, Index: a.blocks - 1, Truncated: truncated})
}

// end says the last word.
func (a *answer) end() {
	f := chat.Finish{Reason: chat.FinishStop}
	switch {
	case a.finish == "length":
		f.Reason = chat.FinishLength
	case a.finish == "content_filter":
		f.Reason = chat.FinishContentFilter
	case a.calls > 0:
		f.Reason = chat.FinishToolUse // whatever word the server has for it
	case a.stop != "":
		f.Reason, f.StopText = chat.FinishStopSequence, a.stop
	}
	if a.usage == nil {
		a.usage = &chat.Usage{Prompt: len(a.r.TokenIDs), Output: a.pieces}
	}
	if a.close(a.finish == "length") {
		a.yield(chat.Event{Kind: chat.Finished, Usage: *a.usage, Finish: f})
	}
}

// inStream is the error that an event tells of; its code is a status.
func inStream(data []byte) error {
	status, err := strconv.Atoi(httpapi.Told(data).Code)
	if err != nil || status < 400 {
		status = http.StatusInternalServerError
	}
	return httpapi.ErrorOf(status, http.Header{}, data)
}

func traced(t engine.Trace) http.Header {
	h := http.Header{}
	if t.Parent != "" {
		h.Set("Traceparent", t.Parent)
	}
	if t.State != "" {
		h.Set("Tracestate", t.State)
	}
	return h
}
