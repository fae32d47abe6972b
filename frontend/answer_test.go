package frontend_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/pipeline"
)

func TestUnary(t *testing.T) {
	backend := newFake()
	s := start(t, backend)
	a := s.do("POST", "/v1/chat/completions", ask, "X-Request-Id", "corr-1", "Request-Id", "1B3F0C52-8a55-4a8e-b1a7-0a7b6bd0f001")
	var got struct {
		ID, Object, Model string
		Choices           []struct {
			Message struct{ Content string }
		}
	}
	if err := json.Unmarshal([]byte(a.body), &got); err != nil || a.status != 200 {
		t.Fatalf("%d %s: %v", a.status, a.body, err)
	}
	if got.Choices[0].Message.Content != "Hello world" || got.Model != "acme/demo" || got.ID != "chatcmpl-1b3f0c52-8a55-4a8e-b1a7-0a7b6bd0f001" {
		t.Errorf("%s", a.body)
	}
	for k, want := range map[string]string{
		"Content-Type": "application/json", "Request-Id": "1b3f0c52-8a55-4a8e-b1a7-0a7b6bd0f001", "X-Request-Id": "corr-1",
	} {
		if a.header.Get(k) != want {
			t.Errorf("%s: %q, want %q", k, a.header.Get(k), want)
		}
	}
	if r := backend.requests()[0]; r.ID != "1b3f0c52-8a55-4a8e-b1a7-0a7b6bd0f001" || r.Arrived.IsZero() {
		t.Errorf("the pipeline saw %+v", r)
	}
}

func TestStream(t *testing.T) {
	s := start(t, newFake())
	a := s.do("POST", "/v1/chat/completions", askStream)
	if a.status != 200 || a.header.Get("Content-Type") != "text/event-stream" || a.header.Get("Cache-Control") != "no-cache" {
		t.Errorf("%d %v", a.status, a.header)
	}
	if id := a.header.Get("Request-Id"); len(id) != 36 || a.header.Get("X-Request-Id") != id {
		t.Errorf("ids %v", a.header)
	}
	if got := contents(t, a.body); got != "Hello world" {
		t.Errorf("%q from\n%s", got, a.body)
	}
	if !strings.HasSuffix(a.body, "}\n\ndata: [DONE]\n\n") {
		t.Errorf("the end is %q", a.body[max(0, len(a.body)-60):])
	}
}

// contents joins the content of all chunks.
func contents(t *testing.T, body string) string {
	t.Helper()
	var out strings.Builder
	for frame := range strings.SplitSeq(body, "\n\n") {
		data, ok := strings.CutPrefix(frame, "data: ")
		if !ok || data == "[DONE]" {
			continue
		}
		var chunk struct {
			Choices []struct {
				Text  string
				Delta struct{ Content string }
			}
		}
		if err := json.Unmarshal([]byte(data), &chunk); err != nil {
			t.Fatalf("%s: %v", data, err)
		}
		for _, c := range chunk.Choices {
			out.WriteString(c.Delta.Content + c.Text)
		}
	}
	return out.String()
}

func TestCompletions(t *testing.T) {
	backend := newFake()
	s := start(t, backend)
	a := s.do("POST", "/v1/completions", `{"model":"demo","prompt":["a","b"],"n":2}`)
	if a.status != 200 || strings.Count(a.body, "Hello world") != 4 || len(backend.requests()) != 2 {
		t.Errorf("%d %s for %d requests", a.status, a.body, len(backend.requests()))
	}
	a = s.do("POST", "/v1/completions", `{"model":"demo","prompt":"a","stream":true}`)
	if got := contents(t, a.body); got != "Hello world" {
		t.Errorf("%q from\n%s", got, a.body)
	}
}

