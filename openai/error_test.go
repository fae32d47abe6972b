package openai_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/internal/wire"
	"github.com/dynago/dynago/openai"
)

// queueFull is a refusal that may say why in public.
type queueFull struct{}

func (queueFull) Error() string {
	return `router policy class "batch" queue requests limit reached (current=8, limit=8)`
}
func (queueFull) ClientDetails() any { return map[string]int{"current": 8, "limit": 8} }

// noTaint is a refusal of another kind that may.
type noTaint struct{}

func (noTaint) Error() string      { return `nobody has the taint "gold"` }
func (noTaint) ClientDetails() any { return map[string][]string{"missing": {"gold"}} }

func TestErrorOf(t *testing.T) {
	const secret = "worker at 10.0.0.7 says: out of memory"
	kind := func(k engine.ErrorKind) error {
		return fmt.Errorf("generate: %w", engine.Errorf(k, secret))
	}
	answered := func(status int) error {
		return &engine.Error{Kind: engine.Internal, FromEngine: true, Status: status, Message: "engine text"}
	}
	for name, c := range map[string]struct {
		err      error
		overload int
		status   int
		message  string
		kind     string
		param    string
		code     string
		retry    time.Duration
		details  string
	}{
		"invalid":           {err: &engine.Error{Kind: engine.InvalidArgument, Message: "too long", Param: "messages", Code: "context_length_exceeded"}, status: 400, message: "too long", kind: "invalid_request_error", param: "messages", code: "context_length_exceeded"},
		"invalid inside":    {err: &engine.Error{Kind: engine.Disconnected, Err: fmt.Errorf("x: %w", engine.Errorf(engine.InvalidArgument, "bad grammar"))}, status: 400, message: "bad grammar", kind: "invalid_request_error", code: "invalid_value"},
		"not found":         {err: engine.Errorf(engine.NotFound, ""), status: 404, message: "Model not found", kind: "invalid_request_error", param: "model", code: "model_not_found"},
		"unsupported":       {err: engine.Errorf(engine.Unsupported, "no logprobs"), status: 501, message: "no logprobs", kind: "invalid_request_error", code: "unsupported_parameter"},
		"denied":            {err: kind(engine.Denied), status: 500, message: "Internal server error", kind: "server_error", code: "server_error"},
		"cannot connect":    {err: kind(engine.CannotConnect), status: 503, message: "Service temporarily unavailable", kind: "server_error", code: "overloaded", retry: time.Second},
		"connection":        {err: kind(engine.ConnectionTimeout), status: 503, message: "Service temporarily unavailable", kind: "server_error", code: "overloaded", retry: time.Second},
		"disconnected":      {err: kind(engine.Disconnected), status: 503, message: "Service temporarily unavailable", kind: "server_error", code: "overloaded", retry: time.Second},
		"incomplete":        {err: kind(engine.StreamIncomplete), status: 503, message: "Service temporarily unavailable", kind: "server_error", code: "overloaded", retry: time.Second},
		"shutdown":          {err: kind(engine.EngineShutdown), status: 503, message: "Service temporarily unavailable", kind: "server_error", code: "overloaded", retry: time.Second},
		"stale":             {err: kind(engine.Stale), status: 503, message: "Service temporarily unavailable", kind: "server_error", code: "overloaded", retry: time.Second},
		"unavailable":       {err: &engine.Error{Kind: engine.Unavailable, Message: secret, RetryAfter: 7 * time.Second}, status: 503, message: "Service temporarily unavailable", kind: "server_error", code: "overloaded", retry: 7 * time.Second},
		"no worker for it":  {err: fmt.Errorf("route: %w", &engine.Error{Kind: engine.Unavailable, Worker: 7, Err: noTaint{}}), status: 503, message: noTaint{}.Error(), kind: "server_error", code: "overloaded", retry: time.Second, details: `{"missing":["gold"]}`},
		"response timeout":  {err: kind(engine.ResponseTimeout), status: 504, message: "Request timed out", kind: "server_error", code: "timeout"},
		"deadline":          {err: engine.ErrDeadline, status: 504, message: "Request timed out", kind: "server_error", code: "timeout"},
		"worker overloaded": {err: kind(engine.WorkerOverloaded), status: 529, message: "Service temporarily overloaded", kind: "server_error", code: "overloaded", retry: time.Second},
		"exhausted":         {err: &engine.Error{Kind: engine.ResourceExhausted, RetryAfter: 3 * time.Second}, overload: 429, status: 429, message: "Service temporarily overloaded", kind: "server_error", code: "overloaded", retry: 3 * time.Second},
		"queue time-out":    {err: engine.ErrQueueTimeout, status: 529, message: "Service temporarily overloaded", kind: "server_error", code: "overloaded", retry: time.Second},
		"queue full":        {err: &engine.Error{Kind: engine.ResourceExhausted, Err: queueFull{}}, status: 529, message: queueFull{}.Error(), kind: "server_error", code: "overloaded", retry: time.Second, details: `{"current":8,"limit":8}`},
		"cancelled":         {err: kind(engine.Cancelled), status: 499, message: "Request cancelled", kind: "invalid_request_error", code: "request_cancelled"},
		"client gone":       {err: context.Canceled, status: 499, message: "Request cancelled", kind: "invalid_request_error", code: "request_cancelled"},
		"ours":              {err: errors.New(secret), status: 500, message: "Failed to generate completions", kind: "server_error", code: "server_error"},
		"internal":          {err: kind(engine.Internal), status: 500, message: "Failed to generate completions", kind: "server_error", code: "server_error"},
		"engine 302":        {err: answered(302), status: 500, message: "Internal server error", kind: "server_error", code: "server_error"},
		"engine 401":        {err: answered(401), status: 500, message: "Internal server error", kind: "server_error", code: "server_error"},
		"engine 418":        {err: answered(418), status: 418, message: "engine text", kind: "invalid_request_error", code: "invalid_value"},
		"engine 429":        {err: answered(429), status: 529, message: "Service temporarily overloaded", kind: "server_error", code: "overloaded", retry: time.Second},
		"engine 499":        {err: answered(499), status: 499, message: "Request cancelled", kind: "invalid_request_error", code: "request_cancelled"},
		"engine 502":        {err: answered(502), status: 500, message: "Internal server error", kind: "server_error", code: "server_error", details: `{"backend_status":502}`},
		"engine 503":        {err: answered(503), status: 503, message: "Service temporarily unavailable", kind: "server_error", code: "overloaded", retry: time.Second},
		"engine 529":        {err: answered(529), status: 529, message: "Service temporarily overloaded", kind: "server_error", code: "overloaded", retry: time.Second},
		"told already":      {err: fmt.Errorf("x: %w", &wire.Error{Status: 404, Message: "m"}), status: 404, message: "m", kind: "invalid_request_error", code: "model_not_found"},
	} {
		t.Run(name, func(t *testing.T) {
			e := wire.ErrorOf(c.err, c.overload)
			if e.Status != c.status || e.Message != c.message || e.RetryAfter != c.retry {
				t.Errorf("got %d %q, retry after %v", e.Status, e.Message, e.RetryAfter)
			}
			var body struct {
				Error struct {
					Message, Type, Code string
					Param               *string
				}
				Message, Type string
				Code          int
				Details       json.RawMessage
			}
			if err := json.Unmarshal(openai.AppendError(nil, e), &body); err != nil {
				t.Fatal(err)
			}
			n := body.Error
			if n.Message != c.message || n.Type != c.kind || n.Code != c.code || (n.Param == nil) != (c.param == "") || n.Param != nil && *n.Param != c.param {
				t.Errorf("nested %+v", n)
			}
			if body.Message != c.message || body.Code != c.status || string(body.Details) != c.details {
				t.Errorf("flat %+v", body)
			}
			if strings.Contains(string(openai.AppendErrorFrame(openai.AppendError(nil, e), e)), "10.0.0.7") {
				t.Error("the inside shows")
			}
		})
	}
}

