package frontend_test

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/pipeline"
)

const (
	askResponse       = `{"model":"demo","input":"secret words"}`
	askResponseStream = `{"model":"demo","stream":true,"input":"secret words"}`
)

// names returns the names of the events of a stream, those that repeat once.
func names(t *testing.T, body string) []string {
	t.Helper()
	var list []string
	for i, frame := range strings.Split(strings.TrimSuffix(body, "\n\n"), "\n\n") {
		name, data, ok := strings.Cut(strings.TrimPrefix(frame, "event: "), "\ndata: ")
		if !ok {
			list = append(list, frame)
			continue
		}
		var e struct {
			Type           string
			SequenceNumber int `json:"sequence_number"`
		}
		if err := json.Unmarshal([]byte(data), &e); err != nil {
			t.Fatalf("%v in %s", err, data)
		}
		if e.Type != name || e.SequenceNumber != i {
			t.Errorf("event %d is %s", i, frame)
		}
		name = strings.TrimPrefix(name, "response.")
		if len(list) == 0 || list[len(list)-1] != name {
			list = append(list, name)
		}
	}
	return list
}

var wholeStream = []string{
	"created", "in_progress", "output_item.added", "content_part.added", "output_text.delta",
	"output_text.done", "content_part.done", "output_item.done", "completed", "data: [DONE]",
}

func TestResponsesStream(t *testing.T) {
	backend := newFake()
	s := start(t, backend)
	a := s.do("POST", "/v1/responses?api-version=1", askResponseStream, "Content-Type", "application/json")
	if a.status != 200 || a.header.Get("Content-Type") != "text/event-stream" || a.header.Get("Cache-Control") != "no-cache" {
		t.Errorf("%d %v", a.status, a.header)
	}
	if d := cmp.Diff(wholeStream, names(t, a.body)); d != "" {
		t.Errorf("-want +got\n%s", d)
	}
	if r := backend.requests()[0].Chat; r.API != chat.APIResponses || r.Turns[0].Blocks[0].Text != "secret words" {
		t.Errorf("the pipeline saw %+v", r)
	}
	s.metric(`dynamo_frontend_requests_total{endpoint="responses",error_type="",model="acme/demo",request_type="stream",status="success"} 1`)
	if strings.Contains(s.log.String(), "secret") {
		t.Error("the log tells what was asked")
	}
}

func TestResponsesUnary(t *testing.T) {
	s := start(t, newFake())
	before := time.Now().Unix()
	a := s.do("POST", "/v1/responses", askResponse)
	var got struct {
		ID, Object, Status, Model string
		CreatedAt                 int64 `json:"created_at"`
		CompletedAt               int64 `json:"completed_at"`
		Output                    []struct{ Content []struct{ Text string } }
		Usage                     struct {
			Input   int `json:"input_tokens"`
			Total   int `json:"total_tokens"`
			Details struct {
				Cached int `json:"cached_tokens"`
			} `json:"input_tokens_details"`
		}
	}
	if err := json.Unmarshal([]byte(a.body), &got); err != nil || a.status != 200 || a.header.Get("Content-Type") != "application/json" {
		t.Fatalf("%d %s: %v", a.status, a.body, err)
	}
	if got.Object != "response" || got.Status != "completed" || got.Model != "acme/demo" || got.Output[0].Content[0].Text != "Hello world" {
		t.Errorf("%s", a.body)
	}
	if u := got.Usage; u.Input != 7 || u.Total != 9 || u.Details.Cached != 4 {
		t.Errorf("usage %+v", u)
	}
	if got.CreatedAt < before || got.CompletedAt < got.CreatedAt || got.CompletedAt > time.Now().Unix() {
		t.Errorf("from %d to %d", got.CreatedAt, got.CompletedAt)
	}
	if !regexp.MustCompile(`^resp_[0-9a-f]{32}$`).MatchString(got.ID) {
		t.Errorf("id %q", got.ID)
	}
}

