package standing_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dynago/dynago/internal/demo"
	"github.com/dynago/dynago/internal/sse"
	"github.com/dynago/dynago/pipeline"
	"github.com/dynago/dynago/router"
	"github.com/google/go-cmp/cmp"
)

const (
	chatRoute        = "/v1/chat/completions"
	completionsRoute = "/v1/completions"
)

var weather = []any{object{"type": "function", "function": object{
	"name": "weather", "description": "The weather of a city",
	"parameters": object{"type": "object", "properties": object{"city": object{"type": "string"}}},
}}}

// agentic is an answer with everything in it: a thought, characters of several
// tokens, text, two calls, a marker inside a string.
const agentic = `
rules:
  - when: {user: "agent"}
    emit: "<think>\nLook ✨ at 東京 first.\n</think>\n\nOne moment, 👩‍💻 please.\n<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"München </tool_call> x\"}}\n</tool_call>\n<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Zürich\"}}\n</tool_call>"
    %[1]s
  - when: {user: "stop"}
    emit: "One, two, STOP and go. STO"
    %[1]s
default:
    emit: "Plain text with éü and 👍 in it, and a partial STO"
    %[1]s
`

func scripted(pace string) string { return fmt.Sprintf(agentic, pace) }

// say and complete are requests of the two routes. They are seeded, so that two
// answers to one of them can be compared.
func say(text string, more object) object {
	body := object{"model": demo.Name, "messages": []any{object{"role": "user", "content": text}}, "seed": 5}
	maps.Copy(body, more)
	return body
}

func complete(text string, more object) object {
	body := object{"model": demo.Name, "prompt": text, "max_tokens": 40, "seed": 5}
	maps.Copy(body, more)
	return body
}

// requests are those that the properties are tried on, by name.
var requests = map[string]struct {
	path string
	body object
}{
	"chat, plain":            {chatRoute, say("hello", nil)},
	"chat, short":            {chatRoute, say("hello", object{"max_tokens": 7})},
	"chat, three choices":    {chatRoute, say("hello", object{"n": 3})},
	"chat, agent":            {chatRoute, say("agent", object{"tools": weather})},
	"chat, tools off":        {chatRoute, say("agent", object{"tools": weather, "tool_choice": "none"})},
	"chat, one call":         {chatRoute, say("agent", object{"tools": weather, "parallel_tool_calls": false})},
	"chat, no tools":         {chatRoute, say("agent", nil)},
	"chat, stop":             {chatRoute, say("stop", object{"stop": []any{"STOP", "never"}})},
	"chat, stop kept":        {chatRoute, say("stop", object{"stop": "STOP", "include_stop_str_in_output": true})},
	"chat, stop unmet":       {chatRoute, say("hello", object{"stop": "STOP"})},
	"chat, logprobs":         {chatRoute, say("agent", object{"tools": weather, "logprobs": true, "top_logprobs": 2})},
	"chat, logprobs, stop":   {chatRoute, say("stop", object{"stop": "STOP", "logprobs": true})},
	"completions, plain":     {completionsRoute, complete("hello", nil)},
	"completions, stop":      {completionsRoute, complete("please stop", object{"stop": "STOP"})},
	"completions, choices":   {completionsRoute, complete("hello", object{"n": 2})},
	"completions, prompts":   {completionsRoute, complete("", object{"prompt": []any{"hello", "please stop"}, "stop": "STOP", "n": 2})},
	"completions, ids":       {completionsRoute, complete("", object{"prompt": []any{1, 2, 3}})},
	"completions, echo":      {completionsRoute, complete("hello", object{"echo": true, "logprobs": 2})},
	"completions, raw calls": {completionsRoute, complete("agent", object{"max_tokens": 200})},
	"completions, logprobs":  {completionsRoute, complete("stop", object{"stop": "STOP", "logprobs": 1})},
}

// 1. The unary answer equals the folded stream, field for field.
func TestUnaryIsTheFoldedStream(t *testing.T) {
	for source, script := range map[string]string{"prose": "", "script": scripted("")} {
		h := build(t, plan{script: script, workers: 1}) // another one's cache would be another one's usage
		for name, r := range requests {
			t.Run(source+"/"+name, func(t *testing.T) {
				h.unary(t, r.path, r.body) // the cache is now as warm as it gets
				unary := h.unary(t, r.path, r.body)
				streamed := h.stream(t, r.path, r.body).folded(t)
				if diff := cmp.Diff(comparable(unary), comparable(streamed)); diff != "" {
					t.Errorf("unary against stream: %s", diff)
				}
			})
		}
		h.idle(t)
	}
}

