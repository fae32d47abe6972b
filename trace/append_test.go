package trace_test

import (
	"bytes"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"pgregory.net/rapid"

	"github.com/dynago/dynago/trace"
)

// fill puts anything into the exported fields of v.
func fill(t *rapid.T, v reflect.Value) {
	if v.Type() == reflect.TypeFor[jsontext.Value]() {
		texts := []string{"", `"stop"`, `7`, `{"a":[1,null]}`, "{\n \"a\": \"\\u00e9\"\n}"}
		if text := rapid.SampledFrom(texts).Draw(t, "raw"); text != "" {
			v.SetBytes([]byte(text))
		}
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		if rapid.Bool().Draw(t, "is there") {
			v.Set(reflect.New(v.Type().Elem()))
			fill(t, v.Elem())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				fill(t, v.Field(i))
			}
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint64 {
			v.Set(reflect.ValueOf(rapid.SliceOfN(rapid.Uint64(), 1, 5).Draw(t, "hashes")))
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), rapid.IntRange(0, 3).Draw(t, "length"), 3))
		for i := range v.Len() {
			fill(t, v.Index(i))
		}
	case reflect.Map:
		if rapid.Bool().Draw(t, "is there") {
			v.Set(reflect.ValueOf(rapid.MapOf(text, text).Draw(t, "map")))
		}
	case reflect.String:
		v.SetString(text.Draw(t, "text"))
	case reflect.Bool:
		v.SetBool(rapid.Bool().Draw(t, "bool"))
	case reflect.Int:
		v.SetInt(rapid.Int64().Draw(t, "int"))
	case reflect.Uint32:
		v.SetUint(uint64(rapid.Uint32().Draw(t, "uint32")))
	case reflect.Uint64:
		v.SetUint(rapid.Uint64().Draw(t, "uint64"))
	case reflect.Float64:
		v.SetFloat(rapid.OneOf(milliseconds, rapid.Float64Range(0, 1e5), rapid.Float64()).Draw(t, "float"))
	default:
		t.Fatalf("fields of kind %v are not known here", v.Kind())
	}
}

// milliseconds are whole microseconds, as times are.
var milliseconds = rapid.Custom(func(t *rapid.T) float64 { return float64(rapid.Uint64Range(0, 1<<53).Draw(t, "µs")) / 1000 })

var text = rapid.OneOf(rapid.SampledFrom([]string{"", "demo", "a\"b\\\n\x00<&>\u2028", "\xff\xfe", "日本"}), rapid.String())

// What is written by hand is what the tags say, up to how small and large numbers are
// spelled, and is read again as it was.
func TestAppend(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var r trace.Record
		fill(t, reflect.ValueOf(&r).Elem())
		want, err := json.Marshal(&r, json.Deterministic(true), jsontext.AllowInvalidUTF8(true))
		if err != nil {
			t.Fatal(err)
		}
		got, err := r.Append([]byte("before"))
		if err != nil {
			t.Fatal(err)
		}
		got, ok := bytes.CutPrefix(got, []byte("before"))
		if !ok || bytes.ContainsAny(got, "\n") {
			t.Fatalf("%q", got)
		}
		var a, b any
		if err := json.Unmarshal(got, &a); err != nil {
			t.Fatalf("%s: %v", got, err)
		}
		if err := json.Unmarshal(want, &b); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(a, b) {
			t.Fatalf("got  %s\nwant %s", got, want)
		}
		if x, y := order(got), order(want); x != y {
			t.Fatalf("members are in the order %s, want %s", x, y)
		}
	})
}

// order returns the names of all members as they follow each other.
func order(text []byte) string {
	var names []string
	d := jsontext.NewDecoder(bytes.NewReader(text), jsontext.AllowDuplicateNames(true))
	for {
		kind, length := d.StackIndex(d.StackDepth())
		token, err := d.ReadToken()
		if err != nil {
			return strings.Join(names, " ")
		}
		if token.Kind() == '"' && kind == '{' && length%2 == 0 {
			names = append(names, token.String())
		}
	}
}

func TestAppendLeavesOutWhatIsNoNumber(t *testing.T) {
	r := row("a")
	r.Request.TTFT, r.Request.TotalTime, r.Request.AvgITL, r.Request.KVHitRate = new(math.NaN()), new(math.Inf(1)), new(math.Inf(-1)), new(0.5)
	got, err := r.Append(nil)
	if want := `{"schema":"dynamo.request.trace.v1","event_type":"request_end","event_time_unix_ms":5,"request":{"request_id":"a","kv_hit_rate":0.5}}`; err != nil || string(got) != want {
		t.Errorf("%s, %v", got, err)
	}
}

func TestAppendRefuses(t *testing.T) {
	r := row("a")
	r.Request.NVExt = jsontext.Value("{\n")
	got, err := r.Append([]byte("before"))
	if err == nil || !strings.Contains(err.Error(), "nvext") || string(got) != "before" {
		t.Errorf("%q, %v", got, err)
	}
}

func TestDecode(t *testing.T) {
	for _, tc := range []struct {
		name, line string
		ok         bool
		err        string
	}{
		{"bare", `{"schema":"dynamo.request.trace.v1","event_type":"request_end","event_time_unix_ms":7}`, true, ""},
		{"in a wrapper", `{"timestamp":3,"event":{"schema":"dynamo.request.trace.v1","event_type":"request_end","event_time_unix_ms":7}}`, true, ""},
		{"strange members", `{"schema":"dynamo.request.trace.v1","event":5,"event_type":"request_end","new":{"a":[1]},"event_time_unix_ms":7}`, true, ""},
		{"of an older name", `{"schema":"dynamo.agent.trace.v1","event_type":"request_end","event_time_unix_ms":7}`, true, ""},
		{"another schema", `{"schema":"x","event_type":"request_end","event_time_unix_ms":7}`, false, ""},
		{"no schema", `{}`, false, ""},
		{"blank", ``, false, ""},
		{"no object", `[1]`, false, ""},
		{"torn", `{"schema":"dynamo.requ`, false, "read trace record"},
		{"wrong type", `{"schema":"dynamo.request.trace.v1","event_time_unix_ms":"x"}`, false, "event_time_unix_ms"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r, ok, err := trace.Decode([]byte(tc.line))
			if ok != tc.ok || (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
				t.Fatalf("%+v, %v, %v", r, ok, err)
			}
			if ok && (r.Schema != trace.Schema || r.EventType != trace.RequestEnd || r.EventTime != 7) {
				t.Errorf("%+v", r)
			}
		})
	}
}

// Whatever can be read can be written, and read again as the same.
func FuzzDecode(f *testing.F) {
	line, err := full(60).Append(nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(line)
	f.Add([]byte(`{"timestamp":3,"event":{"schema":"dynamo.request.trace.v1","tool":{"duration_ms":1e999}}}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		r, ok, err := trace.Decode(line)
		if err != nil || !ok {
			return
		}
		first, err := r.Append(nil)
		if err != nil {
			t.Fatal(err)
		}
		again, ok, err := trace.Decode(first)
		if err != nil || !ok {
			t.Fatalf("%q became %q: %v, %v", line, first, ok, err)
		}
		if second, err := again.Append(nil); err != nil || !bytes.Equal(first, second) {
			t.Fatalf("%q became %q and then %q, %v", line, first, second, err)
		}
	})
}
