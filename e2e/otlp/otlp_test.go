// Package otlp_test sends records of requests, spans and lines of the log to the
// receiver of the OpenTelemetry Collector. It is a module of its own, so that the product does not depend on it.
package otlp_test

import (
	"context"
	"fmt"
	"net"
	"testing"

	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/receiver/otlpreceiver"
	"go.opentelemetry.io/collector/receiver/receivertest"

	"github.com/dynago/dynago/trace"
	"github.com/dynago/dynago/trace/otlp"
)

func free(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// collector starts the receiver, and says where it listens.
func collector(t *testing.T, spans *consumertest.TracesSink, logs *consumertest.LogsSink) (atGRPC, atHTTP string) {
	t.Helper()
	factory := otlpreceiver.NewFactory()
	config := factory.CreateDefaultConfig().(*otlpreceiver.Config)
	atGRPC, atHTTP = free(t), free(t)
	config.Protocols.GRPC.GetOrInsertDefault().NetAddr.Endpoint = atGRPC
	config.Protocols.HTTP.GetOrInsertDefault().ServerConfig.NetAddr.Endpoint = atHTTP
	settings := receivertest.NewNopSettings(factory.Type())
	// Of one configuration there is one receiver, which knows both sinks.
	if _, err := factory.CreateTraces(t.Context(), settings, config, spans); err != nil {
		t.Fatal(err)
	}
	receiver, err := factory.CreateLogs(t.Context(), settings, config, logs)
	if err != nil {
		t.Fatal(err)
	}
	if err := receiver.Start(t.Context(), componenttest.NewNopHost()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := receiver.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return atGRPC, atHTTP
}

// What a sink sends comes out of the receiver as log records, over either protocol.
func TestCollector(t *testing.T) {
	sink := new(consumertest.LogsSink)
	atGRPC, atHTTP := collector(t, new(consumertest.TracesSink), sink)
	for protocol, to := range map[string]otlp.Target{
		"grpc": {Endpoint: "http://" + atGRPC}, "http/protobuf": {HTTP: true, Endpoint: "http://" + atHTTP + "/v1/logs"},
	} {
		t.Run(protocol, func(t *testing.T) {
			sink.Reset()
			s, err := otlp.Open(trace.OTelConfig{MaxPayloadBytes: 4 << 20}, to, "dynamo")
			if err != nil {
				t.Fatal(err)
			}
			var list []*trace.Record
			for n := range 1000 {
				list = append(list, &trace.Record{Schema: trace.Schema, EventType: trace.RequestEnd, EventTime: 1790000000000 + uint64(n), Request: &trace.Request{RequestID: fmt.Sprint("r", n), Model: "m"}})
			}
			if err := s.Write(t.Context(), list); err != nil {
				t.Fatal(err)
			}
			if err := s.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			if n := sink.LogRecordCount(); n != len(list) {
				t.Fatalf("%d of %d records came", n, len(list))
			}
			resource := sink.AllLogs()[0].ResourceLogs().At(0)
			if name, _ := resource.Resource().Attributes().Get("service.name"); name.Str() != "dynamo" {
				t.Errorf("service.name %q", name.Str())
			}
			scope := resource.ScopeLogs().At(0)
			got := scope.LogRecords().At(7)
			payload, _ := got.Attributes().Get("payload")
			rid, _ := got.Attributes().Get("rid")
			if line, _ := list[7].Append(nil); scope.Scope().Name() != "dynamo.request_trace" || got.Body().Str() != trace.RequestEnd || payload.Str() != string(line) || rid.Str() != "r7" || got.Timestamp().AsTime().UnixMilli() != 1790000000007 || !got.TraceID().IsEmpty() {
				t.Errorf("%v", got.Attributes().AsRaw())
			}
		})
	}
}
