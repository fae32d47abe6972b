//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// traceAgents has a lead, who calls two tools, and a sub-agent, who calls none.
const traceAgents = `
rules:
  - when: {user: weather, has_tools: true, turn: 0}
    emit: <tool_call>{"name":"sky","arguments":{"at":"Rome"}}</tool_call><tool_call>{"name":"sea","arguments":{}}</tool_call>
default:
  emit: It is as it was said to be.
`

// said to a server, and what it answers.
type turnSaid struct {
	Choices []struct {
		Message struct {
			Content   string `json:"content"`
			ToolCalls []struct {
				ID string `json:"id"`
			} `json:"tool_calls"`
		} `json:"message"`
	} `json:"choices"`
}

// What a server has recorded of agents is one tree, in which each turn tells why it ran
// where it did; the recording, and what is made of it, gives a replay the hit rate that
// there was.
func TestTraceOfServer(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "trace")
	p := serve(
		t, "--workers", "1", "--speedup-ratio", "20", "--log-level", "warn", "--mock-script", fileOf(t, "script.yaml", traceAgents),
		"--request-trace", "--request-trace-file-path", path, "--request-trace-file-flush-interval-ms", "1",
	)
	ask := func(messages []string, tools bool, header ...string) (said turnSaid) {
		t.Helper()
		body := `{"model":"dynago/demo","messages":[` + strings.Join(messages, ",") + `]`
		if tools {
			body += `,"tools":[{"type":"function","function":{"name":"sky"}},{"type":"function","function":{"name":"sea"}}]`
		}
		got := p.send("/v1/chat/completions", body+"}", header...)
		if err := json.Unmarshal([]byte(got.body), &said); err != nil || got.status != 200 {
			t.Fatalf("%d %s", got.status, got.body)
		}
		return said
	}
	message := func(role, text string) string { return fmt.Sprintf(`{"role":%q,"content":%q}`, role, text) }
	lead := []string{"X-Dynamo-Session-Id", "lead"}
	talk := []string{message("system", strings.Repeat("Be brief, and say what is so. ", 40)), message("user", "weather")}
	first := ask(talk, true, lead...)
	calls := first.Choices[0].Message.ToolCalls
	if len(calls) != 2 {
		t.Fatalf("%+v", first)
	}
	ask([]string{message("user", "What do you see?")}, false, "X-Dynamo-Session-Id", "kid", "X-Dynamo-Parent-Session-Id", "lead")
	told := p.send("/v1/agent/tool_events", fmt.Sprintf(
		`{"schema":"dynamo.request.trace.v1","event_type":"tool_end","event_time_unix_ms":%d,"session_id":"lead","tool":{"tool_call_id":%q,"tool_class":"sky","duration_ms":5,"status":"ok"}}`,
		int64(1)<<40, calls[0].ID))
	if told.status != 202 {
		t.Fatalf("%d %s", told.status, told.body)
	}
	for i := range 8 {
		talk = append(talk, message("assistant", "It is as it was said to be."), message("user", fmt.Sprint("Once more, for day ", i, ", if you please.")))
		ask(talk, true, lead...)
	}
	p.signal(syscall.SIGTERM)
	if code := p.wait(); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	var shown shownTree
	if err := json.Unmarshal([]byte(command(t, "trace", "show", "--json", path)), &shown); err != nil {
		t.Fatal(err)
	}
	if len(shown.Sessions) != 1 || len(shown.Alone) > 0 || shown.Duplicates > 0 {
		t.Fatalf("not one tree: %+v", shown)
	}
	root := shown.Sessions[0]
	if root.ID != "lead" || len(root.Turns) != 9 || len(root.Agents) > 0 || len(root.Turns[0].Agents) != 1 || root.Turns[0].Agents[0].ID != "kid" {
		t.Fatalf("%+v", root)
	}
	tools := map[string]shownTool{}
	for _, turn := range root.Turns {
		if !strings.Contains(turn.Placed, "on mock-0 (") || !strings.Contains(turn.Placed, "expected ") {
			t.Errorf("a turn says that it ran %q", turn.Placed)
		}
		for _, u := range turn.Tools {
			tools[u.ID] = u
		}
	}
	if u := tools[calls[0].ID]; u.Inferred || u.Duration == nil || *u.Duration != 5 || u.Status != "succeeded" {
		t.Errorf("the tool that was told of: %+v", u)
	}
	if u := tools[calls[1].ID]; !u.Inferred || u.Class != "sea" || len(tools) != 2 {
		t.Errorf("the tool that nobody has told of: %+v, of %v", u, tools)
	}

	var stats statedTrace
	if err := json.Unmarshal([]byte(command(t, "trace", "stats", "--json", path)), &stats); err != nil {
		t.Fatal(err)
	}
	if stats.Requests != 10 || stats.HitShare == nil || *stats.HitShare < 0.6 {
		t.Fatalf("%+v", stats.statedTotals)
	}
	replaysAlike(t, path, 10, *stats.HitShare, "--num-workers", "1", "--speedup-ratio", "20")
	timeline := filepath.Join(t.TempDir(), "timeline.json")
	command(t, "trace", "perfetto", "-o", timeline, path)
	if text, err := os.ReadFile(timeline); err != nil || strings.Count(string(text), `"LLM request: `) != 10 {
		t.Errorf("not all requests are drawn: %v", err)
	}
}

// command runs a command and returns what it prints.
func command(t *testing.T, args ...string) string {
	t.Helper()
	var out, errs strings.Builder
	if code := run(args, outlet{&out, &errs}); code != 0 {
		t.Fatalf("%v: exit code %d: %s", args, code, errs.String())
	}
	return out.String()
}

