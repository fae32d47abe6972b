package trace_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/dynago/dynago/sim/trace"
)

// convert converts records.
func convert(t testing.TB, f trace.Format, rows string) (string, trace.Conversion) {
	t.Helper()
	var out strings.Builder
	told, err := trace.Convert(&out, f, trace.ReadOptions{}, named{strings.NewReader(rows)})
	if err != nil {
		t.Fatal(err)
	}
	return out.String(), told
}

// Requests of no agent keep the times between them, also those that run at once.
func TestConvertStandard(t *testing.T) {
	prompt := func(row, hashes string, tokens int) string {
		row = strings.Replace(row, "[1]", hashes, 1)
		return strings.Replace(row, `"input_length": 4`, fmt.Sprintf(`"input_length": %d`, tokens), 1)
	}
	got, told := convert(t, trace.Mooncake, records(
		prompt(call("c", "", "", 1500, 100), "[18446744073709551615, 33]", 7),
		prompt(call("b", "", "", 1000, 700), "[22]", 4),
		prompt(call("a", "", "", 1000, 100), "[18446744073709551615, 22]", 8),
		strings.Replace(call("none", "", "", 1200, 5), "replay", "payload", 1),
	))
	want := `{"request_id":"a","timestamp":0,"input_length":8,"output_length":2,"hash_ids":[0,1],"dynago":{"block_size":4}}
{"request_id":"b","timestamp":0,"input_length":4,"output_length":2,"hash_ids":[1],"dynago":{"block_size":4}}
{"request_id":"c","timestamp":500,"input_length":7,"output_length":2,"hash_ids":[0,2],"dynago":{"block_size":4}}
`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if told != (trace.Conversion{Rows: 3, BlockSize: 4, Skipped: 1}) {
		t.Errorf("told of %+v", told)
	}
}

