package main

import (
	"io"
	"log/slog"
	"os"

	"github.com/dynago/dynago/internal/otel"
	"github.com/dynago/dynago/trace"
	"github.com/dynago/dynago/trace/nats"
	"github.com/dynago/dynago/trace/otlp"
	"github.com/dynago/dynago/trace/s3"
)

// sinkSettings say where records go.
type sinkSettings struct {
	trace.Config
	telemetry *telemetrySettings // of a collector
	log       *slog.Logger
	stderr    io.Writer
}

// sinks make what takes records, by its name.
var sinks = map[string]func(sinkSettings) (trace.Sink, error){
	trace.SinkFile:   func(s sinkSettings) (trace.Sink, error) { return trace.OpenFile(s.File) },
	trace.SinkStderr: func(s sinkSettings) (trace.Sink, error) { return trace.NewStream(s.stderr), nil },
	trace.SinkOTel: func(s sinkSettings) (trace.Sink, error) {
		c, complaints := otel.ReadLogs(s.telemetry.lookup)
		for _, complaint := range complaints {
			s.log.Warn(complaint.String())
		}
		return otlp.Open(s.OTel, otlp.Target(c.Logs), c.Service)
	},
	trace.SinkS3:   func(s sinkSettings) (trace.Sink, error) { return s3.Open(s.S3, os.LookupEnv) },
	trace.SinkNATS: func(s sinkSettings) (trace.Sink, error) { return nats.Open(s.NATS, os.LookupEnv) },
}
