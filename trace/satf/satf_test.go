package satf_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/dynago/dynago/trace"
	"github.com/dynago/dynago/trace/satf"
	"github.com/dynago/dynago/trace/tree"
)

var update = flag.Bool("update", false, "write the golden document anew")

// epoch is the unix time, in milliseconds, from which tests count.
const epoch = 1790000000000

// request is one that was recorded, of a prompt of a block.
func request(id, chain, parent string, at, took int, calls ...string) *trace.Record {
	r := &trace.Record{Schema: trace.Schema, EventType: trace.RequestEnd, EventTime: uint64(epoch + at + took), Request: &trace.Request{
		RequestID: id, Received: new(uint64(epoch + at)), TotalTime: new(float64(took)), OutputTokens: new(uint64(2)),
		Replay: &trace.Replay{BlockSize: 4, InputLength: 4, Hashes: []uint64{1}},
	}}
	if chain != "" {
		r.Agent = &trace.AgentContext{SessionID: chain, ParentSessionID: parent}
	}
	for i, call := range calls {
		if r.Request.Finish == nil {
			r.Request.Finish = new(trace.Finish)
		}
		r.Request.Finish.ToolCalls = append(r.Request.Finish.ToolCalls, trace.ToolCall{Index: uint32(i), ID: call, Name: "f"})
	}
	return r
}

// bringing adds the results of tools to a request.
func bringing(r *trace.Record, ids ...string) *trace.Record {
	r.Request.Dynago = &trace.Dynago{ToolResults: ids}
	return r
}

// with changes a request.
func with(r *trace.Record, change func(*trace.Request)) *trace.Record {
	change(r.Request)
	return r
}

// tool tells of one that has ended. Claude is what an exporter knows of it, or "".
func tool(chain, id string, from, to int, claude string) *trace.Record {
	return &trace.Record{
		Schema: trace.Schema, EventType: trace.ToolEnd, EventTime: uint64(epoch + to), Source: trace.SourceHarness, Agent: &trace.AgentContext{SessionID: chain},
		Tool: &trace.Tool{ID: id, Class: "x", Started: new(uint64(epoch + from)), Ended: new(uint64(epoch + to)), Duration: new(float64(to - from)), Claude: []byte(claude)},
	}
}

// document is what readers take of one.
type document struct {
	Format   string    `json:"format"`
	Version  string    `json:"format_version"`
	Base     string    `json:"time_base"`
	Block    int       `json:"block_size_tokens"`
	Sessions []session `json:"sessions"`
}

type session struct {
	ID    string `json:"session_id"`
	Nodes []struct {
		Kind     string  `json:"kind"`
		ID       string  `json:"id"`
		Duration int64   `json:"duration_us"`
		MinStart *int64  `json:"min_start_delay_us"`
		Payload  payload `json:"payload"`
	} `json:"nodes"`
	Edges      []edge `json:"edges"`
	Extensions struct {
		Dynamo struct {
			Parent string `json:"parent_session_id"`
		} `json:"nvidia.dynamo"`
		Dynago struct {
			Spawned string `json:"spawned_by"`
			Joined  string `json:"joined_by"`
		} `json:"dynago"`
	} `json:"extensions"`
}

type edge struct {
	From  string `json:"from"`
	To    string `json:"to"`
	Delay int64  `json:"delay_after_predecessor_us"`
}

type payload struct {
	Blocks   []uint64 `json:"kv_block_ids"`
	ToolName string   `json:"tool_name"`
	ToolID   string   `json:"tool_call_id"`
}

func build(records ...*trace.Record) *tree.Tree {
	b := tree.Builder{Prompts: true}
	for _, r := range records {
		b.Add(r)
	}
	return b.Tree()
}

// write writes records, and reads what was written.
func write(t interface{ Fatalf(string, ...any) }, records ...*trace.Record) (document, satf.Written) {
	var out bytes.Buffer
	written, err := satf.Write(&out, build(records...), satf.Options{})
	var d document
	if err == nil {
		err = json.Unmarshal(out.Bytes(), &d)
	}
	if err != nil {
		t.Fatalf("%v in\n%s", err, out.String())
	}
	return d, written
}

