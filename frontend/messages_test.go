package frontend_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"strings"
	"testing"
	"time"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/frontend"
	"github.com/dynago/dynago/pipeline"
	"github.com/dynago/dynago/prompt"
)

const (
	message       = `{"model":"demo","max_tokens":9,"messages":[{"role":"user","content":"secret words"}]}`
	messageStream = `{"model":"demo","max_tokens":9,"stream":true,"messages":[{"role":"user","content":"secret words"}]}`
)

func TestMessages(t *testing.T) {
	backend := newFake()
	s := start(t, backend)
	got := s.do("POST", "/v1/messages?beta=true", message, "Anthropic-Version", "2023-06-01", "Anthropic-Beta", "a,b", "X-Api-Key", "any")
	id := got.header.Get("Request-Id")
	want := `{"id":"msg_` + strings.ReplaceAll(id, "-", "") + `","type":"message","role":"assistant","model":"acme/demo","content":[{"type":"text","text":"Hello world"}],"stop_reason":"end_turn","stop_sequence":null,"stop_details":null,"container":null,"usage":{"input_tokens":3,"output_tokens":2,"cache_read_input_tokens":4,"cache_creation_input_tokens":0,"cache_creation":null,"server_tool_use":null,"service_tier":null}}`
	if got.status != 200 || got.body != want || got.header.Get("Content-Type") != "application/json" {
		t.Errorf("got %d %s\nwant %s", got.status, got.body, want)
	}
	r := backend.requests()[0]
	if r.Chat.API != chat.APIMessages || r.ID != id || len(r.Chat.Turns) != 1 {
		t.Errorf("the backend has %+v", r)
	}
	s.metric(`dynamo_frontend_requests_total{endpoint="anthropic_messages",error_type="",model="acme/demo",request_type="unary",status="success"} 1`)

	got = s.do("POST", "/v1/messages", messageStream)
	var names []string
	for line := range strings.SplitSeq(got.body, "\n") {
		if name, ok := strings.CutPrefix(line, "event: "); ok {
			names = append(names, name)
		}
	}
	const order = "message_start content_block_start content_block_delta content_block_delta content_block_stop message_delta message_stop"
	if got.status != 200 || strings.Join(names, " ") != order || got.header.Get("Content-Type") != "text/event-stream" {
		t.Errorf("got %d %s", got.status, got.body)
	}
	if !strings.Contains(got.body, `"usage":{"input_tokens":7,"output_tokens":0,`) {
		t.Errorf("the prompt is not counted at the beginning: %s", got.body)
	}
}