func TestErrorBodies(t *testing.T) {
	for want, e := range map[string]wire.Error{
		`{"error":{"message":"Model not found","type":"invalid_request_error","param":"model","code":"model_not_found"},"message":"Model not found","type":"Not Found","code":404}`: {Status: 404, Message: "Model not found", Param: "model"},
		`{"error":{"message":"a\nb","type":"invalid_request_error","param":null,"code":"invalid_request_error"},"message":"a\nb","type":"Bad Request","code":400}`:                  {Status: 400, Message: "a\nb"},
		`{"error":{"message":"m","type":"invalid_request_error","param":null,"code":"invalid_api_key"},"message":"m","type":"Unauthorized","code":401}`:                             {Status: 401, Message: "m"},
		`{"error":{"message":"m","type":"invalid_request_error","param":null,"code":"request_too_large"},"message":"m","type":"Payload Too Large","code":413}`:                      {Status: 413, Message: "m"},
		`{"error":{"message":"m","type":"invalid_request_error","param":null,"code":"invalid_request_error"},"message":"m","type":"Unsupported Media Type","code":415}`:             {Status: 415, Message: "m"},
		`{"error":{"message":"m","type":"rate_limit_error","param":null,"code":"rate_limit_exceeded"},"message":"m","type":"Too Many Requests","code":429}`:                         {Status: 429, Message: "m"},
		`{"error":{"message":"m","type":"rate_limit_error","param":null,"code":"overloaded"},"message":"m","type":"Overloaded","code":429}`:                                         {Status: 429, Message: "m", Code: "overloaded"},
		`{"error":{"message":"m","type":"invalid_request_error","param":null,"code":"request_cancelled"},"message":"m","type":"Client Closed Request","code":499}`:                  {Status: 499, Message: "m"},
		`{"error":{"message":"m","type":"server_error","param":null,"code":"server_error"},"message":"m","type":"Internal Server Error","code":500}`:                                {Status: 500, Message: "m"},
		`{"error":{"message":"m","type":"invalid_request_error","param":null,"code":"unsupported_parameter"},"message":"m","type":"Not Implemented","code":501}`:                    {Status: 501, Message: "m"},
		`{"error":{"message":"m","type":"server_error","param":null,"code":"overloaded"},"message":"m","type":"Service Unavailable","code":503}`:                                    {Status: 503, Message: "m"},
		`{"error":{"message":"m","type":"server_error","param":null,"code":"overloaded"},"message":"m","type":"Overloaded","code":529}`:                                             {Status: 529, Message: "m"},
		`{"error":{"message":"m","type":"server_error","param":null,"code":"server_error"},"message":"m","type":"UnknownError","code":799,"details":{"a":1}}`:                       {Status: 799, Message: "m", Details: map[string]int{"a": 1}},
	} {
		if got := string(openai.AppendError(nil, &e)); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
	e := wire.Error{Status: 500, Message: "Internal server error"}
	const want = `data: {"error":{"message":"Internal server error","type":"server_error","param":null,"code":"server_error"},"status":500}` + "\n\ndata: [DONE]\n\n"
	if got := string(openai.AppendErrorFrame(nil, &e)); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
