//go:build unix

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/gzip"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/dynago/dynago/trace"
)

// traceScript calls tools, ends at a stop string, and says a sentence.
const traceScript = `
rules:
  - when: {user: weather, has_tools: true, turn: 0}
    emit: <tool_call>{"name":"sky","arguments":{"at":"Rome"}}</tool_call><tool_call>{"name":"sea","arguments":{}}</tool_call>
  - when: {user: stop}
    emit: One two STOP three four.
  - when: {user: endless}
    emit: "%s"
    pace: {itl: 20ms}
  - when: {user: fall}
    emit: Here it comes.
    cut: {after: 2, as: disconnected}
default:
  emit: The Seine does.
`

// traced starts a server that records to a file, and returns what reads its rows.
func traced(t *testing.T, args ...string) (*program, func(n int) []*trace.Record) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "trace.jsonl")
	script := fileOf(t, "script.yaml", fmt.Sprintf(traceScript, strings.Repeat("and so on ", 500)))
	p := serve(t, append([]string{
		"--request-trace", "--request-trace-file-path", path, "--request-trace-file-format", "jsonl", "--request-trace-file-flush-interval-ms", "1",
		"--speedup-ratio", "0", "--log-level", "warn", "--mock-script", script,
	}, args...)...)
	return p, func(n int) (rows []*trace.Record) {
		t.Helper()
		until(t, fmt.Sprintf("%d rows in the trace", n), func() bool {
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if bytes.Count(b, []byte("\n")) < n {
				return false
			}
			rows = rowsIn(t, b)
			return true
		})
		return rows
	}
}

// rowsIn reads lines of a trace, each of which must be as the schema says.
func rowsIn(t *testing.T, lines []byte) (rows []*trace.Record) {
	t.Helper()
	schema, err := jsonschema.NewCompiler().Compile("../../trace/schema.json")
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(lines) {
		value, err := jsonschema.UnmarshalJSON(bytes.NewReader(line))
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if err := schema.Validate(value); err != nil {
			t.Errorf("%s: %v", line, err)
		}
		r, ok, err := trace.Decode(bytes.TrimSpace(line))
		if err != nil || !ok {
			t.Fatalf("%s: %v, %v", line, ok, err)
		}
		rows = append(rows, r)
	}
	return rows
}

const (
	askWeather = `"messages":[{"role":"user","content":"weather"}],"tools":[{"type":"function","function":{"name":"sky"}},{"type":"function","function":{"name":"sea"}}]`
	askParis   = `"messages":[{"role":"user","content":"Which rivers cross Paris?"}]`
)

// brings checks which results of tools are new in a prompt.
func brings(ids ...string) func(*testing.T, *trace.Request) {
	return func(t *testing.T, r *trace.Request) {
		if !slices.Equal(r.Dynago.ToolResults, ids) {
			t.Errorf("results of %q, want of %q", r.Dynago.ToolResults, ids)
		}
	}
}

