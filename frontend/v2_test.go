package frontend_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/frontend"
	"github.com/dynago/dynago/pipeline"
	"github.com/dynago/dynago/router"
)

// tensors is a backend of models of tensors, which gives back what it is sent.
type tensors struct {
	*fake
	// infer, if not nil, answers instead.
	infer func(ctx context.Context, call *pipeline.Inference) iter.Seq2[*engine.TensorResponse, error]
	calls chan *pipeline.Inference
}

func (f *tensors) Infer(ctx context.Context, call *pipeline.Inference) iter.Seq2[*engine.TensorResponse, error] {
	select {
	case f.calls <- call:
	default:
	}
	if f.infer != nil {
		return f.infer(ctx, call)
	}
	return func(yield func(*engine.TensorResponse, error) bool) {
		r := call.Tensors
		yield(&engine.TensorResponse{ID: "its own", Model: r.Model, Outputs: r.Inputs, Parameters: r.Parameters}, nil)
	}
}

func newTensors() *tensors {
	f := &tensors{fake: newFake(), calls: make(chan *pipeline.Inference, 1)}
	text := &engine.Card{Accepts: []engine.Input{engine.InputTokens}}
	f.models[0].Card, f.models[1].Card = text, text
	f.models = append(f.models,
		pipeline.ModelInfo{ID: "scorer", Ready: true, Card: &engine.Card{
			Accepts: []engine.Input{engine.InputTensor},
			Tensor:  &engine.TensorConfig{Name: "scorer", Inputs: []engine.TensorSpec{{Name: "x", Datatype: "FP32", Shape: []int64{-1}}}},
		}},
		pipeline.ModelInfo{ID: "acme/ready", Ready: true, Card: text},
		pipeline.ModelInfo{ID: "bare", Ready: true, Card: &engine.Card{Accepts: []engine.Input{engine.InputTensor}}},
		pipeline.ModelInfo{ID: "mute", Ready: true, Card: &engine.Card{}},
	)
	return f
}

// startV2 starts a server of KServe.
func startV2(t *testing.T, backend *tensors, change ...func(*frontend.Config)) *server {
	t.Helper()
	return start(t, backend, append([]func(*frontend.Config){func(c *frontend.Config) { c.KServe, c.Tensors = true, backend }}, change...)...)
}

const (
	infer   = `{"id":"r-1","inputs":[{"name":"text_input","datatype":"BYTES","shape":[1],"data":["secret words"]}]}`
	scores  = `{"id":"r-2","parameters":{"k":3},"inputs":[{"name":"x","datatype":"INT64","shape":[2,1],"data":[[9007199254740993],[-1]]}]}`
	scored  = `{"model_name":"scorer","model_version":"1","id":"r-2","parameters":{"k":3},"outputs":[{"name":"x","datatype":"INT64","shape":[2,1],"data":[9007199254740993,-1]}]}`
	written = `{"model_name":"acme/demo","model_version":"1","id":"r-1","parameters":{"completion_tokens":2,"prompt_tokens":7},"outputs":[{"name":"text_output","datatype":"BYTES","shape":[1],"data":["Hello world"]},{"name":"finish_reason","datatype":"BYTES","shape":[1],"data":["stop"]}]}`
)

