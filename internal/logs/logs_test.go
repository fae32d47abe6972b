package logs_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/dynago/dynago/internal/logs"
	"github.com/dynago/dynago/span"
)

// written returns the line that a call of a logger writes.
func written(c logs.Config, level slog.Level, say func(*slog.Logger)) string {
	var out bytes.Buffer
	say(slog.New(c.NewHandler(&out, new(sync.Mutex), "frontend", level)))
	return out.String()
}

func object(t *testing.T, line string) map[string]any {
	t.Helper()
	var m map[string]any
	if err := json.Unmarshal([]byte(line), &m); err != nil || strings.Count(line, "\n") != 1 {
		t.Fatalf("%v: %q", err, line)
	}
	return m
}

func TestObject(t *testing.T) {
	line := written(logs.Config{JSONL: true}, slog.LevelInfo, func(l *slog.Logger) {
		l.With("worker", "w").WithGroup("g").Warn("it is\nsaid", "n", 3, "five", "5", "object", "{\"a\":\n 1}", "text", "null and void", "yes", true,
			"share", .5, "none", math.NaN(), "took", 2*time.Second, "error", errors.New("broken"), slog.Group("at", "rank", 2), "bad", "\xff")
	})
	got := object(t, line)
	for key, want := range map[string]any{
		"level": "WARN", "target": "frontend", "message": "it is\nsaid", "worker": "w", "g.n": 3.0, "g.five": 5.0, "g.text": "null and void",
		"g.yes": true, "g.share": .5, "g.none": "NaN", "g.took": "2s", "g.error": "broken", "g.at.rank": 2.0, "g.bad": "\ufffd",
	} {
		if got[key] != want {
			t.Errorf("%s: %v, want %v", key, got[key], want)
		}
	}
	if o, ok := got["g.object"].(map[string]any); !ok || o["a"] != 1.0 {
		t.Errorf("an object became %v", got["g.object"])
	}
	if file, _ := got["file"].(string); !strings.HasSuffix(file, "/logs_test.go") || strings.HasPrefix(file, "/") || got["line"].(float64) < 1 {
		t.Errorf("it was said in %v, line %v", got["file"], got["line"])
	}
	if at, _ := got["time"].(string); !regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$`).MatchString(at) {
		t.Errorf("time %q", at)
	}
	if !strings.HasPrefix(line, `{"time":"`) {
		t.Errorf("%s", line)
	}
}

func TestLocalTime(t *testing.T) {
	was := time.Local
	time.Local = time.FixedZone("there", 2*3600)
	defer func() { time.Local = was }()
	for _, jsonl := range []bool{true, false} {
		line := written(logs.Config{JSONL: jsonl, LocalTime: true}, slog.LevelInfo, func(l *slog.Logger) { l.Info("x") })
		if !strings.Contains(line, "+02:00") {
			t.Errorf("%s", line)
		}
	}
}

func TestIDsOfSpans(t *testing.T) {
	remote, _ := span.Parse("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "vendor=1")
	here := (&span.Tracer{}).Begin(remote)
	ctx := span.With(context.Background(), &span.Within{
		Context: here, Parent: remote, Name: "http-request",
		Attrs: []span.Attr{{Key: "request_id", Value: "of the span"}, {Key: "x_request_id", Value: "mine"}, {Key: "n", Value: int64(5)}},
	})
	got := object(t, written(logs.Config{JSONL: true}, slog.LevelInfo, func(l *slog.Logger) { l.InfoContext(ctx, "in it", "request_id", "r") }))
	for key, want := range map[string]any{
		"span_name": "http-request", "span_id": here.SpanID(), "trace_id": here.TraceID(), "parent_id": "b7ad6b7169203331",
		"tracestate": "vendor=1", "x_request_id": "mine", "request_id": "r", "n": "5",
	} {
		if got[key] != want {
			t.Errorf("%s: %v, want %v", key, got[key], want)
		}
	}
	got = object(t, written(logs.Config{JSONL: true}, slog.LevelInfo, func(l *slog.Logger) {
		l.Info("outside", "request_id", "r", "trace_id", "t", "other", "o")
	}))
	if got["request_id"] != nil || got["trace_id"] != nil || got["other"] != "o" {
		t.Errorf("outside of spans: %v", got)
	}
}

func TestSpan(t *testing.T) {
	remote, _ := span.Parse("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "")
	s := &span.Span{Name: "engine.generate", Target: "worker", Context: remote, Start: time.Unix(10, 0), End: time.Unix(10, 2500000), Error: "timeout"}
	s.Add("model", "m")
	var out bytes.Buffer
	logs.Config{JSONL: true}.Span(&out, new(sync.Mutex), s)
	lines := strings.SplitAfter(out.String(), "\n")
	entry, closed := object(t, lines[0]), object(t, lines[1])
	if entry["message"] != "SPAN_FIRST_ENTRY" || entry["time"] != "1970-01-01T00:00:10.000000Z" || entry["span_name"] != "engine.generate" {
		t.Errorf("%v", entry)
	}
	if closed["message"] != "SPAN_CLOSED" || closed["time.duration_us"] != 2500.0 || closed["time.busy_us"] != 2500.0 || closed["time.idle_us"] != 0.0 ||
		closed["target"] != "worker" || closed["model"] != "m" || closed["error"] != "timeout" || closed["trace_id"] != remote.TraceID() {
		t.Errorf("%v", closed)
	}
	out.Reset()
	logs.Config{}.Span(&out, new(sync.Mutex), s)
	if text := out.String(); !strings.Contains(text, "SPAN_CLOSED") || !strings.Contains(text, "time.duration_us=2500") {
		t.Errorf("%s", text)
	}
}

// Whatever is logged, a line is one JSON object, and texts that are no JSON come back.
func TestAnyLine(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		message, key, value := rapid.String().Draw(t, "message"), rapid.String().Draw(t, "key"), rapid.String().Draw(t, "value")
		line := written(logs.Config{JSONL: true}, slog.LevelInfo, func(l *slog.Logger) { l.Info(message, "k."+key, value) })
		var m map[string]any
		if err := json.Unmarshal([]byte(line), &m); err != nil || strings.Count(line, "\n") != 1 {
			t.Fatalf("%v: %q", err, line)
		}
		if m["message"] != message {
			t.Fatalf("%q became %q", message, m["message"])
		}
		if got := m["k."+key]; !json.Valid([]byte(value)) && got != value {
			t.Fatalf("%q became %q", value, got)
		}
	})
}

