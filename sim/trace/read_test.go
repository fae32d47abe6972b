package trace_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dynago/dynago/sim/trace"
)

// show writes requests so that a person can compare them: pieces of prompts as
// stream[from:to), where streams are lettered as they come.
func show(w []trace.Request) string {
	letters := map[uint64]string{}
	text := func(t trace.Text) string {
		var parts []string
		for _, p := range t {
			if _, ok := letters[p.Stream]; !ok {
				letters[p.Stream] = string(rune('a' + len(letters)))
			}
			parts = append(parts, fmt.Sprintf("%s[%d:%d]", letters[p.Stream], p.From, p.From+p.Len))
		}
		return strings.Join(parts, "+")
	}
	var b strings.Builder
	for _, r := range w {
		fmt.Fprintf(&b, "%s", r.ID)
		if r.Session != "" {
			fmt.Fprintf(&b, " of %s", r.Session)
		}
		if r.Parent != "" {
			fmt.Fprintf(&b, " under %s", r.Parent)
		}
		if len(r.After) > 0 {
			fmt.Fprintf(&b, " %v after %s", r.Delay, strings.Join(r.After, "&"))
		} else {
			fmt.Fprintf(&b, " at %v", r.At)
		}
		fmt.Fprintf(&b, ": %s → %s", text(r.Prompt), text(r.Answer))
		if r.Tool {
			b.WriteString(" tool")
		}
		if r.Final {
			b.WriteString(" final")
		}
		if r.Priority != 0 || r.StrictPriority != 0 || r.Class != "" {
			fmt.Fprintf(&b, " priority %v, %d, %q", r.Priority, r.StrictPriority, r.Class)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// text drops the indentation of a test's rows.
func text(s string) string { return strings.ReplaceAll(strings.TrimSpace(s), "\t", "") }

func TestRead(t *testing.T) {
	for _, tt := range []struct {
		name    string
		format  trace.Format
		options trace.ReadOptions
		rows    string
		want    string
	}{
		{
			"plain rows", trace.Mooncake,
			trace.ReadOptions{},
			`{"timestamp": 0, "input_length": 700, "output_length": 5, "hash_ids": [7, 9], "something": {"else": 1}}

			{"timestamp": 1500.25, "input_length": 512, "output_length": 0, "hash_ids": [7]}`,
			`0 at 0s: a[0:512]+b[0:188] → c[0:5]
			1 at 1.50025s: a[0:512] → d[0:1]`,
		},
		{
			"other names, and a length that the ids give", trace.Mooncake,
			trace.ReadOptions{BlockSize: 10},
			`{"created_time": 3, "output_tokens": 2, "hash_ids": [18446744073709551615, 0], "request_id": "x", "priority": -2, "strict_priority": 3, "policy_class": "batch"}`,
			`x at 3ms: a[0:10]+b[0:10] → c[0:2] priority -2, 3, "batch"`,
		},
		{
			"more ids than needed", trace.Mooncake,
			trace.ReadOptions{BlockSize: 10},
			`{"input_tokens": 11, "output_length": 1, "hash_ids": [1, 2, 3]}`,
			`0 at 0s: a[0:10]+b[0:1] → c[0:1]`,
		},
		{
			"sessions", trace.Mooncake,
			trace.ReadOptions{BlockSize: 10},
			`{"session_id": "s", "timestamp": 10, "output_length": 1, "hash_ids": [1]}
			{"timestamp": 11, "output_length": 1, "hash_ids": [5]}
			{"session_id": "s", "timestamp": 40, "output_length": 1, "hash_ids": [1, 2]}
			{"session_id": "s", "timestamp": 90, "delay": 7, "output_length": 1, "hash_ids": [1, 2, 3]}
			{"session_id": "s", "delay_ms": 8, "output_length": 1, "hash_ids": [4]}`,
			`0 of s at 10ms: a[0:10] → b[0:1]
			1 at 11ms: c[0:10] → d[0:1]
			2 of s 30ms after 0: a[0:10]+e[0:10] → f[0:1]
			3 of s 7ms after 2: a[0:10]+e[0:10]+g[0:10] → h[0:1]
			4 of s 8ms after 3: i[0:10] → j[0:1]`,
		},
		{
			"only what is new", trace.MooncakeDelta,
			trace.ReadOptions{BlockSize: 10},
			`{"session_id": "s", "timestamp": 0, "output_length": 4, "hash_ids": [1], "input_length": 9}
			{"session_id": "s", "delay": 5, "output_length": 6, "hash_ids": [2]}
			{"session_id": "t", "output_length": 1, "hash_ids": [2]}
			{"session_id": "s", "delay": 5, "output_length": 1, "hash_ids": [3]}`,
			`0 of s at 0s: a[0:9] → b[0:4]
			1 of s 5ms after 0: a[0:9]+b[0:4]+c[0:10] → d[0:6]
			2 of t at 0s: c[0:10] → e[0:1]
			3 of s 5ms after 1: a[0:9]+b[0:4]+c[0:10]+d[0:6]+f[0:10] → g[0:1]`,
		},
		{
			"agents", trace.AgenticMooncake,
			trace.ReadOptions{BlockSize: 10},
			`{"request_id": "root", "session_id": "lead", "timestamp": 5, "output_length": 1, "hash_ids": [1], "prefix_reset": true, "branches": ["child"]}
			{"request_id": "next", "session_id": "lead", "timestamp": 9, "output_length": 1, "hash_ids": [1, 2], "wait_for": ["root", "child"], "delay": 2, "tool_wait_ms": 3.5}
			{"request_id": "child", "session_id": "sub", "output_length": 1, "hash_ids": [1, 3], "wait_for": ["root"], "request_kind": "agent", "tool_events": []}`,
			`root of lead at 5ms: a[0:10] → b[0:1]
			next of lead 5.5ms after root&child: a[0:10]+c[0:10] → d[0:1] tool
			child of sub 0s after root: a[0:10]+e[0:10] → f[0:1]`,
		},
		{
			"sessions by their lengths", trace.AppliedComputeAgentic,
			trace.ReadOptions{},
			`{"num_turns": 2, "input_prompt_length": 100, "assistant_response_length": [10, 20], "tool_call_output_length": [30, 40], "tool_call_latency": [0.5, 1.25], "final_assistant_response_length": 50}
			{"num_turns": 0, "input_prompt_length": 7, "assistant_response_length": [], "tool_call_output_length": [], "tool_call_latency": [], "final_assistant_response_length": 0}`,
			`session 0, turn 0 of session 0 at 0s: a[0:100] → b[0:10]
			session 0, turn 1 of session 0 500ms after session 0, turn 0: a[0:100]+b[0:10]+c[0:30] → d[0:20] tool
			session 0, turn 2 of session 0 1.25s after session 0, turn 1: a[0:100]+b[0:10]+c[0:30]+d[0:20]+e[0:40] → f[0:50] tool final
			session 1, turn 0 of session 1 at 0s: g[0:7] → h[0:1] final`,
		},
		{
			"sessions that begin alike", trace.AppliedComputeAgentic,
			trace.ReadOptions{BlockSize: 10, Prefix: trace.Prefix{Ratio: 0.5, Groups: 1}},
			`{"num_turns": 0, "input_prompt_length": 40, "assistant_response_length": [], "tool_call_output_length": [], "tool_call_latency": [], "final_assistant_response_length": 1}
			{"num_turns": 0, "input_prompt_length": 60, "assistant_response_length": [], "tool_call_output_length": [], "tool_call_latency": [], "final_assistant_response_length": 1}`,
			`session 0, turn 0 of session 0 at 0s: a[0:20]+b[0:20] → c[0:1] final
			session 1, turn 0 of session 1 at 0s: a[0:30]+d[0:30] → e[0:1] final`,
		},
		{
			"records without agents", trace.Dynamo,
			trace.ReadOptions{},
			`{"schema": "dynamo.request.trace.v1", "event_type": "request_end", "event_time_unix_ms": 1700000000900, "request": {"request_id": "b", "request_received_ms": 1700000000500, "output_tokens": 3, "replay": {"trace_block_size": 4, "input_length": 5, "input_sequence_hashes": [18446744073709551615, 3]}}}
			{"event": {"schema": "dynamo.request.trace.v1", "event_type": "request_end", "event_time_unix_ms": 1700000000800, "request": {"request_id": "a", "request_received_ms": 1700000000100, "output_tokens": 0, "replay": {"trace_block_size": 4, "input_length": 8, "input_sequence_hashes": [18446744073709551615, 9]}}}}
			{"schema": "dynamo.request.trace.v1", "event_type": "request_payload", "event_time_unix_ms": 1, "payload": {"request_id": "a"}}
			{"schema": "dynamo.request.trace.v1", "event_type": "request_end", "event_time_unix_ms": 5, "request": {"request_id": "cannot be replayed"}}`,
			`a at 0s: a[0:4]+b[0:4] → c[0:1]
			b at 400ms: a[0:4]+d[0:1] → e[0:3]`,
		},
		{
			"records of a lead and a child that waits between two of its calls", trace.Dynamo,
			trace.ReadOptions{},
			records(
				call("l1", "lead", "", 1000, 100), call("l2", "lead", "", 5000, 100),
				call("c1", "sub", "lead", 1150, 500), call("c2", "sub", "lead", 2000, 1000),
				call("free", "", "", 900, 10),
				tool("lead", 1200, 3500, ""), tool("sub", 1700, 1800, ""), tool("sub", 1750, 1950, ""),
			),
			`free at 0s: a[0:4] → b[0:2]
			l1 of lead at 100ms: a[0:4] → c[0:2]
			c1 of sub under lead 50ms after l1: a[0:4] → d[0:2]
			c2 of sub under lead 350ms after c1: a[0:4] → e[0:2] tool final
			l2 of lead 2s after l1&c2: a[0:4] → f[0:2] tool final`,
		},
		{
			"records of calls that overlap, and of a lead that goes on after its child", trace.Dynamo,
			trace.ReadOptions{},
			records(
				call("l1", "lead", "", 1000, 1000), call("l2", "lead", "", 1500, 700),
				call("c1", "sub", "lead", 1600, 200), call("c2", "sub", "lead", 1650, 50),
				call("l3", "lead", "", 2500, 100), call("l4", "lead", "", 3000, 100),
				tool("lead", 2100, 2400, `"claude": {"source_request_id": "l2", "consumer_request_id": "l4", "execution_mode": "blocking"}`),
				tool("lead", 2700, 2800, `"claude": {"source_request_id": "l2", "execution_mode": "background"}`),
				tool("sub", 1590, 1640, ""),
			),
			`l1 of lead at 0s: a[0:4] → b[0:2]
			l2 of lead 0s after l1: a[0:4] → c[0:2]
			c1 of sub under lead 0s after l2: a[0:4] → d[0:2]
			c2 of sub under lead 0s after c1: a[0:4] → e[0:2] final
			l3 of lead 300ms after l2&c1: a[0:4] → f[0:2]
			l4 of lead 400ms after l3: a[0:4] → g[0:2] final`,
		},
		{
			"records that say who opened a session and who uses it", trace.Dynamo,
			trace.ReadOptions{},
			records(
				call("l1", "lead", "", 1000, 100), call("l2", "lead", "", 1200, 100), call("l3", "lead", "", 9000, 100), call("l4", "lead", "", 9500, 100),
				call("c1", "sub", "lead", 1250, 500),
				tool("lead", 1110, 1800, `"claude": {"source_request_id": "l1", "consumer_request_id": "l4", "child_session_id": "sub", "execution_mode": "background"}`),
			),
			`l1 of lead at 0s: a[0:4] → b[0:2]
			l2 of lead 100ms after l1: a[0:4] → c[0:2]
			c1 of sub under lead 150ms after l1: a[0:4] → d[0:2] final
			l3 of lead 7.7s after l2: a[0:4] → e[0:2]
			l4 of lead 400ms after c1&l3: a[0:4] → f[0:2] final`,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := show(collect(t, trace.Read(tt.format, tt.options, strings.NewReader(tt.rows))))
			if diff := cmp.Diff(text(tt.want), text(got)); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
			// Compressed, in two members, it is the same.
			var packed bytes.Buffer
			for _, part := range []string{tt.rows[:len(tt.rows)/2], tt.rows[len(tt.rows)/2:]} {
				w := gzip.NewWriter(&packed)
				io.WriteString(w, part)
				w.Close()
			}
			if again := show(collect(t, trace.Read(tt.format, tt.options, &packed))); again != got {
				t.Errorf("compressed: %s", cmp.Diff(got, again))
			}
		})
	}
}

func records(rows ...string) string { return strings.Join(rows, "\n") }

// call is a record of a request of one block of prompt, which came at and took
// so many milliseconds.
func call(id, session, parent string, at, took int) string {
	agent := ""
	if session != "" {
		agent = fmt.Sprintf(`"agent_context": {"session_id": %q}, `, session)
	}
	if parent != "" {
		agent = fmt.Sprintf(`"agent_context": {"session_id": %q, "parent_session_id": %q}, `, session, parent)
	}
	return fmt.Sprintf(`{"schema": "dynamo.request.trace.v1", "event_type": "request_end", "event_time_unix_ms": 1, %s"request": {"request_id": %q, "request_received_ms": %d, "total_time_ms": %d, "output_tokens": 2, "replay": {"trace_block_size": 4, "input_length": 4, "input_sequence_hashes": [1]}}}`, agent, id, at, took)
}

func tool(session string, start, end int, more string) string {
	if more != "" {
		more = ", " + more
	}
	return fmt.Sprintf(`{"schema": "dynamo.request.trace.v1", "event_type": "tool_end", "event_time_unix_ms": 1, "agent_context": {"session_id": %q}, "tool": {"tool_call_id": "t", "tool_class": "x", "started_at_unix_ms": %d, "ended_at_unix_ms": %d%s}}`, session, start, end, more)
}

// An error says where it is: file, line and field.
func TestReadFaults(t *testing.T) {
	row := func(more string) string {
		return `{"timestamp": 1, "input_length": 5, "output_length": 1, "hash_ids": [1]}` + "\n" + more
	}
	for _, tt := range []struct {
		format trace.Format
		rows   string
		want   []string
	}{
		{trace.Mooncake, "\n \n", []string{"x.jsonl", "no requests"}},
		{trace.Mooncake, row(strings.Repeat(" ", 65<<20)), []string{"line 2", "longer than 64 MiB"}},
		{trace.Mooncake, row(`{"output_length": 1}`), []string{"x.jsonl, line 2", "hash_ids: missing"}},
		{trace.Mooncake, row(`{"hash_ids": [1]}`), []string{"line 2", "output_length: missing"}},
		{trace.Mooncake, row(`{"hash_ids": [], "output_length": 1}`), []string{"line 2", "input_length", "empty"}},
		{trace.Mooncake, row(`{"hash_ids": [1], "input_length": 513, "output_length": 1}`), []string{"line 2", "input_length", "513", "512"}},
		{trace.Mooncake, row(`{"hash_ids": [1], "input_length": -1, "output_length": 1}`), []string{"line 2", "input_length", "-1"}},
		{trace.Mooncake, row(`{"hash_ids": [1], "output_length": 99999999999}`), []string{"line 2", "output_length", "99999999999"}},
		{trace.Mooncake, row(`{"hash_ids": [1], "output_length": 1, "timestamp": -3}`), []string{"line 2", "timestamp", "-3"}},
		{trace.Mooncake, row(`{"hash_ids": [1], "output_length": 1, "timestamp": 1e300}`), []string{"line 2", "timestamp", "1e+300"}},
		{trace.Mooncake, row(`{"hash_ids": [1], "output_length": 1, "timestamp": "now"}`), []string{"line 2", "timestamp: got a string, want a number"}},
		{trace.Mooncake, row(`{"hash_ids": [1, -2], "output_length": 1}`), []string{"line 2", "hash_ids.1", "-2"}},
		{trace.Mooncake, row(`{"hash_ids": [1], "output_length": 1`), []string{"line 2", "EOF"}},
		{trace.Mooncake, row(`[]`), []string{"line 2"}},
		{trace.Mooncake, row(`{"hash_ids": [1], "output_length": 1, "session_id": "s", "delay": 3}`), []string{"line 2", "delay", "first turn"}},
		{trace.Mooncake, row(`{"hash_ids": [1], "output_length": 1, "request_id": "0"}`), []string{"line 2", "request_id", "line 1"}},
		{trace.Mooncake, `{"session_id": "s", "timestamp": 9, "hash_ids": [1], "output_length": 1}` + "\n" + `{"session_id": "s", "timestamp": 4, "hash_ids": [1], "output_length": 1}`, []string{"line 2", "timestamp", "5 ms before"}},
		{trace.Mooncake, row(`{"hash_ids": [1], "output_length": 1, "nvext": 3}`), []string{"line 2: nvext: expected an object"}},
		{trace.Mooncake, row(`{"hash_ids": [1], "output_length": 1, "nvext": {"cache_control": {"type": "forever"}}}`), []string{"line 2: nvext.cache_control.type", `"forever"`}},
		{trace.Mooncake, row(`{"hash_ids": [1], "output_length": 1, "nvext": {"cache_control": {"ttl": "soon"}}}`), []string{"line 2: nvext.cache_control.ttl", "soon"}},
		{trace.Mooncake, row(`{"hash_ids": [1], "output_length": 1, "nvext": {"retention": {"ranges": [{"message": 0, "priority": 1}]}}}`), []string{"line 2: nvext.retention.ranges[0].message", "start and end"}},
		{trace.Mooncake, row(`{"hash_ids": [1], "output_length": 1, "nvext": {"agent_hints": {"next_request_in": "-1s"}}}`), []string{"line 2: nvext.agent_hints.next_request_in", `"-1s"`}},
		{trace.Mooncake, row(`{"hash_ids": [1], "output_length": 1, "dynago": {"block_size": 16}}`), []string{"line 2: dynago.block_size", "16", "512 before"}},
		{trace.Mooncake, `{"hash_ids": [1], "output_length": 1, "dynago": {"block_size": 0}}`, []string{"line 1: dynago.block_size: got 0, want 1 to"}},
		{trace.Mooncake, row(`{"hash_ids": [1], "output_length": 1, "dynago": {"answer_tokens": 2, "answer_hash_ids": [2]}}`), []string{"line 2: dynago.answer_tokens", "2", "has 1"}},
		{trace.Mooncake, row(`{"hash_ids": [1], "output_length": 1, "dynago": {"answer_tokens": -1}}`), []string{"line 2: dynago.answer_tokens", "-1"}},
		{trace.Mooncake, row(`{"hash_ids": [1], "output_length": 3, "dynago": {"answer_tokens": 2}}`), []string{"line 2: dynago.answer_hash_ids: got 0 ids behind 1", "514 tokens are 2 blocks of 512"}},
		{trace.AgenticMooncake, row(``), []string{"line 1", "request_id: missing"}},
		{trace.AgenticMooncake, `{"request_id": "a", "hash_ids": [1], "output_length": 1, "wait_for": ["b"]}`, []string{`"a" waits for "b"`}},
		{
			trace.AgenticMooncake, `{"request_id": "a", "hash_ids": [1], "output_length": 1, "wait_for": ["c"]}
			{"request_id": "b", "hash_ids": [1], "output_length": 1, "wait_for": ["a"]}
			{"request_id": "c", "hash_ids": [1], "output_length": 1, "wait_for": ["b"]}`,
			[]string{"circle", "a", "b", "c"},
		},
		{trace.AgenticMooncake, `{"request_id": "a", "hash_ids": [1], "output_length": 1, "wait_for": ["a"], "tool_wait_ms": -1}`, []string{"line 1", "tool_wait_ms"}},
		{trace.AppliedComputeAgentic, `{"num_turns": 1, "input_prompt_length": 1, "assistant_response_length": [1], "tool_call_output_length": [], "tool_call_latency": [0], "final_assistant_response_length": 1}`, []string{"line 1", "tool_call_output_length", "0 values for 1 turns"}},
		{trace.AppliedComputeAgentic, `{"num_turns": 1, "input_prompt_length": 1, "assistant_response_length": [1], "tool_call_output_length": [1], "tool_call_latency": [-0.5], "final_assistant_response_length": 1}`, []string{"line 1", "tool_call_latency.0", "-0.5"}},
		{trace.AppliedComputeAgentic, `{"num_turns": 0, "input_prompt_length": 0, "assistant_response_length": [], "tool_call_output_length": [], "tool_call_latency": [], "final_assistant_response_length": 1}`, []string{"line 1", "input_prompt_length"}},
		{trace.Dynamo, `{"schema": "v2", "event_type": "request_end", "event_time_unix_ms": 1}`, []string{"line 1", "schema", `"v2"`, "dynamo.request.trace.v1"}},
		{trace.Dynamo, `{"schema": "dynamo.request.trace.v1", "event_type": "other", "event_time_unix_ms": 1}`, []string{"line 1", "event_type", `"other"`}},
		{trace.Dynamo, call("a", "", "", 1, 1) + "\n" + call("a", "", "", 1, 1), []string{"line 2", "request_id", `"a"`}},
		{trace.Dynamo, call("a", "s", "p", 1, 1) + "\n" + call("b", "s", "q", 1, 1), []string{"line 2", "parent_session_id", `"q"`, `"p"`}},
		{trace.Dynamo, strings.Replace(call("a", "", "", 1, 1), `"input_length": 4`, `"input_length": 5`, 1), []string{"line 1", "input_sequence_hashes", "2 blocks of 4"}},
		{trace.Dynamo, call("a", "", "", 1, 1) + "\n" + strings.Replace(call("b", "", "", 1, 1), `"trace_block_size": 4`, `"trace_block_size": 8`, 1), []string{"line 2", "trace_block_size", "8", "4"}},
		{trace.Dynamo, call("a", "s", "", 1, 1) + "\n" + tool("s", 1, 2, `"claude": {"source_request_id": "gone", "child_session_id": "s", "execution_mode": "blocking"}`), []string{`"gone"`}},
		{trace.Dynamo, call("a", "s", "s", 1, 1), []string{"circle: a"}},
	} {
		var last error
		for _, err := range trace.Read(tt.format, trace.ReadOptions{}, named{strings.NewReader(tt.rows)}) {
			if last != nil {
				t.Fatalf("%s: goes on after %v", tt.rows, last)
			}
			last = err
		}
		if last == nil {
			t.Errorf("%s %s: no error, want one with %q", tt.format, tt.rows, tt.want)
			continue
		}
		for _, want := range append(tt.want, "x.jsonl") {
			if !strings.Contains(last.Error(), want) {
				t.Errorf("%s:\n%v\nlacks %q", tt.rows, last, want)
			}
		}
	}
}

type named struct{ io.Reader }

func (named) Name() string { return "x.jsonl" }

func TestReadOptions(t *testing.T) {
	one := strings.NewReader("")
	for _, tt := range []struct {
		format  trace.Format
		options trace.ReadOptions
		sources []io.Reader
		want    string
	}{
		{"mooncake2", trace.ReadOptions{}, []io.Reader{one}, "mooncake2"},
		{trace.Mooncake, trace.ReadOptions{}, nil, "0 files"},
		{trace.Mooncake, trace.ReadOptions{}, []io.Reader{one, one}, "2 files"},
		{trace.Mooncake, trace.ReadOptions{BlockSize: -1}, []io.Reader{one}, "block size"},
		{trace.AppliedComputeAgentic, trace.ReadOptions{Prefix: trace.Prefix{Ratio: 2, Groups: 1}}, []io.Reader{one}, "ratio"},
		{trace.AppliedComputeAgentic, trace.ReadOptions{Prefix: trace.Prefix{Ratio: 1}}, []io.Reader{one}, "groups"},
		{trace.Dynamo, trace.ReadOptions{BlockSize: 8}, []io.Reader{strings.NewReader(call("a", "", "", 1, 1))}, "trace_block_size"},
		{trace.Dynamo, trace.ReadOptions{Strict: true}, []io.Reader{strings.NewReader(call("a", "", "", 1, 1)), strings.NewReader(call("b", "s", "", 1, 1))}, "1 of 2"},
		{trace.Dynamo, trace.ReadOptions{Strict: true}, []io.Reader{strings.NewReader(`{"schema": "dynamo.request.trace.v1", "event_type": "request_end", "event_time_unix_ms": 5, "request": {"request_id": "x"}}`)}, "request.replay"},
	} {
		var got error
		for _, err := range trace.Read(tt.format, tt.options, tt.sources...) {
			got = err
		}
		if got == nil || !strings.Contains(got.Error(), tt.want) {
			t.Errorf("%s %+v: %v, want an error with %q", tt.format, tt.options, got, tt.want)
		}
	}
	if f, err := trace.ParseFormat("agentic-mooncake"); f != trace.AgenticMooncake || err != nil {
		t.Errorf("agentic-mooncake is %q, %v", f, err)
	}
}

// Nobody need read to the end.
func TestReadStops(t *testing.T) {
	for _, f := range trace.Formats {
		rows := map[trace.Format]string{
			trace.AppliedComputeAgentic: `{"num_turns": 1, "input_prompt_length": 9, "assistant_response_length": [1], "tool_call_output_length": [1], "tool_call_latency": [0], "final_assistant_response_length": 1}`,
			trace.Dynamo:                call("a", "", "", 1, 1) + "\n" + call("b", "", "", 2, 1),
		}[f]
		if rows == "" {
			rows = `{"request_id": "a", "hash_ids": [1], "output_length": 1}` + "\n" + `{"request_id": "b", "hash_ids": [1], "output_length": 1}`
		}
		n := 0
		for range trace.Read(f, trace.ReadOptions{}, strings.NewReader(rows)) {
			n++
			break
		}
		if n != 1 {
			t.Errorf("%s: %d requests before the first", f, n)
		}
	}
}

// Of a trace that is read without an error every request can be replayed.
func FuzzRead(f *testing.F) {
	for i, rows := range []string{
		`{"timestamp": 0, "input_length": 700, "output_length": 5, "hash_ids": [7, 9], "session_id": "s", "delay": 0}`,
		`{"session_id": "s", "output_length": 5, "hash_ids": [7]}` + "\n" + `{"session_id": "s", "delay_ms": 5, "output_length": 5, "hash_ids": [7]}`,
		`{"request_id": "a", "wait_for": ["b"], "output_length": 5, "hash_ids": [7]}` + "\n" + `{"request_id": "b", "output_length": 5, "hash_ids": [7]}`,
		`{"num_turns": 1, "input_prompt_length": 1, "assistant_response_length": [1], "tool_call_output_length": [1], "tool_call_latency": [0.5], "final_assistant_response_length": 1}`,
		call("a", "s", "", 1, 1) + "\n" + call("b", "t", "s", 3, 1) + "\n" + tool("s", 1, 2, `"claude": {"source_request_id": "a", "child_session_id": "t", "execution_mode": "blocking"}`),
	} {
		f.Add(uint8(i), []byte(rows))
	}
	f.Fuzz(func(t *testing.T, format uint8, rows []byte) {
		var all []trace.Request
		for r, err := range trace.Read(trace.Formats[int(format)%len(trace.Formats)], trace.ReadOptions{}, bytes.NewReader(rows)) {
			if err != nil {
				return
			}
			if r.ID == "" || r.Prompt.Len() < 1 || r.Answer.Len() < 1 || r.At < 0 || r.Delay < 0 {
				t.Fatalf("%+v", r)
			}
			all = append(all, r)
		}
		if err := trace.Check(all); err != nil {
			t.Fatal(err)
		}
	})
}

// Who appends to a prompt does not write into those of later requests.
func TestPromptsAreTheirOwn(t *testing.T) {
	for format, rows := range map[trace.Format]string{
		trace.MooncakeDelta:         strings.Repeat(`{"session_id": "s", "output_length": 1, "hash_ids": [1]}`+"\n", 9),
		trace.AppliedComputeAgentic: `{"num_turns": 4, "input_prompt_length": 9, "assistant_response_length": [1, 1, 1, 1], "tool_call_output_length": [1, 1, 1, 1], "tool_call_latency": [0, 0, 0, 0], "final_assistant_response_length": 1}`,
	} {
		all := collect(t, trace.Read(format, trace.ReadOptions{}, strings.NewReader(rows)))
		want := show(all)
		for _, r := range all {
			_ = append(r.Prompt, trace.Piece{Stream: 666, Len: 666})
		}
		if got := show(all); got != want {
			t.Errorf("%s: a later prompt has changed:\n%s", format, cmp.Diff(want, got))
		}
	}
}

// Many ways from one request to another are walked once.
func TestCheckIsQuick(t *testing.T) {
	w := []trace.Request{{ID: "0 a"}, {ID: "0 b"}}
	for i := range 200 {
		after := []string{fmt.Sprint(i, " a"), fmt.Sprint(i, " b")}
		w = append(w, trace.Request{ID: fmt.Sprint(i+1, " a"), After: after}, trace.Request{ID: fmt.Sprint(i+1, " b"), After: after})
	}
	if err := trace.Check(w); err != nil {
		t.Error(err)
	}
}

func TestTimesOfSessionsAreKept(t *testing.T) {
	rows := `{"session_id": "s", "timestamp": 1000, "output_length": 1, "hash_ids": [1]}
{"session_id": "s", "delay": 500, "output_length": 1, "hash_ids": [1]}`
	w := collect(t, trace.Read(trace.Mooncake, trace.ReadOptions{}, strings.NewReader(rows)))
	if w[1].At != 1500*time.Millisecond {
		t.Errorf("a turn without a timestamp is at %v, want 1.5s", w[1].At)
	}
}