func TestV2Descriptions(t *testing.T) {
	s := startV2(t, newTensors(), func(c *frontend.Config) { c.Version = "v1.2" })
	const text = `,"versions":["1"],"platform":"dynamo","inputs":[{"name":"text_input","datatype":"BYTES","shape":[1]},{"name":"streaming","datatype":"BOOL","shape":[1]}],"outputs":[{"name":"text_output","datatype":"BYTES","shape":[-1]},{"name":"finish_reason","datatype":"BYTES","shape":[-1]}]}`
	for _, c := range []struct {
		method, path, body string
		status             int
		want               string
	}{
		{"GET", "/v2", "", 200, `{"name":"dynago","version":"v1.2","extensions":["model_configuration","parameters","statistics","binary_tensor_data"]}`},
		{"GET", "/v2/health/live", "", 200, `{"live":true}`},
		{"GET", "/v2/health/ready", "", 200, `{"ready":true}`},
		{"GET", "/v2/models/acme/demo", "", 200, `{"name":"acme/demo"` + text},
		{"GET", "/v2/models/acme%2Fdemo", "", 200, `{"name":"acme/demo"` + text},
		{"GET", "/v2/models/acme/demo/versions/7", "", 200, `{"name":"acme/demo"` + text},
		{"GET", "/v2/models/acme/ready", "", 200, `{"name":"acme/ready"` + text},
		{"GET", "/v2/models/acme%2Fready", "", 200, `{"name":"acme/ready"` + text},
		{"GET", "/v2/models/acme/ready/ready", "", 200, `{"name":"acme/ready","ready":true}`},
		{"GET", "/v2/models/demo", "", 404, `{"error":"Model 'demo' not found"}`},
		{"GET", "/v2/models/mute", "", 404, `{"error":"Model 'mute' not found"}`},
		{"GET", "/v2/models/versions/1", "", 404, `{"error":"Model 'versions/1' not found"}`},
		{"GET", "/v2/models/scorer", "", 200, `{"name":"scorer","versions":["1"],"platform":"dynamo","inputs":[{"name":"x","datatype":"FP32","shape":[-1]}],"outputs":[]}`},
		{"GET", "/v2/models/bare", "", 400, `{"error":"Model 'bare' has type Tensor but: no model config is provided"}`},
		{"GET", "/v2/models/scorer/config", "", 200, `{"name":"scorer","platform":"dynamo","max_batch_size":0,"input":[{"name":"x","data_type":"TYPE_FP32","format":"FORMAT_NONE","dims":[-1],`},
		{"GET", "/v2/models/nobody/config", "", 404, `{"error":"Model 'nobody' not found"}`},
		{"GET", "/v2/models/sleepy/ready", "", 400, `{"name":"sleepy","ready":false}`},
		{"GET", "/v2/models/nobody/versions/1/ready", "", 400, `{"name":"nobody","ready":false}`},
		{"POST", "/v2/repository/index", "", 200, `[{"name":"acme/demo","version":"1","state":"READY","reason":""},{"name":"sleepy","version":"1","state":"UNAVAILABLE","reason":"no worker is ready"},{"name":"scorer","version":"1","state":"READY","reason":""},{"name":"acme/ready",`},
		{"POST", "/v2/repository/index", `{"ready":true}`, 200, `[{"name":"acme/demo","version":"1","state":"READY","reason":""},{"name":"scorer",`},
		{"POST", "/v2/repository/index", `{"repository_name":"r"}`, 501, `{"error":"'repository_name' specification is not supported"}`},
		{"POST", "/v2/repository/index", `[]`, 400, `{"error":"Failed to parse request: expected an object`},
		{"GET", "/v2/models/nobody/stats", "", 404, `{"error":"Model 'nobody' not found"}`},
		{"POST", "/v2/repository/models/acme/demo/load", "{}", 501, `{"error":"Loading and unloading of models is not supported by this server"}`},
		{"GET", "/v2/systemsharedmemory/status", "", 501, `{"error":"Shared memory is not supported by this server"}`},
		{"POST", "/v2/cudasharedmemory/region/r/register", "{}", 501, `{"error":"Shared memory is not supported by this server"}`},
		{"GET", "/v2/trace/setting", "", 501, `{"error":"TraceSetting is not supported by this server"}`},
		{"POST", "/v2/logging", "{}", 501, `{"error":"LogSettings is not supported by this server"}`},
		{"GET", "/v2/nothing", "", 404, `{"error":"Route not found: GET /v2/nothing"}`},
		{"GET", "/v2/models/", "", 404, `{"error":"Route not found: GET /v2/models/"}`},
		{"POST", "/v2/models/infer", "{}", 404, `{"error":"Route not found: POST /v2/models/infer"}`},
		{"DELETE", "/v2/models/acme/demo", "", 405, `{"error":"Method not allowed: DELETE /v2/models/acme/demo takes GET, POST"}`},
		{"GET", "/v2/models/acme/demo/infer", "", 405, `{"error":"Method not allowed: GET /v2/models/acme/demo/infer takes POST"}`},
		{"POST", "/v2/models/acme/demo", "{}", 405, `{"error":"Method not allowed: POST /v2/models/acme/demo takes GET"}`},
		{"POST", "/v2/models/acme/demo/stats", "{}", 405, `takes GET"}`},
		{"POST", "/v2/health/live", "", 405, `{"error":"Method not allowed: POST /v2/health/live takes GET"}`},
	} {
		a := s.do(c.method, c.path, c.body)
		if a.status != c.status || !strings.Contains(a.body, c.want) || a.header.Get("Content-Type") != "application/json" || a.header.Get("Request-Id") == "" || !json.Valid([]byte(a.body)) {
			t.Errorf("%s %s: %d %v %s", c.method, c.path, a.status, a.header, a.body)
		}
		if got := a.header.Get("X-Should-Retry"); (got == "false") != (c.status == 501) {
			t.Errorf("%s %s: X-Should-Retry %q", c.method, c.path, got)
		}
		if (a.header.Get("Allow") != "") != (c.status == 405) {
			t.Errorf("%s %s: Allow %q", c.method, c.path, a.header.Get("Allow"))
		}
	}
	if a := s.do("HEAD", "/v2/models/acme/demo", ""); a.status != 200 || a.body != "" {
		t.Errorf("HEAD: %d %s", a.status, a.body)
	}
	if a := start(t, newFake()).do("GET", "/v2", ""); a.status != 404 || !strings.Contains(a.body, `"message":"Route not found`) {
		t.Errorf("a server without KServe: %d %s", a.status, a.body)
	}
}

