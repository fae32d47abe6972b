// Package otlp sends the records of a trace to a collector, each as a log record of
// OpenTelemetry, over gRPC or HTTP.
//
// The one idea: the bus before it is the queue. The SDK makes log records and its
// exporters send them, but nothing waits in a second ring whose losses nobody sees: a
// batch is sent by the goroutine that brought it, and what is lost is told.
package otlp

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/log"
	sdk "go.opentelemetry.io/otel/sdk/log"
	"go.opentelemetry.io/otel/sdk/resource"

	"github.com/dynago/dynago/trace"
)

// Bounds of a batch. Receivers take messages of 4 MiB by default; a record that is
// larger alone goes alone.
const (
	batchRecords  = 512
	batchBytes    = 2 << 20
	batchInterval = time.Second
)

// Sink is a [trace.Sink] to a collector.
type Sink struct {
	exporter sdk.Exporter
	logger   log.Logger
	most     int // bytes of a record in JSON

	held  []sdk.Record
	bytes int // of held records
}

// Open returns a sink to a collector, which need not be there yet. Records come from the
// service of that name; what OTEL_RESOURCE_ATTRIBUTES says is told as well.
func Open(c trace.OTelConfig, to Target, service string) (*Sink, error) {
	exporter, err := to.exporter()
	if err != nil {
		return nil, fmt.Errorf("trace/otlp: %s: %w", to.Endpoint, err)
	}
	return newSink(exporter, service, c.MaxPayloadBytes), nil
}

func newSink(exporter sdk.Exporter, service string, most int) *Sink {
	s := &Sink{exporter: exporter, most: most}
	provider := sdk.NewLoggerProvider(
		sdk.WithResource(resource.NewSchemaless(attribute.String("service.name", service))),
		sdk.WithProcessor(keeper{s}),
		sdk.WithAttributeValueLengthLimit(-1), // half a payload is no JSON
	)
	s.logger = provider.Logger("dynamo.request_trace")
	return s
}

// keeper puts the log records that the SDK makes into a sink's batch.
type keeper struct{ *Sink }

func (keeper) Enabled(context.Context, sdk.EnabledParameters) bool { return true }
func (keeper) Shutdown(context.Context) error                      { return nil }
func (keeper) ForceFlush(context.Context) error                    { return nil }
func (k keeper) OnEmit(_ context.Context, r *sdk.Record) error {
	k.held = append(k.held, r.Clone())
	return nil
}

// Name implements [trace.Sink].
func (*Sink) Name() string { return trace.SinkOTel }

// Interval implements [trace.Ticker].
func (*Sink) Interval() time.Duration { return batchInterval }

// Tick implements [trace.Ticker].
func (s *Sink) Tick(ctx context.Context) error { return s.flush(ctx) }

// Write implements [trace.Sink].
func (s *Sink) Write(ctx context.Context, records []*trace.Record) error {
	lost := &trace.Lost{}
	add := func(n int, err error) {
		if err != nil {
			lost.Records += n
			lost.Err = err
		}
	}
	for _, r := range records {
		r, payload, err := s.fit(r)
		if err != nil {
			add(1, err)
			continue
		}
		if len(s.held) == batchRecords || len(s.held) > 0 && s.bytes+len(payload) > batchBytes {
			add(rejected(s.flush(ctx)))
		}
		s.emit(r, payload)
	}
	if s.bytes >= batchBytes {
		add(rejected(s.flush(ctx)))
	}
	if lost.Err != nil {
		return lost
	}
	return nil
}

// rejected splits what flush has returned.
func rejected(err error) (int, error) {
	if lost, ok := err.(*trace.Lost); ok {
		return lost.Records, lost.Err
	}
	return 0, err
}

// fit returns a record that is no larger than may be, and its JSON: of what was said
// only that it was.
func (s *Sink) fit(r *trace.Record) (*trace.Record, []byte, error) {
	b, err := r.Append(nil)
	if err != nil || len(b) <= s.most {
		return r, b, err
	}
	if r.Payload == nil {
		return nil, nil, fmt.Errorf("trace/otlp: a record %s of %d bytes is larger than %d", r.EventType, len(b), s.most)
	}
	marker, payload := *r, *r.Payload
	marker.Payload = &payload
	payload.Request, payload.Response, payload.Complete = nil, nil, false
	payload.DropReason = fmt.Sprintf("otel_payload_too_large:max_bytes=%d:actual_bytes=%d", s.most, len(b))
	if b, err = marker.Append(b[:0]); err == nil && len(b) > s.most {
		payload.Headers = nil
		b, err = marker.Append(b[:0])
	}
	return &marker, b, err
}

// emit adds a record to the batch.
func (s *Sink) emit(r *trace.Record, payload []byte) {
	var l log.Record
	l.SetTimestamp(time.UnixMilli(int64(r.EventTime)))
	l.SetObservedTimestamp(time.Now())
	l.SetSeverity(log.SeverityInfo)
	l.SetSeverityText("INFO")
	l.SetBody(attribute.StringValue(r.EventType))
	l.AddAttributes(attribute.String("schema", r.Schema), attribute.String("event_type", r.EventType))
	if id := r.RequestID(); id != "" {
		l.AddAttributes(attribute.String("rid", id))
	}
	if model := r.Model(); model != "" {
		l.AddAttributes(attribute.String("model", model))
	}
	complete := true
	if p := r.Payload; p != nil {
		complete = p.Complete
		l.AddAttributes(attribute.String("endpoint", p.Endpoint))
		if !complete {
			l.AddAttributes(attribute.String("payload_drop_reason", p.DropReason))
		}
	}
	l.AddAttributes(attribute.Bool("payload_complete", complete), attribute.String("payload", string(payload)))
	// No context: a record belongs to no span, since it is made when all have ended.
	s.logger.Emit(context.Background(), l)
	s.bytes += len(payload)
}

// flush sends the batch, or loses it.
func (s *Sink) flush(ctx context.Context) error {
	if len(s.held) == 0 {
		return nil
	}
	n := len(s.held)
	err := s.exporter.Export(ctx, s.held)
	clear(s.held)
	s.held, s.bytes = s.held[:0], 0
	if err == nil {
		return nil
	}
	return &trace.Lost{Records: min(n, refused(err, n)), Err: fmt.Errorf("trace/otlp: send %d records: %w", n, err)}
}

// partly is how exporters tell that a collector has taken a batch but for some.
var partly = regexp.MustCompile(`partial success: .*\((\d+) logs? rejected\)`)

// refused returns how many of n records an error is about.
func refused(err error, n int) int {
	if m := partly.FindStringSubmatch(err.Error()); m != nil {
		if some, err := strconv.Atoi(m[1]); err == nil {
			return some
		}
	}
	return n
}

// Close implements [trace.Sink].
func (s *Sink) Close(ctx context.Context) error {
	err := s.flush(ctx)
	if end := s.exporter.Shutdown(ctx); err == nil && end != nil {
		err = fmt.Errorf("trace/otlp: close: %w", end)
	}
	return err
}
