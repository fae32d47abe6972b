//go:build unix

package main

import (
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	logspb "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	tracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	v1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
)

// otlpReceiver is a collector, over gRPC and over HTTP.
type otlpReceiver struct {
	tracepb.UnimplementedTraceServiceServer
	grpc, http string

	mu       sync.Mutex
	spans    []*v1.Span
	services map[string]bool
	lines    map[string][]string // messages by trace
}

// otlpLogs is the other service: the methods of both have one name.
type otlpLogs struct {
	logspb.UnimplementedLogsServiceServer
	*otlpReceiver
}

func receiver(t *testing.T) *otlpReceiver {
	t.Helper()
	c := &otlpReceiver{services: map[string]bool{}, lines: map[string][]string{}}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	tracepb.RegisterTraceServiceServer(server, c)
	logspb.RegisterLogsServiceServer(server, otlpLogs{otlpReceiver: c})
	go server.Serve(l)
	t.Cleanup(server.Stop)
	c.grpc = "http://" + l.Addr().String()

	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/traces", func(w http.ResponseWriter, r *http.Request) {
		in := new(tracepb.ExportTraceServiceRequest)
		if read(t, r, in) {
			c.Export(r.Context(), in)
		}
	})
	mux.HandleFunc("POST /v1/logs", func(w http.ResponseWriter, r *http.Request) {
		in := new(logspb.ExportLogsServiceRequest)
		if read(t, r, in) {
			otlpLogs{otlpReceiver: c}.Export(r.Context(), in)
		}
	})
	over := httptest.NewServer(mux)
	t.Cleanup(over.Close)
	c.http = over.URL
	return c
}

func read(t *testing.T, r *http.Request, in proto.Message) bool {
	body, err := io.ReadAll(r.Body)
	if err == nil {
		err = proto.Unmarshal(body, in)
	}
	if err != nil {
		t.Errorf("%s: %v", r.URL.Path, err)
	}
	return err == nil
}

// Export takes spans.
func (c *otlpReceiver) Export(_ context.Context, in *tracepb.ExportTraceServiceRequest) (*tracepb.ExportTraceServiceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range in.ResourceSpans {
		for _, a := range r.GetResource().GetAttributes() {
			c.services[a.Key+"="+a.Value.GetStringValue()] = true
		}
		for _, s := range r.ScopeSpans {
			c.spans = append(c.spans, s.Spans...)
		}
	}
	return &tracepb.ExportTraceServiceResponse{}, nil
}

// Export takes lines.
func (c otlpLogs) Export(_ context.Context, in *logspb.ExportLogsServiceRequest) (*logspb.ExportLogsServiceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range in.ResourceLogs {
		for _, s := range r.ScopeLogs {
			for _, l := range s.LogRecords {
				id := hex.EncodeToString(l.TraceId)
				c.lines[id] = append(c.lines[id], l.Body.GetStringValue())
			}
		}
	}
	return &logspb.ExportLogsServiceResponse{}, nil
}

// tree returns the spans of a trace as indented names, and fails where they are not one
// tree.
func (c *otlpReceiver) tree(t *testing.T, trace string) (names []string, byName map[string]*v1.Span) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	byName = map[string]*v1.Span{}
	children := map[string][]*v1.Span{}
	ids := map[string]bool{}
	total := 0
	for _, s := range c.spans {
		if hex.EncodeToString(s.TraceId) != trace {
			continue
		}
		id := string(s.SpanId)
		if ids[id] {
			t.Errorf("two spans have the id %x", s.SpanId)
		}
		ids[id] = true
		byName[s.Name] = s
		children[string(s.ParentSpanId)] = append(children[string(s.ParentSpanId)], s)
		total++
	}
	var walk func(parent, indent string)
	walk = func(parent, indent string) {
		slices.SortStableFunc(children[parent], func(a, b *v1.Span) int {
			return cmp.Or(cmp.Compare(a.StartTimeUnixNano, b.StartTimeUnixNano), cmp.Compare(a.Name, b.Name))
		})
		for _, s := range children[parent] {
			names = append(names, indent+s.Name)
			if s.EndTimeUnixNano < s.StartTimeUnixNano {
				t.Errorf("%s ends before it begins", s.Name)
			}
			walk(string(s.SpanId), indent+" ")
		}
	}
	for parent := range children {
		if !ids[parent] {
			walk(parent, "")
		}
	}
	if len(names) != total {
		t.Errorf("%d of %d spans hang together: %q", len(names), total, names)
	}
	return names, byName
}