func TestV2Infer(t *testing.T) {
	f := newTensors()
	s := startV2(t, f)
	for _, c := range []struct{ path, body, want string }{
		{"/v2/models/acme/demo/infer", infer, written},
		{"/v2/models/acme%2Fdemo/versions/1/infer", infer, written},
		{"/v2/models/demo/infer", infer, written},
		{"/v2/models/scorer/infer", scores, scored},
		{"/v2/models/acme/demo/generate", `{"id":"r-1","text_input":"secret words","parameters":{"temperature":0}}`, `{"id":"r-1","model_name":"acme/demo","model_version":"1","text_output":"Hello world","finish_reason":"stop","completion_tokens":2,"prompt_tokens":7}`},
	} {
		a := s.do("POST", c.path, c.body)
		if a.status != 200 || a.body != c.want || a.header.Get("Content-Type") != "application/json" || a.header.Get("Content-Length") != strconv.Itoa(len(c.want)) {
			t.Errorf("%s: %d %v %s", c.path, a.status, a.header, a.body)
		}
	}
	if got := f.requests()[0].Chat.Prompt.Text; got != "secret words" {
		t.Errorf("the model was asked %q", got)
	}
	// One of Triton's clients calls its JSON bytes.
	if a := s.do("POST", "/v2/models/acme/demo/infer", infer, "Content-Type", "application/octet-stream"); a.status != 200 || a.body != written {
		t.Errorf("%d %s", a.status, a.body)
	}
	for _, line := range []string{
		`dynamo_frontend_requests_total{endpoint="completions",error_type="",model="acme/demo",request_type="unary",status="success"} 5`,
		`dynamo_frontend_requests_total{endpoint="tensor",error_type="",model="scorer",request_type="unary",status="success"} 1`,
		`dynamo_frontend_inflight_requests{model="scorer"} 0`,
		`dynamo_frontend_queued_requests{model="scorer"} 0`,
	} {
		s.metric(line)
	}
	if a := s.do("GET", "/v2/models/scorer/stats", ""); !strings.Contains(a.body, `"inference_count":1`) || !strings.Contains(a.body, `{"model_stats":[{"name":"scorer","version":"1"`) {
		t.Errorf("%s", a.body)
	}
	if a := s.do("GET", "/v2/models/stats", ""); !strings.Contains(a.body, `"name":"acme/demo"`) || !strings.Contains(a.body, `"name":"scorer"`) {
		t.Errorf("%s", a.body)
	}
	if strings.Contains(s.log.String(), "secret") {
		t.Error("a prompt is in the log")
	}
}

// Bytes stand behind the JSON both ways, and are the whole of a body whose header has
// the length 0.
func TestV2Bytes(t *testing.T) {
	s := startV2(t, newTensors())
	const text = `{"inputs":[{"name":"x","datatype":"FP16","shape":[2],"parameters":{"binary_data_size":4}}],"outputs":[{"name":"x","parameters":{"binary_data":true}}]}`
	const answered = `{"model_name":"scorer","model_version":"1","outputs":[{"name":"x","datatype":"FP16","shape":[2],"parameters":{"binary_data_size":4}}]}`
	const alone = `{"model_name":"scorer","model_version":"1","outputs":[{"name":"x","datatype":"FP32","shape":[2],"parameters":{"binary_data_size":8}}]}`
	squeezed := func(s string) string {
		var b bytes.Buffer
		w := gzip.NewWriter(&b)
		io.WriteString(w, s) //nolint:errcheck // a buffer takes all
		w.Close()            //nolint:errcheck // the same
		return b.String()
	}
	for _, c := range []struct {
		header     string
		body       string
		more       []string
		want, tail string
	}{
		{strconv.Itoa(len(text)), text + "\x00\x3c\xff\x00", nil, answered, "\x00\x3c\xff\x00"},
		{strconv.Itoa(len(text)), text + "\x00\x3c\xff\x00", []string{"Content-Type", "application/octet-stream"}, answered, "\x00\x3c\xff\x00"},
		{strconv.Itoa(len(text)), squeezed(text + "\x00\x3c\xff\x00"), []string{"Content-Encoding", "gzip"}, answered, "\x00\x3c\xff\x00"},
		{"0", "\x00\x00\x80\x3f\x00\x00\x00\x40", []string{"Content-Type", "application/x-www-form-urlencoded"}, alone, "\x00\x00\x80\x3f\x00\x00\x00\x40"},
	} {
		a := s.do("POST", "/v2/models/scorer/infer", c.body, append([]string{"Inference-Header-Content-Length", c.header}, c.more...)...)
		if a.status != 200 || a.body != c.want+c.tail || a.header.Get("Inference-Header-Content-Length") != strconv.Itoa(len(c.want)) || a.header.Get("Content-Type") != "application/octet-stream" || a.header.Get("Content-Length") != strconv.Itoa(len(a.body)) {
			t.Errorf("%s: %d %v %q", c.header, a.status, a.header, a.body)
		}
	}
	// A text alone is one as it is.
	a := s.do("POST", "/v2/models/acme/demo/infer", "secret words", "Inference-Header-Content-Length", "0")
	n, _ := strconv.Atoi(a.header.Get("Inference-Header-Content-Length"))
	if a.status != 200 || n == 0 || a.body[n:] != "\x0b\x00\x00\x00Hello world\x04\x00\x00\x00stop" {
		t.Errorf("%d %v %q", a.status, a.header, a.body)
	}
	// An answer without bytes has no such header.
	if a := s.do("POST", "/v2/models/scorer/infer", scores, "Inference-Header-Content-Length", strconv.Itoa(len(scores))); a.body != scored || a.header.Get("Inference-Header-Content-Length") != "" {
		t.Errorf("%d %v %q", a.status, a.header, a.body)
	}
}

