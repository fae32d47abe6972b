//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"
)

// member returns the value of the last member of this name that a body has, as a text.
func member(t *testing.T, body, name string) string {
	t.Helper()
	all := regexp.MustCompile(`"`+name+`": ?("(?:[^"\\]|\\.)+")`).FindAllStringSubmatch(body, -1)
	if all == nil {
		t.Fatalf("no %s in %s", name, body)
	}
	var text string
	if err := json.Unmarshal([]byte(all[len(all)-1][1]), &text); err != nil {
		t.Fatal(err)
	}
	return text
}

// dialogue is two turns of an agent on one API.
type dialogue struct {
	api, says string
	stream    bool
}

// body is a turn: messages or items behind the first, without their brackets.
func (d *dialogue) body(hint bool, more string) string {
	const parameters = `{"type":"object","properties":{"city":{"type":"string"}}}`
	first := fmt.Sprintf(`{"role":"user","content":%q}`, d.session()+": "+d.says)
	if d.api == "chat" {
		first = `{"role":"user","content":"` + d.session() + `"},{"role":"assistant","content":"Yes?","reasoning_content":"Who is it?"},` + first
	}
	tool := `{"type":"function","function":{"name":"get_weather","parameters":` + parameters + `}}`
	list, rest := "messages", `,"max_tokens":64`
	switch d.api {
	case "responses":
		tool = `{"type":"function","name":"get_weather","parameters":` + parameters + `}`
		list, rest = "input", `,"store":false,"include":["reasoning.encrypted_content"]`
	case "messages":
		tool = `{"name":"get_weather","input_schema":` + parameters + `}`
	case "chat":
		if rest += `,"chat_template_args":{"enable_thinking":true}`; d.stream {
			rest += `,"stream_options":{"include_usage":true}`
		}
	}
	return fmt.Sprintf(`{"model":"dynago/demo","stream":%t,"tools":[%s],"%s":[%s%s],"nvext":{"agent_hints":{"speculative_prefill":%t},"session_control":{"session_id":"%s"}}%s}`,
		d.stream, tool, list, first, more, hint, d.session(), rest)
}

func (d *dialogue) session() string {
	return strings.ReplaceAll(fmt.Sprintf("%s-%s-%t", d.api, d.says, d.stream), " ", "-")
}

// follow is what an agent adds to the conversation when it has got an answer: what it
// was told, as it understands it, and a result or a question.
func (d *dialogue) follow(t *testing.T, answer string) string {
	thinks, calls := strings.Contains(d.says, "ponder"), strings.Contains(d.says, "weather")
	const thought = "One two three four five six seven eight nine ten eleven twelve."
	switch d.api {
	case "chat":
		if calls {
			id := member(t, answer, "id")
			if all := regexp.MustCompile(`"id": ?"(call_[^"]+)"`).FindStringSubmatch(answer); all != nil {
				id = all[1]
			}
			return `,{"role":"assistant","content":null,"tool_calls":[{"id":"` + id + `","type":"function","function":{"name":"get_weather","arguments":"{\"city\":\"Rome\"}"}}]},{"role":"tool","tool_call_id":"` + id + `","content":"Sunny."}`
		}
		return `,{"role":"assistant","content":"Thought about it.","reasoning_content":"` + thought + `"},{"role":"user","content":"And now?"}`
	case "responses":
		reasoning := ""
		if thinks {
			reasoning = `,{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"` + member(t, answer, "encrypted_content") + `"}`
		}
		if calls {
			id := member(t, answer, "call_id")
			return reasoning + `,{"type":"function_call","call_id":"` + id + `","name":"get_weather","arguments":"{\"city\":\"Rome\"}"},{"type":"function_call_output","call_id":"` + id + `","output":"Sunny."}`
		}
		return reasoning + `,{"type":"message","role":"assistant","content":[{"type":"output_text","text":"Thought about it."}]},{"role":"user","content":"And now?"}`
	}
	thinking := ""
	if thinks {
		thinking = `{"type":"thinking","thinking":"` + thought + `","signature":"` + member(t, answer, "signature") + `"},`
	}
	if calls {
		all := regexp.MustCompile(`"id": ?"(toolu_[^"]+)"`).FindStringSubmatch(answer)
		return `,{"role":"assistant","content":[` + thinking + `{"type":"tool_use","id":"` + all[1] + `","name":"get_weather","input":{"city":"Rome"}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"` + all[1] + `","content":"Sunny."}]}`
	}
	return `,{"role":"assistant","content":[` + thinking + `{"type":"text","text":"Thought about it."}]},{"role":"user","content":"And now?"}`
}