// Each call of each API has one row, which says who has asked, and how it ended.
func TestTraceRows(t *testing.T) {
	t.Parallel()
	p, rows := traced(t, "--kserve-rest")
	seen := 0
	for _, tc := range []struct {
		name, path, body string
		header           []string
		agent            *trace.AgentContext
		finish           string // of finish_reason_metadata
		endpoint         string
		stream, bare     bool // bare: no hashes
		check            func(t *testing.T, r *trace.Request)
	}{
		{
			name: "chat", path: "/v1/chat/completions", body: askParis, endpoint: "chat_completions",
			finish: `{"finish_reason":"stop","backend_finish_reason":"eos","choices":[{"choice_index":0,"finish_reason":"stop","backend_finish_reason":"eos"}]}`,
			check: func(t *testing.T, r *trace.Request) {
				if r.XRequestID != "" {
					t.Errorf("x_request_id %q, of a client that has sent none", r.XRequestID)
				}
			},
		},
		{
			name: "headers", path: "/v1/chat/completions", body: askParis + `,"stream":true`, endpoint: "chat_completions", stream: true,
			header: []string{"x-dynamo-session-id", "child", "x-dynamo-parent-session-id", "parent", "x-dynamo-session-final", "no", "x-request-id", "turn-1"},
			agent:  &trace.AgentContext{SessionID: "child", ParentSessionID: "parent", SessionFinal: new(false), InputTrigger: "user_message"},
			finish: `{"finish_reason":"stop","backend_finish_reason":"eos","choices":[{"choice_index":0,"finish_reason":"stop","backend_finish_reason":"eos"}]}`,
			check: func(t *testing.T, r *trace.Request) {
				if r.XRequestID != "turn-1" {
					t.Errorf("x_request_id %q", r.XRequestID)
				}
			},
		},
		{
			name: "the last of a session", path: "/v1/chat/completions", body: askParis, endpoint: "chat_completions",
			header: []string{"x-session-id", "s", "x-dynamo-session-final", "ON"},
			agent:  &trace.AgentContext{SessionID: "s", SessionFinal: new(true), KVHints: &trace.KVHints{EvictSession: true}, InputTrigger: "user_message"},
		},
		{
			name: "body", path: "/v1/chat/completions", endpoint: "chat_completions",
			body:  askParis + `,"nvext":{"agent_context":{"session_type_id":"bugfix","session_id":"run","trajectory_id":"chain","parent_trajectory_id":"up","trajectory_final":true}}`,
			agent: &trace.AgentContext{SessionTypeID: "bugfix", SessionID: "run", TrajectoryID: "chain", ParentTrajectoryID: "up", TrajectoryFinal: new(true), KVHints: &trace.KVHints{EvictSession: true}, InputTrigger: "user_message"},
		},
		{
			name: "headers before the body", path: "/v1/chat/completions", header: []string{"x-dynamo-session-id", "s"}, endpoint: "chat_completions",
			body:  askParis + `,"nvext":{"agent_context":{"session_type_id":"bugfix","session_id":"run","trajectory_id":"chain"}}`,
			agent: &trace.AgentContext{SessionID: "s", InputTrigger: "user_message"},
		},
		{
			name: "tool calls in a stream", path: "/v1/chat/completions", body: askWeather + `,"stream":true`, endpoint: "chat_completions", stream: true,
			header: []string{"thread-id", "codex", "x-codex-turn-metadata", `{"request_kind":"compaction","compaction":{"trigger":"auto","phase":"mid_turn","other":"x"}}`},
			agent:  &trace.AgentContext{SessionID: "codex", Compaction: &trace.Compaction{Trigger: "auto", Phase: "mid_turn"}, InputTrigger: "user_message"},
			finish: `{"finish_reason":"tool_calls","backend_finish_reason":"eos","tool_calls":[{"choice_index":0,"tool_call_index":0,"id":"?","name":"sky"},{"choice_index":0,"tool_call_index":1,"id":"?","name":"sea"}],"choices":[{"choice_index":0,"finish_reason":"tool_calls","backend_finish_reason":"eos"}]}`,
		},
		{
			name: "result of a tool", path: "/v1/chat/completions", endpoint: "chat_completions",
			body: `"messages":[{"role":"user","content":"x"},{"role":"assistant","tool_calls":[{"id":"c1","type":"function","function":{"name":"sky","arguments":"{}"}}]},{"role":"tool","tool_call_id":"c1","content":"blue"}]`,
			// The metadata is of another kind.
			header: []string{"thread-id", "codex", "x-codex-turn-metadata", `{"request_kind":"turn"}`},
			agent:  &trace.AgentContext{SessionID: "codex", InputTrigger: "tool_result"},
			check:  brings("c1"),
		},
		{
			name: "results of nobody", path: "/v1/chat/completions", endpoint: "chat_completions",
			body:  `"messages":[{"role":"user","content":"x"},{"role":"assistant","tool_calls":[{"id":"c1","type":"function","function":{"name":"sky","arguments":"{}"}}]},{"role":"tool","tool_call_id":"c1","content":"blue"}]`,
			check: brings(),
		},
		{
			name: "something else", path: "/v1/chat/completions", body: `"messages":[{"role":"user","content":"x"},{"role":"assistant","content":"y"}]`, endpoint: "chat_completions",
			header: []string{"session-id", "s"}, agent: &trace.AgentContext{SessionID: "s", InputTrigger: "other"},
		},
		{
			name: "stop string", path: "/v1/chat/completions", body: `"messages":[{"role":"user","content":"stop"}],"stop":["STOP"]`, endpoint: "chat_completions",
			finish: `{"finish_reason":"stop","backend_finish_reason":"stop","stop_reason":"STOP","choices":[{"choice_index":0,"finish_reason":"stop","backend_finish_reason":"stop","stop_reason":"STOP"}]}`,
		},
		{
			name: "two choices", path: "/v1/chat/completions", body: askParis + `,"n":2,"max_tokens":2`, endpoint: "chat_completions", bare: true,
			finish: `{"finish_reason":"length","backend_finish_reason":"length","choices":[{"choice_index":?,"finish_reason":"length","backend_finish_reason":"length"},{"choice_index":?,"finish_reason":"length","backend_finish_reason":"length"}]}`,
			check: func(t *testing.T, r *trace.Request) {
				if *r.OutputTokens != 4 {
					t.Errorf("%d tokens", *r.OutputTokens)
				}
			},
		},
		{
			name: "hints", path: "/v1/chat/completions", endpoint: "chat_completions",
			body: askParis + `,"nvext":{"agent_hints":{"priority":3,"osl":7},"cache_control":{"type":"ephemeral","ttl":"5m"},"annotations":["request_id"]}`,
			check: func(t *testing.T, r *trace.Request) {
				if got, want := string(r.NVExt), `{"agent_hints":{"priority":3,"osl":7},"cache_control":{"type":"ephemeral","ttl":"5m"}}`; got != want {
					t.Errorf("nvext %s, want %s", got, want)
				}
			},
		},
		{
			name: "completions", path: "/v1/completions", body: `"prompt":"Once","max_tokens":3`, header: []string{"x-dynamo-session-id", "s"}, endpoint: "completions",
			agent: &trace.AgentContext{SessionID: "s", InputTrigger: "other"},
		},
		{name: "several prompts", path: "/v1/completions", body: `"prompt":["Once","Twice upon"],"max_tokens":3`, endpoint: "completions", bare: true},
		{
			name: "responses", path: "/v1/responses", body: `"input":"hello","max_output_tokens":4`, header: []string{"x-dynamo-session-id", "s"}, endpoint: "responses",
			agent: &trace.AgentContext{SessionID: "s", InputTrigger: "user_message"},
		},
		{
			name: "responses with a result", path: "/v1/responses", body: `"input":[{"type":"function_call","call_id":"c","name":"sky","arguments":"{}"},{"type":"function_call_output","call_id":"c","output":"blue"}],"stream":true`, header: []string{"x-dynamo-session-id", "s"}, endpoint: "responses", stream: true,
			agent: &trace.AgentContext{SessionID: "s", InputTrigger: "tool_result"}, check: brings("c"),
		},
		{
			name: "responses with results, old and new, and a word of the user", path: "/v1/responses", header: []string{"x-dynamo-session-id", "s"}, endpoint: "responses",
			body:  `"input":[{"type":"function_call","call_id":"c","name":"sky","arguments":"{}"},{"type":"function_call_output","call_id":"c","output":"blue"},{"type":"function_call","call_id":"d","name":"sky","arguments":"{}"},{"type":"function_call","call_id":"e","name":"sea","arguments":"{}"},{"type":"function_call_output","call_id":"e","output":"grey"},{"type":"function_call_output","call_id":"d","output":"blue"},{"role":"user","content":"so?"}]`,
			agent: &trace.AgentContext{SessionID: "s", InputTrigger: "user_message"}, check: brings("e", "d"),
		},
		{
			name: "responses after a call", path: "/v1/responses", body: `"input":[{"role":"user","content":"x"},{"type":"function_call","call_id":"c","name":"sky","arguments":"{}"}]`, header: []string{"x-dynamo-session-id", "s"}, endpoint: "responses",
			agent: &trace.AgentContext{SessionID: "s", InputTrigger: "other"},
		},
		{
			name: "messages", path: "/v1/messages", body: askParis + `,"max_tokens":30,"stream":true`, endpoint: "anthropic_messages", stream: true,
			header: []string{"x-claude-code-session-id", "root", "x-claude-code-agent-id", "child"},
			agent:  &trace.AgentContext{SessionID: "child", ParentSessionID: "root", InputTrigger: "user_message"},
		},
		{
			name: "messages with a result", path: "/v1/messages", endpoint: "anthropic_messages",
			body:   `"max_tokens":30,"messages":[{"role":"user","content":"x"},{"role":"assistant","content":[{"type":"tool_use","id":"c","name":"sky","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"c","content":"blue"},{"type":"text","text":"so?"}]}]`,
			header: []string{"x-claude-code-session-id", "root"}, agent: &trace.AgentContext{SessionID: "root", InputTrigger: "tool_result"}, check: brings("c"),
		},
		{
			name: "messages with a note behind a result", path: "/v1/messages", endpoint: "anthropic_messages",
			body:   `"max_tokens":30,"messages":[{"role":"user","content":"x"},{"role":"assistant","content":[{"type":"tool_use","id":"c","name":"sky","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"c","content":"blue"}]},{"role":"system","content":"Be brief."}]`,
			header: []string{"x-claude-code-session-id", "root"}, agent: &trace.AgentContext{SessionID: "root", InputTrigger: "tool_result"}, check: brings("c"),
		},
		{
			name: "KServe", path: "/v2/models/dynago%2Fdemo/infer", endpoint: "completions",
			body:  `"id":"1","inputs":[{"name":"text_input","datatype":"BYTES","shape":[1],"data":["Once"]}],"parameters":{"max_tokens":3,"sequence_id":"seq"}`,
			agent: &trace.AgentContext{SessionID: "seq", InputTrigger: "other"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			body := `{"model":"dynago/demo",` + tc.body + `}`
			if strings.HasPrefix(tc.path, "/v2/") {
				body = `{` + tc.body + `}`
			}
			reply := p.send(tc.path, body, tc.header...)
			if reply.status != 200 {
				t.Fatalf("%d %s", reply.status, reply.body)
			}
			all := rows(seen + 1)
			row := all[seen]
			seen = len(all)
			if seen != slices.Index(all, row)+1 {
				t.Errorf("there are more rows than one")
			}
			if diff := cmp.Diff(tc.agent, row.Agent); diff != "" {
				t.Errorf("agent context (-want +got)\n%s", diff)
			}
			r := row.Request
			if tc.finish != "" {
				got, _ := json.Marshal(r.Finish)
				got = regexp.MustCompile(`"id":"[^"]+"`).ReplaceAll(got, []byte(`"id":"?"`))
				if strings.Contains(tc.finish, `"choice_index":?`) {
					got = regexp.MustCompile(`"choice_index":\d`).ReplaceAll(got, []byte(`"choice_index":?`))
				}
				if string(got) != tc.finish {
					t.Errorf("finish metadata %s, want %s", got, tc.finish)
				}
			}
			if id := reply.header.Get("Request-Id"); r.RequestID != id {
				t.Errorf("request id %s, and the client was told %s", r.RequestID, id)
			}
			if r.Dynago.Endpoint != tc.endpoint || r.Dynago.Stream != tc.stream {
				t.Errorf("endpoint %q, stream %v", r.Dynago.Endpoint, r.Dynago.Stream)
			}
			if (r.Replay == nil) != tc.bare {
				t.Errorf("replay %+v", r.Replay)
			}
			wellTold(t, row)
			if tc.check != nil {
				tc.check(t, r)
			}
		})
	}
}

