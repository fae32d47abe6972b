// Package otel is the one room that knows the SDK of OpenTelemetry. It takes spans that
// have ended and lines of the log, and sends them to a collector, over gRPC or HTTP.
//
// The one idea: a request puts a pointer into a queue, and a goroutine here does the
// rest. Spans come with their ids and times, and the SDK is made to use those. A
// collector that is slow or dead fills the queue; what finds no room in it is dropped
// and counted.
package otel

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	api "go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/dynago/dynago/span"
)

// capacity is how many spans and lines may wait for the SDK, beside those that wait in
// it for their batch.
const capacity = 4096

// Exporter sends spans and lines to collectors. Its methods may be called from any
// goroutine.
type Exporter struct {
	tracer   trace.Tracer
	provider *sdk.TracerProvider
	sampler  sdk.Sampler
	lines    *lines

	queue   chan item
	stop    chan struct{}
	stopped sync.Once
	done    chan struct{}

	spans, logged counts
}

// item is a span or a line.
type item struct {
	span *span.Span
	line *line
}

// counts are of spans, or of lines.
type counts struct{ told, dropped, sent, failed atomic.Uint64 }

// Counts tell what became of spans, or of lines, since the start. Those that are in no
// other count but Told still wait.
type Counts struct{ Told, Dropped, Sent, Failed uint64 }

func (c *counts) read() Counts {
	return Counts{c.told.Load(), c.dropped.Load(), c.sent.Load(), c.failed.Load()}
}

// Open begins to export. It dials when there is something to send, so that a collector
// which is not there yet is no error.
func Open(ctx context.Context, c Config, log *slog.Logger) (*Exporter, error) {
	e := &Exporter{queue: make(chan item, capacity), stop: make(chan struct{}), done: make(chan struct{})}
	exporter, err := c.Traces.spans(ctx)
	if err != nil {
		return nil, fmt.Errorf("export of spans to %s: %w", c.Traces.Endpoint, err)
	}
	what := resource.NewSchemaless(attribute.String("service.name", c.Service))
	if e.lines, err = openLines(ctx, c.Logs, what, &e.logged); err != nil {
		return nil, fmt.Errorf("export of logs to %s: %w", c.Logs.Endpoint, err)
	}
	root := sdk.AlwaysSample()
	if c.Ratio != nil {
		root = sdk.TraceIDRatioBased(*c.Ratio)
	}
	e.sampler = sdk.ParentBased(root)
	e.provider = sdk.NewTracerProvider(
		sdk.WithResource(what), sdk.WithSampler(e.sampler), sdk.WithIDGenerator(given{}),
		// It is our own goroutine that waits for room.
		sdk.WithBatcher(counting{exporter, &e.spans}, sdk.WithBlocking(), sdk.WithBatchTimeout(time.Second)),
	)
	e.tracer = e.provider.Tracer("github.com/dynago/dynago")
	var last atomic.Int64
	api.SetErrorHandler(api.ErrorHandlerFunc(func(err error) {
		now := time.Now().Unix()
		if before := last.Load(); now-before >= 60 && last.CompareAndSwap(before, now) {
			log.Warn("telemetry does not reach its collector; what it tells may be lost", "error", err)
		}
	}))
	go e.run()
	return e, nil
}

// spans makes what sends spans.
func (e Export) spans(ctx context.Context) (sdk.SpanExporter, error) {
	if e.HTTP {
		return otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(e.Endpoint))
	}
	return otlptracegrpc.New(ctx, otlptracegrpc.WithEndpointURL(e.Endpoint))
}

// Sample says whether a new trace is told of.
func (e *Exporter) Sample(id [16]byte) bool {
	return e.sampler.ShouldSample(sdk.SamplingParameters{TraceID: id, ParentContext: context.Background()}).Decision == sdk.RecordAndSample
}

// Tell takes a span, which belongs to it then. It does not wait.
func (e *Exporter) Tell(s *span.Span) { e.put(item{span: s}, &e.spans) }

func (e *Exporter) put(i item, c *counts) {
	c.told.Add(1)
	select {
	case e.queue <- i:
	default:
		c.dropped.Add(1)
	}
}