// A lead calls two tools at once, then a sub-agent; another works in the background, and
// somebody else's request is among them.
func TestConvertAgents(t *testing.T) {
	background := `"claude": {"source_request_id": "l1", "child_session_id": "b", "execution_mode": "background"}`
	got, _ := convert(t, trace.AgenticMooncake, records(
		call("l1", "l", "", 1000, 100),
		tool("l", 1150, 1300, `"output_bytes": 7`),
		tool("l", 1200, 1400, `"status": "error", "error_type": "exit"`),
		tool("l", 1390, 1600, background),
		call("l2", "l", "", 1500, 100),
		call("c1", "c", "l", 1620, 80),
		call("c2", "c", "l", 1750, 50),
		call("x", "", "", 1760, 5),
		call("b1", "b", "l", 1650, 900),
		call("l3", "l", "", 2000, 100),
	))
	want := `{"request_id":"l1","session_id":"l","request_kind":"foreground","timestamp":0,"input_length":4,"output_length":2,"hash_ids":[0],"branches":["b1"],"prefix_reset":true,"dynago":{"block_size":4}}
{"request_id":"l2","session_id":"l","request_kind":"foreground","timestamp":500,"input_length":4,"output_length":2,"hash_ids":[0],"wait_for":["l1"],"branches":["c1"],"prefix_reset":false,"delay":150,"tool_wait_ms":250,"tool_events":[{"tool_call_id":"t","tool_class":"x","started_at_unix_ms":1150,"ended_at_unix_ms":1300,"duration_ms":150,"status":"succeeded","output_bytes":7},{"tool_call_id":"t","tool_class":"x","started_at_unix_ms":1200,"ended_at_unix_ms":1400,"duration_ms":200,"status":"error","error_type":"exit"}],"dynago":{"block_size":4}}
{"request_id":"c1","session_id":"c","request_kind":"agent","timestamp":620,"input_length":4,"output_length":2,"hash_ids":[0],"wait_for":["l2"],"prefix_reset":true,"delay":20,"dynago":{"block_size":4}}
{"request_id":"b1","session_id":"b","request_kind":"background_agent","timestamp":650,"input_length":4,"output_length":2,"hash_ids":[0],"wait_for":["l1"],"prefix_reset":true,"delay":550,"dynago":{"block_size":4}}
{"request_id":"c2","session_id":"c","request_kind":"agent","timestamp":750,"input_length":4,"output_length":2,"hash_ids":[0],"wait_for":["c1"],"prefix_reset":false,"delay":50,"dynago":{"block_size":4}}
{"request_id":"x","request_kind":"foreground","timestamp":760,"input_length":4,"output_length":2,"hash_ids":[0],"prefix_reset":true,"dynago":{"block_size":4}}
{"request_id":"l3","session_id":"l","request_kind":"foreground","timestamp":1000,"input_length":4,"output_length":2,"hash_ids":[0],"wait_for":["l2","c2"],"prefix_reset":false,"delay":200,"dynago":{"block_size":4}}
`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// Before an engine that answers at once a session has several turns in a millisecond. They
// stand in the order in which they have ended, and what a sub-agent ended in is waited for
// though its time was rounded up.
func TestTurnsOfOneMillisecond(t *testing.T) {
	row := func(id, session, parent string, at int, took float64) string {
		return strings.Replace(call(id, session, parent, at, 0), `"total_time_ms": 0`, fmt.Sprintf(`"total_time_ms": %v`, took), 1)
	}
	w := collect(t, trace.Read(trace.Dynamo, trace.ReadOptions{}, strings.NewReader(records(
		row("z", "l", "", 1000, 0.6), row("m", "", "", 1000, 0.2), row("a", "l", "", 1000, 0.1), row("b", "l", "", 1000, 0.3),
		row("k", "kid", "l", 1001, 4.7), row("c", "l", "", 1005, 1),
	))))
	if got, want := times(w), "z@0s a+0s m@0s b+0s k+1ms c+0s"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	for _, r := range w {
		if want := map[string][]string{"a": {"z"}, "b": {"a"}, "k": {"b"}, "c": {"b", "k"}}[r.ID]; !slices.Equal(r.After, want) {
			t.Errorf("%s waits for %q, want %q", r.ID, r.After, want)
		}
	}
}

// Clients that name themselves in the body call chains trajectories.
func TestTrajectories(t *testing.T) {
	body := func(row, run, chain, parent string) string {
		return strings.Replace(row, `"event_time_unix_ms": 1, `, fmt.Sprintf(`"event_time_unix_ms": 1, "agent_context": {"session_type_id": "t", "session_id": %q, "trajectory_id": %q, "parent_trajectory_id": %q}, `, run, chain, parent), 1)
	}
	rows := records(
		body(call("a1", "", "", 1000, 100), "run", "a", ""),
		body(call("b1", "", "", 1200, 100), "run", "b", "a"),
		body(call("a2", "", "", 1400, 100), "run", "a", ""),
	)
	w := collect(t, trace.Read(trace.Dynamo, trace.ReadOptions{}, strings.NewReader(rows)))
	if got, want := times(w), "a1@0s b1+100ms a2+100ms"; got != want || w[1].Session != "b" || w[1].Parent != "a" || !slices.Equal(w[2].After, []string{"a1", "b1"}) {
		t.Errorf("%s, %+v", got, w)
	}
}

func TestConvertCannot(t *testing.T) {
	agent, alone := call("a", "s", "", 1, 1), call("b", "", "", 1, 1)
	claude := func(more string) string { return `"claude": {"execution_mode": "blocking", ` + more + `}` }
	for _, tt := range []struct {
		name   string
		format trace.Format
		strict bool
		rows   string
		want   string
	}{
		{"other format", trace.Dynamo, false, agent, "not written"},
		{"agents", trace.Mooncake, false, records(agent, alone), "1 of 2 requests belong to agents: want format agentic_mooncake"},
		{"no agents", trace.AgenticMooncake, false, alone, "0 of 1 requests belong to agents: want format mooncake"},
		{"mixed", trace.AgenticMooncake, true, records(agent, alone), "1 of 2"},
		{"nothing", trace.Mooncake, false, "", "x.jsonl holds no requests"},
		{"no hashes", trace.Mooncake, false, strings.Replace(alone, "replay", "payload", 1), "none of 1 requests has the hashes"},
		{"no hashes, strictly", trace.Mooncake, true, strings.Replace(alone, "replay", "payload", 1), "x.jsonl, line 1: request.replay: missing"},
		{"tool of another session", trace.AgenticMooncake, false, records(agent, call("c", "t", "s", 2, 1), tool("t", 1, 2, claude(`"source_request_id": "a", "child_session_id": "t"`))), `request "a", which is of session "s"`},
		{"two tools", trace.AgenticMooncake, false, records(
			agent, call("c", "t", "s", 2, 1),
			tool("s", 1, 2, claude(`"source_request_id": "a", "child_session_id": "t"`)), tool("s", 1, 3, claude(`"source_request_id": "a", "child_session_id": "t"`)),
		), `session "t" was opened by two tools`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := trace.Convert(&strings.Builder{}, tt.format, trace.ReadOptions{Strict: tt.strict}, named{strings.NewReader(tt.rows)})
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want an error with %q", err, tt.want)
			}
		})
	}
	_, err := trace.Convert(full{}, trace.AgenticMooncake, trace.ReadOptions{}, strings.NewReader(agent))
	if !errors.Is(err, errFull) {
		t.Errorf("to a full disk: %v", err)
	}
}

