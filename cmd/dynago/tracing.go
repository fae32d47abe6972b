package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/dynago/dynago/frontend"
	"github.com/dynago/dynago/internal/config"
	"github.com/dynago/dynago/trace"
)

// tracingSettings say what is recorded of requests, and where to. What they mean is
// read by [trace.Read], which bears more than flags do: of several variables the first
// counts whose value is good, and one that is not stops nobody.
type tracingSettings struct {
	On            bool   `name:"request-trace" env:"DYN_REQUEST_TRACE,DYN_AGENT_TRACE" negatable:"" lax:"" help:"Record what became of each request, and what tools did."`
	Records       string `name:"request-trace-records" env:"DYN_REQUEST_TRACE_RECORDS" placeholder:"LIST" help:"Record these instead: request_end, tool, and request_payload, which is what was said."`
	Payloads      bool   `name:"audit-force-logging" env:"DYN_AUDIT_FORCE_LOGGING" negatable:"" lax:"" help:"Older name of request_payload among --request-trace-records."`
	Sinks         string `name:"request-trace-sinks" env:"DYN_REQUEST_TRACE_SINKS,DYN_AUDIT_SINKS,DYN_AGENT_TRACE_SINKS" default:"file" placeholder:"LIST" help:"Where records go: file, stderr, nats, otel, s3."`
	FilePath      string `name:"request-trace-file-path" env:"DYN_REQUEST_TRACE_FILE_PATH,DYN_REQUEST_TRACE_OUTPUT_PATH,DYN_AUDIT_OUTPUT_PATH,DYN_AGENT_TRACE_OUTPUT_PATH" default:"/tmp/dynamo-request-trace" placeholder:"PATH" help:"The file, or what the names of compressed segments begin with."`
	FileFormat    string `name:"request-trace-file-format" env:"DYN_REQUEST_TRACE_FILE_FORMAT" default:"jsonl_gz" placeholder:"FORMAT" help:"jsonl is one file, jsonl_gz compressed segments."`
	Capacity      string `name:"request-trace-capacity" env:"DYN_REQUEST_TRACE_CAPACITY,DYN_AUDIT_CAPACITY,DYN_AGENT_TRACE_CAPACITY" default:"1024" placeholder:"N" help:"How many records may wait for a sink; the oldest of more are dropped."`
	FileBuffer    string `name:"request-trace-file-buffer-bytes" env:"DYN_REQUEST_TRACE_FILE_BUFFER_BYTES,DYN_REQUEST_TRACE_JSONL_BUFFER_BYTES,DYN_AUDIT_JSONL_BUFFER_BYTES,DYN_AGENT_TRACE_JSONL_BUFFER_BYTES" default:"1048576" placeholder:"BYTES" help:"How much is written at once."`
	FileFlush     string `name:"request-trace-file-flush-interval-ms" env:"DYN_REQUEST_TRACE_FILE_FLUSH_INTERVAL_MS,DYN_REQUEST_TRACE_JSONL_FLUSH_INTERVAL_MS,DYN_AUDIT_JSONL_FLUSH_INTERVAL_MS,DYN_AGENT_TRACE_JSONL_FLUSH_INTERVAL_MS" default:"1000" placeholder:"MS" help:"How long less is held back."`
	FileRoll      string `name:"request-trace-file-roll-bytes" env:"DYN_REQUEST_TRACE_FILE_ROLL_BYTES,DYN_REQUEST_TRACE_JSONL_GZ_ROLL_BYTES,DYN_AUDIT_JSONL_GZ_ROLL_BYTES,DYN_AGENT_TRACE_JSONL_GZ_ROLL_BYTES" default:"268435456" placeholder:"BYTES" help:"How long a segment may be before compression."`
	FileRollLines string `name:"request-trace-file-roll-lines" env:"DYN_REQUEST_TRACE_FILE_ROLL_LINES,DYN_REQUEST_TRACE_JSONL_GZ_ROLL_LINES,DYN_AUDIT_JSONL_GZ_ROLL_LINES,DYN_AGENT_TRACE_JSONL_GZ_ROLL_LINES" placeholder:"N" help:"How many records a segment may have; otherwise any number."`
	NATSSubject   string `name:"request-trace-nats-subject" env:"DYN_REQUEST_TRACE_NATS_SUBJECT,DYN_AUDIT_NATS_SUBJECT" default:"dynamo.request_trace.v1" placeholder:"SUBJECT" help:"What records are published as."`
	OTelMax       string `name:"request-trace-otel-max-payload-bytes" env:"DYN_REQUEST_TRACE_OTEL_MAX_PAYLOAD_BYTES,DYN_AUDIT_OTEL_MAX_PAYLOAD_BYTES" default:"4194304" placeholder:"BYTES" help:"How long a record may be that goes to a collector."`
	S3Bucket      string `name:"request-trace-s3-bucket" env:"DYN_REQUEST_TRACE_S3_BUCKET" placeholder:"NAME" help:"Bucket that objects of records go to."`
	S3Region      string `name:"request-trace-s3-region" env:"DYN_REQUEST_TRACE_S3_REGION" placeholder:"NAME" help:"Its region."`
	S3Prefix      string `name:"request-trace-s3-prefix" env:"DYN_REQUEST_TRACE_S3_PREFIX" placeholder:"PREFIX" help:"What their keys begin with."`
	S3Roll        string `name:"request-trace-s3-roll-uncompressed-bytes" env:"DYN_REQUEST_TRACE_S3_ROLL_UNCOMPRESSED_BYTES" default:"67108864" placeholder:"BYTES" help:"How long an object may be before compression."`
	S3Flush       string `name:"request-trace-s3-flush-interval-ms" env:"DYN_REQUEST_TRACE_S3_FLUSH_INTERVAL_MS" default:"10000" placeholder:"MS" help:"How long records wait for one."`
	ToolEndpoint  string `name:"request-trace-tool-events-zmq-endpoint" env:"DYN_REQUEST_TRACE_TOOL_EVENTS_ZMQ_ENDPOINT,DYN_AGENT_TRACE_TOOL_EVENTS_ZMQ_ENDPOINT" placeholder:"ENDPOINT" help:"Take what harnesses tell of tools at this ZMQ address, such as tcp://127.0.0.1:20390."`
	ToolTopic     string `name:"request-trace-tool-events-zmq-topic" env:"DYN_REQUEST_TRACE_TOOL_EVENTS_ZMQ_TOPIC,DYN_AGENT_TRACE_TOOL_EVENTS_ZMQ_TOPIC" default:"agent-tool-events" placeholder:"TOPIC" help:"First frame of what they send."`
	Headers       string `name:"request-trace-http-header-capture-list" env:"DYN_REQUEST_TRACE_HTTP_HEADER_CAPTURE_LIST" placeholder:"LIST" help:"Headers of requests that request_payload has; values of keys are never told."`
}

