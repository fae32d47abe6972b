package toolevents_test

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tinylib/msgp/msgp"

	"github.com/dynago/dynago/trace"
	"github.com/dynago/dynago/trace/toolevents"
)

const flat = `{"schema":"dynamo.request.trace.v1","event_type":"tool_end","event_time_unix_ms":1790000000123,"session_id":"s1","parent_session_id":"s0",` +
	`"tool":{"tool_call_id":"c1","tool_class":"bash","started_at_unix_ms":1790000000000,"ended_at_unix_ms":1790000000123,"duration_ms":123.5,"status":"ok","output_bytes":7}}`

// forms are events, and the rows that they become.
var forms = []struct{ name, event, row string }{
	{"flat", flat, `{"schema":"dynamo.request.trace.v1","event_type":"tool_end","event_time_unix_ms":1790000000123,"event_source":"harness","agent_context":{"session_id":"s1","parent_session_id":"s0"},"tool":{"tool_call_id":"c1","tool_class":"bash","started_at_unix_ms":1790000000000,"ended_at_unix_ms":1790000000123,"status":"succeeded","duration_ms":123.5,"output_bytes":7}}`},
	{"whole", with(`"session_id":null,"agent_context":{"session_id":" s1 ","parent_session_id":"s0","kv_hints":{"evict_session":true},"unknown":1}`), row(`"session_id":"s1","parent_session_id":"s0"`)},
	{"whole wins", with(`"session_id":"other","agent_context":{"session_id":"s1"}`), row(`"session_id":"s1"`)},
	{"run and trajectory", with(`"agent_context":{"session_type_id":"t","session_id":"run","trajectory_id":"c","parent_trajectory_id":"p","trajectory_final":true}`), row(`"session_type_id":"t","session_id":"run","trajectory_id":"c","parent_trajectory_id":"p","trajectory_final":true`)},
	{"trajectory alone", with(`"agent_context":{"trajectory_id":"c","parent_trajectory_id":"p"}`), row(`"session_id":"c","parent_session_id":"p"`)},
	{"own parent", with(`"session_id":"c","parent_session_id":"c"`), row(`"session_id":"c"`)},
	{"own parent trajectory", with(`"agent_context":{"session_id":"run","trajectory_id":"c","parent_trajectory_id":"c"}`), row(`"session_id":"run","trajectory_id":"c"`)},
	{"legacy schema", strings.Replace(with(`"session_id":"c"`), "request.trace", "agent.trace", 1), row(`"session_id":"c"`)},
	{"source", with(`"session_id":"c","event_source":"harness","request":null,"payload":null,"more":[{"a":1.5}]`), row(`"session_id":"c"`)},
	{"long id", with(`"session_id":"` + strings.Repeat("x", 256) + `"`), row(`"session_id":"` + strings.Repeat("x", 256) + `"`)},
}

// with is an event with more members, and row the row of such a one.
func with(more string) string {
	return `{"schema":"dynamo.request.trace.v1","event_type":"tool_start","event_time_unix_ms":5,` + more + `,"tool":{"tool_call_id":"c1","tool_class":"bash"}}`
}

func row(agent string) string {
	return `{"schema":"dynamo.request.trace.v1","event_type":"tool_start","event_time_unix_ms":5,"event_source":"harness","agent_context":{` + agent + `},"tool":{"tool_call_id":"c1","tool_class":"bash"}}`
}

func TestForms(t *testing.T) {
	for _, f := range forms {
		t.Run(f.name, func(t *testing.T) {
			for _, text := range []bool{true, false} {
				for name, decode := range map[string]func() (*trace.Record, error){
					"JSON":    func() (*trace.Record, error) { return toolevents.Decode([]byte(f.event)) },
					"msgpack": func() (*trace.Record, error) { return toolevents.DecodeMsgpack(packed(t, f.event, text)) },
				} {
					r, err := decode()
					if err != nil {
						t.Fatalf("%s: %v", name, err)
					}
					got, err := r.Append(nil)
					if err != nil {
						t.Fatal(err)
					}
					if diff := cmp.Diff(f.row, string(got)); diff != "" {
						t.Errorf("%s, text %v: %s", name, text, diff)
					}
				}
			}
		})
	}
}

func TestStatuses(t *testing.T) {
	for said, want := range map[string]string{
		"running": "running", "succeeded": "succeeded", "ok": "succeeded", "success": "succeeded", "error": "error", "failed": "error",
		"cancelled": "cancelled", "canceled": "cancelled", "timeout": "cancelled", "OK": "succeeded",
	} {
		r, err := toolevents.Decode([]byte(strings.Replace(flat, `"status":"ok"`, `"status":"`+said+`"`, 1)))
		if err != nil || r.Tool.Status != want {
			t.Errorf("%s: %v, %v", said, r, err)
		}
	}
}