// An error has the shape of the API that the client speaks, wherever it happens.
func TestMessagesErrors(t *testing.T) {
	fails := func(err error) *fake {
		backend := newFake()
		backend.run = func(context.Context, []*pipeline.Request) iter.Seq2[chat.Event, error] { return failing(err) }
		return backend
	}
	long := &engine.Error{
		Kind: engine.InvalidArgument, Code: "context_length_exceeded", Param: "messages", Message: "too long for us",
		Err: &prompt.TooLong{Tokens: 5000, Limit: 4096},
	}
	longThere := &engine.Error{Kind: engine.InvalidArgument, Code: "context_length_exceeded", Message: "too long for the engine"}
	const anthropic = "Anthropic-Version"
	for name, c := range map[string]struct {
		backend *fake
		change  func(*frontend.Config)
		method  string
		path    string
		body    string
		header  []string

		status  int
		kind    string
		message string
		extra   string // a header of the answer
	}{
		"invalid":           {body: `{"model":"demo","max_tokens":0,"messages":[{"role":"user","content":"Hi"}]}`, status: 400, kind: "invalid_request_error", message: "max_tokens: must be greater than 0"},
		"no JSON":           {body: `{`, status: 400, kind: "invalid_request_error", message: "the JSON text ends too early"},
		"unknown model":     {body: strings.Replace(message, "demo", "nobody", 1), status: 404, kind: "not_found_error", message: "Model 'nobody' not found"},
		"unknown, streamed": {body: strings.Replace(messageStream, "demo", "nobody", 1), status: 404, kind: "not_found_error", message: "Model 'nobody' not found"},
		"too long":          {backend: fails(long), body: message, status: 400, kind: "invalid_request_error", message: "prompt is too long: 5000 tokens > 4096 maximum"},
		"too long there":    {backend: fails(longThere), body: messageStream, status: 400, kind: "invalid_request_error", message: "prompt is too long: too long for the engine"},
		"busy":              {backend: fails(&engine.Error{Kind: engine.ResourceExhausted, RetryAfter: 3 * time.Second}), body: messageStream, status: 529, kind: "overloaded_error", message: "Service temporarily overloaded", extra: "Retry-After: 3"},
		"busy by choice":    {backend: fails(&engine.Error{Kind: engine.ResourceExhausted}), change: func(c *frontend.Config) { c.OverloadStatus = 503 }, body: message, status: 503, kind: "overloaded_error", message: "Service temporarily overloaded", extra: "Retry-After: 1"},
		"no worker":         {backend: fails(&engine.Error{Kind: engine.Unavailable}), body: message, status: 503, kind: "overloaded_error", message: "Service temporarily unavailable", extra: "Retry-After: 1"},
		"not here":          {backend: fails(engine.Errorf(engine.Unsupported, "not here")), body: message, status: 501, kind: "api_error", message: "not here", extra: "X-Should-Retry: false"},
		"ours":              {backend: fails(fmt.Errorf("at 10.0.0.7")), body: message, status: 500, kind: "api_error", message: "Internal server error"},
		"too late":          {backend: fails(engine.ErrDeadline), body: message, status: 504, kind: "timeout_error", message: "Request timed out"},
		"too large":         {change: func(c *frontend.Config) { c.BodyLimit = 10 }, body: message, status: 413, kind: "request_too_large", message: "Request body exceeds the limit of 0 MB set by DYN_HTTP_BODY_LIMIT_MB"},
		"content type":      {body: message, header: []string{"Content-Type", "text/plain"}, status: 415, kind: "invalid_request_error", message: "Expected request with Content-Type application/json"},
		"encoding":          {body: message, header: []string{"Content-Encoding", "br"}, status: 415, kind: "invalid_request_error", message: "Content-Encoding must be one of gzip, zstd, deflate and identity"},
		"key":               {change: withKeys(t, "good"), body: message, header: []string{"X-Api-Key", "bad"}, status: 401, kind: "authentication_error", message: "Incorrect or missing API key: send a key of this server as Authorization: Bearer KEY or x-api-key: KEY"},
		"method":            {method: "GET", status: 405, kind: "invalid_request_error", message: "Method not allowed: GET /v1/messages takes POST", extra: "Allow: POST"},
		"below":             {path: "/v1/messages/batches", body: "{}", status: 404, kind: "not_found_error", message: "Route not found: POST /v1/messages/batches"},
		"count":             {path: "/v1/messages/count_tokens", body: `{"model":"demo"}`, status: 400, kind: "invalid_request_error", message: "messages: field required"},
		"count, no model":   {path: "/v1/messages/count_tokens", body: strings.Replace(message, "demo", "nobody", 1), status: 404, kind: "not_found_error", message: "Model 'nobody' not found"},
		"model":             {method: "GET", path: "/v1/models/no/body", header: []string{anthropic, "2023-06-01"}, status: 404, kind: "not_found_error", message: "Model 'no/body' not found"},
		"models, key":       {change: withKeys(t, "good"), method: "GET", path: "/v1/models", header: []string{anthropic, "2023-06-01"}, status: 401, kind: "authentication_error", message: "Incorrect or missing API key: send a key of this server as Authorization: Bearer KEY or x-api-key: KEY"},
		"models, method":    {method: "DELETE", path: "/v1/models", header: []string{anthropic, "2023-06-01"}, status: 405, kind: "invalid_request_error", message: "Method not allowed: DELETE /v1/models takes GET"},
	} {
		t.Run(name, func(t *testing.T) {
			if c.backend == nil {
				c.backend = newFake()
			}
			if c.change == nil {
				c.change = func(*frontend.Config) {}
			}
			if c.method == "" {
				c.method = "POST"
			}
			if c.path == "" {
				c.path = "/v1/messages"
			}
			got := start(t, c.backend, c.change).do(c.method, c.path, c.body, c.header...)
			var body struct {
				Type  string
				Error struct{ Type, Message string }
				ID    string `json:"request_id"`
			}
			if err := json.Unmarshal([]byte(got.body), &body); err != nil {
				t.Fatalf("%d %s: %v", got.status, got.body, err)
			}
			if got.status != c.status || body.Type != "error" || body.Error.Type != c.kind || body.Error.Message != c.message {
				t.Errorf("got %d %s", got.status, got.body)
			}
			if body.ID == "" || body.ID != got.header.Get("Request-Id") {
				t.Errorf("request_id %q, header %q", body.ID, got.header.Get("Request-Id"))
			}
			if name, value, _ := strings.Cut(c.extra, ": "); got.header.Get(name) != value {
				t.Errorf("headers %v", got.header)
			}
		})
	}
}