// Whatever fails before the first event has its real status, streaming or not.
func TestEarlyErrors(t *testing.T) {
	for _, c := range []struct {
		err       error
		status    int
		errorType string
		header    [2]string
	}{
		{engine.Errorf(engine.InvalidArgument, "too long"), 400, "validation", [2]string{}},
		{engine.Errorf(engine.NotFound, "no such model"), 404, "not_found", [2]string{}},
		{engine.Errorf(engine.Unsupported, "no such feature"), 501, "not_implemented", [2]string{"X-Should-Retry", "false"}},
		{engine.Errorf(engine.ResourceExhausted, "full"), 529, "overload", [2]string{"Retry-After", "1"}},
		{&engine.Error{Kind: engine.WorkerOverloaded, RetryAfter: 2500 * time.Millisecond}, 529, "overload", [2]string{"Retry-After", "3"}},
		{engine.Errorf(engine.Unavailable, "no workers"), 503, "unavailable", [2]string{"Retry-After", "1"}},
		{engine.Errorf(engine.ResponseTimeout, "silence"), 504, "response_timeout", [2]string{}},
		{engine.Errorf(engine.DeadlineExceeded, "late"), 504, "response_timeout", [2]string{}},
		{engine.Errorf(engine.Cancelled, "by us"), 499, "cancelled", [2]string{}},
		{errors.New("the secret inside"), 500, "internal", [2]string{}},
	} {
		t.Run(fmt.Sprint(c.err), func(t *testing.T) {
			backend := newFake()
			backend.run = func(context.Context, []*pipeline.Request) iter.Seq2[chat.Event, error] { return failing(c.err) }
			s := start(t, backend)
			for body, kind := range map[string]string{ask: "unary", askStream: "stream"} {
				a := s.do("POST", "/v1/chat/completions", body)
				var got struct {
					Error struct{ Message, Type, Code string }
					Code  int
				}
				if err := json.Unmarshal([]byte(a.body), &got); err != nil || a.status != c.status || got.Code != c.status || got.Error.Message == "" {
					t.Errorf("%s: %d %s %v", kind, a.status, a.body, err)
				}
				if strings.Contains(a.body, "secret") {
					t.Errorf("%s: the inside is told: %s", kind, a.body)
				}
				if h := c.header; h[0] != "" && a.header.Get(h[0]) != h[1] {
					t.Errorf("%s: %s is %q, want %q", kind, h[0], a.header.Get(h[0]), h[1])
				}
				s.metric(fmt.Sprintf(`dynamo_frontend_requests_total{endpoint="chat_completions",error_type=%q,model="acme/demo",request_type=%q,status="error"} 1`, c.errorType, kind))
			}
			if hasError := strings.Contains(s.log.String(), `"level":"ERROR"`); hasError != (c.status == 500) {
				t.Errorf("log:\n%s", s.log)
			}
		})
	}
}

// Once the status line is out, an error is the last frame but one.
func TestLateError(t *testing.T) {
	backend := newFake()
	backend.run = func(context.Context, []*pipeline.Request) iter.Seq2[chat.Event, error] {
		return then(beginning(), func(yield func(chat.Event, error) bool) {
			yield(chat.Event{}, engine.Errorf(engine.StreamIncomplete, "cut"))
		})
	}
	s := start(t, backend)
	a := s.do("POST", "/v1/chat/completions", askStream)
	frames := strings.Split(strings.TrimSuffix(a.body, "\n\n"), "\n\n")
	if a.status != 200 || len(frames) < 3 || frames[len(frames)-1] != "data: [DONE]" {
		t.Fatalf("%d %s", a.status, a.body)
	}
	if last := frames[len(frames)-2]; !strings.HasPrefix(last, `data: {"error":{`) || !strings.HasSuffix(last, `"status":503}`) {
		t.Errorf("%s", last)
	}
	if a := s.do("POST", "/v1/chat/completions", ask); a.status != 503 {
		t.Errorf("unary: %d %s", a.status, a.body)
	}
}

// After the hold the status line goes out although nothing has come, and a
// later failure is told in the stream.
func TestHeldStatus(t *testing.T) {
	fail := make(chan struct{})
	backend := newFake()
	backend.run = func(context.Context, []*pipeline.Request) iter.Seq2[chat.Event, error] {
		return func(yield func(chat.Event, error) bool) {
			<-fail
			yield(chat.Event{}, engine.Errorf(engine.ResourceExhausted, "full"))
		}
	}
	s := start(t, backend, quickly(20*time.Millisecond, 0, time.Minute))
	resp := s.open("POST", "/v1/chat/completions", strings.NewReader(askStream))
	defer resp.Body.Close()
	if resp.StatusCode != 200 {
		t.Fatalf("status %d", resp.StatusCode)
	}
	close(fail)
	body, err := io.ReadAll(resp.Body)
	if err != nil || !strings.Contains(string(body), `"status":529}`) {
		t.Errorf("%s %v", body, err)
	}
}