// 2. However the engine cuts its output, the client sees the same.
func TestSplit(t *testing.T) {
	answers := map[string]string{}
	for _, pace := range []string{"", "pace: {tokens_per_delta: 2}", "pace: {tokens_per_delta: 7}", "pace: {tokens_per_delta: 1000}"} {
		h := build(t, plan{script: scripted(pace), workers: 1})
		for name, r := range requests {
			t.Run(name+"/"+pace, func(t *testing.T) {
				h.unary(t, r.path, r.body)
				got := comparable(h.stream(t, r.path, r.body).folded(t))
				if want, ok := answers[name]; ok {
					if diff := cmp.Diff(want, got); diff != "" {
						t.Error(diff)
					}
				}
				answers[name] = got
			})
		}
	}
}

// 3. What was held back is released at the end; every token is accounted for.
func TestNothingStuck(t *testing.T) {
	h := build(t, plan{script: scripted("")})
	answer := h.unary(t, chatRoute, say("hello", object{"stop": "STOP"}))
	if got := content(answer); got != "Plain text with éü and 👍 in it, and a partial STO" {
		t.Errorf("content %q", got)
	}
	answer = h.unary(t, chatRoute, say("stop", object{"stop": "STOP", "logprobs": true}))
	if got := content(answer); got != "One, two, " {
		t.Errorf("content %q", got)
	}
	for _, name := range []string{"chat, logprobs", "completions, plain", "chat, plain"} {
		r := requests[name]
		body := maps.Clone(r.body)
		if body["logprobs"] = true; r.path == completionsRoute {
			body["logprobs"] = 1
		}
		answer := h.unary(t, r.path, body)
		choice := answer["choices"].([]any)[0].(object)
		entries := asList(choice["logprobs"].(object)["content"])
		if r.path == completionsRoute {
			entries = asList(choice["logprobs"].(object)["tokens"])
		}
		if tokens := answer["usage"].(object)["completion_tokens"].(float64); len(entries) != int(tokens) && len(entries) != int(tokens)-1 {
			// The end-of-sequence token is counted and stays with the engine.
			t.Errorf("%s: %d log probabilities for %v tokens", name, len(entries), tokens)
		}
	}
	// A character that its last token would have completed.
	answer = h.unary(t, chatRoute, say("hello", object{"max_tokens": 1000}))
	whole := content(answer)
	for n := 1; n < 30; n++ {
		got := content(h.unary(t, chatRoute, say("hello", object{"max_tokens": n})))
		if cut := strings.TrimSuffix(got, "\uFFFD"); !strings.HasPrefix(whole, cut) {
			t.Errorf("max_tokens %d: %q is no beginning of %q", n, got, whole)
		}
	}
	h.idle(t)
}

func content(answer object) string {
	s, _ := answer["choices"].([]any)[0].(object)["message"].(object)["content"].(string)
	return s
}

// 4. There is exactly one end, and a fault never looks like a good one.
func TestOneEnd(t *testing.T) {
	for name, tc := range map[string]struct {
		cut    string
		status int
		early  bool // before the first token
	}{
		"no finish":            {"cut: {after: 3, as: stream_incomplete}", 503, false},
		"disconnected":         {"cut: {after: 3, as: disconnected}", 503, false},
		"engine fault":         {"cut: {after: 3, as: internal}", 500, false},
		"worker dies":          {"cut: {after: 3, as: death}", 503, false},
		"refused":              {"cut: {after: 0, as: invalid_argument, message: \"temperature must be even\"}", 400, true},
		"overloaded":           {"cut: {after: 0, as: worker_overloaded}", 529, true},
		"fault at the start":   {"cut: {after: 0, as: internal}", 500, true},
		"silence":              {"cut: {after: 3, as: stall}", 504, false},
		"silence at the start": {"cut: {after: 0, as: stall}", 504, true},
	} {
		t.Run(name, func(t *testing.T) {
			p := plan{script: "default:\n  emit: \"one two three four five six seven eight\"\n  " + tc.cut + "\n"}
			if tc.status == http.StatusGatewayTimeout {
				p.limits = pipeline.Limits{FirstItem: 300 * time.Millisecond, Inactivity: 300 * time.Millisecond}
			}
			h := build(t, p)
			for path, body := range map[string]object{chatRoute: say("x", nil), completionsRoute: complete("x", nil)} {
				status, raw := h.post(t, path, body)
				if status != tc.status {
					t.Errorf("%s: unary status %d, want %d: %s", path, status, tc.status, raw)
				}
				var flat struct {
					Error   object
					Message string
				}
				check(t, json.Unmarshal(raw, &flat))
				if flat.Message == "" || flat.Error["message"] != flat.Message {
					t.Errorf("%s: error body %s", path, raw)
				}
				if name == "worker dies" {
					continue // nobody is left for the stream
				}
				streaming := maps.Clone(body)
				streaming["stream"] = true
				if tc.early {
					if status, raw := h.post(t, path, streaming); status != tc.status {
						t.Errorf("%s: status of the stream %d, want %d: %s", path, status, tc.status, raw)
					}
					continue
				}
				s := h.stream(t, path, body)
				if s.fault == nil || !s.done {
					t.Fatalf("%s: fault %v, done %v", path, s.fault, s.done)
				}
				for _, chunk := range s.chunks {
					for _, c := range chunk["choices"].([]any) {
						if c.(object)["finish_reason"] != nil {
							t.Errorf("%s: a finish before the fault: %v", path, chunk)
						}
					}
				}
			}
			h.idle(t)
		})
	}
}

