package responses_test

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/dynago/dynago/openai/responses"
)

func TestListedItems(t *testing.T) {
	for _, c := range []struct{ item, want string }{
		{`{"role":"user","content":"hi"}`, `{"id":"x","role":"user","type":"message","status":"completed","content":[{"type":"input_text","text":"hi"}]}`},
		{
			`{"type":"message","role":"assistant","content":"h\u00e9","phase":"commentary"}`,
			`{"id":"x","type":"message","role":"assistant","phase":"commentary","status":"completed","content":[{"type":"output_text","annotations":[],"text":"h\u00e9"}]}`,
		},
		{
			`{"id":"y","type":"message","role":"user","content":[{"type":"input_text","text":"hi"}],"status":"incomplete"}`,
			`{"id":"x","type":"message","role":"user","content":[{"type":"input_text","text":"hi"}],"status":"incomplete"}`,
		},
		{
			`{"type":"function_call_output","call_id":"c","output":"ok","status":null}`,
			`{"id":"x","type":"function_call_output","call_id":"c","output":"ok","status":"completed"}`,
		},
		{`{"type":"strange","content":"kept"}`, `{"id":"x","type":"strange","status":"completed","content":"kept"}`},
		{`[1]`, `[1]`},
	} {
		if got := string(responses.AppendListed(nil, []byte(c.item), "x")); got != c.want {
			t.Errorf("%s\n got %s\nwant %s", c.item, got, c.want)
		}
	}
}

// FuzzAppendListed lists any item: an object stays one, under its id.
func FuzzAppendListed(f *testing.F) {
	f.Add([]byte(`{"role":"user","content":"hi","id":"y"}`))
	f.Add([]byte(`{"type":null,"status":"","content":{"x":[1]},"\u0069d":3}`))
	f.Fuzz(func(t *testing.T, item []byte) {
		var in, out map[string]json.RawMessage
		if json.Unmarshal(item, &in) != nil || in == nil {
			return
		}
		got := responses.AppendListed([]byte("before"), item, "x")
		if err := json.Unmarshal(bytes.TrimPrefix(got, []byte("before")), &out); err != nil {
			t.Fatalf("%q became %q: %v", item, got, err)
		}
		if string(out["id"]) != `"x"` || len(out["type"]) == 0 || len(out["status"]) == 0 {
			t.Fatalf("%q became %q", item, got)
		}
		for name := range in {
			if _, ok := out[name]; !ok {
				t.Fatalf("%q became %q without %q", item, got, name)
			}
		}
	})
}