// The next turn finds cached, at the worker that has answered, exactly what was
// computed ahead for it: with tools and with thoughts, streaming and unary, on all
// APIs that have turns. Nobody who does not ask for it gets it, nor anybody where
// the operator does not want it.
func TestForesight(t *testing.T) {
	t.Parallel()
	for _, off := range []bool{false, true} {
		var env []string
		if off {
			env = []string{"DYN_DISABLE_FRONTEND_NVEXT=1"}
		}
		s := newStage(t, env, nil, false)
		done := 0
		for _, api := range []string{"chat", "responses", "messages"} {
			for _, stream := range []bool{false, true} {
				for _, says := range []string{"Please ponder the matter", "How is the weather today"} {
					t.Run(fmt.Sprintf("%s stream=%t %s off=%t", api, stream, says, off), func(t *testing.T) {
						d := &dialogue{api, says, stream}
						c := &crossing{stage: s, api: api, stream: stream}
						s.seen.take()
						answer := s.send(paths[api], d.body(true, ""))
						if answer.status != 200 {
							t.Fatalf("%d %s", answer.status, answer.body)
						}
						if off {
							if sent := s.seen.take(); len(sent) != 1 {
								t.Errorf("the workers were asked %d times", len(sent))
							}
							return
						}
						done++
						until(t, "the prompt is computed ahead", func() bool {
							return strings.Contains(s.page("/metrics"), fmt.Sprintf(`dynago_speculative_prefill_total{outcome="done"} %d`, done))
						})
						sent := s.seen.take()
						if len(sent) != 2 {
							t.Fatalf("the workers were asked %d times", len(sent))
						}
						ahead := sent[1]
						if ahead.worker != sent[0].worker || ahead.Stop.MaxTokens != 1 || ahead.KV.Session.ID != d.session() {
							t.Errorf("worker %d is asked for %d tokens of session %q, want worker %d", ahead.worker, ahead.Stop.MaxTokens, ahead.KV.Session.ID, sent[0].worker)
						}
						c.reply = s.send(paths[api], d.body(false, d.follow(t, answer.body)))
						if c.status != 200 {
							t.Fatalf("%d %s", c.status, c.reply.body)
						}
						next := s.seen.take()
						prompt, cached := c.usage(t)
						if len(next) != 1 || next[0].worker != ahead.worker || cached != len(ahead.TokenIDs) || cached < (prompt-60)/16*16 {
							t.Errorf("%d of %d tokens were cached, and %d computed ahead", cached, prompt, len(ahead.TokenIDs))
						}
					})
				}
			}
		}
		if used := regexp.MustCompile(`speculative_prefill_(used_)?tokens_total (\d+)`).FindAllStringSubmatch(s.page("/metrics"), -1); !off && (len(used) != 2 || used[0][2] != used[1][2] || used[0][2] == "0") {
			t.Errorf("metrics tell of %v", used)
		}
		if requests := regexp.MustCompile(`dynamo_frontend_requests_total\{[^}]*status="success"\} (\d+)`).FindAllStringSubmatch(s.page("/metrics"), -1); !off {
			for _, r := range requests {
				if r[1] != "4" {
					t.Errorf("%s, want 4: what is computed ahead is nobody's request", r[0])
				}
			}
		}
	}
}

