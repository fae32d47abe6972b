package otel

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlplog/otlploggrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlplog/otlploghttp"
	"go.opentelemetry.io/otel/log"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/trace"

	sdklog "go.opentelemetry.io/otel/sdk/log"

	"github.com/dynago/dynago/span"
)

// lines sends lines of the log. It is used by one goroutine.
type lines struct {
	provider *sdklog.LoggerProvider
	logger   log.Logger
	counts   *counts
	handed   uint64
}

// waiting is how many lines may wait in the SDK, which would drop the oldest of more.
const waiting = 2048

func openLines(ctx context.Context, e Export, what *resource.Resource, c *counts) (*lines, error) {
	var exporter sdklog.Exporter
	var err error
	if e.HTTP {
		exporter, err = otlploghttp.New(ctx, otlploghttp.WithEndpointURL(e.Endpoint))
	} else {
		exporter, err = otlploggrpc.New(ctx, otlploggrpc.WithEndpointURL(e.Endpoint))
	}
	if err != nil {
		return nil, err
	}
	batches := sdklog.NewBatchProcessor(countingLines{exporter, c}, sdklog.WithMaxQueueSize(waiting))
	l := &lines{counts: c, provider: sdklog.NewLoggerProvider(sdklog.WithResource(what), sdklog.WithProcessor(batches))}
	l.logger = l.provider.Logger("github.com/dynago/dynago")
	return l, nil
}

// line is one line of the log.
type line struct {
	record slog.Record
	attrs  []attribute.KeyValue // of its logger
	prefix string               // of those of the record
	within span.Context
}

func (l *lines) emit(n *line) {
	if l.handed-l.counts.sent.Load()-l.counts.failed.Load() >= waiting {
		l.counts.dropped.Add(1)
		return
	}
	l.handed++
	var r log.Record
	r.SetTimestamp(n.record.Time)
	r.SetBody(attribute.StringValue(n.record.Message))
	r.SetSeverity(severity(n.record.Level))
	r.SetSeverityText(n.record.Level.String())
	r.AddAttributes(n.attrs...)
	n.record.Attrs(func(a slog.Attr) bool {
		r.AddAttributes(attrOf(n.prefix, a)...)
		return true
	})
	ctx := context.Background()
	if n.within.Valid() {
		ctx = trace.ContextWithRemoteSpanContext(ctx, contextOf(n.within))
	}
	l.logger.Emit(ctx, r)
}

func severity(level slog.Level) log.Severity {
	switch {
	case level < slog.LevelDebug:
		return log.SeverityTrace
	case level < slog.LevelInfo:
		return log.SeverityDebug
	case level < slog.LevelWarn:
		return log.SeverityInfo
	case level < slog.LevelError:
		return log.SeverityWarn
	}
	return log.SeverityError
}

// attrOf returns attributes in the words of the SDK, those of groups with dots.
func attrOf(prefix string, a slog.Attr) []attribute.KeyValue {
	v, key := a.Value.Resolve(), prefix+a.Key
	switch v.Kind() {
	case slog.KindString:
		return []attribute.KeyValue{attribute.String(key, v.String())}
	case slog.KindInt64:
		return []attribute.KeyValue{attribute.Int64(key, v.Int64())}
	case slog.KindUint64:
		if n := v.Uint64(); n>>63 == 0 {
			return []attribute.KeyValue{attribute.Int64(key, int64(n))}
		}
	case slog.KindFloat64:
		return []attribute.KeyValue{attribute.Float64(key, v.Float64())}
	case slog.KindBool:
		return []attribute.KeyValue{attribute.Bool(key, v.Bool())}
	case slog.KindTime:
		return []attribute.KeyValue{attribute.String(key, v.Time().Format(time.RFC3339Nano))}
	case slog.KindGroup:
		var all []attribute.KeyValue
		if key != "" {
			key += "."
		}
		for _, a := range v.Group() {
			all = append(all, attrOf(key, a)...)
		}
		return all
	}
	return []attribute.KeyValue{attribute.String(key, fmt.Sprint(v.Any()))}
}

// Handler returns a handler that exports lines of one part of the program, from a level
// on.
func (e *Exporter) Handler(target string, level slog.Leveler) slog.Handler {
	return &handler{exporter: e, level: level, attrs: []attribute.KeyValue{attribute.String("target", target)}}
}

type handler struct {
	exporter *Exporter
	level    slog.Leveler
	attrs    []attribute.KeyValue
	prefix   string
}

// Enabled implements slog.Handler.
func (h *handler) Enabled(_ context.Context, level slog.Level) bool { return level >= h.level.Level() }

// Handle implements slog.Handler.
func (h *handler) Handle(ctx context.Context, r slog.Record) error {
	n := &line{record: r.Clone(), attrs: h.attrs, prefix: h.prefix}
	if w := span.From(ctx); w != nil {
		n.within = w.Context
	}
	h.exporter.put(item{line: n}, &h.exporter.logged)
	return nil
}

// WithAttrs implements slog.Handler.
func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	c := *h
	c.attrs = slices.Clone(h.attrs)
	for _, a := range attrs {
		c.attrs = append(c.attrs, attrOf(h.prefix, a)...)
	}
	return &c
}

// WithGroup implements slog.Handler.
func (h *handler) WithGroup(name string) slog.Handler {
	c := *h
	c.prefix += name + "."
	return &c
}

// countingLines counts what became of lines.
type countingLines struct {
	sdklog.Exporter
	counts *counts
}

// Export implements sdklog.Exporter.
func (c countingLines) Export(ctx context.Context, records []sdklog.Record) error {
	err := c.Exporter.Export(ctx, records)
	if err != nil {
		c.counts.failed.Add(uint64(len(records)))
		return err
	}
	c.counts.sent.Add(uint64(len(records)))
	return nil
}