// wellTold checks what a row has of every request that was answered.
func wellTold(t *testing.T, row *trace.Record) {
	t.Helper()
	r := row.Request
	if row.EventType != trace.RequestEnd || row.Source != trace.SourceDynamo || r.Model != "dynago/demo" {
		t.Errorf("%s of %s by %s", row.EventType, r.Model, row.Source)
	}
	if r.InputTokens == nil || *r.InputTokens == 0 || r.OutputTokens == nil || *r.OutputTokens == 0 || r.CachedTokens == nil {
		t.Errorf("tokens %v, %v, %v", r.InputTokens, r.OutputTokens, r.CachedTokens)
	}
	for name, x := range map[string]*float64{
		"prefill_wait_time_ms": r.PrefillWaitTime, "prefill_time_ms": r.PrefillTime, "ttft_ms": r.TTFT, "total_time_ms": r.TotalTime,
		"queue_time_ms": r.QueueTime, "routing_time_ms": r.RoutingTime, "kv_hit_rate": r.KVHitRate,
	} {
		if x == nil {
			t.Errorf("%s is missing", name)
		}
	}
	if r.QueueDepth == nil || r.TTFT == nil || r.TotalTime == nil {
		t.Fatal("times, or the queue's depth, are missing")
	}
	if wait := *r.PrefillWaitTime + *r.PrefillTime; math.Abs(wait-*r.TTFT) > 0.01 || *r.TTFT > *r.TotalTime {
		t.Errorf("parts of the time until the first token are %v ms, all is %v, and the whole %v", wait, *r.TTFT, *r.TotalTime)
	}
	if want := *r.Received + uint64(math.Round(*r.TotalTime)); row.EventTime != want {
		t.Errorf("event time %d, want %d", row.EventTime, want)
	}
	w := r.Worker
	if w == nil || *w.PrefillWorkerID == 0 || *w.PrefillWorkerID != *w.DecodeWorkerID || *w.PrefillRank != 0 {
		t.Errorf("worker %+v", w)
	}
	if r.Replay != nil {
		if r.Replay.BlockSize != 16 || uint64(r.Replay.InputLength) != *r.InputTokens || len(r.Replay.Hashes) != (r.Replay.InputLength+15)/16 {
			t.Errorf("replay %+v of %d tokens", r.Replay, *r.InputTokens)
		}
	}
}

