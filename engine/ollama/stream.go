package ollama

import (
	"context"
	"iter"
	"strings"
	"sync/atomic"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/answer"
	"github.com/dynago/dynago/engine/httpapi"
)

// line is one of an answer. The last one has Done and the counts.
type line struct {
	Response string `json:"response"` // of a bare prompt
	Message  struct {
		Content  string `json:"content"`
		Thinking string `json:"thinking"`
		Calls    []struct {
			ID       string `json:"id"`
			Function struct {
				Name string         `json:"name"`
				Args jsontext.Value `json:"arguments"` // an object, whole
			} `json:"function"`
		} `json:"tool_calls"`
	} `json:"message"`
	Done    bool           `json:"done"`
	Reason  string         `json:"done_reason"`
	Prompt  int            `json:"prompt_eval_count"`
	Output  int            `json:"eval_count"`
	Problem jsontext.Value `json:"error"`
}

// Chat runs one request. It is sent when the loop begins; leaving the loop closes
// the connection, which is how the server is told to stop.
func (e *Engine) Chat(ctx context.Context, r *engine.Request) iter.Seq2[chat.Event, error] {
	var ranged atomic.Bool
	return func(yield func(chat.Event, error) bool) {
		if ranged.Swap(true) {
			yield(chat.Event{}, engine.Errorf(engine.Internal, "ollama: the sequence of request %s was ranged over twice", r.ID))
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
		at := e.life.place()
		route, body, err := e.body(r, &at)
		if err != nil {
			yield(chat.Event{}, err)
			return
		}
		e.running.Add(1)
		defer e.running.Add(-1)
		out := answer.New(r, yield)
		if err := run(ctx, e.client.Lines(ctx, route, httpapi.Traced(r.Trace), body), out, &at); err != nil {
			yield(chat.Event{}, busy(err))
		}
	}
}

// busy knows the server's own words for a full queue.
func busy(err error) error {
	if e, ok := err.(*engine.Error); ok && e.Kind == engine.Unavailable && strings.Contains(e.Message, "pending requests") {
		e.Kind = engine.WorkerOverloaded
	}
	return err
}

// run says what the lines say, and returns what ends them early.
func run(ctx context.Context, lines iter.Seq2[[]byte, error], out *answer.Writer, at *place) error {
	for text, err := range lines {
		switch {
		case ctx.Err() != nil:
			return engine.CauseOf(ctx, ctx.Err())
		case err != nil:
			return err
		}
		var l line
		if err := json.Unmarshal(text, &l, httpapi.Lenient); err != nil {
			return &engine.Error{Kind: engine.Internal, Op: "read a line", FromEngine: true, Err: err}
		}
		if len(l.Problem) > 0 && l.Problem.Kind() != 'n' {
			return httpapi.InStream(text)
		}
		goes, err := take(&l, out)
		if err != nil || !goes {
			return err
		}
		if l.Done {
			return end(&l, out, at)
		}
	}
	if ctx.Err() != nil {
		return engine.CauseOf(ctx, ctx.Err())
	}
	return engine.Errorf(engine.StreamIncomplete, "the server's stream ended without its last line")
}

// take says what one line adds.
func take(l *line, out *answer.Writer) (goes bool, err error) {
	if !out.Say(chat.Thought, l.Message.Thinking) || !out.Say(chat.Text, l.Message.Content+l.Response) {
		return false, nil
	}
	for i := range l.Message.Calls {
		c := &l.Message.Calls[i]
		if c.Function.Name == "" {
			return false, engine.Errorf(engine.Internal, "the server calls a tool and does not name it")
		}
		args := string(c.Function.Args)
		if args == "" || args == "null" {
			args = "{}"
		}
		if !out.Call(c.ID, c.Function.Name) || !out.Args(args) {
			return false, nil
		}
	}
	return true, nil
}

// end says the last word. Calls come whole, so that a limit cuts none.
func end(l *line, out *answer.Writer, at *place) error {
	if at.context > 0 && l.Prompt >= int(at.context) {
		// A server that does not know how to refuse: what was asked is not what was
		// answered.
		return &engine.Error{
			Kind: engine.InvalidArgument, Code: "context_length_exceeded", FromEngine: true,
			Message: "the prompt is longer than the context, and the server has cut it",
		}
	}
	f := chat.Finish{Reason: chat.FinishStop}
	switch l.Reason {
	case "load", "unload":
		return engine.Errorf(engine.StreamIncomplete, "the server answers with nothing but %q", l.Reason)
	case "length":
		f.Reason = chat.FinishLength
	default:
		if out.Calls() > 0 {
			f.Reason = chat.FinishToolUse
		}
	}
	var u *chat.Usage
	if l.Prompt > 0 || l.Output > 0 { // a server may leave out what it had cached
		u = &chat.Usage{Prompt: max(0, l.Prompt), Output: max(0, l.Output)}
	}
	out.End(f, u)
	return nil
}