// attrs returns the attributes of a span as texts.
func attrs(s *v1.Span) map[string]string {
	m := map[string]string{}
	for _, a := range s.GetAttributes() {
		m[a.Key] = cmp.Or(a.Value.GetStringValue(), fmt.Sprint(a.Value.GetIntValue()))
	}
	return m
}

// traces returns the ids of traces whose root has an attribute.
func (c *otlpReceiver) traceOf(t *testing.T, key, value string) string {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.spans {
		if strings.HasSuffix(s.Name, "-request") && attrs(s)[key] == value {
			return hex.EncodeToString(s.TraceId)
		}
	}
	t.Fatalf("no root has %s=%s", key, value)
	return ""
}

// treeOf is the tree of a request, whatever wire it came by.
func treeOf(root string) []string {
	return []string{
		root,
		" kv_router.select_worker",
		"  kv_router.compute_block_hashes",
		"  kv_router.compute_seq_hashes",
		"  kv_router.find_matches",
		"  kv_router.schedule",
		" kv_router.route_request",
		"  handle_payload",
		"   engine.generate",
	}
}

const (
	clientTrace  = "0af7651916cd43dd8448eb211c80319c"
	clientParent = "00-" + clientTrace + "-b7ad6b7169203331-01"
)

func TestSpans(t *testing.T) {
	for _, protocol := range []string{"grpc", "http/protobuf"} {
		t.Run(protocol, func(t *testing.T) {
			c := receiver(t)
			t.Setenv("OTEL_EXPORT_ENABLED", "true")
			t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
			t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", map[bool]string{true: c.grpc, false: c.http}[protocol == "grpc"])
			p, rpc := kserved(t)
			body := `{"model":"dynago/demo","stream":true,"max_tokens":12,"messages":[{"role":"user","content":"Which rivers cross Paris?"}]}`
			p.fetch(t, "/v1/chat/completions", body, "Traceparent", clientParent, "Tracestate", "vendor=1", "X-Request-Id", "mine", "Session-Id", "s-1")
			p.fetch(t, "/v1/messages", `{"model":"dynago/demo","max_tokens":12,"messages":[{"role":"user","content":"hi"}]}`, "X-Request-Id", "messages")
			p.fetch(t, "/v1/chat/completions", `{"model":"no such model","messages":[{"role":"user","content":"hi"}]}`, "X-Request-Id", "nobody")
			p.fetch(t, "/v1/chat/completions", strings.Replace(body, `"stream":true,`, "", 1), "Traceparent", "00-11111111111111111111111111111111-b7ad6b7169203331-00")
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			if _, err := rpc.ModelInfer(ctx, completion("job-7", "Name three rivers.", false)); err != nil {
				t.Fatal(err)
			}
			p.signal(syscall.SIGTERM)
			if code := p.wait(); code != 0 {
				t.Fatalf("exit code %d", code)
			}

			names, spans := c.tree(t, clientTrace)
			if !slices.Equal(names, treeOf("http-request")) {
				t.Errorf("a stream has\n%s", strings.Join(names, "\n"))
			}
			root := spans["http-request"]
			if got := hex.EncodeToString(root.GetParentSpanId()); got != "b7ad6b7169203331" {
				t.Errorf("the root is in %q", got)
			}
			if root.GetEndTimeUnixNano() < spans["engine.generate"].GetEndTimeUnixNano() {
				t.Error("the stream's span ended before the engine had")
			}
			for name, want := range map[string]map[string]string{
				"http-request": {
					"method": "POST", "uri": "/v1/chat/completions", "version": "HTTP/1.1", "model": "dynago/demo",
					"output_tokens": "12", "x_request_id": "mine", "parent_id": "b7ad6b7169203331", "trace_flags": "01",
				},
				"kv_router.route_request": {"phase": "aggregated", "dp_rank": "0"},
				"handle_payload":          {"namespace": "dynamo", "component": "backend", "endpoint": "generate"},
				"engine.generate":         {"output_tokens": "12", "finish_reason": "length", "model": "dynago/demo", "disagg_role": "aggregated"},
			} {
				for key, value := range want {
					if got := attrs(spans[name])[key]; got != value {
						t.Errorf("%s: %s=%q, want %q", name, key, got, value)
					}
				}
			}
			for _, key := range []string{"ttft_ms", "avg_itl_ms", "input_tokens", "decode_worker_id", "request_id"} {
				if attrs(root)[key] == "" {
					t.Errorf("http-request has no %s", key)
				}
			}
			for _, key := range []string{"ttft_ms", "itl_p50_ms", "itl_p99_ms", "itl_max_ms"} {
				if attrs(spans["engine.generate"])[key] == "" {
					t.Errorf("engine.generate has no %s", key)
				}
			}
			if names, _ = c.tree(t, c.traceOf(t, "x_request_id", "messages")); !slices.Equal(names, treeOf("http-request")) {
				t.Errorf("messages have\n%s", strings.Join(names, "\n"))
			}
			id := c.traceOf(t, "method", "inference.GRPCInferenceService/ModelInfer")
			if names, _ = c.tree(t, id); !slices.Equal(names, treeOf("grpc-request")) {
				t.Errorf("a call has\n%s", strings.Join(names, "\n"))
			}
			names, spans = c.tree(t, c.traceOf(t, "x_request_id", "nobody"))
			if len(names) != 1 || spans["http-request"].GetStatus().GetMessage() != "not_found" {
				t.Errorf("a refusal has %q, %v", names, spans["http-request"].GetStatus())
			}
			if names, _ = c.tree(t, "11111111111111111111111111111111"); len(names) != 0 {
				t.Errorf("a trace that its client does not sample has %q", names)
			}
			if !c.services["service.name=dynamo"] {
				t.Errorf("services %v", c.services)
			}
			if got := c.lines[clientTrace]; !slices.Equal(got, []string{"request completed"}) {
				t.Errorf("lines of the trace: %q", got)
			}
		})
	}
}