// config reads the settings. Flags and the file win over the environment, and have no
// other names; what is wrong with them is an error.
func (tracingSettings) config(parsed *config.Parsed, log *slog.Logger) (trace.Config, error) {
	said, flags := map[string]string{}, map[string]string{}
	for _, s := range parsed.Settings() {
		if len(s.Envs) == 0 || !strings.HasPrefix(s.Envs[0], "DYN_REQUEST_TRACE") && s.Envs[0] != "DYN_AUDIT_FORCE_LOGGING" {
			continue
		}
		if s.Source == "default" || slices.Contains(s.Envs, s.Source) {
			continue
		}
		for _, name := range s.Envs {
			said[name] = ""
		}
		said[s.Envs[0]], flags[s.Envs[0]] = s.Value, s.Name
	}
	c, complaints := trace.Read(func(name string) (string, bool) {
		if value, ok := said[name]; ok {
			return value, value != ""
		}
		return os.LookupEnv(name)
	})
	for _, complaint := range complaints {
		if flag := flags[complaint.Name]; flag != "" {
			complaint.Name = "--" + flag
			return c, fmt.Errorf("%s", complaint)
		}
		log.Warn(complaint.String())
	}
	return c, nil
}

// tracing carries records to where they are kept. A nil one is that of a program that
// records nothing.
type tracing struct {
	config trace.Config
	bus    *trace.Bus
	log    *slog.Logger
	tools  *toolsTold
}

