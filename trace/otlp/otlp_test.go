package otlp_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	collector "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	logs "go.opentelemetry.io/proto/otlp/logs/v1"

	"github.com/dynago/dynago/trace"
	"github.com/dynago/dynago/trace/otlp"
)

func uint64p(v uint64) *uint64 { return &v }

var (
	end     = &trace.Record{Schema: trace.Schema, EventType: trace.RequestEnd, EventTime: 1790000000123, Source: trace.SourceDynamo, Request: &trace.Request{RequestID: "r1", Model: "acme/coder", InputTokens: uint64p(5)}}
	tool    = &trace.Record{Schema: trace.Schema, EventType: trace.ToolEnd, EventTime: 1790000000124, Source: trace.SourceHarness, Agent: &trace.AgentContext{SessionID: "s"}, Tool: &trace.Tool{ID: "c", Class: "bash"}}
	payload = &trace.Record{Schema: trace.Schema, EventType: trace.RequestPayload, EventTime: 1790000000125, Source: trace.SourceDynamo, Payload: &trace.Payload{RequestID: "r2", Endpoint: "openai.chat_completion", Model: "m", Request: []byte(`{"messages":[]}`), Response: []byte(`{"id":"x"}`), Headers: map[string]string{"x-team": "red"}, Complete: true}}
)

