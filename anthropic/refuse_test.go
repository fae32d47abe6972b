package anthropic_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/dynago/dynago/anthropic"
	"github.com/dynago/dynago/internal/wire"
)

type refusal struct{ body, param, message string }

var refusals = []refusal{
	{`{"max_tokens":1,"messages":[{"role":"user","content":"Hi"}]}`, "model", "model: field required"},
	{`{"model":" ","max_tokens":1,"messages":[{"role":"user","content":"Hi"}]}`, "model", "model: field required"},
	{`{"model":5}`, "model", "model: expected a string, got a number"},
	{`{"model":"m","max_tokens":1}`, "messages", "messages: field required"},
	{`{"model":"m","max_tokens":1,"messages":[]}`, "messages", "messages: field required"},
	{`{"model":"m","max_tokens":1,"messages":{}}`, "messages", "messages: expected an array of messages, got an object"},
	{`{"model":"m","max_tokens":1,"messages":["Hi"]}`, "messages[0]", "messages[0]: expected a message object, got a string"},
	{`{"model":"m","messages":[{"role":"user","content":"Hi"}]}`, "max_tokens", "max_tokens: field required"},
	{`{"model":"m","max_tokens":0,"messages":[{"role":"user","content":"Hi"}]}`, "max_tokens", "max_tokens: must be greater than 0"},
	{`{"model":"m","max_tokens":-5,"messages":[{"role":"user","content":"Hi"}]}`, "max_tokens", "max_tokens: must be greater than 0"},
	{ask(`"max_tokens":"9"`), "max_tokens", "max_tokens: expected an integer, got a string"},
	{ask(`"max_tokens":1.5`), "max_tokens", "max_tokens: expected an integer, got 1.5"},
	{ask(`"temperature":2.5`), "temperature", "temperature: must be between 0 and 2, got 2.5"},
	{ask(`"top_p":0`), "top_p", "top_p: must be greater than 0 and at most 1, got 0"},
	{ask(`"top_k":-2`), "top_k", "top_k: must be -1, 0 or greater, got -2"},
	{ask(`"stop_sequences":"x"`), "stop_sequences", "stop_sequences: expected an array of strings, got a string"},
	{ask(`"stop_sequences":["a",""]`), "stop_sequences[1]", "stop_sequences[1]: must not be empty"},
	{ask(`"stop_sequences":[` + strings.Repeat(`"a",`, 128) + `"a"]`), "stop_sequences", "stop_sequences: must have at most 128 elements, got 129"},
	{ask(`"stream":1`), "stream", "stream: expected a boolean, got a number"},
	{ask(`"system":5`), "system", "system: expected a string or an array of content blocks, got a number"},
	{ask(`"system":[{"type":"text"}]`), "system[0].text", "system[0].text: must be a string"},
	{ask(`"metadata":"u"`), "metadata", "metadata: expected an object, got a string"},
	{ask(`"metadata":{"user_id":5}`), "metadata.user_id", "metadata.user_id: expected a string, got a number"},

	{talk(`{"content":"Hi"}`), "messages[0].role", "messages[0].role: field required"},
	{talk(`{"role":"tool","content":"Hi"}`), "messages[0].role", `messages[0].role: must be user, assistant or system, got "tool"`},
	{talk(`{"role":"user"}`), "messages[0].content", "messages[0].content: field required"},
	{talk(`{"role":"system","content":null}`), "messages[0].content", "messages[0].content: field required"},
	{talk(`{"role":"user","content":5}`), "messages[0].content", "messages[0].content: expected a string or an array of content blocks, got a number"},
	{talk(`{"role":"user","content":[{"text":"a"}]}`), "messages[0].content[0].type", "messages[0].content[0].type: field required"},
	{talk(`{"role":"user","content":[5]}`), "messages[0].content[0].type", "messages[0].content[0].type: field required"},
	{talk(`{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":5}]}`), "messages[0].content[1].text", "messages[0].content[1].text: must be a string"},
	{talk(`{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":[{"type":"text"}]}]}`), "messages[0].content[0].content[0].text", "messages[0].content[0].content[0].text: must be a string"},
	{talk(`{"role":"user","content":[{"type":"image","source":{"type":"base64"}}]}`), "messages[0].content[0].source", "messages[0].content[0].source: must be an object with type base64 and data, or type url and url"},
	{talk(`{"role":"user","content":[{"type":"image"}]}`), "messages[0].content[0].source", "messages[0].content[0].source: must be an object with type base64 and data, or type url and url"},
	{talk(`{"role":"user","content":[{"type":"image","source":{"type":"file","file_id":"f"}}]}`), "messages[0].content[0].source", "messages[0].content[0].source: files are not kept here: send the image itself"},
	{talk(`{"role":"user","content":[{"type":"document","source":{"type":"file","file_id":"f"}}]}`), "messages[0].content[0].source", "messages[0].content[0].source: files are not kept here: send the document itself"},

	{ask(`"tools":{}`), "tools", "tools: expected an array of tools, got an object"},
	{ask(`"tools":[` + strings.Repeat(`{"type":"later"},`, 1536) + `5]`), "tools", "tools: at most 1536 are supported"},
	{talk(`{"role":"user","content":[` + strings.Repeat(`5,`, 100_000) + `5]},{"role":"assistant","content":[` + strings.Repeat(`{"content":[5]},`, 20_000) + `5]}`), "messages[1].content[15534].content", "messages[1].content[15534].content: at most 131072 messages and content blocks are supported"},
	{ask(`"tools":[5]`), "tools[0]", "tools[0]: expected a tool object, got a number"},
	{ask(`"tools":[{"input_schema":{}}]`), "tools[0].name", "tools[0].name: field required"},
	{ask(`"tools":[{"name":"a b","input_schema":{}}]`), "tools[0].name", `tools[0].name: must have no control characters, blanks, quotes, < or >, got "a b"`},
	{ask(`"tools":[{"name":"` + strings.Repeat("a", 257) + `","input_schema":{}}]`), "tools[0].name", "tools[0].name: must have at most 256 bytes, got 257"},
	{ask(`"tools":[{"name":"a"}]`), "tools[0].input_schema", "tools[0].input_schema: field required"},
	{ask(`"tools":[{"name":"a","input_schema":null,"type":"custom"}]`), "tools[0].input_schema", "tools[0].input_schema: field required"},
	{ask(`"tools":[{"name":"a","input_schema":[]}]`), "tools[0].input_schema", "tools[0].input_schema: must be a JSON Schema object"},
	{ask(`"tools":[{"name":"a","input_schema":{},"strict":"yes"}]`), "tools[0].strict", "tools[0].strict: expected a boolean, got a string"},
	{ask(tools + `,"tool_choice":"auto"`), "tool_choice", "tool_choice: expected an object, got a string"},
	{ask(tools + `,"tool_choice":{"type":"some"}`), "tool_choice.type", `tool_choice.type: must be auto, any, tool or none, got "some"`},
	{ask(tools + `,"tool_choice":{"type":"tool"}`), "tool_choice.name", "tool_choice.name: field required"},
	{ask(tools + `,"tool_choice":{"type":"tool","name":"cat"}`), "tool_choice.name", `tool_choice.name: there is no tool "cat" in tools`},
	{ask(`"tools":[{"type":"web_search_20260318","name":"web_search"}],"tool_choice":{"type":"tool","name":"web_search"}`), "tool_choice.name", `tool_choice.name: there is no tool "web_search" in tools`},
	{ask(`"tool_choice":{"type":"any"}`), "tool_choice", "tool_choice: any needs tools that the model may call"},

	{ask(`"thinking":true`), "thinking", "thinking: expected an object, got a boolean"},
	{ask(`"thinking":{"budget_tokens":1024}`), "thinking.type", "thinking.type: field required"},
	{ask(`"thinking":{"type":"enabled","budget_tokens":-1}`), "thinking.budget_tokens", "thinking.budget_tokens: expected an integer from 0 to 2147483647, got -1"},
	{ask(`"output_config":{"format":{"type":"xml"}}`), "output_config.format.type", `output_config.format.type: must be json_schema, got "xml"`},
	{ask(`"output_format":{"type":"json_schema"}`), "output_format.schema", "output_format.schema: field required"},
	{ask(`"output_format":{"type":"json_schema","schema":"{}"}`), "output_format.schema", "output_format.schema: must be a JSON Schema object"},
	{ask(`"nvext":5`), "nvext", "Failed to convert request: invalid nvext: nvext: expected an object"},
	{ask(`"nvext":{"agent_hints":{"osl":-1}}`), "nvext.agent_hints.osl", "Failed to convert request: invalid nvext: nvext.agent_hints.osl: expected an unsigned 32-bit integer"},

	{``, "", "the JSON text ends too early"},
	{`[]`, "", "expected an object, got an array"},
	{`{"model":"m"`, "", "the JSON text ends too early"},
	{ask(`"a":1`) + `{}`, "", "more than one JSON value in the body"},
}