// 5. The rendered prompt decides whether an answer begins inside a thought.
func TestStartStateComesFromThePrompt(t *testing.T) {
	const script = "default:\n  emit: \"It is so.\\n</think>\\n\\nYes.\"\n"
	opened := func(template string) string {
		return template + "{%- if add_generation_prompt %}{{ '<think>\\n' }}{%- endif %}"
	}
	for name, tc := range map[string]struct {
		template         func(string) string
		more             object
		thought, content string
	}{
		"nothing open":       {nil, nil, "", "It is so.\n\n\nYes."},
		"opened by template": {opened, nil, "It is so.", "Yes."},
		"closed by template": {nil, object{"chat_template_kwargs": object{"enable_thinking": false}}, "", "It is so.\n\n\nYes."},
	} {
		t.Run(name, func(t *testing.T) {
			h := build(t, plan{script: script, template: tc.template})
			answer := h.unary(t, chatRoute, say("really?", tc.more))
			message := answer["choices"].([]any)[0].(object)["message"].(object)
			thought, _ := message["reasoning_content"].(string)
			if thought != tc.thought || strings.TrimSpace(strings.ReplaceAll(content(answer), "\n", "")) != strings.ReplaceAll(tc.content, "\n", "") {
				t.Errorf("thought %q, content %q; want %q, %q", thought, content(answer), tc.thought, tc.content)
			}
			for path, other := range map[string]struct {
				body object
				read func(testing.TB, object) []string
			}{
				messagesRoute: {
					object{"max_tokens": 100, "thinking": object{"type": "enabled", "budget_tokens": 1024}, "messages": []any{object{"role": "user", "content": "really?"}}},
					readMessage,
				},
				responsesRoute: {object{"input": "really?"}, readResponse},
			} {
				body := object{"model": demo.Name}
				maps.Copy(body, other.body)
				maps.Copy(body, tc.more)
				said := other.read(t, h.unary(t, path, body))
				if thinks := said[0] == "thinks It is so."; thinks != (tc.thought != "") || thinks && said[1] != "says Yes." {
					t.Errorf("%s: %q", path, said)
				}
			}
		})
	}
}

// 8. When the client has left, everything stops and every booking is released.
func TestGoneIsGone(t *testing.T) {
	h := build(t, plan{
		script: "rules:\n  - {when: {user: never}, emit: x, cut: {after: 0, as: stall}}\n" +
			"default:\n  emit: \"" + strings.Repeat("word ", 3000) + "\"\n  pace: {itl: 2ms}\n",
		maxRunning: 4,
	})
	for name, tc := range map[string]struct {
		text   string
		stream bool
		read   int // bytes to read before leaving
		n      int
	}{
		"unary":                  {"x", false, 0, 1},
		"stream":                 {"x", true, 300, 1},
		"stream, choices":        {"x", true, 300, 3},
		"before the first token": {"never", true, 0, 1},
		"unary, no token":        {"never", false, 0, 2},
	} {
		for _, path := range []string{chatRoute, completionsRoute} {
			t.Run(name+path, func(t *testing.T) {
				body := say(tc.text, object{"stream": tc.stream, "n": tc.n})
				if path == completionsRoute {
					body = complete(tc.text, object{"stream": tc.stream, "n": tc.n, "max_tokens": 3000})
				}
				h.leave(t, path, body, tc.read)
				h.idle(t)
			})
		}
	}
	t.Run("queued", func(t *testing.T) {
		// More than the engines run at once: some leave while they wait.
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		const clients = 20
		for range clients {
			go func() {
				defer func() { done <- struct{}{} }()
				raw, _ := json.Marshal(say("x", object{"stream": true}))
				req, _ := http.NewRequestWithContext(ctx, http.MethodPost, h.url+chatRoute, bytes.NewReader(raw))
				req.Header.Set("Content-Type", "application/json")
				if resp, err := http.DefaultClient.Do(req); err == nil {
					io.Copy(io.Discard, resp.Body) //nolint:errcheck // it is cut off
					resp.Body.Close()
				}
			}()
		}
		waitFor(t, "some requests wait in the engines", func() bool { return h.booked() == clients })
		cancel()
		for range clients {
			<-done
		}
		h.idle(t)
	})
}

