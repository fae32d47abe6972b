//go:build unix

package main

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// mortalNATS is a server of NATS that dies when it is told of a record: its connection
// breaks, and nobody listens any more. It returns its address, and whether it is dead.
func mortalNATS(t *testing.T) (address string, dead *atomic.Bool) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	dead = new(atomic.Bool)
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		fmt.Fprint(conn, "INFO {\"server_id\":\"mortal\",\"version\":\"2.15.0\",\"proto\":1,\"headers\":true,\"max_payload\":1048576}\r\n")
		for lines := bufio.NewScanner(conn); lines.Scan(); {
			switch verb, _, _ := strings.Cut(lines.Text(), " "); verb {
			case "PING":
				fmt.Fprint(conn, "PONG\r\n")
			case "PUB", "HPUB":
				l.Close()
				dead.Store(true)
				return
			}
		}
	}()
	return "nats://" + l.Addr().String(), dead
}

// Sinks that fail while the server runs take nothing from requests either: a bucket that
// answers 500, and a server of NATS that dies.
func TestSinksThatFailOnTheWay(t *testing.T) {
	var asked atomic.Int64
	bucket := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		w.WriteHeader(http.StatusInternalServerError)
	}))
	defer bucket.Close()
	address, dead := mortalNATS(t)
	for name, value := range map[string]string{
		"NATS_SERVER": address, "AWS_ENDPOINT_URL": bucket.URL, "AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "here",
		"DYN_REQUEST_TRACE_S3_BUCKET": "bucket", "DYN_REQUEST_TRACE_S3_FLUSH_INTERVAL_MS": "1",
	} {
		t.Setenv(name, value)
	}
	p, _ := traced(t, "--request-trace-sinks", "nats,s3,file", "--request-trace-file-path", filepath.Join(t.TempDir(), "trace.jsonl"))
	requests := 0
	ask := func() {
		began := time.Now()
		resp := p.ask(1)
		resp.Body.Close()
		if requests++; resp.StatusCode != http.StatusOK || time.Since(began) > 5*time.Second {
			t.Fatalf("%s after %v", resp.Status, time.Since(began))
		}
	}
	until(t, "a record for each of the two", func() bool {
		ask()
		return dead.Load() && asked.Load() > 0
	})
	for range 20 {
		ask()
	}
	until(t, "all rows for the file", func() bool {
		_, page := p.get(p.url + "/metrics")
		return strings.Contains(page, fmt.Sprintf("dynago_request_trace_records_total{sink=\"file\"} %d\n", requests)) && strings.Contains(page, "dynago_request_trace_dropped_total{sink=\"file\"} 0\n")
	})
}