func TestRefusals(t *testing.T) {
	for _, r := range refusals {
		_, err := anthropic.Decode([]byte(r.body), anthropic.Dialect{}, anthropic.Options{})
		e, ok := err.(*wire.Error)
		if !ok {
			t.Errorf("%.200s is accepted: %v", r.body, err)
			continue
		}
		if e.Status != http.StatusBadRequest || e.Param != r.param || e.Message != r.message {
			t.Errorf("%.200s\n got %d %s: %s\nwant %s: %s", r.body, e.Status, e.Param, e.Message, r.param, r.message)
		}
	}
	if _, err := anthropic.Decode([]byte(ask(`"nvext":{"news":1}`)), anthropic.Dialect{}, anthropic.Options{StrictNVExt: true}); err == nil || err.(*wire.Error).Message != "Failed to convert request: invalid nvext: nvext.news: unknown field" {
		t.Errorf("a strict server says %v", err)
	}
}

// What goes on with a conversation that nobody keeps here is refused, in the words
// by which a client knows to send it all.
func TestThreads(t *testing.T) {
	for _, thread := range []string{`{"type":"continue","previous_message_id":"msg_1"}`, `{"previous_message_id":"msg_1","type":"continue"}`} {
		_, err := anthropic.Decode([]byte(ask(`"thread":`+thread)), anthropic.Dialect{}, anthropic.Options{})
		e, ok := err.(*wire.Error)
		if !ok || e.Status != http.StatusNotFound {
			t.Fatalf("%s: %v", thread, err)
		}
		if body := string(anthropic.AppendError(nil, e, "")); !strings.Contains(body, `"details":{"error_code":"thread_not_found"}`) {
			t.Errorf("%s: %s", thread, body)
		}
	}
	for _, thread := range []string{`{"type":"create"}`, `{}`, `null`, `7`, `{"type":5}`} {
		if _, err := anthropic.Decode([]byte(ask(`"thread":`+thread)), anthropic.Dialect{}, anthropic.Options{}); err != nil {
			t.Errorf("%s: %v", thread, err)
		}
	}
}