// starts returns when each node of a session starts, in microseconds, if all takes as long
// as it did. It fails where there is no way to tell.
func (s *session) starts() (map[string]int64, error) {
	waits, after := map[string]int{}, map[string][]int{}
	starts, ends := map[string]int64{}, map[string]int64{}
	for _, n := range s.Nodes {
		if _, twice := waits[n.ID]; twice {
			return nil, fmt.Errorf("node %s is there twice", n.ID)
		}
		waits[n.ID] = 0
	}
	for i, e := range s.Edges {
		_, from := waits[e.From]
		_, to := waits[e.To]
		if !from || !to || e.Delay < 0 {
			return nil, fmt.Errorf("edge %+v leads nowhere, or back in time", e)
		}
		waits[e.To]++
		after[e.From] = append(after[e.From], i)
	}
	for done := 0; done < len(s.Nodes); {
		before := done
		for _, n := range s.Nodes {
			if waits[n.ID] != 0 {
				continue
			}
			waits[n.ID] = -1
			done++
			if n.Duration < 0 || n.MinStart != nil && *n.MinStart < 0 {
				return nil, fmt.Errorf("node %+v has negative times", n)
			}
			if n.MinStart != nil {
				starts[n.ID] = max(starts[n.ID], *n.MinStart)
			}
			ends[n.ID] = starts[n.ID] + n.Duration
			for _, i := range after[n.ID] {
				e := s.Edges[i]
				waits[e.To]--
				starts[e.To] = max(starts[e.To], ends[n.ID]+e.Delay)
			}
		}
		if done == before {
			return nil, fmt.Errorf("nodes wait for each other: %v", waits)
		}
	}
	return starts, nil
}

// draw writes sessions as a row each of what starts when, in milliseconds, and after what.
func draw(t *testing.T, d document) string {
	t.Helper()
	var b strings.Builder
	for _, s := range d.Sessions {
		fmt.Fprintf(&b, "%s", s.ID)
		if x := s.Extensions; x.Dynamo.Parent != "" {
			fmt.Fprintf(&b, " of %s, from %s to %s", x.Dynamo.Parent, x.Dynago.Spawned, x.Dynago.Joined)
		}
		b.WriteString("\n")
		starts, err := s.starts()
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range s.Nodes {
			fmt.Fprintf(&b, "  %s %s%s %d+%d", n.ID, n.Payload.ToolName, n.Payload.ToolID, starts[n.ID]/1000, n.Duration/1000)
			if n.MinStart != nil {
				b.WriteString(" at last")
			}
			for _, e := range s.Edges {
				if e.To == n.ID {
					fmt.Fprintf(&b, ", %d after %s", e.Delay/1000, e.From)
				}
			}
			b.WriteString("\n")
		}
	}
	return b.String()
}