// What is wrong is refused on both ways, for the same reason.
func TestRefused(t *testing.T) {
	good := with(`"session_id":"s"`)
	for _, tc := range []struct{ name, event, says string }{
		{"no object", `[1]`, "an event is an object"},
		{"schema", strings.Replace(good, "request.trace.v1", "request.trace.v2", 1), "schema: want dynamo.request.trace.v1"},
		{"no schema", strings.Replace(good, `"schema"`, `"scheme"`, 1), "schema: want"},
		{"a request's end", strings.Replace(good, "tool_start", "request_end", 1), "event_type: want tool_start"},
		{"our source", with(`"session_id":"s","event_source":"dynamo"`), "event_source: want harness"},
		{"no time", strings.Replace(good, `"event_time_unix_ms":5`, `"event_time":5`, 1), "event_time_unix_ms: want a whole number"},
		{"time before 1970", strings.Replace(good, `_ms":5`, `_ms":-5`, 1), "event_time_unix_ms"},
		{"half a millisecond", strings.Replace(good, `_ms":5`, `_ms":5.5`, 1), "event_time_unix_ms"},
		{"no session", with(`"x":1`), "session_id: want the name"},
		{"blank session", with(`"session_id":" "`), "session_id: want the name"},
		{"empty context", with(`"session_id":"s","agent_context":{}`), "session_id: want the name"},
		{"number as session", with(`"session_id":7`), "session_id"},
		{"long session", with(`"session_id":"` + strings.Repeat("x", 257) + `"`), "257 bytes"},
		{"a request", with(`"session_id":"s","request":{}`), "no request and no payload"},
		{"a payload", with(`"session_id":"s","payload":{}`), "no request and no payload"},
		{"no tool", strings.Replace(good, `"tool":`, `"tools":`, 1), "tool: want what was used"},
		{"no call", strings.Replace(good, `"tool_call_id":"c1"`, `"tool_call_id":""`, 1), "tool.tool_call_id: want"},
		{"no class", strings.Replace(good, `"tool_class":"bash"`, `"tool_class":" "`, 1), "tool.tool_class: want"},
		{"status", strings.Replace(flat, `"ok"`, `"fine"`, 1), "tool.status: want running"},
		{"large", with(`"session_id":"s","x":"` + strings.Repeat("x", toolevents.MaxEvent) + `"`), "want at most 65536"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if r, err := toolevents.Decode([]byte(tc.event)); err == nil || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("JSON: %v, %v", r, err)
			}
			if r, err := toolevents.DecodeMsgpack(packed(t, tc.event, true)); err == nil || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("MessagePack: %v, %v", r, err)
			}
		})
	}
}

func TestBadJSON(t *testing.T) {
	for _, text := range []string{``, `{`, `{"schema":NaN}`, strings.Replace(flat, "123.5", "1e999", 1), strings.Replace(flat, "s1", "\xff", 1), `{"schema":1,"schema":2}`} {
		if r, err := toolevents.Decode([]byte(text)); err == nil {
			t.Errorf("%.60q: %+v", text, r)
		}
	}
}

func TestBadMsgpack(t *testing.T) {
	good := packed(t, flat, true)
	deep := []byte{}
	for range 40 {
		deep = append(deep, 0x91)
	}
	float := func(f float64) []byte {
		var e map[string]any
		if err := json.Unmarshal([]byte(flat), &e); err != nil {
			t.Fatal(err)
		}
		e["event_time_unix_ms"] = uint64(5)
		e["tool"].(map[string]any)["duration_ms"] = f
		return appendAny(t, nil, e, true)
	}
	if _, err := toolevents.DecodeMsgpack(float(3)); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		packed []byte
		says   string
	}{
		"nothing": {nil, ""}, "cut": {good[:len(good)-1], ""}, "more": {append(good[:len(good):len(good)], 1), "1 bytes follow"},
		"deep":               {deep, "16 deep"},
		"a number as a name": {[]byte{0x81, 1, 2}, "want text"},
		"a huge map":         {[]byte{0xdf, 0xff, 0xff, 0xff, 0xff, 0xa1}, ""},
		"a huge text":        {[]byte{0x81, 0xdb, 0x7f, 0xff, 0xff, 0xff, 'a'}, ""},
		"an extension":       {[]byte{0x81, 0xa1, 'a', 0xd4, 5, 0}, "says nothing here"},
		"no UTF-8":           {[]byte{0x81, 0xa1, 0xff, 1}, "not UTF-8"},
		"NaN":                {float(math.NaN()), "not finite"},
		"infinite":           {float(math.Inf(1)), "not finite"},
	} {
		if r, err := toolevents.DecodeMsgpack(c.packed); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
	}
}