// A row has the same numbers as what the client is told.
func TestTraceTellsWhatClientsAreTold(t *testing.T) {
	t.Parallel()
	p, rows := traced(t)
	var got struct {
		Usage struct {
			Prompt  uint64 `json:"prompt_tokens"`
			Output  uint64 `json:"completion_tokens"`
			Details struct {
				Cached uint64 `json:"cached_tokens"`
			} `json:"prompt_tokens_details"`
		}
		NVExt struct {
			Timing map[string]float64
			Worker trace.Worker `json:"worker_id"`
		}
	}
	long := strings.Repeat("many words ", 40)
	sent := 0
	for got.NVExt.Timing["kv_hit_rate"] == 0 { // until the router has heard that it is cached
		sent++
		p.post("/v1/chat/completions", `{"model":"dynago/demo","messages":[{"role":"user","content":"`+long+`"}],"nvext":{"extra_fields":["timing","worker_id"]}}`, &got)
	}
	r := rows(sent)[sent-1].Request
	if *r.InputTokens != got.Usage.Prompt || *r.OutputTokens != got.Usage.Output || *r.CachedTokens != got.Usage.Details.Cached || *r.CachedTokens == 0 {
		t.Errorf("tokens %d, %d, %d, and the client was told %+v", *r.InputTokens, *r.OutputTokens, *r.CachedTokens, got.Usage)
	}
	for name, x := range map[string]*float64{
		"prefill_wait_time_ms": r.PrefillWaitTime, "prefill_time_ms": r.PrefillTime, "ttft_ms": r.TTFT, "total_time_ms": r.TotalTime,
		"queue_time_ms": r.QueueTime, "routing_time_ms": r.RoutingTime, "kv_hit_rate": r.KVHitRate, "avg_itl_ms": r.AvgITL, "itl_ms": r.AvgITL,
		"queue_depth": new(float64(*r.QueueDepth)), "router_queue_depth": new(float64(*r.QueueDepth)), "request_received_ms": new(float64(*r.Received)),
	} {
		if told, ok := got.NVExt.Timing[name]; !ok || x == nil || *x != told {
			t.Errorf("%s is %v, and the client was told %v", name, x, told)
		}
	}
	if diff := cmp.Diff(got.NVExt.Worker, *r.Worker); diff != "" {
		t.Errorf("workers (-told +recorded)\n%s", diff)
	}
}