func TestSpansOfAWorkerElsewhere(t *testing.T) {
	c := receiver(t)
	t.Setenv("OTEL_EXPORT_ENABLED", "1")
	t.Setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", c.grpc)
	t.Setenv("OTEL_EXPORTER_OTLP_LOGS_ENDPOINT", c.grpc)
	w, spec := attachable(t, "worker", "--engine", "mock", "--listen", "127.0.0.1:0", "--speedup-ratio", "0", "--otel-service-name", "far",
		"--graceful-shutdown-grace-period-secs", "0.1")
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	p := serve(t, "--engine", spec)
	says(t, p, "/admin/workers", `"ready"`)
	p.fetch(t, "/v1/chat/completions", `{"model":"dynago/demo","stream":true,"max_tokens":12,"messages":[{"role":"user","content":"Which rivers cross Paris?"}]}`, "Traceparent", clientParent)
	for _, end := range []*program{p, w} {
		end.signal(syscall.SIGTERM)
		if code := end.wait(); code != 0 {
			t.Fatalf("exit code %d", code)
		}
	}
	names, spans := c.tree(t, clientTrace)
	if !slices.Equal(names, treeOf("http-request")) {
		t.Errorf("it has\n%s", strings.Join(names, "\n"))
	}
	if got := attrs(spans["handle_payload"])["instance_id"]; !strings.Contains(spec, got) || got == "0" {
		t.Errorf("the worker is %q, want that of %s", got, spec)
	}
	if !c.services["service.name=far"] || !c.services["service.name=dynamo"] {
		t.Errorf("services %v", c.services)
	}
}

// Who has asked for spans by a word that says neither yes nor no is told why there are
// none, and nothing of variables that mean nothing then.
func TestExportPerhaps(t *testing.T) {
	t.Setenv("OTEL_EXPORT_ENABLED", "perhaps")
	t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "smoke")
	p := serve(t)
	log := p.log.String()
	if !strings.Contains(log, "OTEL_EXPORT_ENABLED") || !strings.Contains(log, "perhaps") || strings.Contains(log, "smoke") {
		t.Errorf("log\n%s", log)
	}
}

// A collector that is dead costs no request anything, and the program ends in time.
func TestDeadCollector(t *testing.T) {
	p := serve(t, "--speedup-ratio", "0", "--otel-export-enabled", "true", "--otel-exporter-otlp-endpoint", fmt.Sprintf("http://127.0.0.1:%d", freePorts(t, 1)))
	for range 50 {
		p.fetch(t, "/v1/chat/completions", `{"model":"dynago/demo","max_tokens":2,"messages":[{"role":"user","content":"hi"}]}`)
	}
	if page := p.fetch(t, "/metrics", ""); !strings.Contains(page, `dynago_telemetry_items_total{result="told",signal="traces"} 450`) {
		t.Errorf("nine spans of each of 50 requests are not told:\n%s", grepLines(page, "dynago_telemetry"))
	}
	p.signal(syscall.SIGTERM)
	begun := time.Now()
	if code := p.wait(); code != 0 || time.Since(begun) > 6*time.Second {
		t.Errorf("it ended with %d after %v", code, time.Since(begun))
	}
}