// replaysAlike checks that a recording of so many requests, and the trace that is made of
// it, give a replay the hit rate that there was, within a point. Both tell how long blocks
// are, and what of a prompt was an answer.
func replaysAlike(t *testing.T, path string, requests int, share float64, flags ...string) {
	t.Helper()
	converted := filepath.Join(t.TempDir(), "agents.jsonl")
	command(t, "trace", "mooncake", "--agentic", "-o", converted, path)
	for format, file := range map[string]string{"dynamo": path, "agentic-mooncake": converted} {
		var report struct {
			Requests int     `json:"num_requests"`
			Hit      float64 `json:"prefix_cache_reused_ratio"`
		}
		args := append([]string{"replay", "--log-level", "error", "--report-json", "-", "--trace-format", format, file}, flags...)
		if err := json.Unmarshal([]byte(command(t, args...)), &report); err != nil {
			t.Fatal(err)
		}
		if report.Requests != requests || math.Abs(report.Hit-share) > 0.01 {
			t.Errorf("%s: a hit rate of %.4f with %d requests, and it was %.4f with %d", format, report.Hit, report.Requests, share, requests)
		}
	}
}

// A trace of agents who do not all fit into the cache, and one of agents who work at the
// same time on several workers.
func TestReplayOfServer(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name        string
		requests    int
		least, most float64 // hit rate that the test is about
		flags       []string
		work        func(p *program)
	}{
		{"a lead and sub-agents in little room", 30, 0.3, 0.8, []string{"--num-workers", "1", "--num-gpu-blocks-override", "80", "--speedup-ratio", "20"}, func(p *program) {
			talk := task("lead")
			for n := range 6 {
				talk = talkOn(p, talk, n, "lead", "")
				kid := fmt.Sprint("kid ", n)
				told := task(kid)
				for k := range 4 {
					told = talkOn(p, told, k, kid, "lead")
				}
			}
		}},
		{"at the same time", 60, 0.7, 0.99, []string{"--num-workers", "3", "--router-session-affinity-ttl-secs", "60", "--speedup-ratio", "0"}, func(p *program) {
			var group sync.WaitGroup
			for i := range 5 {
				group.Go(func() {
					name := fmt.Sprint("agent ", i)
					talk := task(name)
					for n := range 12 {
						talk = talkOn(p, talk, n, name, "")
					}
				})
			}
			group.Wait()
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "trace")
			p := serve(t, append([]string{
				"--log-level", "warn",
				"--request-trace", "--request-trace-file-path", path, "--request-trace-file-flush-interval-ms", "1",
			}, tc.flags...)...)
			tc.work(p)
			p.signal(syscall.SIGTERM)
			if code := p.wait(); code != 0 {
				t.Fatalf("exit code %d", code)
			}
			var stats statedTrace
			if err := json.Unmarshal([]byte(command(t, "trace", "stats", "--json", path)), &stats); err != nil {
				t.Fatal(err)
			}
			if stats.Requests != tc.requests || stats.HitShare == nil || *stats.HitShare < tc.least || *stats.HitShare > tc.most {
				t.Fatalf("%+v", stats.statedTotals)
			}
			replaysAlike(t, path, tc.requests, *stats.HitShare, tc.flags...)
		})
	}
}

// What agents as they are have asked of one worker, which had room for all of it: what is
// found of prompts then does not depend on how fast the worker is.
func TestReplayOfRecordedAgents(t *testing.T) {
	files, err := filepath.Glob("../../trace/tree/testdata/*.jsonl")
	if err != nil || len(files) < 5 {
		t.Fatalf("%d recordings: %v", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".jsonl"), func(t *testing.T) {
			var stats statedTrace
			if err := json.Unmarshal([]byte(command(t, "trace", "stats", "--json", file)), &stats); err != nil {
				t.Fatal(err)
			}
			if stats.Requests < 8 || stats.HitShare == nil || *stats.HitShare < 0.7 || *stats.HitShare > 0.95 {
				t.Fatalf("%+v", stats.statedTotals)
			}
			replaysAlike(t, file, stats.Requests, *stats.HitShare, "--num-workers", "1", "--speedup-ratio", "0")
			replaysAlike(t, file, stats.Requests, *stats.HitShare, "--num-workers", "1", "--speedup-ratio", "1")
		})
	}
}

// task begins the conversation of an agent.
func task(agent string) []string {
	return []string{fmt.Sprintf(`{"role":"user","content":%q}`, prose("task of "+agent, 80))}
}

// talkOn asks for the next turn of a conversation, and returns it with the answer and what
// the agent says then.
func talkOn(p *program, talk []string, turn int, agent, parent string) []string {
	header := []string{"X-Dynamo-Session-Id", agent}
	if parent != "" {
		header = append(header, "X-Dynamo-Parent-Session-Id", parent)
	}
	got := p.send("/v1/chat/completions", `{"model":"dynago/demo","max_tokens":40,"messages":[`+strings.Join(talk, ",")+`]}`, header...)
	var said turnSaid
	if err := json.Unmarshal([]byte(got.body), &said); err != nil || got.status != 200 {
		p.t.Errorf("%d %s", got.status, got.body)
		return talk
	}
	return append(
		talk, fmt.Sprintf(`{"role":"assistant","content":%q}`, said.Choices[0].Message.Content),
		fmt.Sprintf(`{"role":"user","content":%q}`, prose(fmt.Sprint("result ", turn), 8)),
	)
}