func TestV2Refusals(t *testing.T) {
	f := newTensors()
	s := startV2(t, f, func(c *frontend.Config) { c.BodyLimit = 1 << 20 })
	const demo, scorer = "/v2/models/acme/demo", "/v2/models/scorer"
	input := func(rest string) string { return `{"inputs":[{"name":"x",` + rest + `}]}` }
	for _, c := range []struct {
		path, body string
		header     []string
		status     int
		want       string
	}{
		{"/v2/models/nobody/infer", "not JSON", nil, 404, "Model 'nobody' not found"},
		{"/v2/models/mute/infer", "{}", nil, 404, "Model 'mute' not found"},
		{demo + "/infer", "not JSON", nil, 400, "Failed to parse request: invalid character"},
		{demo + "/infer", "{}", nil, 400, "Failed to parse request: Missing required input: 'text_input'"},
		{demo + "/infer", `{"inputs":[{"name":"text_input","datatype":"FP32","shape":[1],"data":[1]}]}`, nil, 400, "Expected 'text_input' to be of type BYTES for string input, got FP32"},
		{demo + "/infer", `{"inputs":[{"name":"text_input","datatype":"BYTES","shape":[2],"data":["a","b"]}]}`, nil, 400, "Expected 'text_input' to have shape [1]"},
		{demo + "/infer", `{"inputs":[{"name":"text_input","datatype":"BYTES","shape":[1],"data":["a"]},{"name":"streaming","datatype":"BOOL","shape":[1],"data":[true]}]}`, nil, 400, "Streaming is not supported for this endpoint"},
		{demo + "/infer", `{"inputs":[{"name":"text_input","datatype":"BYTES","shape":[1],"data":["a"]}],"parameters":{"temperature":9}}`, nil, 400, "Failed to parse request: Temperature must be between 0 and 2, got 9"},
		{demo + "/infer", infer, []string{"Content-Type", "text/plain"}, 415, "Expected request with Content-Type application/json"},
		{demo + "/infer", infer, []string{"Content-Encoding", "br"}, 415, "Content-Encoding must be one of"},
		{demo + "/infer", infer, []string{"Inference-Header-Content-Length", "-1"}, 400, "Inference-Header-Content-Length must be a number of bytes, got -1"},
		{demo + "/infer", infer, []string{"Inference-Header-Content-Length", "99999"}, 400, "Inference-Header-Content-Length is 99999, and the body has"},
		{demo + "/infer", strings.Repeat(" ", 1<<20) + "{}", nil, 413, "Request body exceeds the limit of 1 MB"},
		{demo + "/generate", `{"text_input":"a","stream":true}`, nil, 400, "Streaming is not supported for this endpoint"},
		{demo + "/generate", `{}`, nil, 400, "Missing required input: 'text_input'"},
		{demo + "/generate_stream", `{`, nil, 400, "Failed to parse request: the JSON text ends too early"},
		{scorer + "/infer", input(`"datatype":"FP16","shape":[1],"data":[1]`), nil, 400, "JSON has no numbers of FP16"},
		{scorer + "/infer", input(`"datatype":"INT8","shape":[2],"data":[1]`), nil, 400, "shape implies 2 elements but data has 1"},
		{scorer + "/infer", "abc", []string{"Inference-Header-Content-Length", "0"}, 400, "Raw input length must be a multiple of 4"},
		{scorer + "/generate", `{"text_input":"a"}`, nil, 400, "Model 'scorer' takes tensors: ask it by infer, generate is for models of text"},
		{scorer + "/generate_stream", `{"text_input":"a"}`, nil, 400, "Model 'scorer' takes tensors: ask it by infer, generate_stream is for models of text"},
		{"/v2/models/bare/infer", "abcd", []string{"Inference-Header-Content-Length", "0"}, 400, "no model config is provided"},
	} {
		a := s.do("POST", c.path, c.body, c.header...)
		var told struct{ Error string }
		if err := json.Unmarshal([]byte(a.body), &told); err != nil || a.status != c.status || !strings.Contains(told.Error, c.want) {
			t.Errorf("%s %.80s: %d %s, want %s", c.path, c.body, a.status, a.body, c.want)
		}
	}
	if n := len(f.requests()); n > 0 {
		t.Errorf("%d requests were asked of models", n)
	}
	s.metric(`dynamo_frontend_requests_total{endpoint="completions",error_type="not_found",model="unknown_model",request_type="unary",status="error"} 2`)
	s.metric(`dynamo_frontend_requests_total{endpoint="tensor",error_type="validation",model="scorer",request_type="unary",status="error"} 5`)
}

