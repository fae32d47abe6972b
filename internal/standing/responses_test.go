package standing_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dynago/dynago/internal/demo"
	"github.com/dynago/dynago/prompt"
)

const responsesRoute = "/v1/responses"

const responsesSession = `
rules:
  - when: {result: "rains"}
    emit: "The weather is <b>fine</b>, see for yourself."
  - when: {user: "plain"}
    emit: "Nothing to do here, 東京 👍🏽 said so."
  - when: {user: "think"}
    emit: "<think>\nIs it so?  Let me see.\n</think>\n\nIt is, indeed; quite unmistakably."
  - when: {user: "call"}
    emit: "<think>\nI must look.\n</think>\n\nOne moment, please.\n<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\":  \"München\", \"n\": 1.50}}\n</tool_call>\n<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Zürich\"}}\n</tool_call>"
  - when: {user: "edit"}
    emit: "<tool_call>\n{\"name\": \"apply_patch\", \"arguments\": {\"input\":\"*** Begin Patch\\n+\\u00fc \\\"x\\\" </tool_call>\\n\"}}\n</tool_call>\n<tool_call>\n{\"name\": \"fs__weather\", \"arguments\": {}}\n</tool_call>"
`

var responsesTools = []any{
	object{"type": "function", "name": "weather", "strict": false, "parameters": object{"type": "object", "properties": object{"city": object{"type": "string"}}}},
	object{"type": "custom", "name": "apply_patch", "format": object{"type": "grammar", "syntax": "lark", "definition": "start: /.+/"}},
	object{"type": "namespace", "name": "fs", "description": "files", "tools": []any{object{"type": "function", "name": "weather"}, object{"type": "function", "name": "list"}}},
	object{"type": "web_search", "external_web_access": false},
}

// 7, for Responses. A prompt begins with the one before it and its answer, token
// for token, whichever way a client brings the conversation back.
func TestThePrefixSurvivesResponses(t *testing.T) {
	model, err := prompt.Load(demo.File, prompt.Parsers{})
	check(t, err)
	for name, tc := range map[string]struct {
		more   object
		stream bool
		// forget is what the client does not send back of an item.
		forget []string
	}{
		"unary":  {},
		"stream": {stream: true},
		"short":  {more: object{"max_output_tokens": 6}},
		"codex": {
			more:   object{"include": []any{"reasoning.encrypted_content"}, "reasoning": object{"summary": "auto"}, "store": false, "parallel_tool_calls": true},
			stream: true, forget: []string{"id", "status", "content in reasoning"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var j journal
			h := build(t, plan{script: responsesSession, encode: choppy(model, 7), wrap: j.around})
			input := []any{object{"type": "message", "role": "developer", "content": []any{object{"type": "input_text", "text": "Be kind."}}}}
			var before *generation
			for i, text := range []string{"plain", "call", "", "think", "edit", "", "call", "", "plain", "think"} {
				if last := input[len(input)-1].(object)["type"]; text == "" && last != "function_call_output" {
					continue // the answer was cut before a call
				}
				if text == "edit" && tc.more["max_output_tokens"] != nil {
					continue // of half a call nothing is left that a client could bring back
				}
				if text != "" {
					input = append(input, object{"type": "message", "role": "user", "content": []any{object{"type": "input_text", "text": text}}})
				}
				body := object{"model": demo.Name, "input": input, "tools": responsesTools, "prompt_cache_key": "0199"}
				maps.Copy(body, tc.more)
				var answer object
				if tc.stream {
					s := h.stream(t, responsesRoute, body)
					answer = s.chunks[len(s.chunks)-1]["response"].(object)
				} else {
					answer = h.unary(t, responsesRoute, body)
				}
				made := j.take()[0]
				if before != nil {
					want := slices.Concat(before.prompt, before.ids)
					if now := made.prompt; len(now) < len(want) || !slices.Equal(now[:len(want)], want) {
						t.Fatalf("prompt %d\n%q\ndoes not begin with\n%q", i, model.Tokenizer.Decode(now, false), model.Tokenizer.Decode(want, false))
					}
				}
				before = made
				for n, v := range answer["output"].([]any) {
					item := v.(object)
					for _, name := range tc.forget {
						if name == "content in reasoning" && item["type"] == "reasoning" {
							name = "content"
						}
						delete(item, name)
					}
					input = append(input, item)
					if text == "edit" && n == 0 && item["input"] != "*** Begin Patch\n+ü \"x\" </tool_call>\n" {
						t.Errorf("the patch is %v", item)
					}
				}
				for _, v := range answer["output"].([]any) {
					kind := v.(object)["type"].(string)
					if kind == "function_call" || kind == "custom_tool_call" {
						input = append(input, object{"type": kind + "_output", "call_id": v.(object)["call_id"], "output": fmt.Sprint("It rains <tool_call> in ", i)})
					}
				}
			}
			h.idle(t)
		})
	}
}

