package perfetto_test

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/dynago/dynago/trace"
	"github.com/dynago/dynago/trace/files"
	"github.com/dynago/dynago/trace/perfetto"
	"github.com/dynago/dynago/trace/tree"
)

// event is an entry as a viewer reads it.
type event struct {
	Name string         `json:"name"`
	Cat  string         `json:"cat"`
	Ph   string         `json:"ph"`
	S    string         `json:"s"`
	PID  int            `json:"pid"`
	TID  int            `json:"tid"`
	TS   int64          `json:"ts"`
	Dur  int64          `json:"dur"`
	Args map[string]any `json:"args"`
}

// timeline draws records and reads what was drawn.
func timeline(t testing.TB, o perfetto.Options, records ...*trace.Record) []event {
	t.Helper()
	var b tree.Builder
	for _, r := range records {
		b.Add(r)
	}
	var out bytes.Buffer
	if _, err := perfetto.Write(&out, b.Tree(), o); err != nil {
		t.Fatal(err)
	}
	var document struct {
		Unit   string  `json:"displayTimeUnit"`
		Events []event `json:"traceEvents"`
	}
	if err := json.Unmarshal(out.Bytes(), &document); err != nil {
		t.Fatalf("%v in\n%s", err, out.String())
	}
	if document.Unit != "ms" {
		t.Errorf("times are shown in %q", document.Unit)
	}
	return document.Events
}

// epoch is the unix time, in milliseconds, from which tests count.
const epoch = 1790000000000

// lines are the slices and instants by track, in microseconds since epoch.
func lines(events []event) string {
	var b strings.Builder
	tracks := map[int]string{}
	for _, e := range events {
		switch e.Ph {
		case "M":
			if e.Name == "thread_name" {
				tracks[e.TID] = fmt.Sprint(e.Args["name"])
			}
		case "X":
			fmt.Fprintf(&b, "%s: %s, %s, %d+%d\n", tracks[e.TID], e.Name, e.Cat, e.TS-1000*epoch, e.Dur)
		default:
			fmt.Fprintf(&b, "%s: %s, %s, %d, %s%s\n", tracks[e.TID], e.Name, e.Cat, e.TS-1000*epoch, e.Ph, e.S)
		}
	}
	return b.String()
}

func request(id, chain string, at, took int, change func(*trace.Request)) *trace.Record {
	r := &trace.Record{Schema: trace.Schema, EventType: trace.RequestEnd, EventTime: uint64(epoch + at + took), Request: &trace.Request{
		RequestID: id, Received: new(uint64(epoch + at)), TotalTime: new(float64(took)),
	}}
	if chain != "" {
		r.Agent = &trace.AgentContext{SessionID: chain}
	}
	if change != nil {
		change(r.Request)
	}
	return r
}

func tool(kind, chain, id string, at int, change func(*trace.Tool)) *trace.Record {
	r := &trace.Record{
		Schema: trace.Schema, EventType: kind, EventTime: uint64(epoch + at), Source: trace.SourceHarness,
		Agent: &trace.AgentContext{SessionID: chain}, Tool: &trace.Tool{ID: id, Class: "bash"},
	}
	if change != nil {
		change(r.Tool)
	}
	return r
}