var errFull = errors.New("no room")

// full is a disk without room.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, errFull }

// Whatever was recorded: what is converted has each request once, waits in no circle,
// and is replayed as the recording itself would be.
func TestConvertRoundTrip(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var rows []string
		agents, parents := false, map[string]string{"a": "", "b": "a", "c": "a", "d": "b", "e": "gone"}
		for i := range rapid.IntRange(1, 14).Draw(rt, "requests") {
			session := rapid.SampledFrom([]string{"", "a", "a", "b", "c", "d", "e"}).Draw(rt, "session")
			agents = agents || session != ""
			row := call(fmt.Sprint("r", i), session, parents[session], rapid.IntRange(1, 60).Draw(rt, "at")*100, rapid.IntRange(0, 9).Draw(rt, "took")*70)
			blocks := rapid.SliceOfN(rapid.IntRange(1, 6), 1, 5).Draw(rt, "blocks")
			row = strings.Replace(row, "[1]", strings.ReplaceAll(fmt.Sprint(blocks), " ", ","), 1)
			row = strings.Replace(row, `"input_length": 4`, fmt.Sprintf(`"input_length": %d`, 4*len(blocks)-rapid.IntRange(0, 3).Draw(rt, "short")), 1)
			rows = append(rows, row)
		}
		for range rapid.IntRange(0, 6).Draw(rt, "tools") {
			start := rapid.IntRange(1, 600).Draw(rt, "start") * 10
			rows = append(rows, tool(rapid.SampledFrom([]string{"a", "b", "c"}).Draw(rt, "of"), start, start+rapid.IntRange(0, 100).Draw(rt, "ran")*10, ""))
		}
		rows = rapid.Permutation(rows).Draw(rt, "order")
		format := trace.Mooncake
		if agents {
			format = trace.AgenticMooncake
		}
		want := collect(t, trace.Read(trace.Dynamo, trace.ReadOptions{}, strings.NewReader(records(rows...))))
		var out strings.Builder
		told, err := trace.Convert(&out, format, trace.ReadOptions{}, strings.NewReader(records(rows...)))
		if err != nil {
			rt.Fatal(err)
		}
		got := collect(t, trace.Read(format, trace.ReadOptions{BlockSize: told.BlockSize}, strings.NewReader(out.String())))
		if err := trace.Check(got); err != nil {
			rt.Fatal(err)
		}
		if len(got) != len(want) || told.Rows != len(want) {
			rt.Fatalf("%d requests have become %d, told of %d", len(want), len(got), told.Rows)
		}
		was, is := trace.Chains(want, 4), trace.Chains(got, 4)
		for i := range want {
			a, b := &want[i], &got[i]
			if a.ID != b.ID || a.Session != b.Session || !slices.Equal(a.After, b.After) || a.Delay != b.Delay || a.At != b.At ||
				a.Tool != b.Tool || a.Prompt.Len() != b.Prompt.Len() || a.Answer.Len() != b.Answer.Len() || !slices.Equal(was[i], is[i]) {
				rt.Fatalf("%+v has become %+v", a, b)
			}
		}
	})
}