// What fails further down has the status of its kind, and the words of the protocol.
func TestV2Failures(t *testing.T) {
	for _, c := range []struct {
		err           error
		status        int
		text, tensors string
		retry         bool
	}{
		{&engine.Error{Kind: engine.ResourceExhausted}, 529, "Service temporarily overloaded", "Service temporarily overloaded", true},
		{&engine.Error{Kind: engine.Unavailable}, 503, "model temporarily unavailable", "model temporarily unavailable", true},
		{&engine.Error{Kind: engine.InvalidArgument, Message: "too long", Code: "context_length_exceeded"}, 400, "too long", "too long", false},
		{&engine.Error{Kind: engine.Internal, Message: "the text of an exception", FromEngine: true}, 500, "Failed to generate completions: the text of an exception", "Failed to generate tensor response stream: the text of an exception", false},
		{errors.New("secret"), 500, "Failed to generate completions: internal server error", "Failed to generate tensor response stream: internal server error", false},
		{&engine.Error{Kind: engine.Unsupported, Message: "not here"}, 501, "not here", "not here", false},
		{engine.ErrDeadline, 504, "Request timed out", "Request timed out", false},
	} {
		f := newTensors()
		f.run = func(context.Context, []*pipeline.Request) iter.Seq2[chat.Event, error] { return failing(c.err) }
		f.infer = func(context.Context, *pipeline.Inference) iter.Seq2[*engine.TensorResponse, error] {
			return func(yield func(*engine.TensorResponse, error) bool) { yield(nil, c.err) }
		}
		s := startV2(t, f)
		for path, want := range map[string]string{"acme/demo/infer": c.text, "scorer/infer": c.tensors, "acme/demo/generate": c.text, "acme/demo/generate_stream": c.text} {
			body := infer
			switch {
			case strings.Contains(path, "generate"):
				body = `{"text_input":"a"}`
			case strings.HasPrefix(path, "scorer"):
				body = scores
			}
			a := s.do("POST", "/v2/models/"+path, body)
			var told struct{ Error string }
			json.Unmarshal([]byte(a.body), &told) //nolint:errcheck // what is no JSON has no text
			if a.status != c.status || !strings.HasPrefix(told.Error, want) || (a.header.Get("Retry-After") != "") != c.retry || a.header.Get("Content-Type") != "application/json" {
				t.Errorf("%v by %s: %d %v %s, want %s", c.err, path, a.status, a.header, a.body, want)
			}
			if (a.header.Get("X-Should-Retry") == "false") != (c.status == 501) {
				t.Errorf("%v by %s: %v", c.err, path, a.header)
			}
		}
	}
}

// A worker has exactly one answer to a call that waits for one.
func TestV2CountsResponses(t *testing.T) {
	for n, want := range map[int]string{0: "No response received", 2: "Multiple responses in non-streaming mode"} {
		f := newTensors()
		f.infer = func(_ context.Context, call *pipeline.Inference) iter.Seq2[*engine.TensorResponse, error] {
			return func(yield func(*engine.TensorResponse, error) bool) {
				for range n {
					if !yield(&engine.TensorResponse{Model: "scorer"}, nil) {
						return
					}
				}
			}
		}
		a := startV2(t, f).do("POST", "/v2/models/scorer/infer", scores)
		if a.status != 500 || !strings.Contains(a.body, want) {
			t.Errorf("%d responses: %d %s", n, a.status, a.body)
		}
	}
}

// What JSON cannot hold is told of, and how to ask for it.
func TestV2InexpressibleAnswers(t *testing.T) {
	f := newTensors()
	f.infer = func(context.Context, *pipeline.Inference) iter.Seq2[*engine.TensorResponse, error] {
		return func(yield func(*engine.TensorResponse, error) bool) {
			yield(&engine.TensorResponse{Outputs: []engine.Tensor{{Name: "y", Datatype: "BF16", Shape: []int64{1}, Data: []byte{1, 2}}}}, nil)
		}
	}
	s := startV2(t, f)
	if a := s.do("POST", "/v2/models/scorer/infer", scores); a.status != 400 || !strings.Contains(a.body, "output tensor 'y': JSON has no numbers of BF16; ask for it as bytes") {
		t.Errorf("%d %s", a.status, a.body)
	}
	a := s.do("POST", "/v2/models/scorer/infer", strings.Replace(scores, `{"k":3}`, `{"binary_data_output":true}`, 1))
	if a.status != 200 || !strings.HasSuffix(a.body, "}\x01\x02") {
		t.Errorf("%d %q", a.status, a.body)
	}
	s.metric(`dynamo_frontend_requests_total{endpoint="tensor",error_type="validation",model="scorer",request_type="unary",status="error"} 1`)
	s.metric(`dynamo_frontend_requests_total{endpoint="tensor",error_type="",model="scorer",request_type="unary",status="success"} 1`)
}

