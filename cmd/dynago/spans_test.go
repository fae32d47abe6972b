//go:build unix

package main

import (
	"encoding/hex"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"

	v1 "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/dynago/dynago/internal/fake/vllm"
)

// named returns the spans of a name, in the order in which they began.
func (c *otlpReceiver) named(trace, name string) (all []*v1.Span) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.spans {
		if s.Name == name && hex.EncodeToString(s.TraceId) == trace {
			all = append(all, s)
		}
	}
	slices.SortFunc(all, func(a, b *v1.Span) int { return int(int64(a.StartTimeUnixNano) - int64(b.StartTimeUnixNano)) })
	return all
}

// ended ends programs, which tell the rest of their spans.
func ended(t *testing.T, programs ...*program) {
	t.Helper()
	for _, p := range programs {
		p.signal(syscall.SIGTERM)
		if code := p.wait(); code != 0 {
			t.Fatalf("exit code %d: %s", code, p.log)
		}
	}
}

// A request that moves has the spans of both attempts, and the second names that of the
// first generation.
func TestSpansOfAMove(t *testing.T) {
	t.Parallel()
	c := receiver(t)
	p := serve(t, "--workers", "2", "--speedup-ratio", "0", "--log-level", "warn", "--mock-script", fileOf(t, "script.yaml", frail),
		"--otel-export-enabled", "true", "--otel-exporter-otlp-endpoint", c.grpc)
	p.fetch(t, "/v1/chat/completions", `{"model":"dynago/demo","messages":[{"role":"user","content":"vanish"}]}`, "Traceparent", clientParent)
	ended(t, p)
	names, _ := c.tree(t, clientTrace)
	if want := append(treeOf("http-request"), treeOf("http-request")[1:]...); !slices.Equal(names, want) {
		t.Errorf("it has\n%s", strings.Join(names, "\n"))
	}
	done, sent := c.named(clientTrace, "engine.generate"), c.named(clientTrace, "kv_router.route_request")
	if len(done) != 2 || len(sent) != 2 {
		t.Fatalf("%d generations, %d times sent", len(done), len(sent))
	}
	first, second := done[0], done[1]
	if first.Status.GetMessage() != "disconnected" || attrs(first)["error_kind"] != "disconnected" || len(first.Links) != 0 || sent[0].Status.GetMessage() != "disconnected" {
		t.Errorf("the first attempt: %v, and it was sent: %v", first, sent[0])
	}
	if second.Status.GetMessage() != "" || attrs(second)["finish_reason"] == "" {
		t.Errorf("the second attempt: %v", second)
	}
	if got := attrs(second); got["migration_span_id"] != hex.EncodeToString(first.SpanId) || got["migration_trace_id"] != clientTrace {
		t.Errorf("the second goes on from %s of %s, want %x", got["migration_span_id"], got["migration_trace_id"], first.SpanId)
	}
	if len(second.Links) != 1 || string(second.Links[0].SpanId) != string(first.SpanId) {
		t.Errorf("the second is linked to %v, want %x", second.Links, first.SpanId)
	}
}

// A worker in another process whose answer is left, since its client has heard enough,
// tells of no failure; and its generation has the id that was chosen for it.
func TestSpansOfAStreamThatIsLeft(t *testing.T) {
	c := receiver(t)
	t.Setenv("OTEL_EXPORT_ENABLED", "1")
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", c.grpc)
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	const script = "default:\n  emit: One two STOP three four five six seven eight nine ten eleven twelve.\n  pace: {itl: 50ms}\n"
	w, spec := attachable(t, "worker", "--engine", "mock", "--listen", "127.0.0.1:0", "--mock-script", fileOf(t, "script.yaml", script),
		"--graceful-shutdown-grace-period-secs", "0.1")
	p := serve(t, "--engine", spec)
	says(t, p, "/admin/workers", `"ready"`)
	if got := p.fetch(t, "/v1/chat/completions", `{"model":"dynago/demo","stop":["STOP"],"messages":[{"role":"user","content":"hi"}]}`, "Traceparent", clientParent); !strings.Contains(got, "One two") {
		t.Fatal(got)
	}
	ended(t, p, w)
	names, spans := c.tree(t, clientTrace)
	if !slices.Equal(names, treeOf("http-request")) {
		t.Errorf("it has\n%s", strings.Join(names, "\n"))
	}
	for name, s := range spans {
		if s.Status.GetCode() == v1.Status_STATUS_CODE_ERROR {
			t.Errorf("%s tells of an error: %v", name, s.Status)
		}
	}
	for _, a := range spans["engine.generate"].Attributes {
		if a.Key == "cancelled" && !a.Value.GetBoolValue() {
			t.Error("the answer was not left before its end")
		}
	}
}

// Who only asks where a request would run is told by the spans of a decision, of which
// nothing was booked.
func TestSpansOfAdvice(t *testing.T) {
	t.Parallel()
	c := receiver(t)
	p := serve(t, "--speedup-ratio", "0", "--log-level", "warn", "--otel-export-enabled", "true", "--otel-exporter-otlp-endpoint", c.grpc)
	p.fetch(t, "/v1/chat/completions", `{"model":"dynago/demo","messages":[{"role":"user","content":"hi"}],"nvext":{"annotations":["query_instance_id:"]}}`, "Traceparent", clientParent)
	ended(t, p)
	if names, _ := c.tree(t, clientTrace); !slices.Equal(names, adviceOf()) {
		t.Errorf("it has\n%s", strings.Join(names, "\n"))
	}
}

