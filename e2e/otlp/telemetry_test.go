package otlp_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/dynago/dynago/internal/otel"
	"github.com/dynago/dynago/span"
)

// What the program tells of a request, two spans and a line, comes out of the receiver
// whole, over either protocol, which is set up as users do it.
func TestTelemetry(t *testing.T) {
	spans, logs := new(consumertest.TracesSink), new(consumertest.LogsSink)
	atGRPC, atHTTP := collector(t, spans, logs)
	for protocol, at := range map[string]string{"grpc": atGRPC, "http/protobuf": atHTTP} {
		t.Run(protocol, func(t *testing.T) {
			spans.Reset()
			logs.Reset()
			variables := map[string]string{
				"OTEL_EXPORT_ENABLED": "true", "OTEL_SERVICE_NAME": "frontend-7",
				"OTEL_EXPORTER_OTLP_PROTOCOL": protocol, "OTEL_EXPORTER_OTLP_ENDPOINT": "http://" + at,
			}
			config, complaints := otel.Read(func(name string) (string, bool) {
				v, ok := variables[name]
				return v, ok
			})
			if len(complaints) > 0 {
				t.Fatal(complaints)
			}
			e, err := otel.Open(t.Context(), config, slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}

			tracer := &span.Tracer{Sample: e.Sample, Tell: e.Tell}
			client, _ := span.Parse("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "vendor=1")
			earlier, parent, at := tracer.Begin(span.Context{}), tracer.Begin(client), time.Unix(1790000000, 5)
			child := tracer.Begin(parent)
			slog.New(e.Handler("router", slog.LevelInfo)).With("worker", "w-1").
				WarnContext(span.With(t.Context(), &span.Within{Context: child}), "request moves", "attempt", 2)
			tracer.End(&span.Span{
				Name: "engine.generate", Context: child, Parent: parent, Kind: span.Client, Start: at.Add(time.Millisecond), End: at.Add(time.Second),
				Attrs: []span.Attr{{Key: "model", Value: "m"}, {Key: "tokens", Value: int64(7)}, {Key: "cancelled", Value: true}},
				Links: []span.Context{earlier}, Error: "engine_shutdown",
			})
			tracer.End(&span.Span{Name: "http-request", Context: parent, Parent: client, Kind: span.Server, Start: at, End: at.Add(2 * time.Second)})
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			if err := e.Close(ctx); err != nil {
				t.Fatal(err)
			}

			if spans.SpanCount() != 2 || logs.LogRecordCount() != 1 {
				t.Fatalf("%d of 2 spans and %d of 1 lines came", spans.SpanCount(), logs.LogRecordCount())
			}
			told, said := spans.AllTraces()[0].ResourceSpans().At(0), logs.AllLogs()[0].ResourceLogs().At(0)
			for kind, from := range map[string]pcommon.Resource{"spans": told.Resource(), "lines": said.Resource()} {
				if name, _ := from.Attributes().Get("service.name"); name.Str() != "frontend-7" {
					t.Errorf("%s of service.name %q", kind, name.Str())
				}
			}
			list, line := told.ScopeSpans().At(0).Spans(), said.ScopeLogs().At(0).LogRecords().At(0)
			for _, c := range []struct{ what, got, want string }{
				{
					"child", ofSpan(list.At(0)),
					fmt.Sprintf(`0af7651916cd43dd8448eb211c80319c/%s in "%s" of vendor=1: Client engine.generate 1790000000.001000005..1790000001.000000005 map[cancelled:true model:m tokens:7] Error "engine_shutdown" links [%s/%s]`,
						child.SpanID(), parent.SpanID(), earlier.TraceID(), earlier.SpanID()),
				},
				{
					"parent", ofSpan(list.At(1)),
					fmt.Sprintf(`0af7651916cd43dd8448eb211c80319c/%s in "b7ad6b7169203331" of vendor=1: Server http-request 1790000000.000000005..1790000002.000000005 map[] Unset "" links []`,
						parent.SpanID()),
				},
				{
					"line", ofLine(line),
					fmt.Sprintf(`0af7651916cd43dd8448eb211c80319c/%s: Warn "request moves" map[attempt:2 target:router worker:w-1]`, child.SpanID()),
				},
			} {
				if c.got != c.want {
					t.Errorf("%s:\n%s, want\n%s", c.what, c.got, c.want)
				}
			}
		})
	}
}

// ofSpan writes down all that a span says.
func ofSpan(s ptrace.Span) string {
	links := []string{}
	for _, l := range s.Links().All() {
		links = append(links, fmt.Sprintf("%s/%s", l.TraceID(), l.SpanID()))
	}
	clock := func(at pcommon.Timestamp) string { return fmt.Sprintf("%d.%09d", at/1e9, at%1e9) }
	return fmt.Sprintf("%s/%s in %q of %s: %s %s %s..%s %v %s %q links %v", s.TraceID(), s.SpanID(), s.ParentSpanID(), s.TraceState().AsRaw(), s.Kind(), s.Name(),
		clock(s.StartTimestamp()), clock(s.EndTimestamp()), s.Attributes().AsRaw(), s.Status().Code(), s.Status().Message(), links)
}

// ofLine writes down what a line of the log says, but when.
func ofLine(r plog.LogRecord) string {
	return fmt.Sprintf("%s/%s: %s %q %v", r.TraceID(), r.SpanID(), r.SeverityNumber(), r.Body().Str(), r.Attributes().AsRaw())
}
