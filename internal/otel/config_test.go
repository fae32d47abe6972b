package otel_test

import (
	"testing"

	"github.com/dynago/dynago/internal/otel"
)

func TestResolve(t *testing.T) {
	const e = "OTEL_EXPORTER_OTLP_"
	for _, c := range []struct {
		name         string
		env          map[string]string
		traces, logs otel.Export
		complaints   int
	}{
		{"nothing", nil, otel.Export{Endpoint: "http://localhost:4317"}, otel.Export{Endpoint: "http://localhost:4317"}, 0},
		{"http", map[string]string{e + "PROTOCOL": "http/protobuf"}, otel.Export{HTTP: true, Endpoint: "http://localhost:4318/v1/traces"}, otel.Export{HTTP: true, Endpoint: "http://localhost:4318/v1/logs"}, 0},
		{"generic over grpc", map[string]string{e + "ENDPOINT": "https://c:1"}, otel.Export{Endpoint: "https://c:1"}, otel.Export{Endpoint: "https://c:1"}, 0},
		{"generic over http", map[string]string{e + "PROTOCOL": "http/protobuf", e + "ENDPOINT": "http://c:1/"}, otel.Export{HTTP: true, Endpoint: "http://c:1/v1/traces"}, otel.Export{HTTP: true, Endpoint: "http://c:1/v1/logs"}, 0},
		{"as it is", map[string]string{e + "PROTOCOL": "http/protobuf", e + "TRACES_ENDPOINT": "http://c:1/in"}, otel.Export{HTTP: true, Endpoint: "http://c:1/in"}, otel.Export{HTTP: true, Endpoint: "http://localhost:4318/v1/logs"}, 0},
		{"logs do not follow traces", map[string]string{e + "TRACES_ENDPOINT": "http://c:1", e + "TRACES_PROTOCOL": "grpc"}, otel.Export{Endpoint: "http://c:1"}, otel.Export{Endpoint: "http://localhost:4317"}, 0},
		{"each its own", map[string]string{e + "ENDPOINT": "http://all:1", e + "LOGS_PROTOCOL": "http/protobuf", e + "LOGS_ENDPOINT": "http://l:2/x"}, otel.Export{Endpoint: "http://all:1"}, otel.Export{HTTP: true, Endpoint: "http://l:2/x"}, 0},
		{"own protocol counts", map[string]string{e + "PROTOCOL": "http/protobuf", e + "TRACES_PROTOCOL": "grpc"}, otel.Export{Endpoint: "http://localhost:4317"}, otel.Export{HTTP: true, Endpoint: "http://localhost:4318/v1/logs"}, 0},
		{"capitals", map[string]string{e + "LOGS_PROTOCOL": "HTTP/protobuf", e + "PROTOCOL": " grpc "}, otel.Export{Endpoint: "http://localhost:4317"}, otel.Export{HTTP: true, Endpoint: "http://localhost:4318/v1/logs"}, 0},
		{"slashes", map[string]string{e + "LOGS_PROTOCOL": "http/protobuf", e + "ENDPOINT": "https://c/base//"}, otel.Export{Endpoint: "https://c/base//"}, otel.Export{HTTP: true, Endpoint: "https://c/base/v1/logs"}, 0},
		{"blanks in front of all", map[string]string{e + "LOGS_ENDPOINT": " ", e + "ENDPOINT": "http://d"}, otel.Export{Endpoint: "http://d"}, otel.Export{Endpoint: "http://d"}, 0},
		{"unknown protocol", map[string]string{e + "PROTOCOL": "http/json"}, otel.Export{Endpoint: "http://localhost:4317"}, otel.Export{Endpoint: "http://localhost:4317"}, 1},
		{"blanks are nothing", map[string]string{e + "PROTOCOL": " ", e + "ENDPOINT": "  "}, otel.Export{Endpoint: "http://localhost:4317"}, otel.Export{Endpoint: "http://localhost:4317"}, 0},
		{"no scheme", map[string]string{e + "ENDPOINT": "c:4317"}, otel.Export{Endpoint: "http://c:4317"}, otel.Export{Endpoint: "http://c:4317"}, 0},
		{"no address", map[string]string{e + "ENDPOINT": "ftp://c"}, otel.Export{Endpoint: "http://localhost:4317"}, otel.Export{Endpoint: "http://localhost:4317"}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, complaints := otel.Read(func(name string) (string, bool) { v, ok := c.env[name]; return v, ok })
			if got.Traces != c.traces || got.Logs != c.logs || len(complaints) != c.complaints {
				t.Errorf("%+v, %+v, %v", got.Traces, got.Logs, complaints)
			}
			alone, _ := otel.ReadLogs(func(name string) (string, bool) { v, ok := c.env[name]; return v, ok })
			if alone != (otel.Config{Logs: c.logs, Service: "dynamo"}) {
				t.Errorf("logs alone: %+v", alone)
			}
			if got.Enabled || got.Service != "dynamo" || got.Ratio != nil {
				t.Errorf("%+v", got)
			}
		})
	}
}

func TestRatioAndSwitch(t *testing.T) {
	for _, c := range []struct {
		ratio, on  string
		want       float64 // -1: all
		enabled    bool
		complaints int
	}{
		{"", "", -1, false, 0},
		{"0.25", "1", .25, true, 0},
		{"0", "TRUE", 0, true, 0},
		{"1.0", "on", 1, true, 0},
		{"1.1", "false", -1, false, 1},
		{"-0.1", "0", -1, false, 1},
		{"NaN", "no", -1, false, 1},
		{"half", "perhaps", -1, false, 2},
	} {
		got, complaints := otel.Read(func(name string) (string, bool) {
			v := map[string]string{"OTEL_TRACES_SAMPLE_RATIO": c.ratio, "OTEL_EXPORT_ENABLED": c.on, "OTEL_SERVICE_NAME": "me"}[name]
			return v, v != ""
		})
		ratio := -1.0
		if got.Ratio != nil {
			ratio = *got.Ratio
		}
		if ratio != c.want || got.Enabled != c.enabled || len(complaints) != c.complaints || got.Service != "me" {
			t.Errorf("%q, %q: %+v, %v", c.ratio, c.on, got, complaints)
		}
	}
}

// What is wrong with other things is not told to one who asks for logs alone.
func TestComplaintsOfLogs(t *testing.T) {
	env := map[string]string{"OTEL_EXPORT_ENABLED": "perhaps", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "smoke", "OTEL_EXPORTER_OTLP_LOGS_ENDPOINT": "ftp://c"}
	_, complaints := otel.ReadLogs(func(name string) (string, bool) { v, ok := env[name]; return v, ok })
	if len(complaints) != 1 || complaints[0].Name != "OTEL_EXPORTER_OTLP_LOGS_ENDPOINT" {
		t.Errorf("%v", complaints)
	}
}