func TestKeepAlive(t *testing.T) {
	more := make(chan struct{})
	backend := newFake()
	backend.run = func(ctx context.Context, _ []*pipeline.Request) iter.Seq2[chat.Event, error] {
		return then(beginning(), func(yield func(chat.Event, error) bool) {
			<-more
			for _, e := range helloEvents()[3:] {
				yield(e, nil)
			}
		})
	}
	s := start(t, backend, quickly(time.Minute, 10*time.Millisecond, time.Minute))
	resp := s.open("POST", "/v1/chat/completions", strings.NewReader(askStream))
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() && lines.Text() != ": keep-alive" {
	}
	close(more)
	for lines.Scan() && lines.Text() != "data: [DONE]" {
	}
	if err := lines.Err(); err != nil || lines.Text() != "data: [DONE]" {
		t.Errorf("%q %v", lines.Text(), err)
	}
}

// untilCancelled is a backend that answers nothing more, and tells why it was
// stopped.
func untilCancelled(events []chat.Event) (*fake, <-chan error) {
	causes := make(chan error, 16)
	backend := newFake()
	backend.run = func(ctx context.Context, _ []*pipeline.Request) iter.Seq2[chat.Event, error] {
		return then(events, func(yield func(chat.Event, error) bool) {
			<-ctx.Done()
			causes <- context.Cause(ctx)
			yield(chat.Event{}, engine.CauseOf(ctx, ctx.Err()))
		})
	}
	return backend, causes
}

// A client that leaves stops the work for it, whatever it waits for, and
// nothing is left behind.
func TestVanishedClient(t *testing.T) {
	for name, c := range map[string]struct {
		body   string
		events []chat.Event
	}{
		"unary":         {ask, nil},
		"unary, begun":  {ask, beginning()},
		"stream, held":  {askStream, nil},
		"stream, begun": {askStream, beginning()},
	} {
		t.Run(name, func(t *testing.T) {
			backend, causes := untilCancelled(c.events)
			s := start(t, backend)
			s.do("GET", "/live", "") // the server's own goroutines run now
			before := runtime.NumGoroutine()
			for range 8 {
				conn := dial(t, s, c.body)
				eventually(t, func() bool { return len(backend.requests()) > 0 }, func() string { return "no request" })
				conn.Close()
			}
			for range 8 {
				if cause := <-causes; cause != engine.ErrClientGone {
					t.Errorf("cause: %v", cause)
				}
			}
			kind, _, _ := strings.Cut(name, ",")
			s.metric(fmt.Sprintf(`dynamo_frontend_model_cancellation_total{endpoint="chat_completions",model="acme/demo",request_type=%q} 8`, kind))
			s.metric(`dynamo_frontend_disconnected_clients 8`)
			s.metric(`dynamo_frontend_active_requests{model="acme/demo"} 0`)
			s.http.CloseIdleConnections()
			eventually(t, func() bool { return runtime.NumGoroutine() <= before }, func() string {
				buf := make([]byte, 1<<20)
				return fmt.Sprintf("%d goroutines, were %d\n%s", runtime.NumGoroutine(), before, buf[:runtime.Stack(buf, true)])
			})
			if strings.Contains(s.log.String(), `"level":"ERROR"`) {
				t.Errorf("log:\n%s", s.log)
			}
		})
	}
}