// Spans and Lines tell what became of them.
func (e *Exporter) Spans() Counts { return e.spans.read() }

// Lines is Spans for lines of the log.
func (e *Exporter) Lines() Counts { return e.logged.read() }

// run hands over what comes, until it is told to stop and nothing is left.
func (e *Exporter) run() {
	defer close(e.done)
	for {
		select {
		case i := <-e.queue:
			e.hand(i)
			continue
		default:
		}
		select {
		case i := <-e.queue:
			e.hand(i)
		case <-e.stop:
			return
		}
	}
}

func (e *Exporter) hand(i item) {
	if i.line != nil {
		e.lines.emit(i.line)
		return
	}
	e.record(i.span)
}

// record lets the SDK make its own span of one of ours.
func (e *Exporter) record(s *span.Span) {
	ctx := context.WithValue(context.Background(), given{}, s.Context)
	if s.Parent.Valid() {
		ctx = trace.ContextWithRemoteSpanContext(ctx, contextOf(s.Parent))
	}
	links := make([]trace.Link, len(s.Links))
	for i, l := range s.Links {
		links[i].SpanContext = contextOf(l)
	}
	kind := map[span.Kind]trace.SpanKind{span.Internal: trace.SpanKindInternal, span.Server: trace.SpanKindServer, span.Client: trace.SpanKindClient}[s.Kind]
	_, made := e.tracer.Start(ctx, s.Name, trace.WithTimestamp(s.Start), trace.WithSpanKind(kind), trace.WithAttributes(attributes(s.Attrs)...), trace.WithLinks(links...))
	if s.Error != "" {
		made.SetStatus(codes.Error, s.Error)
	}
	made.End(trace.WithTimestamp(s.End))
}

// contextOf returns a context in the words of the SDK.
func contextOf(c span.Context) trace.SpanContext {
	var flags trace.TraceFlags
	if c.Sampled {
		flags = trace.FlagsSampled
	}
	state, _ := trace.ParseTraceState(c.State) // others' states that are not valid are left out
	return trace.NewSpanContext(trace.SpanContextConfig{TraceID: c.Trace, SpanID: c.ID, TraceFlags: flags, TraceState: state})
}

func attributes(attrs []span.Attr) []attribute.KeyValue {
	list := make([]attribute.KeyValue, 0, len(attrs))
	for _, a := range attrs {
		switch v := a.Value.(type) {
		case string:
			list = append(list, attribute.String(a.Key, v))
		case int64:
			list = append(list, attribute.Int64(a.Key, v))
		case bool:
			list = append(list, attribute.Bool(a.Key, v))
		}
	}
	return list
}

// Close sends what is left, as long as ctx lasts. It may be called once.
func (e *Exporter) Close(ctx context.Context) error {
	e.stopped.Do(func() { close(e.stop) })
	select {
	case <-e.done:
	case <-ctx.Done():
	}
	lines := make(chan error, 1)
	go func() { lines <- e.lines.provider.Shutdown(ctx) }()
	err := e.provider.Shutdown(ctx)
	if failed := <-lines; err == nil {
		err = failed
	}
	return err
}

// given is the generator of ids that were made already: those in the context.
type given struct{}

// NewIDs implements sdk.IDGenerator.
func (given) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	c, _ := ctx.Value(given{}).(span.Context)
	return c.Trace, c.ID
}

// NewSpanID implements sdk.IDGenerator.
func (given) NewSpanID(ctx context.Context, _ trace.TraceID) trace.SpanID {
	c, _ := ctx.Value(given{}).(span.Context)
	return c.ID
}

// counting counts what became of spans.
type counting struct {
	sdk.SpanExporter
	counts *counts
}

// ExportSpans implements sdk.SpanExporter.
func (c counting) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	err := c.SpanExporter.ExportSpans(ctx, spans)
	if err != nil {
		c.counts.failed.Add(uint64(len(spans)))
		return err
	}
	c.counts.sent.Add(uint64(len(spans)))
	return nil
}