// A body is taken in any of three forms; what is wrong in it spoils only itself.
func TestBodies(t *testing.T) {
	good, bad := with(`"session_id":"s"`), with(`"session_id":""`)
	for _, tc := range []struct {
		name, body        string
		accepted, dropped int
		says              string
	}{
		{"object", good, 1, 0, ""},
		{"object over lines", "\n" + strings.ReplaceAll(good, ",", ",\n") + "\n", 1, 0, ""},
		{"bad object", bad, 0, 1, "session_id"},
		{"array", "[" + good + "," + bad + " , " + good + "]", 2, 1, "session_id"},
		{"array with all sorts", "[1,null,\"x\",[]," + good + "]", 1, 4, "an event is an object"},
		{"array, no UTF-8 in one", "[" + good + "," + with("\"session_id\":\"\xff\"") + "]", 1, 1, "UTF-8"},
		{"empty array", "[]", 0, 0, ""},
		{"lines", good + "\n" + good + "\r\n\n" + bad + "\n" + good + "\n", 3, 1, "session_id"},
		{"a torn line", good + "\n{\"sch\n" + good, 2, 1, "not valid JSON"},
		{"most", strings.Repeat(good+"\n", toolevents.MaxEvents), toolevents.MaxEvents, 0, ""},
	} {
		b, err := toolevents.DecodeBody([]byte(tc.body))
		if err != nil || len(b.Accepted) != tc.accepted || b.Dropped != tc.dropped || (b.Why == nil) != (tc.says == "") || b.Why != nil && !strings.Contains(b.Why.Error(), tc.says) {
			t.Errorf("%s: %d and %d, %v, %v", tc.name, len(b.Accepted), b.Dropped, b.Why, err)
		}
	}
	for name, c := range map[string]struct{ body, says string }{
		"nothing": {" \n", "is empty"}, "no JSON": {"hello", "not valid JSON"}, "torn object": {good[:50], "not valid JSON"},
		"torn array": {"[" + good, "begins an array"}, "two arrays": {"[][]", "begins an array"},
		"many lines":  {strings.Repeat(good+"\n", toolevents.MaxEvents+1), "want at most 1000"},
		"a long list": {"[" + strings.Repeat(good+",", toolevents.MaxEvents) + good + "]", "want at most 1000"},
	} {
		if b, err := toolevents.DecodeBody([]byte(c.body)); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %+v, %v", name, b.Dropped, err)
		}
	}
}

func Example() {
	b, err := toolevents.DecodeBody([]byte(`{"schema":"dynamo.request.trace.v1","event_type":"tool_end","event_time_unix_ms":1790000000123,` +
		`"session_id":"bugfix-7","tool":{"tool_call_id":"call-3","tool_class":"run_tests","duration_ms":850,"status":"ok"}}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	line, _ := b.Accepted[0].Append(nil)
	fmt.Printf("%s\n", line)
	// Output: {"schema":"dynamo.request.trace.v1","event_type":"tool_end","event_time_unix_ms":1790000000123,"event_source":"harness","agent_context":{"session_id":"bugfix-7"},"tool":{"tool_call_id":"call-3","tool_class":"run_tests","status":"succeeded","duration_ms":850}}
}

// packed is JSON in MessagePack, its texts of the type text, or of the binary one.
func packed(t testing.TB, event string, text bool) []byte {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(event))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatal(err)
	}
	return appendAny(t, nil, v, text)
}

func appendAny(t testing.TB, b []byte, v any, text bool) []byte {
	str := func(s string) {
		if text {
			b = msgp.AppendString(b, s)
		} else {
			b = msgp.AppendBytes(b, []byte(s))
		}
	}
	switch v := v.(type) {
	case nil:
		b = msgp.AppendNil(b)
	case string:
		str(v)
	case float64:
		b = msgp.AppendFloat64(b, v)
	case uint64:
		b = msgp.AppendUint64(b, v)
	case bool:
		b = msgp.AppendBool(b, v)
	case json.Number:
		if i, err := v.Int64(); err == nil {
			b = msgp.AppendInt64(b, i)
		} else {
			f, _ := v.Float64()
			b = msgp.AppendFloat64(b, f)
		}
	case []any:
		b = msgp.AppendArrayHeader(b, uint32(len(v)))
		for _, item := range v {
			b = appendAny(t, b, item, text)
		}
	case map[string]any:
		b = msgp.AppendMapHeader(b, uint32(len(v)))
		for name, item := range v {
			str(name)
			b = appendAny(t, b, item, text)
		}
	default:
		t.Fatalf("a %T", v)
	}
	return b
}