// What comes beside a call is heeded as on other routes.
func TestV2Beside(t *testing.T) {
	f := newTensors()
	s := startV2(t, f, withKeys(t, "k-1 acme\n"))
	if a := s.do("POST", "/v2/models/scorer/infer", scores); a.status != 401 || !strings.HasPrefix(a.body, `{"error":"Incorrect or missing API key`) || a.header.Get("Www-Authenticate") != "Bearer" {
		t.Errorf("%d %v %s", a.status, a.header, a.body)
	}
	headers := []string{
		"X-Api-Key", "k-1", "X-Dynamo-Session-Id", "s-9", "X-Dynamo-Request-Priority", "5", "X-Dynamo-Meta-Lang", "en",
		"Traceparent", "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01", "X-Request-Id", "mine",
	}
	const id = "1b3f0c52-8a55-4a8e-b1a7-0a7b6bd0f001"
	a := s.do("POST", "/v2/models/acme/demo/infer", strings.Replace(infer, "r-1", strings.ToUpper(id), 1), headers...)
	if a.status != 200 || a.header.Get("Request-Id") != id || a.header.Get("X-Request-Id") != "mine" || !strings.Contains(a.body, `"id":"`+strings.ToUpper(id)) {
		t.Errorf("%d %v %s", a.status, a.header, a.body)
	}
	r := f.requests()[0]
	if r.ID != id || r.Tenant != "acme" || r.Identity.Chain != "s-9" || r.Ext.AgentHints == nil || *r.Ext.AgentHints.Priority != 5 || r.Meta["lang"] != "en" || r.Trace.Parent == "" {
		t.Errorf("%+v %+v", r, r.Ext)
	}
	a = s.do("POST", "/v2/models/scorer/infer", scores, headers...)
	call := <-f.calls
	if a.status != 200 || call.ID != a.header.Get("Request-Id") || call.Tensors.ID != "r-2" || call.Tensors.Meta["lang"] != "en" || call.Ext == nil {
		t.Errorf("%d %v %+v", a.status, a.header, call)
	}
	// The last source of a session is the parameter of Triton.
	s.do("POST", "/v2/models/acme/demo/infer", strings.Replace(infer, `"id":`, `"parameters":{"sequence_id":7,"sequence_end":true},"id":`, 1), "X-Api-Key", "k-1")
	if id := f.requests()[1].Identity; id.Chain != "7" || !id.Final {
		t.Errorf("%+v", id)
	}
}

func TestV2GenerateStream(t *testing.T) {
	f := newTensors()
	s := startV2(t, f)
	a := s.do("POST", "/v2/models/acme/demo/generate_stream", `{"id":"r-1","text_input":"secret words"}`)
	const want = `data: {"id":"r-1","model_name":"acme/demo","model_version":"1","text_output":"Hello","finish_reason":""}` + "\n\n" +
		`data: {"id":"r-1","model_name":"acme/demo","model_version":"1","text_output":" world","finish_reason":""}` + "\n\n" +
		`data: {"id":"r-1","model_name":"acme/demo","model_version":"1","text_output":"","finish_reason":"stop","completion_tokens":2,"prompt_tokens":7}` + "\n\n"
	if a.status != 200 || a.body != want || a.header.Get("Content-Type") != "text/event-stream; charset=utf-8" {
		t.Errorf("%d %v %s", a.status, a.header, a.body)
	}
	// One who wants no pieces gets one response.
	a = s.do("POST", "/v2/models/acme/demo/generate_stream", `{"text_input":"secret words","stream":false}`)
	if strings.Count(a.body, "data: ") != 1 || !strings.Contains(a.body, `"text_output":"Hello world"`) || a.header.Get("Content-Type") != "text/event-stream; charset=utf-8" {
		t.Errorf("%d %v %s", a.status, a.header, a.body)
	}
	s.metric(`dynamo_frontend_requests_total{endpoint="completions",error_type="",model="acme/demo",request_type="stream",status="success"} 1`)
	s.metric(`dynamo_frontend_requests_total{endpoint="completions",error_type="",model="acme/demo",request_type="unary",status="success"} 1`)
	// HTTP/1.0 has no connection to take over, and the same answer.
	request := "POST /v2/models/acme/demo/generate_stream HTTP/1.0\r\nContent-Length: 18\r\n\r\n" + `{"text_input":"a"}`
	if old := s.raw(request); !strings.Contains(old, "text/event-stream; charset=utf-8") || strings.Count(old, "data: ") != 3 {
		t.Errorf("%s", old)
	}
}

// raw sends bytes on a connection of their own and reads until it is closed.
func (s *server) raw(request string) string {
	s.t.Helper()
	u, _ := url.Parse(s.url)
	conn, err := net.Dial("tcp", u.Host)
	if err != nil {
		s.t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(10 * time.Second)) //nolint:errcheck // a hang fails the test anyway
	if _, err := io.WriteString(conn, request); err != nil {
		s.t.Fatal(err)
	}
	answer, err := io.ReadAll(conn)
	if err != nil {
		s.t.Fatal(err)
	}
	return string(answer)
}

// What became of a session is told beside the answer.
func TestV2TellsOfSessions(t *testing.T) {
	f := newTensors()
	f.run = func(_ context.Context, requests []*pipeline.Request) iter.Seq2[chat.Event, error] {
		requests[0].Notes.Session = router.SessionUnknown
		return hello(1)
	}
	s := startV2(t, f)
	for path, body := range map[string]string{"infer": infer, "generate": `{"text_input":"a"}`, "generate_stream": `{"text_input":"a"}`} {
		if a := s.do("POST", "/v2/models/acme/demo/"+path, body); a.status != 200 || a.header.Get("X-Dynago-Session") != "unknown" {
			t.Errorf("%s: %d %v", path, a.status, a.header)
		}
	}
}