// TestResponsesLogprobs holds that tokens are shown with the item that they belong
// to, whether the answer is streamed or not.
func TestResponsesLogprobs(t *testing.T) {
	backend := newFake()
	backend.run = func(context.Context, []*pipeline.Request) iter.Seq2[chat.Event, error] {
		return then(nil, func(yield func(chat.Event, error) bool) {
			for _, e := range []chat.Event{
				{Kind: chat.Start},
				{Kind: chat.BlockStart, BlockKind: chat.Thought},
				{Kind: chat.ThinkingDelta, Text: "Hm", Logprobs: []chat.Logprob{{Text: "Hm"}}},
				{Kind: chat.BlockStop},
				{Kind: chat.BlockStart, Index: 1, BlockKind: chat.Text, Logprobs: []chat.Logprob{{Text: "</think>"}}},
				{Kind: chat.TextDelta, Index: 1, Text: "Yes", Logprobs: []chat.Logprob{{Text: "Yes", Logprob: -2}}},
				{Kind: chat.BlockStop, Index: 1},
				{Kind: chat.Finished, Finish: chat.Finish{Reason: chat.FinishStop}},
			} {
				if !yield(e, nil) {
					return
				}
			}
		})
	}
	s := start(t, backend)
	const want = `"content":[{"type":"output_text","text":"Yes","annotations":[],"logprobs":[{"token":"Yes","logprob":-2,"bytes":[89,101,115],"top_logprobs":[]}]}]`
	for _, stream := range []bool{false, true} {
		a := s.do("POST", "/v1/responses", fmt.Sprintf(`{"model":"demo","input":"a","stream":%v,"include":["message.output_text.logprobs"]}`, stream))
		if !strings.Contains(a.body, want) {
			t.Errorf("stream %v:\n%s", stream, a.body)
		}
	}
}

var tooLong = &engine.Error{Kind: engine.InvalidArgument, Code: "context_length_exceeded", Param: "messages", Message: "This model's maximum context length is 4096 tokens."}