// adviceOf is the tree of a request that is not sent anywhere.
func adviceOf() []string {
	return append(treeOf("http-request")[:5:5], "  kv_router.select_without_admission")
}

// The router as a service tells of selections in the trace of its dispatcher.
func TestSpansOfTheRouter(t *testing.T) {
	t.Parallel()
	c := receiver(t)
	p := startRouter(t, "--no-router-kv-events", "--log-level", "warn", "--otel-export-enabled", "true", "--otel-exporter-otlp-endpoint", c.grpc)
	if r := p.send("/workers", `{"worker_id":1,"endpoint":"http://w1","block_size":4}`); r.status != 201 {
		t.Fatalf("%d %s", r.status, r.body)
	}
	const nobody, booked = "00-11111111111111111111111111111111-b7ad6b7169203331-01", "00-22222222222222222222222222222222-b7ad6b7169203331-01"
	for _, tc := range []struct {
		path, body, parent string
		status             int
	}{
		{"/select", `{"token_ids":[1,2,3,4,5]}`, clientParent, 200},
		{"/select_and_reserve", `{"selection_id":"s-1","token_ids":[1,2,3,4,5]}`, booked, 200},
		{"/select", `{"token_ids":[1,2,3,4,5],"allowed_worker_ids":[9]}`, nobody, 503},
	} {
		if r := p.send(tc.path, tc.body, "Traceparent", tc.parent); r.status != tc.status {
			t.Errorf("%s: %d %s, want %d", tc.path, r.status, r.body, tc.status)
		}
	}
	if _, page := p.get(p.url + "/metrics"); !strings.Contains(page, `dynago_telemetry_items_total{result="told",signal="traces"}`) {
		t.Error("its page does not tell what became of spans")
	}
	ended(t, p)
	names, spans := c.tree(t, clientTrace)
	if !slices.Equal(names, adviceOf()) {
		t.Errorf("a selection has\n%s", strings.Join(names, "\n"))
	}
	root := attrs(spans["http-request"])
	if root["method"] != "POST" || root["uri"] != "/select" || root["parent_id"] != "b7ad6b7169203331" || root["status"] != "200" {
		t.Errorf("the call tells %v", root)
	}
	names, spans = c.tree(t, booked[3:35])
	if !slices.Equal(names, treeOf("http-request")[:6]) {
		t.Errorf("a booking has\n%s", strings.Join(names, "\n"))
	}
	if got := attrs(spans["kv_router.select_worker"]); got["request_id"] != "s-1" || got["worker_id"] != "1" || got["blocks"] != "2" {
		t.Errorf("the selection tells %v", got)
	}
	names, spans = c.tree(t, nobody[3:35])
	if !slices.Equal(names, []string{"http-request", " kv_router.select_worker"}) || spans["http-request"].Status.GetCode() != v1.Status_STATUS_CODE_ERROR || spans["kv_router.select_worker"].Status.GetCode() != v1.Status_STATUS_CODE_ERROR {
		t.Errorf("one that came to nothing has %q: %v", names, spans["http-request"])
	}
}

// A stock engine is asked in the trace of the client, which goes on as it came where
// nobody makes spans; where lines have ids, the engine is told of one below it.
func TestTraceGoesOnToAnEngine(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name    string
		args    []string
		client  bool   // names a trace
		begins  string // of what the engine is told
		asItWas bool
	}{
		{"nothing is exported", nil, true, clientParent[:36], true},
		{"nothing is exported, and no trace named", nil, false, "", true},
		{"lines have ids", []string{"--logging-console-format", "jsonl"}, true, clientParent[:36], false},
		{"lines have ids, and no trace is named", []string{"--logging-console-format", "jsonl"}, false, "00-", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			v := newVLLM(t, vllm.Config{Mock: mockOf(t, "dynago/demo", false)})
			told := make(chan http.Header, 16)
			engine := host(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodPost {
					select {
					case told <- r.Header:
					default:
					}
				}
				v.ServeHTTP(w, r)
			}))
			p := serve(t, append([]string{"--model-path", demoFolder(t), "--engine", "vllm=" + engine.URL}, tc.args...)...)
			says(t, p, "/admin/workers", `"ready"`)
			for len(told) > 0 { // what it was asked before
				<-told
			}
			header := []string{"Traceparent", clientParent, "Tracestate", "vendor=1"}
			if !tc.client {
				header = nil
			}
			p.fetch(t, "/v1/chat/completions", `{"model":"dynago/demo","max_tokens":2,"messages":[{"role":"user","content":"hi"}]}`, header...)
			var parent, state string
			select {
			case h := <-told:
				parent, state = h.Get("Traceparent"), h.Get("Tracestate")
			default:
				t.Fatal("the engine was asked nothing")
			}
			if !strings.HasPrefix(parent, tc.begins) || tc.client && state != "vendor=1" || tc.begins == "" && parent != "" {
				t.Errorf("the engine is told %q, %q", parent, state)
			}
			if tc.client && (parent == clientParent) != tc.asItWas {
				t.Errorf("the engine is told %q, of %q", parent, clientParent)
			}
		})
	}
}
