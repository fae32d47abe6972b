package trace_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dynago/dynago/trace"
)

// variables is an environment.
type variables map[string]string

func (v variables) read() (trace.Config, []trace.Complaint) {
	return trace.Read(func(name string) (string, bool) {
		value, ok := v[name]
		return value, ok
	})
}

// defaults is what holds where nothing is said.
func defaults() trace.Config {
	return trace.Config{
		Sinks: []string{"file"}, Capacity: 1024,
		File: trace.FileConfig{Path: "/tmp/dynamo-request-trace", BufferBytes: 1 << 20, FlushInterval: time.Second, RollBytes: 256 << 20},
		NATS: trace.NATSConfig{Subject: "dynamo.request_trace.v1"},
		OTel: trace.OTelConfig{MaxPayloadBytes: 4 << 20},
		S3:   trace.S3Config{RollBytes: 64 << 20, FlushInterval: 10 * time.Second},
	}
}

func TestRead(t *testing.T) {
	const p = "DYN_REQUEST_TRACE"
	on := func(c *trace.Config) { c.RequestEnds, c.Tools = true, true }
	for _, tc := range []struct {
		name     string
		env      variables
		want     func(c *trace.Config)
		complain string // names of variables that are complained of
	}{
		{"nothing", nil, func(*trace.Config) {}, ""},

		{"master switch", variables{p: "1"}, on, ""},
		{"in other words", variables{p: " YES "}, on, ""},
		{"off", variables{p: "off"}, func(*trace.Config) {}, ""},
		{"no word for it", variables{p: "banana"}, func(*trace.Config) {}, p},
		{"no word under one name", variables{p: "banana", "DYN_AGENT_TRACE": " 0 ", p + "_RECORDS": "tool"}, func(c *trace.Config) { c.Tools = true }, p},
		{"no word under the old name", variables{p: "1", "DYN_AGENT_TRACE": "banana"}, on, "DYN_AGENT_TRACE"},

		{"records by name", variables{p + "_RECORDS": "request_payload"}, func(c *trace.Config) { c.Payloads = true }, ""},
		{"all records", variables{p + "_RECORDS": " request_end, REQUEST_PAYLOAD ,tool,"}, func(c *trace.Config) { on(c); c.Payloads = true }, ""},
		{"names of tools", variables{p + "_RECORDS": "tools"}, func(c *trace.Config) { c.Tools = true }, ""},
		{"kinds of tools", variables{p + "_RECORDS": "tool_start,tool_end,tool_error"}, func(c *trace.Config) { c.Tools = true }, ""},
		{"records replace", variables{p: "1", p + "_RECORDS": "request_end"}, func(c *trace.Config) { c.RequestEnds = true }, ""},
		{"no records", variables{p: "1", p + "_RECORDS": " , "}, func(*trace.Config) {}, ""},
		{"blank records", variables{p: "1", p + "_RECORDS": "  "}, on, ""},
		{"unknown record", variables{p + "_RECORDS": "tool,spans"}, func(c *trace.Config) { c.Tools = true }, p + "_RECORDS"},
		{"payloads by their old name", variables{"DYN_AUDIT_FORCE_LOGGING": "true"}, func(c *trace.Config) { c.Payloads = true }, ""},
		{"payloads by no word", variables{p: "1", "DYN_AUDIT_FORCE_LOGGING": "full"}, on, "DYN_AUDIT_FORCE_LOGGING"},
		{"both switches", variables{p: "1", "DYN_AUDIT_FORCE_LOGGING": "true"}, func(c *trace.Config) { on(c); c.Payloads = true }, ""},
		{"old name and records", variables{"DYN_AUDIT_FORCE_LOGGING": "true", p + "_RECORDS": "tool"}, func(c *trace.Config) { c.Tools = true }, ""},

		{"sinks alone", variables{p + "_SINKS": "stderr"}, func(c *trace.Config) { c.Sinks = []string{"stderr"} }, ""},
		{"all sinks", variables{p + "_SINKS": "s3, otel,NATS,stderr,file,s3"}, func(c *trace.Config) { c.Sinks = []string{"s3", "otel", "nats", "stderr", "file"} }, ""},
		{"no sinks", variables{p + "_SINKS": ","}, func(c *trace.Config) { c.Sinks = []string{"stderr"} }, ""},
		{"unknown sink", variables{p + "_SINKS": "kafka,stderr"}, func(c *trace.Config) { c.Sinks = []string{"stderr"} }, p + "_SINKS"},
		{"only unknown sinks", variables{p + "_SINKS": "kafka"}, func(c *trace.Config) { c.Sinks = nil }, p + "_SINKS"},
		{"jsonl", variables{p + "_SINKS": "jsonl"}, func(c *trace.Config) { c.File.Plain = true }, ""},
		{"jsonl_gz", variables{p + "_SINKS": "jsonl_gz"}, func(*trace.Config) {}, ""},
		{"both", variables{p + "_SINKS": "jsonl,jsonl_gz"}, func(*trace.Config) {}, ""},
		{"sinks of audit", variables{"DYN_AUDIT_SINKS": "jsonl,nats"}, func(c *trace.Config) {
			c.Sinks, c.File.Plain, c.NATS.Subject = []string{"file", "nats"}, true, "dynamo.audit.v1"
		}, ""},
		{"sinks of audit without nats", variables{"DYN_AUDIT_SINKS": "stderr"}, func(c *trace.Config) { c.Sinks = []string{"stderr"} }, ""},
		{"sinks under both names", variables{"DYN_AUDIT_SINKS": "nats", p + "_SINKS": "nats"}, func(c *trace.Config) { c.Sinks = []string{"nats"} }, ""},

		{"format", variables{p + "_FILE_FORMAT": "JSONL"}, func(c *trace.Config) { c.File.Plain = true }, ""},
		{"format over old sink", variables{p + "_FILE_FORMAT": "jsonl.gz", p + "_SINKS": "jsonl"}, func(*trace.Config) {}, ""},
		{"plain over old sink", variables{p + "_FILE_FORMAT": "jsonl", p + "_SINKS": "jsonl_gz"}, func(c *trace.Config) { c.File.Plain = true }, ""},
		{"unknown format", variables{p + "_FILE_FORMAT": "parquet", p + "_SINKS": "jsonl"}, func(*trace.Config) {}, p + "_FILE_FORMAT"},

		{"path", variables{p + "_FILE_PATH": "a", p + "_OUTPUT_PATH": "b", "DYN_AUDIT_OUTPUT_PATH": "c"}, func(c *trace.Config) { c.File.Path = "a" }, ""},
		{"path, second name", variables{p + "_FILE_PATH": " ", p + "_OUTPUT_PATH": " b ", "DYN_AUDIT_OUTPUT_PATH": "c"}, func(c *trace.Config) { c.File.Path = "b" }, ""},
		{"path, third name", variables{"DYN_AUDIT_OUTPUT_PATH": "c"}, func(c *trace.Config) { c.File.Path = "c" }, ""},

		{"capacity", variables{p + "_CAPACITY": " 7 ", "DYN_AUDIT_CAPACITY": "8"}, func(c *trace.Config) { c.Capacity = 7 }, ""},
		{"capacity, second name", variables{p + "_CAPACITY": "many", "DYN_AUDIT_CAPACITY": "8"}, func(c *trace.Config) { c.Capacity = 8 }, p + "_CAPACITY"},
		{"capacity of none", variables{p + "_CAPACITY": "0", "DYN_AUDIT_CAPACITY": "8"}, func(*trace.Config) {}, p + "_CAPACITY"},
		{"capacity below none", variables{p + "_CAPACITY": "-5"}, func(*trace.Config) {}, p + "_CAPACITY"},

		{"buffer", variables{p + "_FILE_BUFFER_BYTES": "1", p + "_JSONL_BUFFER_BYTES": "2", "DYN_AUDIT_JSONL_BUFFER_BYTES": "3"}, func(c *trace.Config) { c.File.BufferBytes = 1 }, ""},
		{"buffer, second name", variables{p + "_JSONL_BUFFER_BYTES": "2", "DYN_AUDIT_JSONL_BUFFER_BYTES": "3"}, func(c *trace.Config) { c.File.BufferBytes = 2 }, ""},
		{"buffer, third name", variables{"DYN_AUDIT_JSONL_BUFFER_BYTES": "3"}, func(c *trace.Config) { c.File.BufferBytes = 3 }, ""},
		{"interval", variables{p + "_FILE_FLUSH_INTERVAL_MS": "0", p + "_JSONL_FLUSH_INTERVAL_MS": "2"}, func(c *trace.Config) { c.File.FlushInterval = time.Millisecond }, ""},
		{"interval, second name", variables{p + "_JSONL_FLUSH_INTERVAL_MS": "2", "DYN_AUDIT_JSONL_FLUSH_INTERVAL_MS": "3"}, func(c *trace.Config) { c.File.FlushInterval = 2 * time.Millisecond }, ""},
		{"interval, third name", variables{"DYN_AUDIT_JSONL_FLUSH_INTERVAL_MS": "3"}, func(c *trace.Config) { c.File.FlushInterval = 3 * time.Millisecond }, ""},
		{"roll", variables{p + "_FILE_ROLL_BYTES": "1", p + "_JSONL_GZ_ROLL_BYTES": "2", "DYN_AUDIT_JSONL_GZ_ROLL_BYTES": "3"}, func(c *trace.Config) { c.File.RollBytes = 1 }, ""},
		{"roll, second name", variables{p + "_JSONL_GZ_ROLL_BYTES": "2", "DYN_AUDIT_JSONL_GZ_ROLL_BYTES": "3"}, func(c *trace.Config) { c.File.RollBytes = 2 }, ""},
		{"roll, third name", variables{"DYN_AUDIT_JSONL_GZ_ROLL_BYTES": "3"}, func(c *trace.Config) { c.File.RollBytes = 3 }, ""},
		{"roll at none", variables{p + "_FILE_ROLL_BYTES": "0"}, func(*trace.Config) {}, p + "_FILE_ROLL_BYTES"},
		{"roll lines", variables{p + "_FILE_ROLL_LINES": "1", p + "_JSONL_GZ_ROLL_LINES": "2", "DYN_AUDIT_JSONL_GZ_ROLL_LINES": "3"}, func(c *trace.Config) { c.File.RollLines = 1 }, ""},
		{"roll lines, second name", variables{p + "_JSONL_GZ_ROLL_LINES": "2", "DYN_AUDIT_JSONL_GZ_ROLL_LINES": "3"}, func(c *trace.Config) { c.File.RollLines = 2 }, ""},
		{"roll lines, third name", variables{"DYN_AUDIT_JSONL_GZ_ROLL_LINES": "3"}, func(c *trace.Config) { c.File.RollLines = 3 }, ""},

		{"subject", variables{p + "_NATS_SUBJECT": "a", "DYN_AUDIT_NATS_SUBJECT": "b", "DYN_AUDIT_SINKS": "nats"}, func(c *trace.Config) { c.NATS.Subject, c.Sinks = "a", []string{"nats"} }, ""},
		{"subject, second name", variables{"DYN_AUDIT_NATS_SUBJECT": "b"}, func(c *trace.Config) { c.NATS.Subject = "b" }, ""},
		{"largest for a collector", variables{p + "_OTEL_MAX_PAYLOAD_BYTES": "5", "DYN_AUDIT_OTEL_MAX_PAYLOAD_BYTES": "6"}, func(c *trace.Config) { c.OTel.MaxPayloadBytes = 5 }, ""},
		{"largest, second name", variables{"DYN_AUDIT_OTEL_MAX_PAYLOAD_BYTES": "6"}, func(c *trace.Config) { c.OTel.MaxPayloadBytes = 6 }, ""},
		{"largest is none", variables{p + "_OTEL_MAX_PAYLOAD_BYTES": "0"}, func(*trace.Config) {}, p + "_OTEL_MAX_PAYLOAD_BYTES"},
		{"s3", variables{p + "_S3_BUCKET": "b", p + "_S3_REGION": "r", p + "_S3_PREFIX": "/p/", p + "_S3_ROLL_UNCOMPRESSED_BYTES": "9", p + "_S3_FLUSH_INTERVAL_MS": "11"}, func(c *trace.Config) {
			c.S3 = trace.S3Config{Bucket: "b", Region: "r", Prefix: "/p/", RollBytes: 9, FlushInterval: 11 * time.Millisecond}
		}, ""},
		{"s3 in no time", variables{p + "_S3_FLUSH_INTERVAL_MS": "0", p + "_S3_ROLL_UNCOMPRESSED_BYTES": "0"}, func(*trace.Config) {}, p + "_S3_ROLL_UNCOMPRESSED_BYTES " + p + "_S3_FLUSH_INTERVAL_MS"},

		{"tool events", variables{p + "_TOOL_EVENTS_ZMQ_ENDPOINT": "tcp://*:1"}, func(c *trace.Config) { c.ToolEndpoint, c.ToolTopic = "tcp://*:1", "agent-tool-events" }, ""},
		{"topic", variables{p + "_TOOL_EVENTS_ZMQ_ENDPOINT": "tcp://*:1", p + "_TOOL_EVENTS_ZMQ_TOPIC": "t"}, func(c *trace.Config) { c.ToolEndpoint, c.ToolTopic = "tcp://*:1", "t" }, ""},
		{"topic of nothing", variables{p + "_TOOL_EVENTS_ZMQ_TOPIC": "t"}, func(*trace.Config) {}, ""},
		{"headers", variables{p + "_HTTP_HEADER_CAPTURE_LIST": " X-Request-Id, NVCF-Function-Id\tx-tenant ,, x-request-id "}, func(c *trace.Config) { c.Headers = []string{"x-request-id", "nvcf-function-id", "x-tenant"} }, ""},

		{"agent trace", variables{"DYN_AGENT_TRACE": "1"}, func(c *trace.Config) {
			on(c)
			c.File.Path, c.ToolEndpoint, c.ToolTopic = "/tmp/dynamo-agent-trace", "tcp://127.0.0.1:20390", "agent-tool-events"
		}, "DYN_AGENT_TRACE"},
		{"agent trace in full", variables{
			"DYN_AGENT_TRACE": "1", "DYN_AGENT_TRACE_SINKS": "jsonl", "DYN_AGENT_TRACE_OUTPUT_PATH": "a", "DYN_AGENT_TRACE_CAPACITY": "2",
			"DYN_AGENT_TRACE_JSONL_BUFFER_BYTES": "3", "DYN_AGENT_TRACE_JSONL_FLUSH_INTERVAL_MS": "4", "DYN_AGENT_TRACE_JSONL_GZ_ROLL_BYTES": "5",
			"DYN_AGENT_TRACE_JSONL_GZ_ROLL_LINES": "6", "DYN_AGENT_TRACE_TOOL_EVENTS_ZMQ_ENDPOINT": "e", "DYN_AGENT_TRACE_TOOL_EVENTS_ZMQ_TOPIC": "t",
		}, func(c *trace.Config) {
			on(c)
			c.Capacity, c.ToolEndpoint, c.ToolTopic = 2, "e", "t"
			c.File = trace.FileConfig{Path: "a", Plain: true, BufferBytes: 3, FlushInterval: 4 * time.Millisecond, RollBytes: 5, RollLines: 6}
		}, "DYN_AGENT_TRACE"},
		{"old path alone", variables{p: "1", "DYN_AGENT_TRACE_OUTPUT_PATH": "a"}, func(c *trace.Config) { on(c); c.File.Path = "a" }, "DYN_AGENT_TRACE_OUTPUT_PATH"},
		{"both names of the switch", variables{p: "1", "DYN_AGENT_TRACE": "1"}, on, "DYN_AGENT_TRACE"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			want := defaults()
			tc.want(&want)
			got, complaints := tc.env.read()
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			var names []string
			for _, c := range complaints {
				names = append(names, c.Name)
				if c.Wrong == "" || !strings.Contains(c.String(), c.Value) {
					t.Errorf("complaint %q says nothing", c)
				}
			}
			if got := strings.Join(names, " "); got != tc.complain {
				t.Errorf("complained of %q, want %q", got, tc.complain)
			}
			if want.Enabled() != (want.RequestEnds || want.Payloads || want.Tools) {
				t.Error("Enabled is wrong")
			}
		})
	}
}
