package vllm_test

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"testing"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/mock"
	"github.com/dynago/dynago/engine/vllm"
	fake "github.com/dynago/dynago/internal/fake/vllm"
)

// What is told of a rank is its own port.
func TestPublisherOfALaterRank(t *testing.T) {
	publisher, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = publisher.Close() }()
	s := serve(t, fake.Config{Mock: mock.Config{Args: args()}, NoDocs: true}, func(c *vllm.Config) {
		inner := httptest.NewServer(sources(c.URL, publisher.Addr().(*net.TCPAddr).Port))
		t.Cleanup(inner.Close)
		c.URL, c.DPStart, c.DPSize = inner.URL, 3, 1
	})
	if !s.ready(t).Features.Has(engine.FeatureEvents) {
		t.Fatal("the card tells of no events")
	}
	go func() {
		for range s.Events(t.Context(), nil) {
		}
	}()
	if err := publisher.(*net.TCPListener).SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	c, err := publisher.Accept()
	if err != nil {
		t.Fatalf("nobody comes to where the rank publishes: %v", err)
	}
	_ = c.Close()
}

// sources is a server whose only rank is the fourth, and publishes on a port.
func sources(server string, port int) http.Handler {
	at, err := url.Parse(server)
	if err != nil {
		panic(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/", httputil.NewSingleHostReverseProxy(at))
	mux.HandleFunc("/kv_event_sources", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `[{"data_parallel_rank":3,"endpoint":"tcp://0.0.0.0:%d","replay_endpoint":null,"topic":"kv"}]`, port)
	})
	return mux
}