// leave sends a request, reads some of the answer, and goes.
func (h *house) leave(t *testing.T, path string, body object, read int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	raw, err := json.Marshal(body)
	check(t, err)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, h.url+path, bytes.NewReader(raw))
	check(t, err)
	req.Header.Set("Content-Type", "application/json")
	gone := make(chan error, 1)
	go func() {
		resp, err := http.DefaultClient.Do(req)
		if err == nil {
			_, err = io.CopyN(io.Discard, resp.Body, int64(read))
			defer resp.Body.Close()
		}
		gone <- err
	}()
	if read > 0 {
		check(t, <-gone)
		return // the deferred cancel leaves
	}
	waitFor(t, "the request is under way", func() bool { return h.booked() > 0 })
	cancel()
	if err := <-gone; err == nil {
		t.Error("an answer came before the client left")
	}
}

func (h *house) booked() (n int) {
	for _, l := range h.router.Loads() {
		n += l.Requests
	}
	return n
}

// prefilled says whether every request that is booked has its first token.
func (h *house) prefilled() bool {
	return !slices.ContainsFunc(h.router.Loads(), func(l router.TargetLoad) bool { return l.PrefillTokens > 0 })
}

// 9. Clients that do not read cost a bounded amount, for a bounded time.
func TestSlowReadersAreBounded(t *testing.T) {
	h := build(t, plan{
		timing: &sse.Timing{Hold: time.Second, KeepAlive: time.Second, Write: 4 * time.Second, Coalesce: time.Millisecond},
	})
	const clients = 20
	before := heap()
	var conns []net.Conn
	for range clients {
		conn, err := net.Dial("tcp", strings.TrimPrefix(h.url, "http://"))
		check(t, err)
		check(t, conn.(*net.TCPConn).SetReadBuffer(4<<10))
		raw, err := json.Marshal(say("x", object{"stream": true, "max_tokens": 20000, "ignore_eos": true}))
		check(t, err)
		_, err = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", chatRoute, len(raw), raw)
		check(t, err)
		conns = append(conns, conn)
	}
	waitFor(t, "all streams are generated, and not read", func() bool {
		return h.booked() == clients && h.prefilled() && h.running(t) == 0
	})
	if held := heap() - before; held > clients<<20 || h.booked() != clients {
		t.Errorf("%d sleeping readers hold %d KiB", h.booked(), held>>10)
	}
	h.idle(t) // the write deadline ends them all
	for _, c := range conns {
		c.Close()
	}
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// 9. A body has a limit, and one byte more is refused.
func TestBodyLimit(t *testing.T) {
	h := build(t, plan{bodyLimit: 1 << 20})
	body := say(strings.Repeat("x", 1<<20), nil)
	if status, raw := h.post(t, chatRoute, body); status != http.StatusRequestEntityTooLarge {
		t.Errorf("status %d: %s", status, raw)
	}
	if status, raw := h.post(t, completionsRoute, complete(strings.Repeat("word ", 100000), nil)); status != http.StatusBadRequest || !strings.Contains(string(raw), "context_length_exceeded") {
		t.Errorf("status %d: %s", status, raw)
	}
	h.idle(t)
}

// What is sampled differs, from choice to choice and from call to call; a seed
// makes calls equal, and so does greed.
func TestChoices(t *testing.T) {
	h := build(t, plan{})
	for name, tc := range map[string]struct {
		more object
		want int // different choices in two calls
	}{
		"sampled": {object{"n": 4, "seed": nil}, 8},
		"seeded":  {object{"n": 4}, 4},
		"greedy":  {object{"temperature": 0, "seed": nil}, 1},
	} {
		for path, body := range map[string]object{chatRoute: say("hello", tc.more), completionsRoute: complete("hello", tc.more)} {
			seen := map[string]bool{}
			for range 2 {
				for _, c := range h.unary(t, path, body)["choices"].([]any) {
					choice := c.(object)
					delete(choice, "index")
					seen[fmt.Sprint(choice)] = true
				}
			}
			if len(seen) != tc.want {
				t.Errorf("%s, %s: %d different choices, want %d", name, path, len(seen), tc.want)
			}
		}
	}
}