// Where one worker computes the prompt and another one answers, a row names both.
func TestTraceOfTwoLegs(t *testing.T) {
	t.Parallel()
	p, rows := traced(t, "--num-prefill-workers", "1", "--workers", "1")
	if r := p.send("/v1/chat/completions", `{"model":"dynago/demo",`+askParis+`}`); r.status != 200 {
		t.Fatalf("%d %s", r.status, r.body)
	}
	r := rows(1)[0].Request
	if w := r.Worker; *w.PrefillWorkerID == *w.DecodeWorkerID {
		t.Errorf("worker %d has done both", *w.DecodeWorkerID)
	}
	if r.TransferLatency == nil || *r.TransferLatency < 0 || *r.TransferLatency > *r.TTFT {
		t.Errorf("transfer took %v of %v", r.TransferLatency, r.TTFT)
	}
}

// A client that goes leaves a row of what it was sent; one that never gets to a
// worker leaves none.
func TestTraceOfWhatDoesNotEndWell(t *testing.T) {
	t.Parallel()
	p, rows := traced(t, "--migration-limit", "0", "--runtime-inhibited-duration-secs", "0")
	for _, body := range []string{`{`, `{"model":"nobody",` + askParis + `}`, `{"model":"dynago/demo","messages":[]}`} {
		if r := p.send("/v1/chat/completions", body); r.status < 400 {
			t.Fatalf("%d %s", r.status, r.body)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	resp, err := p.open(ctx, `{"model":"dynago/demo","stream":true,"max_tokens":1000,"messages":[{"role":"user","content":"endless"}]}`)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Close()
	if _, err := io.ReadFull(resp, make([]byte, 2000)); err != nil {
		t.Fatal(err)
	}
	cancel()
	row := rows(1)[0]
	r := row.Request
	if r.Finish == nil || r.Finish.BackendReason != "cancelled" || r.Finish.Reason != "" || r.Dynago.Error != "cancelled" {
		t.Errorf("finish %+v, error %q", r.Finish, r.Dynago.Error)
	}
	if n := *r.OutputTokens; n < 2 || n >= 1000 {
		t.Errorf("%d tokens", n)
	}
	if r.Replay == nil || *r.TotalTime <= *r.TTFT {
		t.Errorf("replay %v, %v ms of which %v until the first token", r.Replay, *r.TotalTime, *r.TTFT)
	}

	if r := p.send("/v1/chat/completions", `{"model":"dynago/demo","messages":[{"role":"user","content":"fall"}]}`); r.status < 500 {
		t.Fatalf("%d %s", r.status, r.body)
	}
	r = rows(2)[1].Request
	if r.Finish == nil || !strings.HasPrefix(r.Finish.BackendReason, "error: ") || r.Dynago.Error == "" || *r.OutputTokens != 2 {
		t.Errorf("finish %+v, error %q, %d tokens", r.Finish, r.Dynago.Error, *r.OutputTokens)
	}
}

// open begins to read an answer.
func (p *program) open(ctx context.Context, body string) (io.ReadCloser, error) {
	resp, err := http.DefaultClient.Do(p.request(ctx, "POST", p.url+"/v1/chat/completions", body))
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

// Work that nobody waits for has no rows: prompts that are computed ahead, and those
// that are kept warm.
func TestTraceLeavesOutWhatNobodyWaitsFor(t *testing.T) {
	t.Parallel()
	p, rows := traced(t)
	p.send("/v1/chat/completions", `{"model":"dynago/demo",`+askParis+`,"nvext":{"agent_hints":{"speculative_prefill":true}}}`, "x-dynamo-session-id", "s")
	until(t, "a prompt is computed ahead", func() bool {
		_, page := p.get(p.url + "/metrics")
		return regexp.MustCompile(`(?m)^dynago_speculative_prefill[a-z_]*_total\{[^}]*\} [1-9]`).MatchString(page)
	})
	p.send("/v1/chat/completions", `{"model":"dynago/demo",`+askParis+`}`)
	if got := rows(2); len(got) != 2 {
		t.Errorf("%d rows of two requests", len(got))
	}
}

// What was said is recorded where it is asked for, and changes nothing of what is
// sent.
func TestTraceOfWhatWasSaid(t *testing.T) {
	t.Parallel()
	plain := serve(t, "--speedup-ratio", "0", "--log-level", "warn", "--mock-script", fileOf(t, "script.yaml", fmt.Sprintf(traceScript, "")))
	p, rows := traced(t, "--request-trace-records", "request_payload", "--request-trace-http-header-capture-list", "X-Tenant, authorization x-none")
	const secret = "sk-abcdefghijklmnop"
	seen := 0
	for _, tc := range []struct{ name, path, kind, body string }{
		{"chat", "/v1/chat/completions", "openai.chat_completion", askWeather},
		{"messages", "/v1/messages", "anthropic.message", `"max_tokens":99,"messages":[{"role":"user","content":"weather"}],"tools":[{"name":"sky","input_schema":{"type":"object"}},{"name":"sea","input_schema":{"type":"object"}}]`},
		{"responses", "/v1/responses", "openai.response", `"input":"weather","tools":[{"type":"function","name":"sky"},{"type":"function","name":"sea"}]`},
	} {
		for _, stream := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, stream %v", tc.name, stream), func(t *testing.T) {
				body := fmt.Sprintf(`{"model":"dynago/demo","stream":%v,%s,"metadata":{"user_id":"%s"}}`, stream, tc.body, secret)
				header := []string{"Request-Id", "1b3f0c52-8a55-4a8e-b1a7-0a7b6bd0f001", "X-Tenant", "acme", "Authorization", "Bearer " + secret}
				with, without := p.send(tc.path, body, header...), plain.send(tc.path, body, header...)
				if with.status != 200 || unchanging(with.body) != unchanging(without.body) {
					t.Errorf("%d\n%s\nwithout a trace\n%s", with.status, with.body, without.body)
				}
				all := rows(seen + 1)
				row := all[seen]
				seen++
				said := row.Payload
				if row.EventType != trace.RequestPayload || said.Endpoint != tc.kind || said.RequestID != "1b3f0c52-8a55-4a8e-b1a7-0a7b6bd0f001" || said.Model != "dynago/demo" || !said.Complete {
					t.Errorf("%+v", said)
				}
				if diff := cmp.Diff(map[string]string{"x-tenant": "acme", "authorization": "[redacted]"}, said.Headers); diff != "" {
					t.Errorf("headers (-want +got)\n%s", diff)
				}
				if want := strings.ReplaceAll(body, secret, "sk-[redacted]"); string(said.Request) != want {
					t.Errorf("request %s, want %s", said.Request, want)
				}
				for _, part := range []string{`sky`, `sea`, `Rome`, `"usage":{`, `1b3f0c52`} {
					if tc.kind == "openai.response" && part == "1b3f0c52" {
						continue // it has an id of its own
					}
					if !strings.Contains(string(said.Response), part) {
						t.Errorf("response %s lacks %s", said.Response, part)
					}
				}
				if got := unchanging(strings.ReplaceAll(with.body, secret, "sk-[redacted]")); !stream && unchanging(string(said.Response)) != got {
					t.Errorf("response %s, and the client got %s", said.Response, with.body)
				}
			})
		}
	}
}

