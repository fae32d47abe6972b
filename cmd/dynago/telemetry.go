package main

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/internal/otel"
)

// telemetrySettings say where spans and logs are exported to. What is wrong with them is
// told, and stops nobody.
type telemetrySettings struct {
	Export         string `name:"otel-export-enabled" env:"OTEL_EXPORT_ENABLED" placeholder:"BOOL" help:"Export spans of requests and log lines to an OpenTelemetry collector."`
	Protocol       string `name:"otel-exporter-otlp-protocol" env:"OTEL_EXPORTER_OTLP_PROTOCOL" placeholder:"NAME" help:"grpc or http/protobuf; otherwise grpc."`
	TracesProtocol string `name:"otel-exporter-otlp-traces-protocol" env:"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL" placeholder:"NAME" help:"The same for spans alone."`
	LogsProtocol   string `name:"otel-exporter-otlp-logs-protocol" env:"OTEL_EXPORTER_OTLP_LOGS_PROTOCOL" placeholder:"NAME" help:"The same for logs alone."`
	Endpoint       string `name:"otel-exporter-otlp-endpoint" env:"OTEL_EXPORTER_OTLP_ENDPOINT" placeholder:"URL" help:"Collector; over HTTP, /v1/traces and /v1/logs are added. Otherwise http://localhost:4317, and port 4318 over HTTP."`
	TracesEndpoint string `name:"otel-exporter-otlp-traces-endpoint" env:"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT" placeholder:"URL" help:"Where spans go, as it is."`
	LogsEndpoint   string `name:"otel-exporter-otlp-logs-endpoint" env:"OTEL_EXPORTER_OTLP_LOGS_ENDPOINT" placeholder:"URL" help:"Where logs go, as it is."`
	Ratio          string `name:"otel-traces-sample-ratio" env:"OTEL_TRACES_SAMPLE_RATIO" placeholder:"X" help:"Share of new traces that is exported, 0 to 1; otherwise all. Traces of clients are if the client says so."`
	Service        string `name:"otel-service-name" env:"OTEL_SERVICE_NAME" placeholder:"NAME" help:"Name of this service; otherwise dynamo."`
}

// lookup returns settings by the names of their variables.
func (s *telemetrySettings) lookup(name string) (string, bool) {
	v := map[string]string{
		"OTEL_EXPORT_ENABLED":                s.Export,
		"OTEL_EXPORTER_OTLP_PROTOCOL":        s.Protocol,
		"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": s.TracesProtocol,
		"OTEL_EXPORTER_OTLP_LOGS_PROTOCOL":   s.LogsProtocol,
		"OTEL_EXPORTER_OTLP_ENDPOINT":        s.Endpoint,
		"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": s.TracesEndpoint,
		"OTEL_EXPORTER_OTLP_LOGS_ENDPOINT":   s.LogsEndpoint,
		"OTEL_TRACES_SAMPLE_RATIO":           s.Ratio,
		"OTEL_SERVICE_NAME":                  s.Service,
	}[name]
	return v, v != ""
}

// telemetry is what goes to a collector. The zero value exports nothing.
type telemetry struct{ exporter *otel.Exporter }

// export begins to export spans and lines, if that is asked for. Loggers that were made
// before know nothing of it.
func (l *logSet) export(s *telemetrySettings) error {
	log := l.target("telemetry")
	c, complaints := otel.Read(s.lookup)
	for _, complaint := range complaints {
		// Where nothing is exported, variables that are there for others say nothing.
		if c.Enabled || complaint.Name == "OTEL_EXPORT_ENABLED" {
			log.Warn(complaint.String())
		}
	}
	if !c.Enabled {
		return nil
	}
	e, err := otel.Open(context.Background(), c, log)
	if err != nil {
		return fmt.Errorf("telemetry: %w", err)
	}
	l.telemetry.exporter = e
	log.Info("spans and logs are exported", "traces", c.Traces.Endpoint, "logs", c.Logs.Endpoint)
	return nil
}

// flushTime is how long what is left may take to be sent when the program ends.
const flushTime = 2 * time.Second

// close sends what is left.
func (l *logSet) close() {
	e := l.telemetry.exporter
	if e == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), flushTime)
	defer cancel()
	if err := e.Close(ctx); err != nil {
		slog.New(l.config.NewHandler(l.out, &l.mu, "telemetry", l.filter.Level("telemetry"))).
			Warn("the end of what was to be exported is not sent", "error", err)
	}
}

// engineSpans returns what tells of generations, or nil if nobody asks. Instance names a
// worker that other processes ask; "" is those of this one.
func (l *logSet) engineSpans(instance string) *engine.Spans {
	t := l.tracer()
	if t == nil {
		return nil
	}
	return &engine.Spans{Tracer: t, InstanceID: instance, Served: instance != ""}
}

var telemetryItems = prometheus.NewDesc("dynago_telemetry_items_total",
	"Spans and log lines for the collector of telemetry, by what became of them: told are all, sent those that it took, dropped those for which there was no room, failed those that it did not take.",
	[]string{"signal", "result"}, nil)

// Describe implements prometheus.Collector.
func (*telemetry) Describe(ch chan<- *prometheus.Desc) { ch <- telemetryItems }

// Collect implements prometheus.Collector.
func (t *telemetry) Collect(ch chan<- prometheus.Metric) {
	if t.exporter == nil {
		return
	}
	for signal, c := range map[string]otel.Counts{"traces": t.exporter.Spans(), "logs": t.exporter.Lines()} {
		for result, n := range map[string]uint64{"told": c.Told, "dropped": c.Dropped, "sent": c.Sent, "failed": c.Failed} {
			ch <- prometheus.MustNewConstMetric(telemetryItems, prometheus.CounterValue, float64(n), signal, result)
		}
	}
}
