package frontend

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"strconv"
	"time"

	"github.com/coder/websocket"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/internal/wire"
	"github.com/dynago/dynago/openai/responses"
	"github.com/dynago/dynago/openai/responses/store"
	"github.com/dynago/dynago/pipeline"
)

// createBody checks what a message is, and returns the body that it stands for,
// and whether an answer is to be generated.
func createBody(message []byte) (body []byte, generate bool, err error) {
	body, generate, err = splitMessage(message)
	broken, ok := errors.AsType[*wire.SyntaxError](err)
	if !ok {
		return body, generate, err
	}
	if mended, any := wire.EscapeControls(message); any {
		if body, generate, err := splitMessage(mended); err == nil {
			return body, generate, nil
		}
	}
	return nil, false, broken.Cause
}

func splitMessage(message []byte) (body []byte, generate bool, err error) {
	kind := ""
	generate = true
	body = append(make([]byte, 0, len(message)), '{')
	r := wire.NewReader(message, "")
	err = r.Object("an object", func(name []byte) error {
		key := string(name)
		value, err := r.Raw()
		if err != nil {
			return err
		}
		switch key {
		case "type":
			if value[0] == '"' {
				kind = wire.Unquote(value)
			}
			return nil
		case "generate":
			generate = string(value) != "false"
			return nil
		case "stream", "stream_options":
			return nil // it is a stream always
		}
		if len(body) > 1 {
			body = append(body, ',')
		}
		body = append(wire.AppendString(body, key), ':')
		body = append(body, value...)
		return nil
	})
	if err == nil {
		err = r.End()
	}
	if err == nil && kind != "response.create" {
		err = wire.Invalid("type", "type must be response.create, got %q", wire.Clip(kind))
	}
	return append(body, '}'), generate, err
}

// socketAPI is one message of a connection.
type socketAPI struct {
	*Server
	conn     *socket
	generate bool
}

func (socketAPI) endpoint() string { return "responses" }

func (a socketAPI) decode(_ http.Header, body []byte) (call, error) {
	o := a.Responses
	o.EmptyInput = !a.generate
	c, err := responses.Decode(body, o)
	if err != nil {
		return call{}, err
	}
	if c.Background {
		return call{}, wire.Unsupported("background", "background is not supported on a WebSocket: POST the request")
	}
	c.Stream = true
	made := a.responsesCall(c, a.conn)
	if !a.generate {
		made.answer = a.nothing
	}
	resolve := made.resolve
	made.resolve = func(x *exchange) error {
		if err := resolve(x); err != nil || c.PreviousID == "" {
			return err
		}
		return unanswered(c)
	}
	return made, nil
}

// refuse implements [api]. What has failed cannot be continued.
func (a socketAPI) refuse(w http.ResponseWriter, err error) {
	a.conn.over(nil)
	a.Server.refuse(w, err)
}

// nothing is the answer where none is to be generated: the response only gives a
// name to what was said.
func (a socketAPI) nothing(_ context.Context, requests ...*pipeline.Request) iter.Seq2[chat.Event, error] {
	return func(yield func(chat.Event, error) bool) {
		if model := requests[0].Chat.Model; a.names.primary(model) == "" {
			yield(chat.Event{}, unknown(model))
			return
		}
		_ = yield(chat.Event{Kind: chat.Start}, nil) &&
			yield(chat.Event{Kind: chat.Finished, Finish: chat.Finish{Reason: chat.FinishStop}}, nil)
	}
}

// unanswered finds a result of a call that nobody has made. Where a client sends
// a whole conversation that may be; here the calls are known.
func unanswered(c *responses.Call) error {
	made := map[string]bool{}
	for i := range c.Request.Turns {
		for _, b := range c.Request.Turns[i].Blocks {
			if b.Use != nil {
				made[b.Use.ID] = true
			}
		}
	}
	for i, item := range c.Input {
		if id := answered(item); id != "" && !made[id] {
			path := fmt.Sprintf("input[%d].call_id", i)
			return wire.Invalid(path, "No tool call found for function call output with call_id %s.", wire.Clip(id))
		}
	}
	return nil
}

// answered returns the call that an item is the result of, or "".
func answered(item responses.Item) (id string) {
	if item.Type != "function_call_output" && item.Type != "custom_tool_call_output" {
		return ""
	}
	r := wire.NewReader(item.Wire, "")
	r.Object("an item", func(name []byte) (err error) { //nolint:errcheck // it was read before
		if string(name) == "call_id" && r.Kind() == '"' {
			id, err = r.Text("a string")
			return err
		}
		return r.Skip()
	})
	return id
}