func TestFilter(t *testing.T) {
	for _, c := range []struct {
		file, list string
		want       string // of frontend and of router
		err        string
	}{
		{"", "", "INFO INFO", ""},
		{"", "debug", "DEBUG DEBUG", ""},
		{"", "warn,router=debug", "WARN DEBUG", ""},
		{"", " Router=trace , router = debug, ERROR", "ERROR DEBUG", ""},
		{"", "router=debug", "off DEBUG", ""},
		{"", "off", "off off", ""},
		{"", ",,", "INFO INFO", ""},
		{"", "loud", "", `"loud": want trace`},
		{"", "frontend=", "", "want trace"},
		{"", "frontend:debug", "", "want trace"},
		{"log_level = \"warn\"\n[log_filters]\nrouter = \"debug\" # why\n", "", "WARN DEBUG", ""},
		{"log_level = 'warn'\n\n# all\n[log_filters]\n\"router\" = 'debug'\n", "info", "INFO DEBUG", ""},
		{"log_level = \"warn\"\n[log_filters]\nrouter = \"debug\"", "router=error", "WARN ERROR", ""},
		{"level = \"warn\"", "", "", "line 1: level: want log_level"},
		{"\n[log_filters]\nrouter = debug", "", "", "line 3:"},
		{"[log_filters\n", "", "", "line 1:"},
		{"log_level = \"loud\"", "", "", `line 1: "loud"`},
		{"log_level", "", "", "line 1:"},
		{"log_level = \"warn\" what", "", "", "line 1:"},
	} {
		var f logs.Filter
		err := f.AddFile(c.file)
		if err == nil {
			err = f.Add(c.list)
		}
		if c.err != "" || err != nil {
			if err == nil || c.err == "" || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%q, %q: %v, want %q", c.file, c.list, err, c.err)
			}
			continue
		}
		name := func(l slog.Level) string {
			if l == logs.Off {
				return "off"
			}
			return l.String()
		}
		if got := name(f.Level("frontend")) + " " + name(f.Level("router")); got != c.want {
			t.Errorf("%q, %q: %s, want %s", c.file, c.list, got, c.want)
		}
	}
}

func FuzzFilterFile(f *testing.F) {
	f.Add("log_level = \"warn\"\n[log_filters]\nrouter = \"debug\" # why\n")
	f.Fuzz(func(t *testing.T, text string) {
		var filter logs.Filter
		if filter.AddFile(text) == nil {
			filter.Level("router")
		}
	})
}

func BenchmarkLine(b *testing.B) {
	for _, jsonl := range []bool{true, false} {
		b.Run(fmt.Sprint("jsonl=", jsonl), func(b *testing.B) {
			var sink discard
			l := slog.New(logs.Config{JSONL: jsonl}.NewHandler(sink, new(sync.Mutex), "frontend", slog.LevelInfo))
			b.ReportAllocs()
			for b.Loop() {
				l.LogAttrs(context.Background(), slog.LevelInfo, "request completed", slog.String("model", "m"), slog.String("endpoint", "chat_completions"), slog.Float64("elapsed_ms", 12.5))
			}
		})
	}
}

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }

func Example() {
	h := logs.Config{JSONL: true}.NewHandler(os.Stdout, new(sync.Mutex), "router", slog.LevelInfo)
	r := slog.NewRecord(time.Unix(0, 0), slog.LevelInfo, "worker is ready", 0)
	r.AddAttrs(slog.String("worker", "w-1"))
	h.Handle(context.Background(), r) //nolint:errcheck // it is printed
	// Output: {"time":"1970-01-01T00:00:00.000000Z","level":"INFO","target":"router","message":"worker is ready","worker":"w-1"}
}
