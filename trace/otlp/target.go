package otlp

import (
	"context"
	"net/url"
	"strings"
	"time"

	grpclogs "go.opentelemetry.io/otel/exporters/otlp/otlplog/otlploggrpc"
	httplogs "go.opentelemetry.io/otel/exporters/otlp/otlplog/otlploghttp"
	sdk "go.opentelemetry.io/otel/sdk/log"

	"github.com/dynago/dynago/trace"
)

// Target is where a collector takes logs.
type Target struct {
	// HTTP says that it is spoken to in HTTP, and not in gRPC.
	HTTP bool
	// Endpoint is a URL; with HTTP it has the whole path.
	Endpoint string
}

// Resolve returns what the variables of OpenTelemetry's exporters name: those for logs
// count before those for everything. Headers, certificates, compression and time
// limits are read by the exporters themselves. A complaint is about a protocol that is
// not known.
func Resolve(lookup func(name string) (string, bool)) (Target, []trace.Complaint) {
	first := func(names ...string) (name, value string) {
		for _, name := range names {
			if value, ok := lookup(name); ok && strings.TrimSpace(value) != "" {
				return name, strings.TrimSpace(value)
			}
		}
		return "", ""
	}
	var complaints []trace.Complaint
	var t Target
	switch name, protocol := first("OTEL_EXPORTER_OTLP_LOGS_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"); strings.ToLower(protocol) {
	case "", "grpc":
	case "http/protobuf":
		t.HTTP = true
	default:
		complaints = append(complaints, trace.Complaint{Name: name, Value: protocol, Wrong: "want grpc or http/protobuf; grpc holds"})
	}
	_, logs := first("OTEL_EXPORTER_OTLP_LOGS_ENDPOINT")
	_, all := first("OTEL_EXPORTER_OTLP_ENDPOINT")
	switch {
	case logs != "":
		t.Endpoint = logs
	case all != "" && t.HTTP:
		t.Endpoint = strings.TrimRight(all, "/") + "/v1/logs"
	case all != "":
		t.Endpoint = all
	case t.HTTP:
		t.Endpoint = "http://localhost:4318/v1/logs"
	default:
		t.Endpoint = "http://localhost:4317"
	}
	if !strings.Contains(t.Endpoint, "://") {
		t.Endpoint = "http://" + t.Endpoint
	}
	return t, complaints
}

// How long a batch is sent again before it is lost. Meanwhile others wait in the bus.
const (
	firstRetry = time.Second
	maxRetry   = 5 * time.Second
	retryFor   = 30 * time.Second
)

// exporter returns what sends to the target. It connects when there is something to
// send.
func (t Target) exporter() (sdk.Exporter, error) {
	if _, err := url.Parse(t.Endpoint); err != nil {
		return nil, err
	}
	if t.HTTP {
		return httplogs.New(context.Background(), httplogs.WithEndpointURL(t.Endpoint), httplogs.WithRetry(httplogs.RetryConfig{
			Enabled: true, InitialInterval: firstRetry, MaxInterval: maxRetry, MaxElapsedTime: retryFor,
		}))
	}
	return grpclogs.New(context.Background(), grpclogs.WithEndpointURL(t.Endpoint), grpclogs.WithRetry(grpclogs.RetryConfig{
		Enabled: true, InitialInterval: firstRetry, MaxInterval: maxRetry, MaxElapsedTime: retryFor,
	}))
}
