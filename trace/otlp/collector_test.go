package otlp_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/dynago/dynago/trace/otlp"
)

// received is a collector over the official protos, in gRPC and in HTTP.
type received struct {
	collector.UnimplementedLogsServiceServer
	mu       sync.Mutex
	requests []*collector.ExportLogsServiceRequest
	headers  []string // x-team of each
	paths    []string // of each over HTTP
	// answer, if not nil, answers in place of a yes.
	answer func() (*collector.ExportLogsServiceResponse, error)
}

func (c *received) Export(ctx context.Context, r *collector.ExportLogsServiceRequest) (*collector.ExportLogsServiceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	team := ""
	if m, ok := metadata.FromIncomingContext(ctx); ok {
		for _, v := range m.Get("x-team") {
			team += v
		}
	}
	return c.take(r, team)
}

func (c *received) take(r *collector.ExportLogsServiceRequest, team string) (*collector.ExportLogsServiceResponse, error) {
	c.requests = append(c.requests, r)
	c.headers = append(c.headers, team)
	if c.answer != nil {
		return c.answer()
	}
	return &collector.ExportLogsServiceResponse{}, nil
}

func (c *received) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.paths = append(c.paths, r.URL.Path)
	body, err := io.ReadAll(r.Body)
	var req collector.ExportLogsServiceRequest
	if err != nil || r.Header.Get("Content-Type") != "application/x-protobuf" || proto.Unmarshal(body, &req) != nil {
		http.Error(w, "no logs", http.StatusBadRequest)
		return
	}
	answer, err := c.take(&req, r.Header.Get("x-team"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	b, err := proto.Marshal(answer)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/x-protobuf")
	w.Write(b) //nolint:errcheck // the client tells
}

// serve returns the endpoint of a collector.
func (c *received) serve(t *testing.T, overHTTP bool) otlp.Target {
	t.Helper()
	if overHTTP {
		s := httptest.NewServer(c)
		t.Cleanup(s.Close)
		return otlp.Target{HTTP: true, Endpoint: s.URL + "/v1/logs"}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer(grpc.MaxRecvMsgSize(4 << 20))
	collector.RegisterLogsServiceServer(s, c)
	go s.Serve(l) //nolint:errcheck // it ends with the test
	t.Cleanup(s.Stop)
	return otlp.Target{Endpoint: "http://" + l.Addr().String()}
}
