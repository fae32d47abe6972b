package otel_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	tracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	v1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/dynago/dynago/internal/otel"
	"github.com/dynago/dynago/span"
)

// open exports to a server whose answers a handler gives.
func open(t *testing.T, c otel.Config, answer http.HandlerFunc) *otel.Exporter {
	t.Helper()
	server := httptest.NewServer(answer)
	t.Cleanup(server.Close)
	c.Service = "test"
	c.Traces, c.Logs = otel.Export{HTTP: true, Endpoint: server.URL + "/v1/traces"}, otel.Export{HTTP: true, Endpoint: server.URL + "/v1/logs"}
	e, err := otel.Open(t.Context(), c, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// shut closes an exporter within a time.
func shut(e *otel.Exporter, within time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	return e.Close(ctx)
}

func TestWhatASpanIs(t *testing.T) {
	var mu sync.Mutex
	var spans []*v1.Span
	e := open(t, otel.Config{}, func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		in := new(tracepb.ExportTraceServiceRequest)
		if err != nil || proto.Unmarshal(body, in) != nil {
			t.Errorf("%v", err)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		for _, r := range in.ResourceSpans {
			for _, s := range r.ScopeSpans {
				spans = append(spans, s.Spans...)
			}
		}
	})
	tracer := &span.Tracer{Sample: e.Sample, Tell: e.Tell}
	remote, _ := span.Parse("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "vendor=1")
	before := tracer.Begin(remote)
	start := time.Unix(1000, 5)
	s := &span.Span{
		Name: "engine.generate", Context: tracer.Begin(remote), Parent: remote, Kind: span.Server, Start: start, End: start.Add(time.Second),
		Links: []span.Context{before}, Error: "engine_shutdown",
	}
	s.Add("model", "m")
	s.Add("n", 7)
	s.Add("cancelled", true)
	s.Add("nothing", "")
	id := s.Context
	tracer.End(s)
	if err := shut(e, 5*time.Second); err != nil {
		t.Fatal(err)
	}
	if len(spans) != 1 {
		t.Fatalf("%d spans", len(spans))
	}
	got := spans[0]
	switch {
	case !bytes.Equal(got.TraceId, id.Trace[:]), !bytes.Equal(got.SpanId, id.ID[:]), !bytes.Equal(got.ParentSpanId, remote.ID[:]):
		t.Errorf("ids of %v", got)
	case got.StartTimeUnixNano != 1000e9+5, got.EndTimeUnixNano != 1001e9+5:
		t.Errorf("times of %v", got)
	case got.Kind != v1.Span_SPAN_KIND_SERVER, got.Status.Code != v1.Status_STATUS_CODE_ERROR, got.Status.Message != "engine_shutdown":
		t.Errorf("kind or status of %v", got)
	case len(got.Links) != 1 || !bytes.Equal(got.Links[0].SpanId, before.ID[:]):
		t.Errorf("links of %v", got)
	case len(got.Attributes) != 3 || got.Attributes[0].Value.GetStringValue() != "m" || got.Attributes[1].Value.GetIntValue() != 7 || !got.Attributes[2].Value.GetBoolValue():
		t.Errorf("attributes of %v", got)
	case got.TraceState != "vendor=1":
		t.Errorf("state of %v", got)
	}
	if c := e.Spans(); c != (otel.Counts{Told: 1, Sent: 1}) {
		t.Errorf("%+v", c)
	}
}

func TestSampling(t *testing.T) {
	for _, want := range []float64{0, .1, .5, 1} {
		e := open(t, otel.Config{Ratio: &want}, func(http.ResponseWriter, *http.Request) {})
		tracer := &span.Tracer{Sample: e.Sample, Tell: e.Tell}
		const n = 20000
		sampled := 0
		for range n {
			if c := tracer.Begin(span.Context{}); c.Sampled {
				sampled++
			}
		}
		if got := float64(sampled) / n; math.Abs(got-want) > .02 {
			t.Errorf("of %v of all traces %v are sampled", want, got)
		}
		for _, flags := range []string{"00", "01"} {
			remote, _ := span.Parse("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-"+flags, "")
			if c := tracer.Begin(remote); c.Flags() != flags {
				t.Errorf("a client says %s, and it became %s", flags, c.Flags())
			}
		}
		if err := shut(e, 5*time.Second); err != nil {
			t.Error(err)
		}
	}
}

// A collector that takes nothing, and says so at its leisure, fills the queue; what
// comes then is dropped, at once, and all of it is accounted for.
func TestSlowCollector(t *testing.T) {
	release := make(chan struct{})
	e := open(t, otel.Config{}, func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-release:
		case <-r.Context().Done():
		}
	})
	t.Cleanup(func() { close(release) })
	tracer := &span.Tracer{Sample: e.Sample, Tell: e.Tell}
	log := slog.New(e.Handler("test", slog.LevelInfo))
	const n = 30000
	var slowest time.Duration
	for range n {
		begun := time.Now()
		tracer.End(&span.Span{Name: "s", Context: tracer.Begin(span.Context{}), Start: begun, End: begun})
		slowest = max(slowest, time.Since(begun))
	}
	log.Info("hello", "n", 1)
	c := e.Spans()
	if c.Told != n || c.Dropped == 0 || c.Dropped > n-4096 {
		t.Errorf("%+v", c)
	}
	if slowest > 500*time.Millisecond {
		t.Errorf("somebody waited %v", slowest)
	}
	begun := time.Now()
	if err := shut(e, 300*time.Millisecond); err == nil {
		t.Error("it says that all was sent")
	}
	if took := time.Since(begun); took > 3*time.Second {
		t.Errorf("the end took %v", took)
	}
}

func TestLines(t *testing.T) {
	var mu sync.Mutex
	var bodies [][]byte
	e := open(t, otel.Config{}, func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		if r.URL.Path == "/v1/logs" {
			bodies = append(bodies, body)
		}
	})
	log := slog.New(e.Handler("test", slog.LevelInfo)).With("worker", "w-1").WithGroup("g")
	remote, _ := span.Parse("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "")
	ctx := span.With(context.Background(), &span.Within{Context: remote})
	log.InfoContext(ctx, "request moves", "n", 3, slog.Group("at", "rank", uint64(2)), "took", time.Second, "share", .5, "ok", true, "none", nil)
	log.Debug("unheard")
	if err := shut(e, 5*time.Second); err != nil {
		t.Fatal(err)
	}
	if len(bodies) != 1 || e.Lines() != (otel.Counts{Told: 1, Sent: 1}) {
		t.Fatalf("%d bodies, %+v", len(bodies), e.Lines())
	}
	for _, part := range []string{"request moves", "worker", "w-1", "g.n", "g.at.rank", "g.took", "1s", string(remote.Trace[:]), string(remote.ID[:]), "target"} {
		if !bytes.Contains(bodies[0], []byte(part)) {
			t.Errorf("no %q in what was sent", part)
		}
	}
	if bytes.Contains(bodies[0], []byte("unheard")) {
		t.Error("a line below the level was sent")
	}
}

// What a request pays for one span.
func BenchmarkTell(b *testing.B) {
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { io.Copy(io.Discard, r.Body) })) //nolint:errcheck // it is thrown away
	defer server.Close()
	e, err := otel.Open(b.Context(), otel.Config{Traces: otel.Export{HTTP: true, Endpoint: server.URL + "/v1/traces"}, Logs: otel.Export{HTTP: true, Endpoint: server.URL + "/v1/logs"}}, slog.New(slog.DiscardHandler))
	if err != nil {
		b.Fatal(err)
	}
	tracer := &span.Tracer{Sample: e.Sample, Tell: e.Tell}
	now := time.Now()
	b.ReportAllocs()
	for b.Loop() {
		s := &span.Span{Name: "kv_router.route_request", Context: tracer.Begin(span.Context{}), Start: now, End: now}
		s.Add("request_id", "0")
		s.Add("worker_id", "1")
		tracer.End(s)
	}
	shut(e, time.Second) //nolint:errcheck // much of it is dropped
}

func Example() {
	config, complaints := otel.Read(func(name string) (string, bool) {
		v, ok := map[string]string{"OTEL_EXPORT_ENABLED": "true", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}[name]
		return v, ok
	})
	fmt.Println(config.Enabled, config.Traces.Endpoint, len(complaints))
	// Output: true http://localhost:4318/v1/traces 0
}