// Other clients are answered in their own shape on the routes that are shared.
func TestModelsInBothShapes(t *testing.T) {
	s := start(t, newFake())
	for path, want := range map[string]string{
		"/v1/models":           `"has_more":false,"first_id":"acme/demo","last_id":"demo"}`,
		"/v1/models/acme/demo": `{"type":"model","id":"acme/demo","display_name":"acme/demo","created_at":"`,
	} {
		got := s.do("GET", path, "", "Anthropic-Version", "2023-06-01")
		if got.status != 200 || !strings.Contains(got.body, want) || !strings.Contains(got.body, `"max_input_tokens":4096`) || !json.Valid([]byte(got.body)) {
			t.Errorf("%s: %d %s", path, got.status, got.body)
		}
		if got := s.do("GET", path, ""); !strings.Contains(got.body, `"object":"model"`) || strings.Contains(got.body, "display_name") {
			t.Errorf("%s: %d %s", path, got.status, got.body)
		}
	}
	if got := s.do("GET", "/v1/models/nobody", ""); !strings.Contains(got.body, `"code":"model_not_found"`) {
		t.Errorf("%d %s", got.status, got.body)
	}
	if got := s.do("POST", "/v1/chat/completions", "{", "Anthropic-Version", "2023-06-01"); !strings.Contains(got.body, `"code":400}`) {
		t.Errorf("%d %s", got.status, got.body)
	}
	if got := s.do("GET", "/v1/messagesX", ""); got.status != 404 || !strings.Contains(got.body, `"code":"route_not_found"`) {
		t.Errorf("%d %s", got.status, got.body)
	}
}

func TestMessagesCanBeOff(t *testing.T) {
	s := start(t, newFake(), func(c *frontend.Config) { c.NoMessages = true })
	for _, path := range []string{"/v1/messages", "/v1/messages/count_tokens"} {
		if got := s.do("POST", path, message); got.status != 404 || !strings.Contains(got.body, `"code":"route_not_found"`) {
			t.Errorf("%s: %d %s", path, got.status, got.body)
		}
	}
}

// The document tells of these routes, unless they are off.
func TestMessagesAreDescribed(t *testing.T) {
	for off, want := range map[bool]int{false: 2, true: 0} {
		body := start(t, newFake(), func(c *frontend.Config) { c.NoMessages = off }).do("GET", "/openapi.json", "").body
		if got := strings.Count(body, `"/v1/messages`); got != want || !json.Valid([]byte(body)) {
			t.Errorf("off %v: the document tells of %d routes", off, got)
		}
		if strings.Contains(body, `"$ref":"#/components/schemas/MessagesError"`) == off {
			t.Errorf("off %v: refusals are another API's", off)
		}
	}
}

func TestCountTokens(t *testing.T) {
	backend := newFake()
	got := start(t, backend).do("POST", "/v1/messages/count_tokens?beta=true", `{"model":"demo","messages":[{"role":"user","content":"Hi"}]}`)
	if got.status != 200 || got.body != `{"input_tokens":3}` {
		t.Errorf("got %d %s", got.status, got.body)
	}
	if n := len(backend.requests()); n != 0 {
		t.Errorf("%d requests went to a worker", n)
	}
}

// Arguments that are no object are shown as what they are, and counted.
func TestInvalidInputs(t *testing.T) {
	backend := newFake()
	backend.run = func(context.Context, []*pipeline.Request) iter.Seq2[chat.Event, error] {
		return func(yield func(chat.Event, error) bool) {
			for _, e := range []chat.Event{
				{Kind: chat.Start},
				{Kind: chat.BlockStart, BlockKind: chat.ToolCall, Tool: &chat.ToolUse{ID: "call_1", Name: "ls"}},
				{Kind: chat.ArgsDelta, Text: `{"path":`},
				{Kind: chat.BlockStop, Truncated: true},
				{Kind: chat.Finished, Finish: chat.Finish{Reason: chat.FinishLength}},
			} {
				if !yield(e, nil) {
					return
				}
			}
		}
	}
	s := start(t, backend)
	got := s.do("POST", "/v1/messages", message)
	if got.status != 200 || !strings.Contains(got.body, `"input":{"__invalid_json":"{\"path\":"}`) {
		t.Errorf("got %d %s", got.status, got.body)
	}
	s.metric("dynago_agent_invalid_inputs_total 1")
}

