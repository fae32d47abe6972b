package main

import (
	"io"
	"log/slog"
	"os"

	"github.com/dynago/dynago/trace"
	"github.com/dynago/dynago/trace/nats"
	"github.com/dynago/dynago/trace/otlp"
	"github.com/dynago/dynago/trace/s3"
)

// sinks make what takes records, by its name.
var sinks = map[string]func(trace.Config, *slog.Logger, io.Writer) (trace.Sink, error){
	trace.SinkFile: func(c trace.Config, _ *slog.Logger, _ io.Writer) (trace.Sink, error) { return trace.OpenFile(c.File) },
	trace.SinkStderr: func(_ trace.Config, _ *slog.Logger, stderr io.Writer) (trace.Sink, error) {
		return trace.NewStream(stderr), nil
	},
	trace.SinkOTel: func(c trace.Config, log *slog.Logger, _ io.Writer) (trace.Sink, error) {
		s, complaints, err := otlp.Open(c.OTel, os.LookupEnv)
		for _, complaint := range complaints {
			log.Warn(complaint.String())
		}
		return s, err
	},
	trace.SinkS3: func(c trace.Config, _ *slog.Logger, _ io.Writer) (trace.Sink, error) {
		return s3.Open(c.S3, os.LookupEnv)
	},
	trace.SinkNATS: func(c trace.Config, _ *slog.Logger, _ io.Writer) (trace.Sink, error) {
		return nats.Open(c.NATS, os.LookupEnv)
	},
}