// unchanging returns an answer without what is another one each time.
func unchanging(body string) string {
	for _, pattern := range []string{`"created(_at)?":\d+`, `"completed_at":\d+`, `(resp|msg|fc|call|toolu|chatcmpl-tool)_?-?[0-9a-zA-Z]{16,}`, `"(obfuscation)":"[^"]*"`} {
		body = regexp.MustCompile(pattern).ReplaceAllString(body, "?")
	}
	return body
}

// segmentsOf returns what whole members of segments hold. What stands behind the last
// of them is torn.
func segmentsOf(t *testing.T, prefix string) []*trace.Record {
	t.Helper()
	paths, err := filepath.Glob(prefix + ".*.jsonl.gz")
	if err != nil {
		t.Fatal(err)
	}
	var lines []byte
	for _, path := range paths {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for in := bytes.NewReader(b); in.Len() > 0; {
			z, err := gzip.NewReader(in)
			if err != nil {
				break
			}
			z.Multistream(false)
			member, err := io.ReadAll(z)
			if err != nil {
				break
			}
			lines = append(lines, member...)
		}
	}
	return rowsIn(t, lines)
}

// The end of a program writes what is held back, however long that could wait.
func TestTraceIsWrittenAtTheEnd(t *testing.T) {
	t.Parallel()
	prefix := filepath.Join(t.TempDir(), "trace")
	p := serve(t, "--request-trace", "--request-trace-file-path", prefix, "--request-trace-file-flush-interval-ms", "3600000", "--speedup-ratio", "0", "--log-level", "warn")
	for range 20 {
		p.send("/v1/chat/completions", `{"model":"dynago/demo",`+askParis+`}`)
	}
	if got := segmentsOf(t, prefix); len(got) != 0 {
		t.Errorf("%d rows are written too early", len(got))
	}
	p.signal(syscall.SIGTERM)
	if code := p.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if got := segmentsOf(t, prefix); len(got) != 20 {
		t.Errorf("%d rows of 20 requests", len(got))
	}
}