// What of a body has no effect is told to operators who look for it, on all APIs.
func TestWhatIsPassedOverIsLogged(t *testing.T) {
	for path, body := range map[string]string{
		"/v1/messages":         message,
		"/v1/chat/completions": ask,
		"/v1/responses":        `{"model":"demo","input":"Hi"}`,
	} {
		s := start(t, newFake())
		s.do("POST", path, strings.Replace(body, "{", `{"aura":"secret words",`, 1))
		eventually(t, func() bool { return strings.Contains(s.log.String(), `"members":["aura"]`) }, s.log.String)
		if strings.Contains(s.log.String(), "secret words") {
			t.Errorf("the log tells what is said: %s", s.log)
		}
	}
}

// Items and parts of Responses are known once it is known what they continue.
func TestItemsThatArePassedOverAreLogged(t *testing.T) {
	const body = `{"model":"demo","input":[{"role":"user","content":"Hi"},{"type":"aura"}]}`
	for _, path := range []string{"/v1/responses", "/v1/responses/compact"} {
		s := start(t, newFake())
		s.do("POST", path, body)
		eventually(t, func() bool { return strings.Contains(s.log.String(), `"members":["input[1].`) }, s.log.String)
	}
}

// Claude Code's probe before its first call.
func TestProbe(t *testing.T) {
	if got := start(t, newFake()).do("HEAD", "/", ""); got.status != 200 || got.body != "" {
		t.Errorf("got %d %q", got.status, got.body)
	}
}

// A session is known by what agents put into metadata.user_id, behind the headers.
func TestUserIDNamesTheSession(t *testing.T) {
	backend := newFake()
	s := start(t, backend)
	body := strings.Replace(message, `{`, `{"metadata":{"user_id":"{\"device_id\":\"d\",\"session_id\":\"of the body\"}"},`, 1)
	s.do("POST", "/v1/messages", body)
	s.do("POST", "/v1/messages", body, "X-Claude-Code-Session-Id", "of the header")
	for i, want := range []string{"of the body", "of the header"} {
		if got := backend.requests()[i].Identity.Key; got != want {
			t.Errorf("request %d is of session %q, want %q", i, got, want)
		}
	}
}

// A stream that waits too long begins; what goes wrong then is an event.
func TestMessagesLateError(t *testing.T) {
	fail := make(chan struct{})
	backend := newFake()
	backend.run = func(context.Context, []*pipeline.Request) iter.Seq2[chat.Event, error] {
		return func(yield func(chat.Event, error) bool) {
			<-fail
			yield(chat.Event{}, engine.Errorf(engine.WorkerOverloaded, ""))
		}
	}
	s := start(t, backend, quickly(20*time.Millisecond, 0, time.Minute))
	resp := s.open("POST", "/v1/messages", strings.NewReader(messageStream))
	defer resp.Body.Close()
	if resp.StatusCode != 200 {
		t.Fatalf("status %d", resp.StatusCode)
	}
	close(fail)
	body, err := io.ReadAll(resp.Body)
	if err != nil || !strings.HasPrefix(string(body), "event: message_start\n") ||
		!strings.HasSuffix(string(body), "event: error\ndata: "+`{"type":"error","error":{"type":"overloaded_error","message":"Service temporarily overloaded"}}`+"\n\n") {
		t.Errorf("%s %v", body, err)
	}
}

// A silent stream gives its sign of life as an event, and only once it has begun.
func TestMessagesPing(t *testing.T) {
	begin, more := make(chan struct{}), make(chan struct{})
	backend := newFake()
	backend.run = func(context.Context, []*pipeline.Request) iter.Seq2[chat.Event, error] {
		return func(yield func(chat.Event, error) bool) {
			<-begin
			events := helloEvents()
			for i, e := range events {
				if i == 3 {
					<-more
				}
				if !yield(e, nil) {
					return
				}
			}
		}
	}
	s := start(t, backend, quickly(50*time.Millisecond, 10*time.Millisecond, time.Minute))
	resp := s.open("POST", "/v1/messages", strings.NewReader(messageStream))
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	var names []string
	until := func(name string) {
		for lines.Scan() {
			if got, ok := strings.CutPrefix(lines.Text(), "event: "); ok {
				names = append(names, got)
				if got == name {
					return
				}
			}
		}
		t.Fatalf("no %s behind %v: %v", name, names, lines.Err())
	}
	until("ping")
	if names[0] != "message_start" {
		t.Errorf("the stream begins with %v", names)
	}
	close(begin)
	until("content_block_delta")
	until("ping")
	close(more)
	until("message_stop")
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "event: ") {
			t.Errorf("%s stands behind the end", lines.Text())
		}
	}
}