// open begins to record. Whatever cannot be opened is left out: a program that cannot
// tell of its work does it all the same.
func (s *tracingSettings) open(parsed *config.Parsed, collector *telemetrySettings, log *slog.Logger, stderr io.Writer) (*tracing, error) {
	c, err := s.config(parsed, log)
	if err != nil {
		return nil, err
	}
	if !c.Enabled() {
		if c.ToolEndpoint != "" {
			log.Warn("tool events are not taken: nothing is recorded", "endpoint", c.ToolEndpoint, "set", "DYN_REQUEST_TRACE=1")
		}
		return nil, nil
	}
	var open []trace.Sink
	var names []string
	for _, name := range c.Sinks {
		sink, err := openSink(name, sinkSettings{c, collector, log, stderr})
		if err != nil {
			log.Warn("trace sink does not open, and is left out", "sink", name, "error", err)
			continue
		}
		open, names = append(open, sink), append(names, name)
	}
	if len(open) == 0 {
		log.Warn("nothing is recorded: no trace sink is open")
		return nil, nil
	}
	log.Info("Request trace sinks ready", "sinks", strings.Join(names, ","))
	t := &tracing{config: c, bus: trace.NewBus(c.Capacity, log, open...), log: log}
	t.takeTools()
	return t, nil
}

func openSink(name string, s sinkSettings) (trace.Sink, error) {
	open := sinks[name]
	if open == nil {
		return nil, fmt.Errorf("this version has no sink %q", name)
	}
	return open(s)
}

// frontend returns what a server tells of its requests, or nil.
func (t *tracing) frontend() *frontend.Tracing {
	if t == nil {
		return nil
	}
	return &frontend.Tracing{
		Publish: t.bus.Publish, RequestEnds: t.config.RequestEnds, Payloads: t.config.Payloads, Headers: t.config.Headers,
		Tools: t.tools.over(),
	}
}

// lastWords is how long records may take to be written when the program ends.
const lastWords = 5 * time.Second

// close writes what is left.
func (t *tracing) close() {
	if t == nil {
		return
	}
	t.tools.close()
	ctx, cancel := context.WithTimeout(context.Background(), lastWords)
	defer cancel()
	if err := t.bus.Close(ctx); err != nil {
		t.log.Warn("the end of the trace is not written", "error", err)
	}
}

var (
	traceRecords = prometheus.NewDesc("dynago_request_trace_records_total", "Records of the request trace that were meant for a sink.", []string{"sink"}, nil)
	traceDropped = prometheus.NewDesc("dynago_request_trace_dropped_total", "Those of them that it did not get, because it was too slow, or could not keep.", []string{"sink"}, nil)
	traceErrors  = prometheus.NewDesc("dynago_request_trace_errors_total", "Failures of a sink of the request trace.", []string{"sink"}, nil)
)

// Describe implements prometheus.Collector.
func (*tracing) Describe(ch chan<- *prometheus.Desc) {
	ch <- traceRecords
	ch <- traceDropped
	ch <- traceErrors
	ch <- toolEvents
}

// Collect implements prometheus.Collector.
func (t *tracing) Collect(ch chan<- prometheus.Metric) {
	if t == nil {
		return
	}
	for _, s := range t.bus.Status() {
		ch <- prometheus.MustNewConstMetric(traceRecords, prometheus.CounterValue, float64(s.Published), s.Sink)
		ch <- prometheus.MustNewConstMetric(traceDropped, prometheus.CounterValue, float64(s.Dropped), s.Sink)
		ch <- prometheus.MustNewConstMetric(traceErrors, prometheus.CounterValue, float64(s.Failed), s.Sink)
	}
	t.tools.collect(ch)
}