// spoken is the encoder of a response on a connection, which remembers it when it
// has succeeded and forgets all when it has not.
type spoken struct {
	encoder
	response      *responses.Encoder
	conn          *socket
	id            string
	before, input []store.Item
	over          bool
}

// AppendEnd implements [sse.Protocol].
func (e *spoken) AppendEnd(dst []byte) []byte {
	dst = e.encoder.AppendEnd(dst)
	switch e.response.Status() {
	case responses.Completed, responses.Incomplete:
		e.finish(e.said())
	default:
		e.finish(nil)
	}
	return dst
}

// AppendFailure implements [sse.Protocol].
func (e *spoken) AppendFailure(dst []byte, err error) []byte {
	e.finish(nil)
	return e.encoder.AppendFailure(dst, err)
}

// Refuse implements [sse.Protocol].
func (e *spoken) Refuse(w http.ResponseWriter, err error) {
	e.finish(nil)
	e.encoder.Refuse(w, err)
}

func (e *spoken) finish(last *said) {
	if !e.over {
		e.over = true
		e.conn.over(last)
	}
}

// said is the conversation with this response, or nil if it is too long.
func (e *spoken) said() *said {
	items := append(e.before[:len(e.before):len(e.before)], store.Clone(append(e.input, storedItems(e.response.Items())...))...)
	size := 0
	for i := range items {
		size += len(items[i].JSON)
	}
	if size > maxSaid {
		return nil
	}
	return &said{e.id, items}
}

// begin implements [lasting].
func (e *spoken) begin(stop context.CancelCauseFunc) {
	if last, ok := e.encoder.(lasting); ok {
		last.begin(stop)
	}
}

// end implements [lasting].
func (e *spoken) end(err error) {
	e.finish(nil)
	if last, ok := e.encoder.(lasting); ok {
		last.end(err)
	}
}

// messages writes an answer as messages of a connection: an event each, or an
// error. It implements http.ResponseWriter, so that a response is made as any
// other is.
type messages struct {
	conn     *socket
	header   http.Header
	status   int
	deadline time.Time
}

// Header implements http.ResponseWriter.
func (m *messages) Header() http.Header { return m.header }

// WriteHeader implements http.ResponseWriter.
func (m *messages) WriteHeader(status int) { m.status = status }

// SetWriteDeadline bounds the messages that follow.
func (m *messages) SetWriteDeadline(t time.Time) error {
	m.deadline = t
	return nil
}

// Flush implements http.Flusher: nothing is held back.
func (m *messages) Flush() {}

// Write implements http.ResponseWriter.
func (m *messages) Write(b []byte) (int, error) {
	deadline := m.deadline
	if deadline.IsZero() {
		deadline = time.Now().Add(m.conn.patience())
	}
	ctx, cancel := context.WithDeadline(m.conn.ctx, deadline)
	defer cancel()
	if m.status >= 400 {
		return len(b), m.conn.conn.Write(ctx, websocket.MessageText, appendErrorMessage(nil, m.status, b))
	}
	for frame := range bytes.SplitSeq(b, []byte("\n\n")) {
		_, data, ok := bytes.Cut(frame, []byte("data: "))
		if !ok || string(data) == "[DONE]" {
			continue // a comment, or what only streams over HTTP need
		}
		if err := m.conn.conn.Write(ctx, websocket.MessageText, data); err != nil {
			return 0, err
		}
	}
	return len(b), nil
}

// appendErrorMessage appends a refusal, which has a status and a body, as it is
// told on a connection.
func appendErrorMessage(dst []byte, status int, body []byte) []byte {
	var nested []byte
	r := wire.NewReader(body, "")
	r.Object("an error", func(name []byte) (err error) { //nolint:errcheck // it is ours
		if string(name) == "error" {
			nested, err = r.Raw()
			return err
		}
		return r.Skip()
	})
	dst = strconv.AppendInt(append(dst, `{"type":"error","status":`...), int64(status), 10)
	dst = append(append(dst, `,"error":`...), nested...)
	return append(dst, '}')
}

// recount implements [recounter].
func (s *spoken) recount() []byte { return s.response.AppendResponse(nil) }