// open opens a sink. Env are variables that exporters read themselves.
func open(t *testing.T, most int, to otlp.Target, env ...string) *otlp.Sink {
	t.Helper()
	for i := 0; i < len(env); i += 2 {
		t.Setenv(env[i], env[i+1])
	}
	s, err := otlp.Open(trace.OTelConfig{MaxPayloadBytes: most}, to, "house")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// ways are the protocols, by whether they are those over HTTP.
var ways = map[string]bool{"grpc": false, "http/protobuf": true}

// A collector gets each record as a log record, at the end of a batch.
func TestRecords(t *testing.T) {
	for way, overHTTP := range ways {
		t.Run(way, func(t *testing.T) {
			var c received
			s := open(t, 4<<20, c.serve(t, overHTTP), "OTEL_EXPORTER_OTLP_HEADERS", "x-team=blue", "OTEL_RESOURCE_ATTRIBUTES", "zone=b,service.name=other", "OTEL_LOGRECORD_ATTRIBUTE_VALUE_LENGTH_LIMIT", "10")
			before := time.Now()
			if err := s.Write(t.Context(), []*trace.Record{end, tool, payload}); err != nil {
				t.Fatal(err)
			}
			if len(c.requests) != 0 {
				t.Error("records are sent one by one")
			}
			if err := s.Tick(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := s.Tick(t.Context()); err != nil || len(c.requests) != 1 {
				t.Fatalf("%d requests, %v", len(c.requests), err)
			}
			if c.headers[0] != "blue" || overHTTP && c.paths[0] != "/v1/logs" {
				t.Errorf("header %q, paths %q", c.headers[0], c.paths)
			}
			resource := c.requests[0].ResourceLogs[0]
			if got := attributes(resource.Resource.Attributes); len(c.requests[0].ResourceLogs) != 1 || cmp.Diff(map[string]any{"service.name": "house", "zone": "b"}, got) != "" {
				t.Errorf("resource %v", got)
			}
			scope := resource.ScopeLogs[0]
			if scope.Scope.Name != "dynamo.request_trace" || len(scope.LogRecords) != 3 {
				t.Fatalf("scope %v with %d records", scope.Scope, len(scope.LogRecords))
			}
			for i, want := range []struct {
				record *trace.Record
				more   map[string]any
			}{
				{end, map[string]any{"rid": "r1", "model": "acme/coder"}},
				{tool, nil},
				{payload, map[string]any{"rid": "r2", "model": "m", "endpoint": "openai.chat_completion"}},
			} {
				got, r := scope.LogRecords[i], want.record
				line, _ := r.Append(nil)
				all := map[string]any{"schema": trace.Schema, "event_type": r.EventType, "payload_complete": true, "payload": string(line)}
				for k, v := range want.more {
					all[k] = v
				}
				if diff := cmp.Diff(all, attributes(got.Attributes)); diff != "" {
					t.Error(diff)
				}
				if got.TimeUnixNano != r.EventTime*1e6 || got.SeverityNumber != logs.SeverityNumber_SEVERITY_NUMBER_INFO || got.SeverityText != "INFO" || got.Body.GetStringValue() != r.EventType || len(got.TraceId)+len(got.SpanId) > 0 {
					t.Errorf("%v", got)
				}
				if at := time.Unix(0, int64(got.ObservedTimeUnixNano)); at.Before(before) || at.After(time.Now()) {
					t.Errorf("observed at %v", at)
				}
			}
			if err := s.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

func attributes(list []*common.KeyValue) map[string]any {
	m := map[string]any{}
	for _, a := range list {
		switch v := a.Value.Value.(type) {
		case *common.AnyValue_StringValue:
			m[a.Key] = v.StringValue
		case *common.AnyValue_BoolValue:
			m[a.Key] = v.BoolValue
		default:
			m[a.Key] = v
		}
	}
	return m
}

// What was said and is too large is told to have been said; other records are lost.
func TestOversize(t *testing.T) {
	line, _ := payload.Append(nil)
	large := *end
	request := *end.Request
	request.Model = strings.Repeat("m", 5000)
	large.Request = &request
	for _, tc := range []struct {
		name    string
		most    int
		headers bool
	}{
		{"it fits", len(line), true},
		{"headers fit", len(line) - 1, true},
		{"nothing fits", 300, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var c received
			s := open(t, tc.most, c.serve(t, false))
			p, long := *payload, *payload.Payload
			long.Headers = map[string]string{"x-team": "red"}
			if tc.name != "it fits" {
				// A request so long that a marker without it is much smaller.
				long.Request = []byte(`{"messages":"` + strings.Repeat("x", 1000) + `"}`)
			}
			if tc.name == "headers fit" {
				s = open(t, 900, c.serve(t, false))
			}
			if !tc.headers {
				long.Headers["x-long"] = strings.Repeat("y", 400)
			}
			p.Payload = &long
			actual, _ := p.Append(nil)
			if err := s.Write(t.Context(), []*trace.Record{&p}); err != nil {
				t.Fatal(err)
			}
			if err := s.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			got := attributes(c.requests[0].ResourceLogs[0].ScopeLogs[0].LogRecords[0].Attributes)
			var sent struct {
				Payload struct {
					Request, Response json.RawMessage
					Headers           map[string]string `json:"http_request_headers"`
					Complete          bool              `json:"payload_complete"`
					Reason            string            `json:"payload_drop_reason"`
				}
			}
			if err := json.Unmarshal([]byte(got["payload"].(string)), &sent); err != nil {
				t.Fatal(err)
			}
			if tc.name == "it fits" {
				if got["payload_complete"] != true || got["payload_drop_reason"] != nil || sent.Payload.Request == nil {
					t.Errorf("%v", got)
				}
				return
			}
			most := map[bool]int{true: 900, false: tc.most}[tc.headers]
			reason := fmt.Sprintf("otel_payload_too_large:max_bytes=%d:actual_bytes=%d", most, len(actual))
			if got["payload_complete"] != false || got["payload_drop_reason"] != reason || sent.Payload.Reason != reason || sent.Payload.Complete || sent.Payload.Request != nil || sent.Payload.Response != nil {
				t.Errorf("%v", got)
			}
			if (sent.Payload.Headers["x-team"] == "red") != tc.headers {
				t.Errorf("headers %v", sent.Payload.Headers)
			}
			if long.Request == nil || long.DropReason != "" || !long.Complete {
				t.Error("the record, which others share, was changed")
			}
		})
	}
	t.Run("a request's end", func(t *testing.T) {
		var c received
		s := open(t, 1000, c.serve(t, false))
		if lost, _ := errors.AsType[*trace.Lost](s.Write(t.Context(), []*trace.Record{end, &large, end})); lost == nil || lost.Records != 1 {
			t.Errorf("%v", lost)
		}
		if err := s.Close(t.Context()); err != nil || len(c.requests[0].ResourceLogs[0].ScopeLogs[0].LogRecords) != 2 {
			t.Errorf("%v, %v", err, c.requests)
		}
	})
}

// Batches stay below what receivers take.
func TestBatches(t *testing.T) {
	var c received
	s := open(t, 4<<20, c.serve(t, false))
	big := *payload
	said := *payload.Payload
	said.Request = []byte(`"` + strings.Repeat("x", 1<<20) + `"`)
	big.Payload = &said
	var many []*trace.Record
	for range 1100 {
		many = append(many, end)
	}
	many = append(many, &big, &big, &big)
	if err := s.Write(t.Context(), many); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	total := 0
	for _, r := range c.requests {
		n := len(r.ResourceLogs[0].ScopeLogs[0].LogRecords)
		if total += n; n > 512 {
			t.Errorf("a batch of %d", n)
		}
	}
	if total != len(many) || len(c.requests) < 5 {
		t.Errorf("%d records in %d batches", total, len(c.requests))
	}
}

// What a collector refuses is counted: all of a batch, or the part that it names.
func TestRefused(t *testing.T) {
	for way, overHTTP := range ways {
		for name, tc := range map[string]struct {
			answer func() (*collector.ExportLogsServiceResponse, error)
			lost   int
		}{
			"all": {func() (*collector.ExportLogsServiceResponse, error) { return nil, errors.New("not here") }, 3},
			"some": {func() (*collector.ExportLogsServiceResponse, error) {
				return &collector.ExportLogsServiceResponse{PartialSuccess: &collector.ExportLogsPartialSuccess{RejectedLogRecords: 2, ErrorMessage: "too old"}}, nil
			}, 2},
		} {
			t.Run(way+" "+name, func(t *testing.T) {
				c := received{answer: tc.answer}
				s := open(t, 4<<20, c.serve(t, overHTTP))
				if err := s.Write(t.Context(), []*trace.Record{end, tool, end}); err != nil {
					t.Fatal(err)
				}
				err := s.Tick(t.Context())
				if lost, _ := errors.AsType[*trace.Lost](err); lost == nil || lost.Records != tc.lost {
					t.Errorf("%v", err)
				}
				if err := s.Close(t.Context()); err != nil || len(c.requests) != 1 {
					t.Errorf("%d requests, %v", len(c.requests), err)
				}
			})
		}
	}
}

// A collector that is not there holds nothing up for longer than is asked for, and what
// it does not get is counted.
func TestDeadCollector(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() // which accepts nothing
	for way, overHTTP := range ways {
		t.Run(way, func(t *testing.T) {
			s := open(t, 4<<20, otlp.Target{HTTP: overHTTP, Endpoint: "http://" + l.Addr().String()}, "OTEL_EXPORTER_OTLP_TIMEOUT", "200")
			if err := s.Write(t.Context(), []*trace.Record{end, tool}); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
			defer cancel()
			began := time.Now()
			err := s.Tick(ctx)
			if lost, _ := errors.AsType[*trace.Lost](err); lost == nil || lost.Records != 2 || time.Since(began) > 10*time.Second {
				t.Errorf("%v after %v", err, time.Since(began))
			}
			if err := s.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

func Example() {
	// The collector need not be there before there is something to send.
	sink, err := otlp.Open(trace.OTelConfig{MaxPayloadBytes: 4 << 20}, otlp.Target{HTTP: true, Endpoint: "http://127.0.0.1:4318/v1/logs"}, "dynamo")
	if err != nil {
		panic(err)
	}
	defer sink.Close(context.Background()) //nolint:errcheck // nothing was written
	fmt.Println(sink.Name())
	// Output: otel
}