// TestResponsesTooLong holds that agents which compact a conversation are told to:
// inside of the stream, since a status ends them.
func TestResponsesTooLong(t *testing.T) {
	backend := newFake()
	backend.run = func(context.Context, []*pipeline.Request) iter.Seq2[chat.Event, error] { return failing(tooLong) }
	s := start(t, backend)
	a := s.do("POST", "/v1/responses", askResponseStream)
	if a.status != 200 || a.header.Get("Content-Type") != "text/event-stream" {
		t.Errorf("%d %v", a.status, a.header)
	}
	if d := cmp.Diff([]string{"created", "in_progress", "failed", "data: [DONE]"}, names(t, a.body)); d != "" {
		t.Errorf("-want +got\n%s", d)
	}
	if !strings.Contains(a.body, `"error":{"code":"context_length_exceeded","message":"This model's maximum`) {
		t.Errorf("%s", a.body)
	}
	a = s.do("POST", "/v1/responses", askResponse)
	if a.status != 400 || !strings.Contains(a.body, `"param":"input","code":"context_length_exceeded"`) {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// Whatever else fails before the first event has its real status.
func TestResponsesEarlyErrors(t *testing.T) {
	for _, c := range []struct {
		err        error
		status     int
		code       string
		retryAfter string
	}{
		{engine.Errorf(engine.Unavailable, "nobody"), 503, "overloaded", "1"},
		{&engine.Error{Kind: engine.ResourceExhausted, RetryAfter: 7 * time.Second}, 529, "overloaded", "7"},
		{engine.Errorf(engine.InvalidArgument, "bad"), 400, "invalid_value", ""},
		{engine.Errorf(engine.NotFound, "who"), 404, "model_not_found", ""},
	} {
		backend := newFake()
		backend.run = func(context.Context, []*pipeline.Request) iter.Seq2[chat.Event, error] { return failing(c.err) }
		s := start(t, backend)
		for _, body := range []string{askResponse, askResponseStream} {
			a := s.do("POST", "/v1/responses", body)
			var e struct {
				Error struct{ Message, Type, Code string }
				Code  int
			}
			if err := json.Unmarshal([]byte(a.body), &e); err != nil || a.status != c.status || e.Code != c.status || e.Error.Code != c.code || e.Error.Message == "" {
				t.Errorf("%v: %d %s", c.err, a.status, a.body)
			}
			if a.header.Get("Retry-After") != c.retryAfter {
				t.Errorf("%v: Retry-After %q", c.err, a.header.Get("Retry-After"))
			}
		}
	}
}

func TestResponsesBadRequests(t *testing.T) {
	s := start(t, newFake())
	for _, c := range []struct {
		body, contentType string
		status            int
		param             string
	}{
		{`{"model":"demo"}`, "application/json", 400, "input"},
		{`{"model":"demo","input":[{"role":"user","content":[{"type":"input_image"}]}]}`, "application/json", 400, "input[0].content[0].image_url"},
		{`{"model":"demo","input":"a","previous_response_id":"resp_x"}`, "", 400, "previous_response_id"},
		{`{"model":"demo","input":[{"type":"item_reference","id":"msg_x"}]}`, "application/x+json", 404, "input"},
		{`{"model":"nobody","input":"a"}`, "application/json", 404, "model"},
		{`{"model":"demo","input":"a"}`, "text/plain", 415, ""},
	} {
		a := s.do("POST", "/v1/responses", c.body, "Content-Type", c.contentType)
		var e struct{ Error struct{ Param string } }
		if err := json.Unmarshal([]byte(a.body), &e); err != nil || a.status != c.status || e.Error.Param != c.param {
			t.Errorf("%s: %d %s", c.body, a.status, a.body)
		}
	}
}

// TestResponsesLateFailure holds that a failure after the first event ends the
// stream in the words of this API.
func TestResponsesLateFailure(t *testing.T) {
	backend := newFake()
	backend.run = func(context.Context, []*pipeline.Request) iter.Seq2[chat.Event, error] {
		return then(beginning(), func(yield func(chat.Event, error) bool) {
			yield(chat.Event{}, engine.Errorf(engine.Disconnected, "worker 7 at 10.0.0.7 is gone"))
		})
	}
	s := start(t, backend)
	a := s.do("POST", "/v1/responses", askResponseStream)
	want := []string{"created", "in_progress", "output_item.added", "content_part.added", "output_text.delta", "failed", "data: [DONE]"}
	if d := cmp.Diff(want, names(t, a.body)); d != "" {
		t.Errorf("-want +got\n%s", d)
	}
	if strings.Contains(a.body, "10.0.0.7") || !strings.Contains(a.body, `"status":"failed"`) {
		t.Errorf("%s", a.body)
	}
	if a = s.do("POST", "/v1/responses", askResponse); a.status != 503 {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// TestResponsesOpeningIsHeld holds that the stream begins with its opening events
// when nothing else comes for a while, and goes on with the numbers behind them.
func TestResponsesOpeningIsHeld(t *testing.T) {
	backend, goOn := newFake(), make(chan struct{})
	backend.run = func(context.Context, []*pipeline.Request) iter.Seq2[chat.Event, error] {
		return then(nil, func(yield func(chat.Event, error) bool) {
			<-goOn
			for _, e := range helloEvents() {
				if !yield(e, nil) {
					return
				}
			}
		})
	}
	s := start(t, backend, quickly(time.Millisecond, 0, time.Minute))
	resp := s.open("POST", "/v1/responses", strings.NewReader(askResponseStream))
	defer resp.Body.Close()
	var got strings.Builder
	buf := make([]byte, 4096)
	for released := false; ; {
		n, err := resp.Body.Read(buf)
		got.Write(buf[:n])
		if !released && strings.Contains(got.String(), "event: response.in_progress\n") {
			released = true
			close(goOn)
		}
		if err != nil {
			break
		}
	}
	if d := cmp.Diff(wholeStream, names(t, got.String())); d != "" {
		t.Errorf("-want +got\n%s", d)
	}
}

// TestResponsesIdentity holds that the key of the prompt's cache names the
// session, as agents of this API set it.
func TestResponsesIdentity(t *testing.T) {
	backend := newFake()
	s := start(t, backend)
	s.do("POST", "/v1/responses", `{"model":"demo","input":"a","prompt_cache_key":"0199-key","nvext":{"agent_hints":{"priority":3}}}`)
	s.do("POST", "/v1/responses", `{"model":"demo","input":"a","prompt_cache_key":"0199-key"}`, "Thread-Id", "0199-thread")
	seen := backend.requests()
	if seen[0].Identity.Key != "0199-key" || seen[0].KV.Priority == nil || *seen[0].KV.Priority != 3 || seen[1].Identity.Key != "0199-thread" {
		t.Errorf("%+v, %+v", seen[0].Identity, seen[1].Identity)
	}
}