// Records go to the collector that flags name for logs, whether or not anything else is
// exported.
func TestRecordsToACollector(t *testing.T) {
	t.Parallel()
	for _, protocol := range []string{"grpc", "http/protobuf"} {
		c := receiver(t)
		p := serve(t, "--speedup-ratio", "0", "--request-trace", "--request-trace-sinks", "otel",
			"--otel-exporter-otlp-protocol", protocol, "--otel-exporter-otlp-endpoint", map[bool]string{true: c.grpc, false: c.http}[protocol == "grpc"])
		p.fetch(t, "/v1/chat/completions", `{"model":"dynago/demo","max_tokens":2,"messages":[{"role":"user","content":"hi"}]}`)
		ended(t, p)
		c.mu.Lock()
		if !slices.Equal(c.lines[""], []string{"request_end"}) || len(c.spans) > 0 {
			t.Errorf("%s: it got %q, and %d spans", protocol, c.lines, len(c.spans))
		}
		c.mu.Unlock()
	}
}

func grepLines(text, part string) string {
	var found []string
	for line := range strings.Lines(text) {
		if strings.Contains(line, part) {
			found = append(found, line)
		}
	}
	return strings.Join(found, "")
}

func TestLogOfObjects(t *testing.T) {
	t.Setenv("DYN_LOGGING_CONSOLE_FORMAT", " JSONL ")
	t.Setenv("DYN_LOGGING_SPAN_EVENTS", "1")
	p := serve(t, "--speedup-ratio", "0")
	p.fetch(t, "/v1/chat/completions", `{"model":"dynago/demo","max_tokens":2,"messages":[{"role":"user","content":"a secret word"}]}`, "Traceparent", clientParent)
	p.fetch(t, "/health", "")
	p.signal(syscall.SIGTERM)
	p.wait()
	var told []string
	for line := range strings.Lines(p.log.String()) {
		var read map[string]any
		if err := json.Unmarshal([]byte(line), &read); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		at, _ := read["time"].(string)
		if when, err := time.Parse("2006-01-02T15:04:05.000000Z", at); err != nil || time.Since(when) > time.Minute {
			t.Errorf("%v: time of %s", err, line)
		}
		if read["target"] == nil || read["level"] != "INFO" {
			t.Errorf("it lacks something: %s", line)
		}
		if strings.Contains(line, "secret") {
			t.Errorf("it tells what was said: %s", line)
		}
		if read["trace_id"] == nil {
			continue
		}
		if read["trace_id"] != clientTrace || len(read["span_id"].(string)) != 16 {
			t.Errorf("ids of %s", line)
		}
		if message := read["message"].(string); read["target"] == "frontend" {
			told = append(told, message)
			if message == "SPAN_CLOSED" && (read["time.duration_us"] == nil || read["span_name"] != "http-request") {
				t.Errorf("%s", line)
			}
		}
	}
	if want := []string{"request completed", "SPAN_FIRST_ENTRY", "SPAN_CLOSED"}; !slices.Equal(told, want) {
		t.Errorf("told %q", told)
	}
}

// fetch makes a request, and returns what came.
func (p *program) fetch(t *testing.T, path, body string, header ...string) string {
	t.Helper()
	method := "POST"
	if body == "" {
		method = "GET"
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	answer, err := http.DefaultClient.Do(p.request(ctx, method, p.url+path, body, header...))
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The legs of a request hang on one root, and the second one is linked to the first.
func TestSpansOfTwoLegs(t *testing.T) {
	t.Parallel()
	c := receiver(t)
	p := serve(t, "--workers", "1", "--num-prefill-workers", "1", "--log-level", "warn", "--speedup-ratio", "0",
		"--otel-export-enabled", "true", "--otel-exporter-otlp-endpoint", c.grpc)
	p.fetch(t, "/v1/chat/completions", `{"model":"dynago/demo","max_tokens":12,"messages":[{"role":"user","content":"Which rivers cross Paris?"}]}`, "Traceparent", clientParent)
	p.signal(syscall.SIGTERM)
	p.wait()
	names, spans := c.tree(t, clientTrace)
	if !slices.Contains(names, " client_request") || attrs(spans["client_request"])["operation"] != "prepare" || attrs(spans["client_request"])["instance_id"] == "0" {
		t.Errorf("nothing tells how the legs were to meet: %q, %v", names, spans["client_request"])
	}
	done := map[string]*v1.Span{}
	for _, s := range c.named(clientTrace, "engine.generate") {
		done[attrs(s)["disagg_role"]] = s
	}
	if done["prefill"] == nil || done["decode"] == nil {
		t.Fatalf("legs %v", done)
	}
	if links := done["decode"].Links; len(links) != 1 || string(links[0].SpanId) != string(done["prefill"].SpanId) || len(done["prefill"].Links) != 0 {
		t.Errorf("the second leg is linked to %v, want %x", links, done["prefill"].SpanId)
	}
}