// respond is a request of Responses.
func respond(text string, more object) object {
	body := object{"model": demo.Name, "input": text, "store": false}
	maps.Copy(body, more)
	return body
}

var responsesAgent = object{"tools": []any{object{"type": "function", "name": "weather", "parameters": object{"type": "object", "properties": object{"city": object{"type": "string"}}}}}}

func agentWith(more object) object {
	more = maps.Clone(more)
	maps.Copy(more, responsesAgent)
	return more
}

// responsesRequests are those that the properties are tried on, by name. They are
// greedy, so that two answers to one of them can be compared.
var responsesRequests = map[string]object{
	"plain":      respond("hello", object{"temperature": 0}),
	"short":      respond("hello", object{"max_output_tokens": 7, "temperature": 0}),
	"agent":      respond("agent", agentWith(object{"temperature": 0})),
	"summary":    respond("agent", agentWith(object{"temperature": 0, "reasoning": object{"summary": "auto"}, "include": []any{"reasoning.encrypted_content"}})),
	"one call":   respond("agent", agentWith(object{"temperature": 0, "parallel_tool_calls": false})),
	"tools off":  respond("agent", agentWith(object{"temperature": 0, "tool_choice": "none"})),
	"no tools":   respond("agent", object{"temperature": 0}),
	"logprobs":   respond("agent", agentWith(object{"temperature": 0, "top_logprobs": 2, "include": []any{"message.output_text.logprobs"}})),
	"cut call":   respond("agent", agentWith(object{"temperature": 0, "max_output_tokens": 40})),
	"cut letter": respond("hello", object{"temperature": 0, "max_output_tokens": 9}),
}

// response puts a stream together by its deltas, holds that against what the end
// says, and returns that.
func (s transcript) response(t testing.TB) object {
	t.Helper()
	if s.fault != nil || !s.done {
		t.Fatalf("stream ended with %v, done %v", s.fault, s.done)
	}
	texts := map[string]string{} // by item
	streamed := map[string]bool{}
	for i, e := range s.chunks {
		if e["sequence_number"] != float64(i) {
			t.Fatalf("event %d has number %v", i, e["sequence_number"])
		}
		if delta, ok := e["delta"].(string); ok {
			texts[e["item_id"].(string)] += delta
			streamed[e["item_id"].(string)] = true
		}
	}
	whole := s.chunks[len(s.chunks)-1]["response"].(object)
	for _, v := range whole["output"].([]any) {
		if item := v.(object); streamed[item["id"].(string)] && !strings.Contains(fmt.Sprint(item), texts[item["id"].(string)]) {
			t.Errorf("%q was streamed of %v", texts[item["id"].(string)], item)
		}
	}
	return whole
}

// nameless is a response without what is another thing each time.
func nameless(o object) string {
	o = maps.Clone(o)
	for _, name := range []string{"id", "created_at", "completed_at"} {
		delete(o, name)
	}
	var output []any
	for _, v := range o["output"].([]any) {
		item := maps.Clone(v.(object))
		delete(item, "id")
		delete(item, "call_id")
		output = append(output, item)
	}
	o["output"] = output
	raw, _ := json.MarshalIndent(o, "", " ")
	return string(raw)
}

// 1 and 2, for Responses. The unary answer is the folded stream, and the same
// however the engine cuts its output.
func TestResponsesAreTheSameHoweverTheyCome(t *testing.T) {
	answers := map[string]string{}
	for _, pace := range []string{"", "pace: {tokens_per_delta: 2}", "pace: {tokens_per_delta: 7}", "pace: {tokens_per_delta: 1000}"} {
		h := build(t, plan{script: scripted(pace), workers: 1})
		for name, body := range responsesRequests {
			t.Run(name+"/"+pace, func(t *testing.T) {
				h.unary(t, responsesRoute, body) // the cache is now as warm as it gets
				got := nameless(h.stream(t, responsesRoute, body).response(t))
				if diff := cmp.Diff(nameless(h.unary(t, responsesRoute, body)), got); diff != "" {
					t.Errorf("unary against stream: %s", diff)
				}
				if want, ok := answers[name]; ok {
					if diff := cmp.Diff(want, got); diff != "" {
						t.Error(diff)
					}
				}
				answers[name] = got
			})
		}
		h.idle(t)
	}
}

// The blocks of an answer are items in the order in which the model made them.
func TestResponsesKeepTheOrder(t *testing.T) {
	h := build(t, plan{script: scripted("")})
	var kinds []string
	for _, v := range h.unary(t, responsesRoute, responsesRequests["agent"])["output"].([]any) {
		item := v.(object)
		kinds = append(kinds, item["type"].(string))
		if args, ok := item["arguments"].(string); ok && !json.Valid([]byte(args)) {
			t.Errorf("arguments %q", args)
		}
	}
	if got := strings.Join(kinds, " "); got != "reasoning message function_call function_call" {
		t.Errorf("items %s", got)
	}
}

