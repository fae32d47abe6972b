package standing_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/dynago/dynago/internal/demo"
	"github.com/dynago/dynago/prompt"
)

const messagesRoute = "/v1/messages"

var weatherTool = []any{object{
	"name": "weather", "description": "The weather of a city",
	"input_schema": object{"$schema": "x", "type": "object", "properties": object{"city": object{"type": "string"}}},
}}

// message puts a stream of Messages together as that API's clients do.
func (s transcript) message(t testing.TB) object {
	t.Helper()
	var message, block object
	input := ""
	for _, e := range s.chunks {
		switch e["type"] {
		case "message_start":
			message = e["message"].(object)
		case "content_block_start":
			block, input = e["content_block"].(object), ""
			message["content"] = append(message["content"].([]any), block)
		case "content_block_delta":
			d := e["delta"].(object)
			switch d["type"] {
			case "text_delta":
				block["text"] = block["text"].(string) + d["text"].(string)
			case "thinking_delta":
				block["thinking"] = block["thinking"].(string) + d["thinking"].(string)
			case "signature_delta":
				block["signature"] = d["signature"]
			case "input_json_delta":
				input += d["partial_json"].(string)
			}
		case "content_block_stop":
			var parsed object
			if block["type"] == "tool_use" && input != "" && json.Unmarshal([]byte(input), &parsed) == nil {
				block["input"] = parsed
			}
		case "message_delta":
			maps.Copy(message, e["delta"].(object))
			maps.Copy(message["usage"].(object), e["usage"].(object))
		}
	}
	if s.fault != nil || message == nil || s.chunks[len(s.chunks)-1]["type"] != "message_stop" {
		t.Fatalf("the stream ends with %v", s)
	}
	return message
}

// 7, for Messages. A prompt begins with the one before it and its answer, token for
// token, whatever clients change on every turn that is not part of it.
func TestThePrefixSurvivesMessages(t *testing.T) {
	model, err := prompt.Load(demo.File, prompt.Parsers{})
	check(t, err)
	for name, tc := range map[string]struct {
		more   object
		stream bool
		agent  bool // a line at the head and marks that are others with each turn
	}{
		"unary":   {},
		"stream":  {stream: true},
		"short":   {more: object{"max_tokens": 6}},
		"omitted": {more: object{"thinking": object{"type": "adaptive", "display": "omitted"}}, stream: true},
		"agent":   {more: object{"thinking": object{"type": "adaptive"}}, stream: true, agent: true},
	} {
		t.Run(name, func(t *testing.T) {
			var j journal
			h := build(t, plan{script: session, encode: choppy(model, 7), wrap: j.around})
			var messages []any
			var before *generation
			for i, text := range []string{"plain", "call", "", "think", "call", "", "plain", "think"} {
				switch {
				case text != "":
					messages = append(messages, object{"role": "user", "content": []any{object{"type": "text", "text": text}}})
				case messages[len(messages)-1].(object)["role"] != "user":
					continue // the answer was cut before a call
				}
				body := object{"model": demo.Name, "max_tokens": 999, "messages": messages, "tools": weatherTool}
				if tc.agent {
					body["system"] = []any{
						object{"type": "text", "text": fmt.Sprintf("x-anthropic-billing-header: cc_version=2.1.%d; cch=%x;", i, i*7919)},
						object{"type": "text", "text": "Be an agent.", "cache_control": object{"type": "ephemeral"}},
					}
					body["messages"] = marked(messages)
				}
				maps.Copy(body, tc.more)
				counted := h.unary(t, messagesRoute+"/count_tokens", body)["input_tokens"]
				var answer object
				if tc.stream {
					answer = h.stream(t, messagesRoute, body).message(t)
				} else {
					answer = h.unary(t, messagesRoute, body)
				}
				made := j.take()[0]
				if before != nil {
					want := slices.Concat(before.prompt, before.ids)
					if now := made.prompt; len(now) < len(want) || !slices.Equal(now[:len(want)], want) {
						t.Fatalf("prompt %d\n%q\ndoes not begin with\n%q", i, model.Tokenizer.Decode(now, false), model.Tokenizer.Decode(want, false))
					}
				}
				before = made
				u := answer["usage"].(object)
				if sum := u["input_tokens"].(float64) + u["cache_read_input_tokens"].(float64) + u["cache_creation_input_tokens"].(float64); counted != sum || sum != float64(len(made.prompt)) {
					t.Errorf("a prompt of %d tokens counts %v, and %v in the answer", len(made.prompt), counted, u)
				}
				messages = append(messages, object{"role": "assistant", "content": answer["content"]})
				var results []any
				for _, v := range answer["content"].([]any) {
					if b := v.(object); b["type"] == "tool_use" {
						results = append(results, object{"type": "tool_result", "tool_use_id": b["id"], "content": []any{object{"type": "text", "text": fmt.Sprint("It rains <tool_call> in ", i)}}})
					}
				}
				if results != nil {
					messages = append(messages, object{"role": "user", "content": results})
				}
			}
			h.idle(t)
		})
	}
}