func TestTimeline(t *testing.T) {
	stages := func(wait, prefill, ttft float64) func(*trace.Request) {
		return func(r *trace.Request) {
			r.Model, r.PrefillWaitTime, r.PrefillTime, r.TTFT = "m", &wait, &prefill, &ttft
		}
	}
	asks := func(ids ...string) func(*trace.Request) {
		return func(r *trace.Request) {
			r.Finish = new(trace.Finish)
			for _, id := range ids {
				r.Finish.ToolCalls = append(r.Finish.ToolCalls, trace.ToolCall{ID: id, Name: "grep"})
			}
		}
	}
	for _, tc := range []struct {
		name    string
		options perfetto.Options
		records []*trace.Record
		want    string
	}{
		{"nothing", perfetto.Options{}, nil, ""},
		{"stages", perfetto.Options{}, []*trace.Record{request("a", "s", 0, 100, stages(3.5, 36.5, 40.5))}, `
s: LLM request: m, dynamo.llm, 0+100000
s: prefill wait, dynamo.llm.stage, 0+3500
s: prefill, dynamo.llm.stage, 3500+36500
s: decode, dynamo.llm.stage, 40500+59500
`},
		{"stages that are too long", perfetto.Options{}, []*trace.Record{request("a", "s", 0, 100, stages(30, 36.5, 40.0004))}, `
s: LLM request: m, dynamo.llm, 0+100000
s: prefill wait, dynamo.llm.stage, 0+30000
s: prefill, dynamo.llm.stage, 30000+10000
s: decode, dynamo.llm.stage, 40000+60000
`},
		{"a first token after the end", perfetto.Options{Markers: true}, []*trace.Record{request("a", "s", 0, 10, stages(30, 36.5, 40))}, `
s: LLM request: m, dynamo.llm, 0+10000
s: prefill wait, dynamo.llm.stage, 0+10000
s: first token, dynamo.llm.marker, 40000, it
`},
		{"marker and no stages", perfetto.Options{Markers: true, NoStages: true}, []*trace.Record{request("a", "s", 0, 100, stages(1, 2, 3)), request("b", "s", 200, 100, nil)}, `
s: LLM request: m, dynamo.llm, 0+100000
s: first token, dynamo.llm.marker, 3000, it
s: LLM request: unknown-model, dynamo.llm, 200000+100000
`},
		{"a request of no length", perfetto.Options{}, []*trace.Record{request("a", "", 5, 0, nil)}, `
request-only: LLM request: unknown-model, dynamo.llm, 5000+1
`},
		{"lanes", perfetto.Options{}, []*trace.Record{
			request("a", "s", 0, 100, nil), request("b", "s", 50, 20, nil), request("c", "s", 60, 100, nil),
			request("d", "s", 70, 10, nil), request("e", "s", 100, 10, nil), request("x", "t", 10, 100, nil),
		}, `
s [lane 1]: LLM request: unknown-model, dynamo.llm, 0+100000
t: LLM request: unknown-model, dynamo.llm, 10000+100000
s [lane 2]: LLM request: unknown-model, dynamo.llm, 50000+20000
s [lane 3]: LLM request: unknown-model, dynamo.llm, 60000+100000
s [lane 2]: LLM request: unknown-model, dynamo.llm, 70000+10000
s [lane 1]: LLM request: unknown-model, dynamo.llm, 100000+10000
`},
		{"what begins together", perfetto.Options{}, []*trace.Record{
			request("a", "s", 0, 100, nil), request("b", "s", 100, 100, nil),
			tool(trace.ToolEnd, "s", "t", 150, func(t *trace.Tool) { t.Duration = new(50.0) }),
		}, `
s [lane 1]: LLM request: unknown-model, dynamo.llm, 0+100000
s [lane 1]: LLM request: unknown-model, dynamo.llm, 100000+100000
s [lane 2] tools: Tool: bash, dynamo.agent.tool, 100000+50000
`},
		{"tools", perfetto.Options{}, []*trace.Record{
			request("a", "s", 0, 100, asks("t1", "t2")), request("b", "s", 300, 50, asks("t9")),
			tool(trace.ToolStart, "s", "t1", 110, nil), tool(trace.ToolEnd, "s", "t1", 200, nil),
			tool(trace.ToolError, "s", "t3", 500, nil), tool(trace.ToolStart, "s", "t4", 600, nil),
			tool(trace.ToolEnd, "s", "t5", 800, func(t *trace.Tool) { t.Duration = new(50.0) }),
		}, `
s [lane 1]: LLM request: unknown-model, dynamo.llm, 0+100000
s [lane 1] tools: Tool: grep, dynamo.agent.tool, 100000+200000
s [lane 2] tools: Tool: bash, dynamo.agent.tool, 110000+90000
s [lane 1]: LLM request: unknown-model, dynamo.llm, 300000+50000
s [lane 1] tools: Tool: grep, dynamo.agent.tool, 350000+1000
s [lane 1] tools: Tool error: bash, dynamo.agent.tool, 500000+1000
s [lane 1] tools: Tool start: bash, dynamo.agent.tool.marker, 600000, it
s [lane 1] tools: Tool: bash, dynamo.agent.tool, 750000+50000
`},
		{"ids that come twice", perfetto.Options{}, []*trace.Record{
			request("a", "s", 0, 100, asks("call_0", "call_0")), tool(trace.ToolStart, "s", "call_0", 110, nil), tool(trace.ToolEnd, "s", "call_0", 150, nil),
			request("b", "s", 200, 100, asks("call_0")), tool(trace.ToolStart, "s", "call_0", 310, nil), tool(trace.ToolEnd, "s", "call_0", 390, nil),
			request("c", "s", 400, 100, asks("call_0")), request("d", "s", 600, 100, nil),
		}, `
s [lane 1]: LLM request: unknown-model, dynamo.llm, 0+100000
s [lane 1] tools: Tool: grep, dynamo.agent.tool, 100000+100000
s [lane 2] tools: Tool: bash, dynamo.agent.tool, 110000+40000
s [lane 1]: LLM request: unknown-model, dynamo.llm, 200000+100000
s [lane 1] tools: Tool: bash, dynamo.agent.tool, 310000+80000
s [lane 1]: LLM request: unknown-model, dynamo.llm, 400000+100000
s [lane 1] tools: Tool: grep, dynamo.agent.tool, 500000+100000
s [lane 1]: LLM request: unknown-model, dynamo.llm, 600000+100000
`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if diff := gocmp.Diff(strings.TrimPrefix(tc.want, "\n"), lines(timeline(t, tc.options, tc.records...))); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

// What is known of a request or a tool is shown with it.
func TestArgs(t *testing.T) {
	full := `{"schema":"dynamo.request.trace.v1","event_type":"request_end","event_time_unix_ms":1790000004250,"event_source":"dynamo","agent_context":{"session_id":"bugfix-7:tester","parent_session_id":"bugfix-7:lead","input_trigger":"tool_result"},"request":{"request_id":"5d9f2a60","x_request_id":"turn-12","model":"acme/coder","input_tokens":5,"output_tokens":31,"cached_tokens":4,"request_received_ms":1790000003000,"prefill_wait_time_ms":3.5,"prefill_time_ms":41.0,"ttft_ms":44.5,"total_time_ms":1250.2,"avg_itl_ms":40.19,"queue_time_ms":1.5,"routing_time_ms":0.25,"kv_hit_rate":0.8,"kv_transfer_estimated_latency_ms":2.5,"queue_depth":0,"worker":{"prefill_worker_id":71,"prefill_dp_rank":0,"decode_worker_id":18446744073709551615,"decode_dp_rank":1},"finish_reason_metadata":{"finish_reason":"tool_calls","backend_finish_reason":"stop","stop_reason":"</s>","tool_calls":[{"choice_index":0,"tool_call_index":0,"id":"call-3","name":"run_tests"},{"choice_index":0,"tool_call_index":1,"id":"call-4"},{"choice_index":0,"tool_call_index":2,"id":"call-5","name":"grep"}],"choices":[{"choice_index":0,"finish_reason":"tool_calls"},{"choice_index":1},{"choice_index":2,"finish_reason":"stop"}]}}}`
	ended := `{"schema":"dynamo.request.trace.v1","event_type":"tool_end","event_time_unix_ms":1790000005000,"event_source":"harness","agent_context":{"session_id":"bugfix-7:tester"},"tool":{"tool_call_id":"call-3","tool_class":"run_tests","started_at_unix_ms":1790000004300,"ended_at_unix_ms":1790000004900,"status":"succeeded","duration_ms":600.5,"output_tokens":12,"output_bytes":512,"tool_name_hash":"ab12","error_type":"none"}}`
	var records []*trace.Record
	for _, line := range []string{full, ended} {
		r, ok, err := trace.Decode([]byte(line))
		if err != nil || !ok {
			t.Fatal(err)
		}
		records = append(records, r)
	}
	records = append(records, request("next", "bugfix-7:tester", 5500, 10, nil))
	events := timeline(t, perfetto.Options{NoStages: true}, records...)
	find := func(name, id string) map[string]any {
		for _, e := range events {
			if e.Name == name && (id == "" || e.Args["tool_call_id"] == id) {
				return e.Args
			}
		}
		t.Fatalf("there is no %q of %q", name, id)
		return nil
	}
	args := find("LLM request: acme/coder", "")
	finish, _ := args["finish_reason_metadata"].(map[string]any)
	if len(finish) != 5 {
		t.Errorf("finish_reason_metadata is %v", finish)
	}
	delete(args, "finish_reason_metadata")
	want := map[string]any{
		"session_id": "bugfix-7:tester", "parent_session_id": "bugfix-7:lead", "event_time_unix_ms": 1790000004250.0,
		"request_id": "5d9f2a60", "x_request_id": "turn-12", "model": "acme/coder", "input_tokens": 5.0, "output_tokens": 31.0, "cached_tokens": 4.0,
		"request_received_ms": 1790000003000.0, "prefill_wait_time_ms": 3.5, "prefill_time_ms": 41.0, "ttft_ms": 44.5, "total_time_ms": 1250.2,
		"avg_itl_ms": 40.19, "queue_time_ms": 1.5, "routing_time_ms": 0.25, "kv_hit_rate": 0.8, "kv_transfer_estimated_latency_ms": 2.5, "queue_depth": 0.0,
		"worker.prefill_worker_id": 71.0, "worker.prefill_dp_rank": 0.0, "worker.decode_worker_id": 18446744073709551615.0, "worker.decode_dp_rank": 1.0,
		"finish.finish_reason": "tool_calls", "finish.backend_finish_reason": "stop", "finish.stop_reason": "</s>",
		"finish.tool_call_count": 3.0, "finish.tool_call_names": "run_tests, grep",
		"finish.choice_count": 3.0, "finish.choice_finish_reasons": "0:tool_calls, 2:stop",
	}
	if diff := gocmp.Diff(want, args); diff != "" {
		t.Errorf("request: -want +got\n%s", diff)
	}
	if diff := gocmp.Diff(map[string]any{
		"session_id": "bugfix-7:tester", "parent_session_id": "bugfix-7:lead", "event_type": "tool_end", "event_source": "harness", "event_time_unix_ms": 1790000005000.0,
		"tool_call_id": "call-3", "tool_class": "run_tests", "started_at_unix_ms": 1790000004300.0, "ended_at_unix_ms": 1790000004900.0,
		"status": "succeeded", "duration_ms": 600.5, "output_tokens": 12.0, "output_bytes": 512.0, "tool_name_hash": "ab12", "error_type": "none",
	}, find("Tool: run_tests", "")); diff != "" {
		t.Errorf("tool: -want +got\n%s", diff)
	}
	if diff := gocmp.Diff(map[string]any{
		"session_id": "bugfix-7:tester", "parent_session_id": "bugfix-7:lead", "event_type": "inferred_tool_call", "event_source": "dynamo",
		"source": "request.finish_reason_metadata.tool_calls", "inferred": true, "host_execution": false, "source_request_id": "5d9f2a60",
		"next_request_id": "next", "tool_call_id": "call-5", "tool_call_index": 2.0, "choice_index": 0.0, "tool_class": "grep",
		"started_at_unix_ms": 1790000004250.2, "ended_at_unix_ms": 1790000005500.0, "duration_ms": 1249.8,
	}, find("Tool: grep", "")); diff != "" {
		t.Errorf("inferred tool: -want +got\n%s", diff)
	}
	if find("Tool: unknown-tool", "call-4")["tool_class"] != "unknown-tool" {
		t.Error("a tool without a name has one")
	}

	// Of those that did not end by the next request nobody knows how long they took.
	events = timeline(t, perfetto.Options{}, records[0], request("early", "bugfix-7:tester", 4100, 10, nil))
	args = find("Tool: grep", "")
	if args["duration_unknown"] != true || args["synthetic_duration"] != true || args["visual_duration_ms"] != 1.0 || args["overlapping_request_id"] != "early" || args["next_request_id"] != nil {
		t.Errorf("a tool that did not end: %v", args)
	}
	events = timeline(t, perfetto.Options{}, tool(trace.ToolEnd, "s", "t", 5, nil))
	if args = find("Tool: bash", "t"); args["synthetic_duration"] != true || args["duration_unknown"] != nil {
		t.Errorf("a tool of unknown length: %v", args)
	}
}

// The recorded session looks as it was checked by hand, indented or not.
func TestRecorded(t *testing.T) {
	var b tree.Builder
	for r, err := range files.Read([]string{"testdata/agents.jsonl"}, func(err error) { t.Error(err) }) {
		if err != nil {
			t.Fatal(err)
		}
		b.Add(r.Record)
	}
	drawn := b.Tree()
	var compact, pretty bytes.Buffer
	n, err := perfetto.Write(&compact, drawn, perfetto.Options{Markers: true})
	if err != nil || n != 11 {
		t.Fatalf("%d things are drawn, %v, want 7 requests and 4 tools", n, err)
	}
	if _, err := perfetto.Write(&pretty, drawn, perfetto.Options{Markers: true, Pretty: true}); err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile("testdata/agents.json")
	if err != nil {
		t.Fatal(err)
	}
	if diff := gocmp.Diff(string(want), compact.String()); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	var a, c any
	if err := json.Unmarshal(compact.Bytes(), &a); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(pretty.Bytes(), &c); err != nil {
		t.Fatal(err)
	}
	if diff := gocmp.Diff(a, c); diff != "" || pretty.Len() <= compact.Len() {
		t.Errorf("indented it is another one: %s", diff)
	}
}

// Whatever was recorded, a viewer can show: slices of a track lie side by side or one in
// the other, everything has a track with a name, names come first, and all else is in
// order.
func TestSlicesNest(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var records []*trace.Record
		requests, tools := 0, 0
		for i := range rapid.IntRange(0, 25).Draw(rt, "records") {
			chain := rapid.SampledFrom([]string{"", "a", "b"}).Draw(rt, "chain")
			at, took := rapid.IntRange(0, 50).Draw(rt, "at"), rapid.IntRange(0, 20).Draw(rt, "took")
			if chain != "" && rapid.Bool().Draw(rt, "tool") {
				records = append(records, tool(rapid.SampledFrom([]string{trace.ToolStart, trace.ToolEnd, trace.ToolError}).Draw(rt, "kind"), chain, fmt.Sprint(i%5), at, func(t *trace.Tool) {
					if took > 0 {
						t.Duration = new(float64(took))
					}
				}))
				continue
			}
			requests++
			records = append(records, request(fmt.Sprint(i), chain, at, took, func(r *trace.Request) {
				ms := rapid.Float64Range(0, 25)
				r.TTFT, r.PrefillTime, r.PrefillWaitTime = new(ms.Draw(rt, "ttft")), new(ms.Draw(rt, "prefill")), new(ms.Draw(rt, "wait"))
				r.TotalTime = new(ms.Draw(rt, "total"))
				if rapid.Bool().Draw(rt, "asks") {
					r.Finish = &trace.Finish{ToolCalls: []trace.ToolCall{{ID: fmt.Sprint(i % 5), Name: "n"}}}
				}
			}))
		}
		names, open := map[int]string{}, map[int][]event{}
		var last *event
		for _, e := range timeline(t, perfetto.Options{Markers: true}, records...) {
			if e.Ph == "M" {
				if last != nil {
					rt.Fatalf("%q comes after the first event", e.Name)
				}
				if name, ok := e.Args["name"].(string); e.Name == "thread_name" && ok {
					names[e.TID] = name
				}
				continue
			}
			if last != nil && cmp.Or(cmp.Compare(last.TS, e.TS), cmp.Compare(last.TID, e.TID)) > 0 {
				rt.Fatalf("%+v comes before %+v", last, e)
			}
			last = &e
			if names[e.TID] == "" || e.PID != 1 {
				rt.Fatalf("%+v is on no track", e)
			}
			if strings.HasSuffix(names[e.TID], "tools") != strings.HasPrefix(e.Cat, "dynamo.agent") {
				rt.Fatalf("%+v is on track %q", e, names[e.TID])
			}
			switch e.Cat {
			case "dynamo.llm":
				requests--
			case "dynamo.agent.tool", "dynamo.agent.tool.marker":
				tools++
			}
			if e.Ph != "X" {
				continue
			}
			if e.Dur < 1 {
				rt.Fatalf("%+v has no length", e)
			}
			stack := open[e.TID]
			for len(stack) > 0 && stack[len(stack)-1].TS+stack[len(stack)-1].Dur <= e.TS {
				stack = stack[:len(stack)-1]
			}
			if len(stack) > 0 && e.TS+e.Dur > stack[len(stack)-1].TS+stack[len(stack)-1].Dur {
				rt.Fatalf("%+v crosses %+v", e, stack[len(stack)-1])
			}
			open[e.TID] = append(stack, e)
		}
		if requests != 0 {
			rt.Fatalf("%d requests are not drawn", requests)
		}
	})
}

// A full disk is told of.
func TestFullDisk(t *testing.T) {
	reader, writer := io.Pipe()
	reader.CloseWithError(os.ErrClosed) //nolint:errcheck // it never fails
	if _, err := perfetto.Write(writer, new(tree.Builder).Tree(), perfetto.Options{}); err == nil {
		t.Error("what is not written is no error")
	}
}

func ExampleWrite() {
	var b tree.Builder
	b.Add(&trace.Record{
		EventType: trace.RequestEnd, EventTime: 1000, Agent: &trace.AgentContext{SessionID: "lead"},
		Request: &trace.Request{RequestID: "r1", Model: "acme/coder"},
	})
	var out strings.Builder
	if _, err := perfetto.Write(&out, b.Tree(), perfetto.Options{}); err != nil {
		panic(err)
	}
	lines := strings.Split(out.String(), "\n")
	fmt.Println(slices.IndexFunc(lines, func(line string) bool { return strings.Contains(line, "LLM request: acme/coder") }))
	// Output: 3
}