func TestGraphs(t *testing.T) {
	for _, tc := range []struct {
		name    string
		records []*trace.Record
		want    string
	}{
		{"turns", []*trace.Record{request("b", "s", "", 150, 100), request("a", "s", "", 0, 100), request("c", "s", "", 250, 100)}, `
s
  llm:a  0+100 at last
  llm:b  150+100, 50 after llm:a
  llm:c  250+100, 0 after llm:b
`},
		{"side by side", []*trace.Record{
			request("a", "s", "", 0, 100), request("b", "s", "", 20, 50), request("c", "s", "", 80, 100), request("d", "s", "", 100, 10),
			request("e", "s", "", 200, 10), request("f", "s", "", 300, 10),
		}, `
s
  llm:a  0+100 at last
  llm:b  20+50 at last
  llm:c  80+100, 10 after llm:b
  llm:d  100+10, 30 after llm:b, 0 after llm:a
  llm:e  200+10, 20 after llm:c, 90 after llm:d
  llm:f  300+10, 90 after llm:e
`},
		{"of one millisecond", []*trace.Record{
			with(request("z", "s", "", 0, 0), func(r *trace.Request) { r.TotalTime = new(0.75) }), request("a", "s", "", 0, 0), request("b", "s", "", 1, 0),
		}, `
s
  llm:z  0+0 at last
  llm:a  0+0, 0 after llm:z
  llm:b  1+0, 1 after llm:a
`},
		{"a tool that was asked for", []*trace.Record{
			request("a", "s", "", 0, 100, "t"), request("side", "s", "", 105, 1), tool("s", "t", 110, 150, ""), bringing(request("b", "s", "", 200, 10), "t"), request("c", "s", "", 220, 10),
		}, `
s
  llm:a  0+100 at last
  llm:side  105+1, 5 after llm:a
  llm:b  200+10, 50 after tool_result:0, 94 after llm:side
  llm:c  220+10, 10 after llm:b
  tool_call:0 ft 110+0, 10 after llm:a
  tool_result:0 t 110+40, 0 after tool_call:0
`},
		{"ids that come twice", []*trace.Record{
			request("a", "s", "", 0, 100, "t", "u"), tool("s", "t", 110, 150, ""), tool("s", "u", 110, 160, ""), bringing(request("b", "s", "", 200, 100, "t"), "t", "u"),
			tool("s", "t", 320, 350, ""), bringing(request("c", "s", "", 400, 1), "t"),
		}, `
s
  llm:a  0+100 at last
  llm:b  200+100, 50 after tool_result:0, 40 after tool_result:1
  llm:c  400+1, 50 after tool_result:2
  tool_call:0 ft 110+0, 10 after llm:a
  tool_result:0 t 110+40, 0 after tool_call:0
  tool_call:1 fu 110+0, 10 after llm:a
  tool_result:1 u 110+50, 0 after tool_call:1
  tool_call:2 ft 320+0, 20 after llm:b
  tool_result:2 t 320+30, 0 after tool_call:2
`},
		{"a tool that begins before its answer has ended", []*trace.Record{
			request("a", "s", "", 0, 100, "t"), tool("s", "t", 90, 150, ""), bringing(request("b", "s", "", 200, 10), "t"),
		}, `
s
  llm:a  0+100 at last
  llm:b  200+10, 40 after tool_result:0
  tool_call:0 ft 100+0, 0 after llm:a
  tool_result:0 t 100+60, 0 after tool_call:0
`},
		{"a result that no row names", []*trace.Record{
			request("a", "s", "", 0, 100, "t"), request("side", "s", "", 120, 10), tool("s", "t", 110, 150, ""), request("b", "s", "", 150, 10),
		}, `
s
  llm:a  0+100 at last
  llm:side  120+10, 20 after llm:a
  llm:b  150+10, 0 after tool_result:0, 20 after llm:side
  tool_call:0 ft 110+0, 10 after llm:a
  tool_result:0 t 110+40, 0 after tool_call:0
`},
		{"tools that nobody has asked for", []*trace.Record{
			tool("s", "early", -50, -20, ""), request("a", "s", "", 0, 100), tool("s", "meanwhile", 10, 20, ""), request("b", "s", "", 50, 100), tool("s", "late", 160, 200, ""),
			tool("other", "alone", 30, 40, ""),
		}, `
s
  llm:a  0+100 at last
  llm:b  50+100, 30 after tool_result:1
  tool_call:0 xearly 0+0 at last
  tool_result:0 early 0+30, 0 after tool_call:0
  tool_call:1 xmeanwhile 10+0 at last
  tool_result:1 meanwhile 10+10, 0 after tool_call:1
  tool_call:2 xlate 160+0, 10 after llm:b
  tool_result:2 late 160+40, 0 after tool_call:2
other
  tool_call:0 xalone 30+0 at last
  tool_result:0 alone 30+10, 0 after tool_call:0
`},
		{"what exporters know", []*trace.Record{
			request("a", "s", "", 0, 100), request("b", "s", "", 110, 10), request("c", "s", "", 300, 10),
			tool("s", "t", 105, 290, `{"source_request_id":"a","consumer_request_id":"c","child_session_id":"kid","execution_mode":"blocking"}`),
			tool("s", "u", 125, 130, `{"source_request_id":"b","execution_mode":"background"}`), request("k", "kid", "s", 120, 100),
		}, `
s
  llm:a  0+100 at last
  llm:b  110+10, 10 after llm:a
  llm:c  300+10, 10 after tool_result:0, 180 after llm:b
  tool_call:0 xt 105+0, 5 after llm:a
  tool_result:0 t 105+185, 0 after tool_call:0
  tool_call:1 xu 125+0, 5 after llm:b
  tool_result:1 u 125+5, 0 after tool_call:1
kid of s, from llm:a to llm:c
  llm:k  120+100 at last
`},
		{"sub-agents", []*trace.Record{
			request("a", "s", "", 0, 100), request("k1", "kid", "s", 50, 100), request("k2", "kid", "s", 160, 100), request("b", "s", "", 200, 10), request("c", "s", "", 260, 10),
			request("o", "orphan", "gone", 5, 1), request("e", "early", "s", -10, 5),
		}, `
early of s, from  to llm:a
  llm:e  0+5 at last
s
  llm:a  10+100 at last
  llm:b  210+10, 100 after llm:a
  llm:c  270+10, 50 after llm:b
orphan of gone, from  to 
  llm:o  15+1 at last
kid of s, from llm:a to llm:c
  llm:k1  60+100 at last
  llm:k2  170+100, 10 after llm:k1
`},
		{"of no agent", []*trace.Record{request("a", "", "", 0, 100), request("s", "", "", 10, 5), request("b", "s", "", 20, 1)}, `
a
  llm:a  0+100 at last
request:s
  llm:s  10+5 at last
s
  llm:b  20+1 at last
`},
		{"without hashes", []*trace.Record{
			request("a", "s", "", 0, 100), with(request("b", "s", "", 200, 10, "t"), func(r *trace.Request) { r.Replay = nil }), tool("s", "t", 220, 230, ""),
			bringing(request("c", "s", "", 300, 10), "t"),
		}, `
s
  llm:a  0+100 at last
  llm:c  300+10, 70 after tool_result:0
  tool_call:0 ft 220+0, 120 after llm:a
  tool_result:0 t 220+10, 0 after tool_call:0
`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d, _ := write(t, tc.records...)
			if diff := gocmp.Diff(strings.TrimPrefix(tc.want, "\n"), draw(t, d)); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

// A lead with two tools, a request beside them and a sub-agent: all that a document has.
func TestDocument(t *testing.T) {
	lines, err := os.ReadFile("testdata/agents.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	records := func() (list []*trace.Record) {
		for line := range bytes.Lines(lines) {
			r, ok, err := trace.Decode(bytes.TrimSpace(line))
			if err != nil || !ok {
				t.Fatalf("%s: %v", line, err)
			}
			list = append(list, r)
		}
		return list
	}
	var pretty, plain, again bytes.Buffer
	written, err := satf.Write(&pretty, build(records()...), satf.Options{Version: "1.2.3", Pretty: true})
	if err != nil {
		t.Fatal(err)
	}
	if want := (satf.Written{Sessions: 3, Requests: 7, Tools: 4, BlockSize: 4}); written != want {
		t.Errorf("%+v, want %+v", written, want)
	}
	if *update {
		if err := os.WriteFile("testdata/agents.json", pretty.Bytes(), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile("testdata/agents.json")
	if err != nil {
		t.Fatal(err)
	}
	if diff := gocmp.Diff(string(want), pretty.String()); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if _, err := satf.Write(&plain, build(records()...), satf.Options{Version: "1.2.3"}); err != nil {
		t.Fatal(err)
	}
	if err := json.Compact(&again, pretty.Bytes()); err != nil || strings.TrimSpace(again.String()) != strings.TrimSpace(plain.String()) {
		t.Errorf("it is another document without spaces: %v", err)
	}
}

func TestCannot(t *testing.T) {
	ask := func(change func(*trace.Request)) []*trace.Record {
		return []*trace.Record{request("a", "s", "", 0, 1), with(request("b", "s", "", 5, 1), change)}
	}
	for _, tc := range []struct {
		name    string
		records []*trace.Record
		strict  bool
		want    string
	}{
		{"nothing", nil, false, "holds no requests"},
		{"only tools", []*trace.Record{tool("s", "t", 0, 1, "")}, false, "holds no requests"},
		{"no hashes", []*trace.Record{with(request("a", "s", "", 0, 1), func(r *trace.Request) { r.Replay = nil })}, false, "none of 1 requests has the hashes"},
		{"no hashes, strictly", ask(func(r *trace.Request) { r.Replay = nil }), true, `request "b": replay is missing`},
		{"twice, strictly", []*trace.Record{request("a", "s", "", 0, 1), request("a", "s", "", 0, 1)}, true, "1 records are there twice"},
		{"no id", ask(func(r *trace.Request) { r.RequestID = "" }), false, "request_id is missing"},
		{"no time", ask(func(r *trace.Request) { r.Received = nil }), false, `request "b": request_received_ms is missing`},
		{"no output", ask(func(r *trace.Request) { r.OutputTokens = nil }), false, "output_tokens is missing"},
		{"no block size", ask(func(r *trace.Request) { r.Replay.BlockSize = 0 }), false, "trace_block_size: got 0, want 1 or more"},
		{"no block size at all", []*trace.Record{with(request("a", "s", "", 0, 1), func(r *trace.Request) { r.Replay.BlockSize = -1 })}, false, "got -1, want 1 or more"},
		{"two block sizes", ask(func(r *trace.Request) { r.Replay.BlockSize = 8 }), false, "got 8, and it was 4 before"},
		{"a negative length", ask(func(r *trace.Request) { r.Replay.InputLength = -1 }), false, "input_length: got -1"},
		{"too few hashes", ask(func(r *trace.Request) { r.Replay.InputLength = 5 }), false, "got 1, and 5 tokens are 2 blocks of 4"},
		{"too many hashes", ask(func(r *trace.Request) { r.Replay.Hashes = []uint64{1, 2} }), false, "got 2, and 4 tokens are 1 blocks of 4"},
		{"what an exporter knows is no object", []*trace.Record{request("a", "s", "", 0, 1), tool("s", "t", 2, 3, "[]")}, false, `tool "t" of session "s": claude`},
		{"a result that comes before its call", []*trace.Record{
			request("a", "s", "", 0, 1), request("b", "s", "", 5, 1), tool("s", "t", 2, 3, `{"source_request_id":"b","consumer_request_id":"a"}`),
		}, false, `its result goes to request "a", which does not come after "b"`},
		{"two tools that open a session", []*trace.Record{
			request("a", "s", "", 0, 1), request("k", "kid", "s", 5, 1), tool("s", "t", 2, 3, `{"child_session_id":"kid"}`), tool("s", "u", 2, 3, `{"child_session_id":"kid"}`),
		}, false, `session "kid" was opened by two tools of session "s"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var out bytes.Buffer
			if _, err := satf.Write(&out, build(tc.records...), satf.Options{Strict: tc.strict}); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%v, want %q", err, tc.want)
			}
		})
	}
}

// full is a disk without room.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no room") }

func TestFullDisk(t *testing.T) {
	if _, err := satf.Write(full{}, build(request("a", "s", "", 0, 1)), satf.Options{}); err == nil || !strings.Contains(err.Error(), "no room") {
		t.Errorf("%v", err)
	}
}

// Whatever records say, each request and each tool that has ended is in a document once,
// edges lead from one node to another of their session, nothing waits for itself, be it over
// sessions, and no time is negative. Where tools do not say who asked for them, requests
// come when they came.
func TestEverythingOnce(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		name := rapid.SampledFrom([]string{"", "a", "b", "c", "d"})
		asks := rapid.Bool().Draw(rt, "ids")
		var records []*trace.Record
		requests, tools, first := map[string]int{}, map[string]int{}, 0
		for i := range rapid.IntRange(1, 25).Draw(rt, "records") {
			chain, at, took := name.Draw(rt, "chain"), rapid.IntRange(0, 300).Draw(rt, "at"), rapid.IntRange(0, 100).Draw(rt, "took")
			id := fmt.Sprint(i)
			if chain != "" && i > 0 && rapid.Bool().Draw(rt, "tool") {
				if asks {
					id = fmt.Sprint(i % 3)
				}
				records = append(records, tool(chain, id, at, at+took, ""))
				continue
			}
			var calls, results []string
			for k := range 3 {
				if asks && rapid.Bool().Draw(rt, "asks") {
					calls = append(calls, fmt.Sprint(k))
				}
				if asks && rapid.Bool().Draw(rt, "brings") {
					results = append(results, fmt.Sprint(k))
				}
			}
			if len(requests) == 0 || at < first {
				first = at
			}
			requests["llm:"+id] = at
			records = append(records, bringing(request(id, chain, name.Draw(rt, "parent"), at, took, calls...), results...))
		}
		for _, s := range build(slices.Clone(records)...).Sessions {
			s.Walk(func(c *tree.Chain) {
				tools[c.ID] = len(c.Tools)
				for _, turn := range c.Turns {
					for _, u := range turn.Tools {
						if !u.Inferred() {
							tools[c.ID]++
						}
					}
				}
			})
		}
		d, written := write(rt, records...)
		if d.Format != "satf" || d.Version != "2.0.0" || d.Base != "us" || d.Block != 4 || written.Requests != len(requests) || written.Sessions != len(d.Sessions) {
			rt.Fatalf("%+v, %+v", d, written)
		}
		var whole session
		names := map[string]bool{}
		for _, s := range d.Sessions {
			if names[s.ID] {
				rt.Fatalf("session %s is there twice", s.ID)
			}
			names[s.ID] = true
			starts, err := s.starts()
			if err != nil {
				rt.Fatalf("session %s: %v", s.ID, err)
			}
			for k, n := range s.Nodes {
				switch n.Kind {
				case "llm_infer":
					at, there := requests[n.ID]
					if !there || (!asks && starts[n.ID] != int64(1000*(at-first))) {
						rt.Fatalf("%s starts at %d µs, want %d ms", n.ID, starts[n.ID], at-first)
					}
					delete(requests, n.ID)
				case "tool_result":
					tools[s.ID]--
				}
				if n.Kind != "llm_infer" {
					s.Nodes[k].ID = s.ID + n.ID
				}
			}
			for k, e := range s.Edges {
				if !strings.HasPrefix(e.From, "llm:") {
					s.Edges[k].From = s.ID + e.From
				}
				if !strings.HasPrefix(e.To, "llm:") {
					s.Edges[k].To = s.ID + e.To
				}
			}
			whole.Nodes, whole.Edges = append(whole.Nodes, s.Nodes...), append(whole.Edges, s.Edges...)
		}
		for id, n := range tools {
			if n != 0 {
				rt.Fatalf("%d tools of session %s are missing", n, id)
			}
		}
		if len(requests) > 0 {
			rt.Fatalf("requests are missing: %v", requests)
		}
		for _, s := range d.Sessions {
			// What opens a session comes before all of it, and what waits for it behind.
			for _, n := range s.Nodes {
				if from := s.Extensions.Dynago.Spawned; from != "" {
					whole.Edges = append(whole.Edges, edge{From: from, To: n.ID})
				}
				if to := s.Extensions.Dynago.Joined; to != "" {
					whole.Edges = append(whole.Edges, edge{From: n.ID, To: to})
				}
			}
		}
		if _, err := whole.starts(); err != nil {
			rt.Fatalf("over all sessions: %v", err)
		}
	})
}

// Whatever an exporter says of a tool, there is a document in which that tool is once, or an
// error.
func FuzzExporter(f *testing.F) {
	for _, claude := range []string{
		`{"source_request_id":"a","consumer_request_id":"b","child_session_id":"kid","execution_mode":"blocking"}`,
		`{"source_request_id":"k","execution_mode":"background"}`, `{"child_session_id":"s"}`, `{}`, `[]`, `{`, `null`,
	} {
		f.Add([]byte(claude))
	}
	f.Fuzz(func(t *testing.T, claude []byte) {
		var out bytes.Buffer
		written, err := satf.Write(&out, build(
			request("a", "s", "", 0, 10), tool("s", "t", 12, 15, string(claude)), request("b", "s", "", 20, 10), request("k", "kid", "s", 13, 1),
		), satf.Options{})
		if err != nil {
			return
		}
		var d document
		if err := json.Unmarshal(out.Bytes(), &d); err != nil || written.Tools != 1 || len(d.Sessions) != 2 {
			t.Fatalf("%v, %+v in\n%s", err, written, out.String())
		}
		for _, s := range d.Sessions {
			if _, err := s.starts(); err != nil {
				t.Fatal(err)
			}
		}
	})
}