// marked marks the newest message, as agents do: the mark moves with every turn.
func marked(messages []any) []any {
	out := slices.Clone(messages)
	last := maps.Clone(out[len(out)-1].(object))
	content := slices.Clone(last["content"].([]any))
	b := maps.Clone(content[len(content)-1].(object))
	b["cache_control"] = object{"type": "ephemeral"}
	content[len(content)-1] = b
	last["content"] = content
	out[len(out)-1] = last
	return out
}

// A conversation goes on whatever is in it: what another server made, what models
// got wrong, and what will only be known tomorrow.
func TestNoHistoryIsRefused(t *testing.T) {
	h := build(t, plan{})
	const end = `{"role":"user","content":"Go on."}`
	for _, part := range []string{
		`"messages":[{"role":"assistant","content":[{"type":"thinking","thinking":"Hm.","signature":"EqQBCkYICRgC"},{"type":"thinking","thinking":"","signature":"EqQB"},{"type":"redacted_thinking","data":"EmwKAhgB"},{"type":"text","text":"Yes."}]},` + end + `]`,
		`"messages":[{"role":"assistant","content":[{"type":"tool_use","id":"toolu_01A","name":"f","input":"{\"a\":"},{"type":"tool_use","id":"functions.g:0","name":"g","input":{"__invalid_json":"{"}},{"type":"tool_use","id":"","name":"h","input":[1]}]},` + end + `]`,
		`"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"nobody's","content":"orphan"}]},` + end + `]`,
		`"messages":[{"role":"user","content":"lone \ud800 and \u0000 and ` + "\xff" + `"},{"role":"assistant","content":[{"type":"tool_use","id":"t","name":"f","input":{"\udc00":"\u0000"}}]},` + end + `]`,
		`"messages":[{"role":"user","content":[{"type":"hologram","cube":[1]},{"type":"container_upload","file_id":"f"},{"type":"text","text":"Hi","aura":5}]},` + end + `]`,
		`"messages":[{"role":"assistant","content":[{"type":"server_tool_use","id":"s","name":"web_search","input":{}},{"type":"web_search_tool_result","tool_use_id":"s","content":[{"type":"web_search_result","title":"T","url":"u"}]},{"type":"server_tool_use","id":"r","name":"web_search","input":{}}]},` + end + `]`,
		`"messages":[{"role":"user","content":[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AA"}},{"type":"document","source":{"type":"file","file_id":"f"}}]},{"role":"assistant","content":"I see."},` + end + `]`,
		`"messages":[{"role":"assistant","content":[{"type":"tool_use","id":"t","name":"shot","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","is_error":true,"content":[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AA"}}]}]}]`,
		`"messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":[{"type":"compaction","content":"We spoke."}]},` + end + `]`,
		`"messages":[{"role":"user","content":"a"},{"role":"user","content":"b"},{"role":"assistant","content":"c"},{"role":"assistant","content":""},{"role":"system","content":"d"},` + end + `]`,
		`"messages":[` + end + `,{"role":"assistant","content":"I am"}]`,
		`"messages":[` + end + `,{"role":"assistant","content":""}]`,
		`"messages":[` + end + `],"tools":[{"type":"hologram_20301231","name":"x"},{"type":"web_search_20260318","name":"web_search"},{"type":"mcp_toolset","mcp_server_name":"m"},{"type":"bash_20250124","name":"bash"}],"service_tier":"auto","betas":["b"],"aura":{"a":1},"output_config":{"effort":"boundless"},"thinking":{"type":"lucid"}`,
		`"messages":[` + end + `],"system":[{"type":"text","text":"x-anthropic-billing-header: a"},{"type":"aura"}],"tools":[{"name":"find","input_schema":{},"defer_loading":true,"cache_control":{"type":"ephemeral","ttl":"soon"}},{"name":"ToolSearch","input_schema":{}}]`,
	} {
		for _, route := range []string{messagesRoute, messagesRoute + "/count_tokens"} {
			body := `{"model":"` + demo.Name + `","max_tokens":4,` + part + `}`
			resp, err := http.Post(h.url+route+"?beta=true", "application/json", strings.NewReader(body))
			check(t, err)
			var answer object
			check(t, json.NewDecoder(resp.Body).Decode(&answer))
			resp.Body.Close()
			if resp.StatusCode != http.StatusOK {
				t.Errorf("%s: %s\n%d %v", route, part, resp.StatusCode, answer)
			}
		}
	}
}

