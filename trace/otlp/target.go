package otlp

import (
	"context"
	"net/url"
	"time"

	grpclogs "go.opentelemetry.io/otel/exporters/otlp/otlplog/otlploggrpc"
	httplogs "go.opentelemetry.io/otel/exporters/otlp/otlplog/otlploghttp"
	sdk "go.opentelemetry.io/otel/sdk/log"
)

// Target is where a collector takes logs. Headers, certificates, compression and time
// limits are read by the exporters themselves, from variables of OpenTelemetry.
type Target struct {
	// HTTP says that it is spoken to in HTTP, and not in gRPC.
	HTTP bool
	// Endpoint is a URL; with HTTP it has the whole path.
	Endpoint string
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