// A program that is killed loses what was held back, and nothing else.
func TestTraceSurvivesAKill(t *testing.T) {
	t.Parallel()
	prefix := filepath.Join(t.TempDir(), "trace")
	start := func() *program {
		return serve(t, "--request-trace", "--request-trace-file-path", prefix, "--request-trace-file-flush-interval-ms", "20", "--speedup-ratio", "0", "--log-level", "warn")
	}
	p := start()
	var asked []string
	ask := func() {
		r := await(p.request(t.Context(), "POST", p.url+"/v1/chat/completions", `{"model":"dynago/demo",`+askParis+`}`))
		if r.err == nil {
			asked = append(asked, r.header.Get("Request-Id"))
		}
	}
	for range 30 {
		ask()
	}
	until(t, "30 rows are written", func() bool { return len(segmentsOf(t, prefix)) == 30 })
	for range 5 {
		ask()
	}
	p.signal(syscall.SIGKILL)
	p.wait()
	ids := func() (list []string) {
		for _, r := range segmentsOf(t, prefix) {
			list = append(list, r.RequestID())
		}
		return list
	}
	if got := ids(); len(got) < 30 || !slices.Equal(got, asked[:len(got)]) {
		t.Errorf("%d rows, which are not those of the first requests of %d", len(got), len(asked))
	}
	before := len(ids())
	p = start()
	ask()
	until(t, "a row of the next life", func() bool { return len(segmentsOf(t, prefix)) == before+1 })
	if files, _ := filepath.Glob(prefix + ".*"); len(files) != 2 {
		t.Errorf("segments %q", files)
	}
}

// What a trace cannot be written to costs no request.
func TestTraceThatCannotBeWritten(t *testing.T) {
	for _, tc := range []struct {
		name string
		args []string
		log  string
		drop bool // on Linux alone, which has a device that is full
	}{
		{"no folder", []string{"--request-trace-file-path", fileOf(t, "file", "x") + "/trace"}, "trace sink does not open", false},
		{"full disk", []string{"--request-trace-file-path", "/dev/full", "--request-trace-file-format", "jsonl"}, "trace sink fails", true},
		{"one of two", []string{"--request-trace-sinks", "file,stderr", "--request-trace-file-path", fileOf(t, "file", "x") + "/trace"}, `"event_type":"request_end"`, false},
	} {
		if tc.drop && runtime.GOOS != "linux" {
			continue
		}
		t.Run(tc.name, func(t *testing.T) {
			p := serve(t, append([]string{"--request-trace", "--speedup-ratio", "0", "--log-level", "warn", "--request-trace-file-flush-interval-ms", "1"}, tc.args...)...)
			for range 3 {
				if r := p.send("/v1/chat/completions", `{"model":"dynago/demo",`+askParis+`}`); r.status != 200 {
					t.Errorf("%d %s", r.status, r.body)
				}
			}
			until(t, "the log says "+tc.log, func() bool { return strings.Contains(p.log.String(), tc.log) })
			if tc.drop {
				until(t, "dropped records are counted", func() bool {
					_, page := p.get(p.url + "/metrics")
					return strings.Contains(page, "dynago_request_trace_dropped_total{sink=\"file\"} 3\n")
				})
			}
			p.signal(syscall.SIGTERM)
			if code := p.wait(); code != 0 {
				t.Errorf("exit code %d", code)
			}
		})
	}
}