// 3, for Messages. What was held back is released at the end, in the stream as in
// the whole answer.
func TestNothingIsStuckInMessages(t *testing.T) {
	h := build(t, plan{script: scripted("")})
	ask := func(user string, more object) object {
		body := object{"model": demo.Name, "max_tokens": 1000, "messages": []any{object{"role": "user", "content": user}}}
		maps.Copy(body, more)
		return body
	}
	spoken := func(m object) string {
		text := ""
		for _, b := range m["content"].([]any) {
			if s, ok := b.(object)["text"].(string); ok {
				text += s
			}
		}
		return text
	}
	both := func(body object) (string, object) {
		t.Helper()
		whole, stream := h.unary(t, messagesRoute, body), h.stream(t, messagesRoute, body).message(t)
		if spoken(whole) != spoken(stream) || whole["stop_reason"] != stream["stop_reason"] {
			t.Errorf("%v: %q as a whole, %q in a stream", body, spoken(whole), spoken(stream))
		}
		return spoken(whole), whole
	}
	stop := object{"stop_sequences": []any{"STOP"}}
	if got, _ := both(ask("hello", stop)); got != "Plain text with éü and 👍 in it, and a partial STO" {
		t.Errorf("text %q", got)
	}
	if got, m := both(ask("stop", stop)); got != "One, two, " || m["stop_reason"] != "stop_sequence" || m["stop_sequence"] != "STOP" {
		t.Errorf("text %q, %v", got, m["stop_reason"])
	}
	text, _ := both(ask("hello", nil))
	for n := 1; n < 30; n++ {
		got, _ := both(ask("hello", object{"max_tokens": n}))
		if cut := strings.TrimSuffix(got, "\uFFFD"); !strings.HasPrefix(text, cut) {
			t.Errorf("max_tokens %d: %q is no beginning of %q", n, got, text)
		}
	}
	h.idle(t)
}

// 4, for Messages. There is exactly one end, and a fault never looks like a good
// one.
func TestMessagesHaveOneEnd(t *testing.T) {
	for name, tc := range map[string]struct {
		cut    string
		status int
		kind   string
		early  bool // before the first token
	}{
		"no finish":    {"cut: {after: 3, as: stream_incomplete}", 503, "overloaded_error", false},
		"engine fault": {"cut: {after: 3, as: internal}", 500, "api_error", false},
		"refused":      {"cut: {after: 0, as: invalid_argument, message: \"temperature must be even\"}", 400, "invalid_request_error", true},
		"overloaded":   {"cut: {after: 0, as: worker_overloaded}", 529, "overloaded_error", true},
	} {
		t.Run(name, func(t *testing.T) {
			h := build(t, plan{script: "default:\n  emit: \"one two three four five six seven eight\"\n  " + tc.cut + "\n"})
			body := object{"model": demo.Name, "max_tokens": 100, "messages": []any{object{"role": "user", "content": "x"}}}
			if status, raw := h.post(t, messagesRoute, body); status != tc.status || !strings.Contains(string(raw), `"type":"`+tc.kind+`"`) {
				t.Errorf("unary status %d, want %d: %s", status, tc.status, raw)
			}
			if tc.early {
				body["stream"] = true
				if status, raw := h.post(t, messagesRoute, body); status != tc.status {
					t.Errorf("status of the stream %d, want %d: %s", status, tc.status, raw)
				}
				return
			}
			s := h.stream(t, messagesRoute, body)
			if s.fault == nil || s.fault["type"] != tc.kind || s.fault["message"] == "" {
				t.Errorf("the stream ends with %v", s.fault)
			}
			for _, e := range s.chunks {
				if e["type"] == "message_delta" || e["type"] == "message_stop" {
					t.Errorf("a good end: %v", e)
				}
			}
			h.idle(t)
		})
	}
}

// 8, for Messages. When the client has left, everything stops and every booking
// is released.
func TestGoneIsGoneOfMessages(t *testing.T) {
	h := build(t, plan{script: "default:\n  emit: \"" + strings.Repeat("word ", 3000) + "\"\n  pace: {itl: 2ms}\n"})
	for _, stream := range []bool{false, true} {
		read := 0
		if stream {
			read = 8000
		}
		h.leave(t, messagesRoute, object{
			"model": demo.Name, "max_tokens": 3000, "stream": stream,
			"messages": []any{object{"role": "user", "content": "x"}},
		}, read)
		h.idle(t)
	}
}
