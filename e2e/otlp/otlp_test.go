// Package otlp_test sends records of traces to the receiver of the OpenTelemetry
// Collector. It is a module of its own, so that the product does not depend on it.
package otlp_test

import (
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

// What a sink sends comes out of the receiver as log records, over either protocol.
func TestCollector(t *testing.T) {
	factory := otlpreceiver.NewFactory()
	config := factory.CreateDefaultConfig().(*otlpreceiver.Config)
	atGRPC, atHTTP := free(t), free(t)
	grpc, http := config.Protocols.GRPC.GetOrInsertDefault(), config.Protocols.HTTP.GetOrInsertDefault()
	grpc.NetAddr.Endpoint = atGRPC
	http.ServerConfig.NetAddr.Endpoint = atHTTP
	sink := new(consumertest.LogsSink)
	receiver, err := factory.CreateLogs(t.Context(), receivertest.NewNopSettings(factory.Type()), config, sink)
	if err != nil {
		t.Fatal(err)
	}
	if err := receiver.Start(t.Context(), componenttest.NewNopHost()); err != nil {
		t.Fatal(err)
	}
	defer receiver.Shutdown(t.Context()) //nolint:errcheck // the test is over

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