// 3, for Responses. What was held back is released at the end, in the stream as in
// the whole answer, and each token has its log probability.
func TestNothingIsStuckInResponses(t *testing.T) {
	h := build(t, plan{script: scripted("")})
	read := func(r object) (text string, logprobs int) {
		for _, v := range r["output"].([]any) {
			for _, p := range asList(v.(object)["content"]) {
				if part := p.(object); part["type"] == "output_text" {
					text += part["text"].(string)
					logprobs += len(asList(part["logprobs"]))
				}
			}
		}
		return text, logprobs
	}
	whole := ""
	for n := 60; n > 15; n-- {
		body := object{"model": demo.Name, "input": "hello", "max_output_tokens": n, "include": []any{"message.output_text.logprobs"}}
		answer := h.unary(t, responsesRoute, body)
		text, logprobs := read(answer)
		if streamed, also := read(h.stream(t, responsesRoute, body).response(t)); streamed != text || also != logprobs {
			t.Errorf("%d tokens: %q as a whole, %q in a stream; %d and %d log probabilities", n, text, streamed, logprobs, also)
		}
		if whole == "" {
			whole = text
		}
		if cut := strings.TrimSuffix(text, "\uFFFD"); !strings.HasPrefix(whole, cut) {
			t.Errorf("%d tokens: %q is no beginning of %q", n, text, whole)
		}
		// The end-of-sequence token is counted and stays with the engine.
		if tokens := int(answer["usage"].(object)["output_tokens"].(float64)); logprobs != tokens && logprobs != tokens-1 {
			t.Errorf("%d tokens: %d log probabilities for %d", n, logprobs, tokens)
		}
	}
	if whole != "Plain text with éü and 👍 in it, and a partial STO" {
		t.Errorf("text %q", whole)
	}
	h.idle(t)
}

// 4, for Responses. There is exactly one end, and a fault never looks like a good
// one.
func TestResponsesHaveOneEnd(t *testing.T) {
	for name, tc := range map[string]struct {
		cut    string
		status int
		code   string
		early  bool // before the first token
	}{
		"no finish":    {"cut: {after: 3, as: stream_incomplete}", 503, "overloaded", false},
		"engine fault": {"cut: {after: 3, as: internal}", 500, "server_error", false},
		"refused":      {"cut: {after: 0, as: invalid_argument, message: \"temperature must be even\"}", 400, "invalid_value", true},
		"overloaded":   {"cut: {after: 0, as: worker_overloaded}", 529, "overloaded", true},
	} {
		t.Run(name, func(t *testing.T) {
			h := build(t, plan{script: "default:\n  emit: \"one two three four five six seven eight\"\n  " + tc.cut + "\n"})
			if status, raw := h.post(t, responsesRoute, respond("x", nil)); status != tc.status || !strings.Contains(string(raw), `"code":"`+tc.code+`"`) {
				t.Errorf("unary status %d, want %d: %s", status, tc.status, raw)
			}
			if tc.early {
				if status, raw := h.post(t, responsesRoute, respond("x", object{"stream": true})); status != tc.status {
					t.Errorf("status of the stream %d, want %d: %s", status, tc.status, raw)
				}
				return
			}
			s := h.stream(t, responsesRoute, respond("x", nil))
			ends := 0
			for _, e := range s.chunks {
				switch e["type"] {
				case "response.completed", "response.incomplete":
					t.Errorf("a good end: %v", e)
				case "response.failed":
					ends++
				}
			}
			whole := s.response(t)
			if fault := whole["error"].(object); ends != 1 || whole["status"] != "failed" || fault["code"] != tc.code || fault["message"] == "" {
				t.Errorf("%d ends, the last with %v", ends, whole)
			}
			h.idle(t)
		})
	}
	h := build(t, plan{context: 64})
	s := h.stream(t, responsesRoute, respond(strings.Repeat("word ", 200), nil))
	if whole := s.response(t); whole["error"].(object)["code"] != "context_length_exceeded" {
		t.Errorf("a conversation that is too long: %v", whole)
	}
	if status, raw := h.post(t, responsesRoute, respond(strings.Repeat("word ", 200), nil)); status != http.StatusBadRequest {
		t.Errorf("%d %s", status, raw)
	}
}

// 8, for Responses. When the client has left, everything stops and every booking
// is released.
func TestGoneIsGoneOfResponses(t *testing.T) {
	h := build(t, plan{script: "default:\n  emit: \"" + strings.Repeat("word ", 3000) + "\"\n  pace: {itl: 2ms}\n"})
	for _, stream := range []bool{false, true} {
		read := 0
		if stream {
			read = 8000
		}
		h.leave(t, responsesRoute, respond("x", object{"stream": stream, "max_output_tokens": 3000}), read)
		h.idle(t)
	}
}