// The status line waits, silence is bridged, and what fails later is told in the stream.
func TestV2StreamTimes(t *testing.T) {
	f := newTensors()
	release := make(chan struct{})
	f.run = func(ctx context.Context, _ []*pipeline.Request) iter.Seq2[chat.Event, error] {
		return then(nil, func(yield func(chat.Event, error) bool) {
			<-release
			for _, e := range beginning() {
				if !yield(e, nil) {
					return
				}
			}
			<-release
			yield(chat.Event{}, &engine.Error{Kind: engine.Internal, Message: "boom"})
		})
	}
	s := startV2(t, f, quickly(50*time.Millisecond, 20*time.Millisecond, time.Second))
	resp := s.open("POST", "/v2/models/acme/demo/generate_stream", strings.NewReader(`{"text_input":"a"}`))
	defer resp.Body.Close()
	if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/event-stream; charset=utf-8" {
		t.Fatalf("%d %v", resp.StatusCode, resp.Header)
	}
	got := make([]byte, len(": keep-alive\n\n"))
	if _, err := io.ReadFull(resp.Body, got); err != nil || string(got) != ": keep-alive\n\n" {
		t.Errorf("%q %v", got, err)
	}
	release <- struct{}{}
	release <- struct{}{}
	rest, err := io.ReadAll(resp.Body)
	frames := strings.Split(strings.ReplaceAll(string(rest), ": keep-alive\n\n", ""), "\n\n")
	if err != nil || len(frames) != 3 || !strings.Contains(frames[0], `"text_output":"Hello"`) || frames[1] != `data: {"error":"Failed to generate completions: boom"}` || frames[2] != "" {
		t.Errorf("%q %v", rest, err)
	}
	s.metric(`dynamo_frontend_requests_total{endpoint="completions",error_type="internal",model="acme/demo",request_type="stream",status="error"} 1`)
}