func TestErrorBodies(t *testing.T) {
	for want, e := range map[string]wire.Error{
		`{"type":"error","error":{"type":"invalid_request_error","message":"max_tokens: must be greater than 0"},"request_id":"r"}`: {Status: 400, Message: "max_tokens: must be greater than 0", Lead: "Validation: ", Code: wire.CodeInvalidValue},
		`{"type":"error","error":{"type":"authentication_error","message":"m"},"request_id":"r"}`:                                   {Status: 401, Message: "m"},
		`{"type":"error","error":{"type":"permission_error","message":"m"},"request_id":"r"}`:                                       {Status: 403, Message: "m"},
		`{"type":"error","error":{"type":"not_found_error","message":"a\"b"},"request_id":"r"}`:                                     {Status: 404, Message: `a"b`},
		`{"type":"error","error":{"type":"not_found_error","message":"m","details":{"error_code":"c"}},"request_id":"r"}`:           {Status: 404, Message: "m", Details: map[string]string{"error_code": "c"}},
		`{"type":"error","error":{"type":"invalid_request_error","message":"no"},"request_id":"r"}`:                                 {Status: 405, Message: "no"},
		`{"type":"error","error":{"type":"request_too_large","message":"m"},"request_id":"r"}`:                                      {Status: 413, Message: "m"},
		`{"type":"error","error":{"type":"invalid_request_error","message":"m"},"request_id":"r"}`:                                  {Status: 415, Message: "m"},
		`{"type":"error","error":{"type":"rate_limit_error","message":"m"},"request_id":"r"}`:                                       {Status: 429, Message: "m"},
		`{"type":"error","error":{"type":"overloaded_error","message":"busy"},"request_id":"r"}`:                                    {Status: 429, Message: "busy", Code: wire.CodeOverloaded},
		`{"type":"error","error":{"type":"request_cancelled","message":"Request cancelled"},"request_id":"r"}`:                      {Status: 499, Message: "Request cancelled"},
		`{"type":"error","error":{"type":"api_error","message":"Internal server error"},"request_id":"r"}`:                          {Status: 500, Message: "Failed to generate completions"},
		`{"type":"error","error":{"type":"api_error","message":"not here"},"request_id":"r"}`:                                       {Status: 501, Message: "not here"},
		`{"type":"error","error":{"type":"overloaded_error","message":"m"},"request_id":"r"}`:                                       {Status: 503, Message: "m"},
		`{"type":"error","error":{"type":"timeout_error","message":"m"},"request_id":"r"}`:                                          {Status: 504, Message: "m"},
		`{"type":"error","error":{"type":"overloaded_error","message":"n"},"request_id":"r"}`:                                       {Status: 529, Message: "n"},
	} {
		if got := string(anthropic.AppendError(nil, &e, "r")); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
	e := wire.Error{Status: 529, Message: "Service temporarily overloaded"}
	if got := string(anthropic.AppendError(nil, &e, "")); strings.Contains(got, "request_id") {
		t.Errorf("got %s", got)
	}
	const want = "event: error\ndata: " + `{"type":"error","error":{"type":"overloaded_error","message":"Service temporarily overloaded"}}` + "\n\n"
	if got := string(anthropic.AppendErrorFrame(nil, &e)); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
