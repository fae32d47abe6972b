package httpapi_test

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"testing"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/httpapi"
)

func TestExtra(t *testing.T) {
	for raw, ok := range map[string]bool{
		``: true, `{}`: true, `{"a":1,"b":[2]}`: true,
		`[1]`: false, `{`: false, `"x"`: false, `{"a":1,"stream":false}`: false,
	} {
		members, err := httpapi.Extra(json.RawMessage(raw), "prompt", "stream")
		if (err == nil) != ok || raw == `{"a":1,"b":[2]}` && string(members["b"]) != "[2]" {
			t.Errorf("%s: %v, %v", raw, members, err)
		}
	}
}

func TestTraced(t *testing.T) {
	if h := httpapi.Traced(engine.Trace{}); len(h) != 0 {
		t.Errorf("no trace: %v", h)
	}
	h := httpapi.Traced(engine.Trace{Parent: "p", State: "s"})
	if h.Get("traceparent") != "p" || h.Get("tracestate") != "s" {
		t.Errorf("%v", h)
	}
}

func TestInStream(t *testing.T) {
	for data, want := range map[string]engine.ErrorKind{
		`{"error":{"message":"x","code":503}}`:                    engine.Unavailable,
		`{"error":{"message":"x","code":400}}`:                    engine.InvalidArgument,
		`{"error":{"message":"x","code":"context_length"}}`:       engine.Internal,
		`{"error":{"message":"x","code":200}}`:                    engine.Internal,
		`{"error":{"message":"x","code":-400}}`:                   engine.Internal,
		`{"error":{"message":"x","code":9223372036854775807000}}`: engine.Internal,
		`{"error":"x"}`: engine.Internal,
	} {
		e, ok := errors.AsType[*engine.Error](httpapi.InStream([]byte(data)))
		if !ok || e.Kind != want || e.Message != "x" || !e.FromEngine {
			t.Errorf("%s: %+v, want %s", data, e, want)
		}
	}
}

func TestLines(t *testing.T) {
	for name, c := range map[string]struct {
		kind, body string
		status     int
		want       []string
		err        engine.ErrorKind
	}{
		"lines":         {"application/x-ndjson", "{\"a\":1}\r\n\n {\"b\":2}\n", 200, []string{`{"a":1}`, `{"b":2}`}, ""},
		"no last end":   {"application/x-ndjson; charset=utf-8", "{\"a\":1}\n{\"b\"", 200, []string{`{"a":1}`, `{"b"`}, ""},
		"nothing":       {"application/x-ndjson", "", 200, nil, ""},
		"a page":        {"text/html", "<html>", 200, nil, engine.Internal},
		"error in 200":  {"application/json", `{"error":"no"}`, 200, nil, engine.Internal},
		"another error": {"application/json", `{"error":"no"}`, 400, nil, engine.InvalidArgument},
	} {
		t.Run(name, func(t *testing.T) {
			client := client(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", c.kind)
				w.WriteHeader(c.status)
				io.WriteString(w, c.body)
			})
			var got []string
			var failed error
			for line, err := range client.Lines(t.Context(), "/", nil, []byte(`{}`)) {
				if err != nil {
					failed = err
					break
				}
				got = append(got, string(line))
			}
			if !slices.Equal(got, c.want) || c.err == "" && failed != nil || c.err != "" && engine.KindOf(failed) != c.err {
				t.Errorf("got %q, %v", got, failed)
			}
		})
	}
}

// A stream that is cut within its length is lost.
func TestLinesCut(t *testing.T) {
	client := client(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/x-ndjson")
		w.Header().Set("Content-Length", "100")
		io.WriteString(w, "{\"a\":1}\n{\"b")
	})
	var got []string
	var failed error
	for line, err := range client.Lines(t.Context(), "/", nil, []byte(`{}`)) {
		if failed = err; err == nil {
			got = append(got, string(line))
		}
	}
	if len(got) != 1 || engine.KindOf(failed) != engine.Disconnected {
		t.Errorf("%q, %v", got, failed)
	}
}