// Settings come from flags, variables by all their names, and files.
func TestTraceSettings(t *testing.T) {
	for _, tc := range []struct {
		name, file string
		args       []string
		env        map[string]string
		want       string // in the error
		log        string
		open       []string // files there are, below the folder
	}{
		{name: "off", env: map[string]string{"DYN_REQUEST_TRACE_SINKS": "file", "DYN_REQUEST_TRACE_FILE_PATH": "{dir}/a"}},
		{name: "variable", env: map[string]string{"DYN_REQUEST_TRACE": "1", "DYN_REQUEST_TRACE_OUTPUT_PATH": "{dir}/a"}, open: []string{"a.000000.jsonl.gz"}},
		{name: "old variable", env: map[string]string{"DYN_AGENT_TRACE": "1", "DYN_AGENT_TRACE_OUTPUT_PATH": "{dir}/a", "DYN_AGENT_TRACE_SINKS": "jsonl"}, open: []string{"a"}, log: "outdated"},
		{name: "flag over variable", args: []string{"--no-request-trace"}, env: map[string]string{"DYN_REQUEST_TRACE": "1", "DYN_AGENT_TRACE": "1", "DYN_REQUEST_TRACE_FILE_PATH": "{dir}/a"}},
		{name: "flag over another name", args: []string{"--request-trace", "--request-trace-file-path", "{dir}/b"}, env: map[string]string{"DYN_AUDIT_OUTPUT_PATH": "{dir}/a"}, open: []string{"b.000000.jsonl.gz"}},
		{name: "file", file: "request-trace: true\nrequest-trace-file-path: {dir}/c\nrequest-trace-file-format: jsonl\n", open: []string{"c"}},
		{name: "variable over file", file: "request-trace: true\nrequest-trace-file-path: {dir}/c\n", env: map[string]string{"DYN_AUDIT_OUTPUT_PATH": "{dir}/d"}, open: []string{"d.000000.jsonl.gz"}},
		{name: "bad variable", env: map[string]string{"DYN_REQUEST_TRACE": "1", "DYN_REQUEST_TRACE_CAPACITY": "many", "DYN_REQUEST_TRACE_FILE_PATH": "{dir}/a"}, open: []string{"a.000000.jsonl.gz"}, log: "DYN_REQUEST_TRACE_CAPACITY"},
		{name: "variable with blanks", env: map[string]string{"DYN_REQUEST_TRACE": " 1 ", "DYN_REQUEST_TRACE_FILE_PATH": "{dir}/a"}, open: []string{"a.000000.jsonl.gz"}},
		{name: "no word for the switch", file: "request-trace: true\n", env: map[string]string{"DYN_REQUEST_TRACE": "perhaps", "DYN_REQUEST_TRACE_FILE_PATH": "{dir}/a"}, log: `DYN_REQUEST_TRACE: \"perhaps\": want true or false; it counts as false`},
		{name: "no word for payloads", env: map[string]string{"DYN_REQUEST_TRACE": "1", "DYN_AUDIT_FORCE_LOGGING": "full", "DYN_REQUEST_TRACE_FILE_PATH": "{dir}/a"}, open: []string{"a.000000.jsonl.gz"}, log: "DYN_AUDIT_FORCE_LOGGING"},
		{name: "flag over no word", args: []string{"--request-trace"}, env: map[string]string{"DYN_REQUEST_TRACE": "perhaps", "DYN_REQUEST_TRACE_FILE_PATH": "{dir}/a"}, open: []string{"a.000000.jsonl.gz"}},
		{name: "no word of a flag", args: []string{"--request-trace=perhaps"}, env: map[string]string{"DYN_REQUEST_TRACE": "perhaps"}, want: `--request-trace: "perhaps": want true, false`},
		{name: "no word of a file", file: "request-trace: perhaps\n", want: `--request-trace: "perhaps": want true, false`},
		{name: "bad flag", args: []string{"--request-trace", "--request-trace-capacity", "0"}, want: `--request-trace-capacity: "0": want 1 to`},
		{name: "bad file", file: "request-trace-sinks: kafka\n", want: `--request-trace-sinks: "kafka": want file, stderr, nats, otel or s3`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			fill := func(s string) string { return strings.ReplaceAll(s, "{dir}", dir) }
			args := []string{"serve", "--http-port", "0"}
			for _, a := range tc.args {
				args = append(args, fill(a))
			}
			if tc.file != "" {
				args = append(args, "--config", fileOf(t, "settings.yaml", fill(tc.file)))
			}
			for name, value := range tc.env {
				t.Setenv(name, fill(value))
			}
			if tc.want != "" {
				var out, errs bytes.Buffer
				if code := run(args, outlet{&out, &errs}); code == 0 || !strings.Contains(errs.String(), tc.want) {
					t.Errorf("exit code %d, %s", code, errs.String())
				}
				return
			}
			p := start(t, "curl ", args...)
			p.send("/v1/chat/completions", `{"model":"dynago/demo","max_tokens":1,`+askParis+`}`)
			if tc.log != "" && !strings.Contains(p.log.String(), tc.log) {
				t.Errorf("log %s", p.log)
			}
			p.signal(syscall.SIGTERM)
			p.wait()
			entries, err := os.ReadDir(dir)
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, e := range entries {
				names = append(names, e.Name())
			}
			if !slices.Equal(names, tc.open) {
				t.Errorf("files %q, want %q", names, tc.open)
			}
		})
	}
	var out, errs bytes.Buffer
	if code := run([]string{"env"}, outlet{&out, &errs}); code != 0 {
		t.Fatal(errs.String())
	}
	for _, name := range []string{"DYN_REQUEST_TRACE_RECORDS", "DYN_AUDIT_FORCE_LOGGING", "DYN_AUDIT_JSONL_GZ_ROLL_LINES", "DYN_AGENT_TRACE_TOOL_EVENTS_ZMQ_TOPIC", "DYN_REQUEST_TRACE_S3_FLUSH_INTERVAL_MS", "DYN_REQUEST_TRACE_HTTP_HEADER_CAPTURE_LIST"} {
		if !strings.Contains(out.String(), name) {
			t.Errorf("\"dynago env\" does not list %s", name)
		}
	}
}