// A prefetch brings back to the device what has left it for the host, so that the
// request that follows need not wait; and it can be asked about, and ended.
func TestPrefetch(t *testing.T) {
	t.Parallel()
	p := serve(t, "--workers", "1", "--num-gpu-blocks-override", "200", "--g2-blocks", "400")
	// What is brought up and not read yet may hold a tenth of the device.
	first := prose("one", 90)
	for _, text := range []string{first, prose("other", 600), prose("another", 600)} {
		p.cachedTokens(text)
	}
	body := fmt.Sprintf(`{"model":"dynago/demo","messages":[{"role":"user","content":%q}],"session_id":"s-42","target_tier":"g1","worker":"auto","deadline":%q}`, first, time.Now().Add(time.Second).UTC().Format(time.RFC3339Nano))
	var begun struct {
		ID     string `json:"prefetch_id"`
		Worker uint64 `json:"worker_id"`
		Blocks struct{ Requested, Already, Scheduled, Missing int }
	}
	r := p.send("/v1/kv/prefetch", body)
	if err := json.Unmarshal([]byte(r.body), &begun); err != nil || r.status != 202 || begun.Worker == 0 || begun.Blocks.Scheduled == 0 || begun.Blocks.Requested != begun.Blocks.Already+begun.Blocks.Scheduled+begun.Blocks.Missing {
		t.Fatalf("%d %s, %v", r.status, r.body, err)
	}
	var state struct {
		State          string
		Loaded, Failed int
	}
	about := func(method string) reply {
		return p.answered(p.request(t.Context(), method, p.url+"/v1/kv/prefetch/"+begun.ID, ""))
	}
	until(t, "the blocks are there", func() bool {
		r := about("GET")
		if err := json.Unmarshal([]byte(r.body), &state); err != nil || r.status != 200 {
			t.Fatalf("%d %s, %v", r.status, r.body, err)
		}
		return state.State == "done"
	})
	if state.Loaded != begun.Blocks.Scheduled || state.Failed != 0 {
		t.Errorf("%+v of %+v", state, begun.Blocks)
	}
	if r := about("DELETE"); r.status != 200 || !strings.Contains(r.body, `"done"`) {
		t.Errorf("ending what is over: %d %s", r.status, r.body)
	}
	r = p.send("/v1/kv/prefetch", strings.Replace(body, `,"deadline"`, `,"ignored"`, 1))
	if err := json.Unmarshal([]byte(r.body), &begun); err != nil || begun.Blocks.Scheduled != 0 || begun.Blocks.Already == 0 {
		t.Errorf("the second time: %d %s", r.status, r.body)
	}
	if cached, n := p.cachedTokens(first); cached != (n-1)/16*16 {
		t.Errorf("%d of %d tokens were cached", cached, n)
	}
	for _, tc := range []struct {
		body   string
		status int
		says   string
	}{
		{`{"model":"dynago/demo"}`, 400, "Exactly one of"},
		{`{"model":"dynago/demo","prompt":"a","token_ids":[1]}`, 400, "Exactly one of"},
		{`{"model":"dynago/demo","token_ids":[]}`, 400, "token_ids"},
		{`{"model":"dynago/demo","token_ids":[-1]}`, 400, "token_ids"},
		{`{"model":"dynago/demo","token_ids":[1,999999]}`, 400, "not in the vocabulary"},
		{`{"model":"dynago/demo","block_hashes":["x"]}`, 400, "block_hashes[0]"},
		{`{"model":"dynago/demo","prompt":"a","target_tier":"g3"}`, 400, "target_tier must be g1 or g2"},
		{`{"model":"dynago/demo","prompt":"a","worker":"some"}`, 400, "worker must be"},
		{`{"model":"dynago/demo","prompt":"a","worker":7}`, 501, "worker 7 does not serve"},
		{`{"model":"dynago/demo","prompt":"a","deadline":"2001-01-01T00:00:00Z"}`, 400, "deadline has passed"},
		{`{"model":"dynago/demo","prompt":"a","deadline":"soon"}`, 400, "deadline must be a moment"},
		{`{"model":"dynago/demo","prompt":"a","session_id":"` + strings.Repeat("x", 257) + `"}`, 400, "session_id"},
		{`{"model":"dynago/demo","prompt":"a","cache_salt":"` + strings.Repeat("x", 1025) + `"}`, 400, "cache_salt must have at most 1024 bytes"},
		{`{"model":"none","prompt":"a"}`, 404, "none"},
		{`{"prompt":"a"}`, 400, "Model cannot be empty"},
		{`[]`, 400, ""},
		{`{"model":"dynago/demo","block_hashes":["18446744073709551615",7]}`, 202, `"missing":2`},
		{`{"model":"dynago/demo","token_ids":[1,2,3]}`, 202, `"requested":0`},
	} {
		if r := p.send("/v1/kv/prefetch", tc.body); r.status != tc.status || !strings.Contains(r.body, tc.says) {
			t.Errorf("%s: %d %s, want %d and %q", tc.body, r.status, r.body, tc.status, tc.says)
		}
	}
	begun.ID = "pf_none"
	if r := about("GET"); r.status != 404 || !strings.Contains(r.body, "prefetch_not_found") {
		t.Errorf("an unknown one: %d %s", r.status, r.body)
	}
	for _, want := range []string{`dynago_prefetch_requests_total{outcome="begun"}`, `dynago_prefetch_requests_total{outcome="refused"}`, `dynago_prefetch_requests_total{outcome="cancelled"} 1`} {
		if page := p.page("/metrics"); !strings.Contains(page, want) {
			t.Errorf("metrics do not tell of %s", want)
		}
	}
}

// Where no engine has tiers, that is said.
func TestPrefetchUnsupported(t *testing.T) {
	t.Parallel()
	p := serve(t, "--workers", "1")
	if r := p.send("/v1/kv/prefetch", `{"model":"dynago/demo","prompt":"a"}`); r.status != 501 || !strings.Contains(r.body, "tiers of cache below its device") {
		t.Errorf("%d %s", r.status, r.body)
	}
}