// A client that leaves ends the work, and is counted.
func TestV2ClientsLeave(t *testing.T) {
	f := newTensors()
	ended := make(chan error, 1)
	f.run = func(ctx context.Context, _ []*pipeline.Request) iter.Seq2[chat.Event, error] {
		return then(beginning(), func(yield func(chat.Event, error) bool) {
			<-ctx.Done()
			ended <- context.Cause(ctx)
			yield(chat.Event{}, engine.CauseOf(ctx, ctx.Err()))
		})
	}
	f.infer = func(ctx context.Context, _ *pipeline.Inference) iter.Seq2[*engine.TensorResponse, error] {
		return func(yield func(*engine.TensorResponse, error) bool) {
			<-ctx.Done()
			ended <- context.Cause(ctx)
			yield(nil, engine.CauseOf(ctx, ctx.Err()))
		}
	}
	s := startV2(t, f)
	for path, body := range map[string]string{"acme/demo/generate_stream": `{"text_input":"a"}`, "acme/demo/infer": infer, "scorer/infer": scores} {
		ctx, leave := context.WithCancel(t.Context())
		request, _ := http.NewRequestWithContext(ctx, "POST", s.url+"/v2/models/"+path, strings.NewReader(body))
		done := make(chan struct{})
		go func() {
			defer close(done)
			if resp, err := s.http.Do(request); err == nil {
				io.Copy(io.Discard, resp.Body) //nolint:errcheck // it is cut
				resp.Body.Close()
			}
		}()
		eventually(t, func() bool {
			return strings.Contains(s.do("GET", "/metrics", "").body, "inflight_requests{model=\""+path[:strings.LastIndexByte(path, '/')]+"\"} 1")
		}, func() string { return path + " does not run" })
		leave()
		<-done
		select {
		case err := <-ended:
			if err != engine.ErrClientGone {
				t.Errorf("%s: %v", path, err)
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("%s goes on without its client", path)
		}
		s.metric(`dynamo_frontend_inflight_requests{model="` + path[:strings.LastIndexByte(path, '/')] + `"} 0`)
	}
	s.metric(`dynamo_frontend_disconnected_clients 3`)
	s.metric(`dynamo_frontend_model_cancellation_total{endpoint="grpc_completions",model="acme/demo",request_type="stream"} 1`)
	s.metric(`dynamo_frontend_model_cancellation_total{endpoint="tensor",model="scorer",request_type="unary"} 1`)
}

// A server that drains takes nothing new, and finishes what it has.
func TestV2Drains(t *testing.T) {
	f := newTensors()
	release := make(chan struct{})
	f.run = func(context.Context, []*pipeline.Request) iter.Seq2[chat.Event, error] {
		return func(yield func(chat.Event, error) bool) {
			<-release
			for _, e := range helloEvents() {
				if !yield(e, nil) {
					return
				}
			}
		}
	}
	s := startV2(t, f)
	running := make(chan answer)
	go func() { running <- s.do("POST", "/v2/models/acme/demo/infer", infer) }()
	eventually(t, func() bool { return len(f.requests()) == 1 }, func() string { return "nothing runs" })
	drained := make(chan int)
	go func() { drained <- s.Drain(t.Context()) }()
	eventually(t, func() bool { return s.do("GET", "/v2/health/ready", "").status == 400 }, func() string { return "the server is still ready" })
	if a := s.do("GET", "/v2/health/ready", ""); a.body != `{"ready":false}` {
		t.Errorf("%s", a.body)
	}
	if a := s.do("GET", "/v2/health/live", ""); a.status != 200 {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := s.do("GET", "/v2/models/acme/demo/ready", ""); a.status != 400 {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := s.do("POST", "/v2/models/scorer/infer", scores); a.status != 503 || a.body != `{"error":"server is shutting down"}` || a.header.Get("Retry-After") == "" {
		t.Errorf("%d %v %s", a.status, a.header, a.body)
	}
	close(release)
	if a := <-running; a.status != 200 || a.body != written {
		t.Errorf("%d %s", a.status, a.body)
	}
	if cut := <-drained; cut != 0 {
		t.Errorf("%d were cut", cut)
	}
	w := &page{header: http.Header{}}
	r, _ := http.NewRequest("GET", "/v2/health/live", nil)
	s.Handler().ServeHTTP(w, r)
	if w.body.String() != `{"live":false}` {
		t.Errorf("a server that has stopped: %s", &w.body)
	}
}

// The document tells of these routes where they are served.
func TestV2Document(t *testing.T) {
	var doc struct {
		Paths      map[string]map[string]any
		Components struct{ Schemas map[string]any }
	}
	raw := startV2(t, newTensors()).do("GET", "/openapi.json", "").body
	if err := json.Unmarshal([]byte(raw), &doc); err != nil {
		t.Fatal(err)
	}
	for _, at := range []string{
		"get /v2", "get /v2/health/live", "get /v2/health/ready", "get /v2/models/{model}", "get /v2/models/{model}/ready",
		"get /v2/models/{model}/config", "get /v2/models/{model}/stats", "get /v2/models/stats", "post /v2/repository/index",
		"post /v2/models/{model}/infer", "post /v2/models/{model}/generate", "post /v2/models/{model}/generate_stream",
	} {
		method, path, _ := strings.Cut(at, " ")
		if doc.Paths[path][method] == nil {
			t.Errorf("%s is missing", at)
		}
	}
	for _, part := range strings.Split(raw, `"$ref":"#/components/schemas/`)[1:] {
		if name, _, _ := strings.Cut(part, `"`); doc.Components.Schemas[name] == nil {
			t.Errorf("there is no schema %s", name)
		}
	}
	if raw := start(t, newFake()).do("GET", "/openapi.json", "").body; strings.Contains(raw, "/v2") {
		t.Error("routes are told of that are not there")
	}
}

// FuzzV2Path reads any path: what is made of it names the same again.
func FuzzV2Path(f *testing.F) {
	for _, seed := range []string{"m", "a/b/infer", "a%2Fb/versions/1/ready", "stats", "a//b", "%", "infer", "versions/1/infer", "a/versions/1", "%ff/versions/a%ff/infer", ""} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, rest string) {
		model, version, verb, ok := frontend.V2Path("/v2/models/"+rest, func(string) bool { return false })
		if !ok {
			return
		}
		if !utf8.ValidString(model) || !utf8.ValidString(version) {
			t.Fatalf("no message to a worker holds %q or %q", model, version)
		}
		again := "/v2/models/" + url.PathEscape(model)
		if model == "" {
			again = "/v2/models"
		}
		if version != "" {
			again += "/versions/" + url.PathEscape(version)
		}
		if verb != "" {
			again += "/" + verb
		}
		m, v, w, ok := frontend.V2Path(again, func(string) bool { return false })
		if !ok || m != model || v != version || w != verb {
			t.Fatalf("%q is %q %q %q, and %q is %q %q %q", rest, model, version, verb, again, m, v, w)
		}
	})
}

func ExampleServer_kserve() {
	backend := newTensors()
	s, err := frontend.New(frontend.Config{Backend: backend, KServe: true, Tensors: backend})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer s.Close()
	w := &page{header: http.Header{}}
	r, _ := http.NewRequest("POST", "/v2/models/scorer/infer", strings.NewReader(`{"inputs":[{"name":"x","datatype":"FP32","shape":[2],"data":[0.5,1]}]}`))
	s.Handler().ServeHTTP(w, r)
	fmt.Println(w.body.String())
	// Output: {"model_name":"scorer","model_version":"1","outputs":[{"name":"x","datatype":"FP32","shape":[2],"data":[0.5,1]}]}
}

// page is an answer without a connection.
type page struct {
	header http.Header
	body   bytes.Buffer
}

func (p *page) Header() http.Header         { return p.header }
func (p *page) Write(b []byte) (int, error) { return p.body.Write(b) }
func (p *page) WriteHeader(int)             {}