// dial sends a request by hand.
func dial(t *testing.T, s *server, body string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(conn, "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	return conn
}

// A client that stays but reads nothing is given up after the write deadline.
func TestSlowClient(t *testing.T) {
	gone := make(chan error, 1)
	backend := newFake()
	backend.run = func(ctx context.Context, _ []*pipeline.Request) iter.Seq2[chat.Event, error] {
		return then(beginning(), func(yield func(chat.Event, error) bool) {
			text := strings.Repeat("x", 64<<10)
			for yield(chat.Event{Kind: chat.TextDelta, Text: text, IDs: []uint32{1}}, nil) {
			}
			gone <- context.Cause(ctx)
		})
	}
	s := start(t, backend, quickly(time.Minute, time.Minute, 50*time.Millisecond))
	conn := dial(t, s, askStream)
	defer conn.Close()
	if cause := <-gone; cause != engine.ErrClientGone {
		t.Errorf("cause: %v", cause)
	}
	s.metric(`dynamo_frontend_disconnected_clients 1`)
}

// A panic is an answer without detail and a log line with all of it; the server
// goes on.
func TestPanic(t *testing.T) {
	for name, c := range map[string]struct {
		body   string
		events []chat.Event
		status int
		want   string
	}{
		"unary":         {ask, nil, 500, `"code":500}`},
		"stream":        {askStream, nil, 500, `"code":500}`},
		"stream, begun": {askStream, beginning(), 200, "\"status\":500}\n\ndata: [DONE]\n\n"},
	} {
		t.Run(name, func(t *testing.T) {
			backend := newFake()
			backend.run = func(context.Context, []*pipeline.Request) iter.Seq2[chat.Event, error] {
				return then(c.events, func(func(chat.Event, error) bool) { panic("the secret inside") })
			}
			s := start(t, backend)
			a := s.do("POST", "/v1/chat/completions", c.body)
			if a.status != c.status || !strings.HasSuffix(a.body, c.want) || strings.Contains(a.body, "secret") {
				t.Errorf("%d %s", a.status, a.body)
			}
			eventually(t, func() bool { // the answer does not wait for the log
				log := s.log.String()
				return strings.Contains(log, "the secret inside") && strings.Contains(log, "answer_test.go")
			}, func() string { return "log:\n" + s.log.String() })
			kind, _, _ := strings.Cut(name, ",")
			s.metric(fmt.Sprintf(`dynamo_frontend_requests_total{endpoint="chat_completions",error_type="internal",model="acme/demo",request_type=%q,status="error"} 1`, kind))
			s.metric(`dynamo_frontend_active_requests{model="acme/demo"} 0`)
			if got := s.do("GET", "/live", ""); got.status != 200 {
				t.Errorf("afterwards /live is %d", got.status)
			}
		})
	}
}

func TestTraceContext(t *testing.T) {
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for header, want := range map[string]string{
		parent: parent,
		"cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more": "cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
		"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more": "",
		"ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01":      "",
		"00-00000000000000000000000000000000-b7ad6b7169203331-01":      "",
		"00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01":      "",
		"00-0AF7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01":      "",
		"nonsense": "", "": "",
	} {
		backend := newFake()
		s := start(t, backend)
		s.do("POST", "/v1/chat/completions", ask, "Traceparent", header, "Tracestate", "a=b")
		got := backend.requests()[0].Trace
		if got.Parent != want || (got.State == "a=b") != (want != "") {
			t.Errorf("%q: %+v", header, got)
		}
	}
}

func TestLogLine(t *testing.T) {
	s := start(t, newFake())
	s.do("POST", "/v1/chat/completions", ask)
	s.do("POST", "/v1/chat/completions", strings.Replace(ask, "{", `{"logit_bias":{"secret words":1},`, 1))
	s.do("GET", "/metrics", "")
	var lines []string
	eventually(t, func() bool {
		lines = strings.Split(strings.TrimSpace(s.log.String()), "\n")
		return len(lines) >= 5
	}, s.log.String)
	var told []string
	var ok, bad map[string]any
	for _, line := range lines {
		var read map[string]any
		if err := json.Unmarshal([]byte(line), &read); err != nil {
			t.Fatal(err)
		}
		told = append(told, read["msg"].(string))
		if read["msg"] == "request completed" {
			if bad = read; ok == nil {
				ok = read
			}
		}
	}
	// A request that is not understood was not received for any model.
	if want := []string{"request received", "request completed", "http response sent", "request completed", "http response sent"}; !slices.Equal(told, want) {
		t.Fatalf("told %q", told)
	}
	for k, want := range map[string]any{
		"msg": "request completed", "model": "acme/demo", "endpoint": "chat_completions", "request_type": "unary", "status": "success", "level": "INFO",
	} {
		if ok[k] != want {
			t.Errorf("%s: %v, want %v", k, ok[k], want)
		}
	}
	for k, want := range map[string]any{
		"msg": "request completed", "model": "unknown_model", "status": "error", "error_type": "validation", "http_status": 400.0, "level": "INFO",
		"param": "logit_bias",
	} {
		if bad[k] != want {
			t.Errorf("%s: %v, want %v", k, bad[k], want)
		}
	}
	if strings.Contains(s.log.String(), "secret words") {
		t.Errorf("the log tells the prompt: %s", s.log)
	}
}
