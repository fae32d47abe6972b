//go:build unix

package main

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dynago/dynago/trace"
)

// toolEvent is an event of a session, in JSON.
func toolEvent(session string) string {
	return `{"schema":"dynamo.request.trace.v1","event_type":"tool_end","event_time_unix_ms":1790000000123,"session_id":"` + session + `","tool":{"tool_call_id":"c","tool_class":"bash","status":"ok"}}`
}

// packedEvent is the same in MessagePack: a map of texts and one number.
func packedEvent(session string) string {
	text := func(s string) string { return string([]byte{0xd9, byte(len(s))}) + s }
	return "\x85" + text("schema") + text("dynamo.request.trace.v1") + text("event_type") + text("tool_end") +
		text("event_time_unix_ms") + "\xcf\x00\x00\x01\xa0\xc4\x50\x6c\x7b" + text("session_id") + text(session) +
		text("tool") + "\x83" + text("tool_call_id") + text("c") + text("tool_class") + text("bash") + text("status") + text("ok")
}

// What harnesses tell of tools, over either way, stands in the trace beside requests.
func TestToolEvents(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := taken.Addr().String()
	// The endpoint is taken at first, which stops nobody.
	p, rows := traced(t, "--request-trace-tool-events-zmq-endpoint", "tcp://"+at, "--request-trace-tool-events-zmq-topic", "tools")
	until(t, "a word about the endpoint", func() bool { return strings.Contains(p.log.String(), "cannot be bound") })
	if got := p.send("/v1/agent/tool_events", "["+toolEvent("http")+",{}]"); got.status != 202 || got.body != `{"accepted":1,"dropped":1}` {
		t.Errorf("%d %s", got.status, got.body)
	}
	p.ask(1).Body.Close()
	if err := taken.Close(); err != nil {
		t.Fatal(err)
	}
	var conn net.Conn
	until(t, "a socket", func() bool {
		conn, err = net.Dial("tcp", at)
		return err == nil
	})
	defer conn.Close()
	said := "\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f\x03\x00NULL" + strings.Repeat("\x00", 48) + "\x04\x1a\x05READY\x0bSocket-Type\x00\x00\x00\x04PUSH"
	for _, topic := range []string{"tools", "other"} {
		event := packedEvent("zmq")
		said += string([]byte{1, byte(len(topic))}) + topic + "\x01\x0812345678" + string([]byte{0, byte(len(event))}) + event
	}
	if _, err := conn.Write([]byte(said)); err != nil {
		t.Fatal(err)
	}
	sessions := map[string]int{}
	for _, row := range rows(3) {
		if row.IsTool() {
			sessions[row.Agent.Chain()]++
			if row.Source != trace.SourceHarness || row.Tool.Status != "succeeded" || row.EventTime != 1790000000123 {
				t.Errorf("%+v", row)
			}
		}
	}
	if len(sessions) != 2 || sessions["http"] != 1 || sessions["zmq"] != 1 {
		t.Errorf("rows of %v", sessions)
	}
	for _, want := range []string{`transport="http"} 1`, `transport="zmq"} 1`} {
		until(t, want, func() bool {
			_, page := p.get(p.url + "/metrics")
			return strings.Contains(page, `dynago_request_trace_tool_events_total{result="accepted",`+want)
		})
	}
	until(t, "one of another topic", func() bool {
		_, page := p.get(p.url + "/metrics")
		return strings.Contains(page, `dynago_request_trace_tool_events_total{result="ignored",transport="zmq"} 1`)
	})
	p.signal(syscall.SIGTERM)
	if code := p.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// Sinks whose servers are not there, or that cannot open, take nothing from requests,
// and what is recorded elsewhere is whole.
func TestDeadSinks(t *testing.T) {
	dead, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer dead.Close() // which answers nothing
	at := dead.Addr().String()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://"+at)
	t.Setenv("NATS_SERVER", "nats://127.0.0.1:1")
	path := filepath.Join(t.TempDir(), "trace.jsonl")
	// Of s3 the bucket is missing.
	p, _ := traced(t, "--request-trace-sinks", "otel,nats,s3,file", "--request-trace-capacity", "4", "--request-trace-file-path", path)
	if log := p.log.String(); !strings.Contains(log, "sink=s3") && !strings.Contains(log, `"sink":"s3"`) {
		t.Errorf("nothing is said of s3:\n%s", log)
	}
	began := time.Now()
	for range 20 {
		resp := p.ask(1)
		resp.Body.Close()
		if resp.StatusCode != 200 {
			t.Fatal(resp.Status)
		}
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("20 requests took %v", took)
	}
	until(t, "rows in the file", func() bool {
		_, page := p.get(p.url + "/metrics")
		return strings.Contains(page, `dynago_request_trace_records_total{sink="file"} 20`) && strings.Contains(page, `dynago_request_trace_dropped_total{sink="file"} 0`)
	})
	began = time.Now()
	p.signal(syscall.SIGTERM)
	if code := p.wait(); code != 0 || time.Since(began) > lastWords+5*time.Second {
		t.Errorf("exit code %d after %v", code, time.Since(began))
	}
	b, err := os.ReadFile(path)
	if n := len(rowsIn(t, b)); err != nil || n != 20 {
		t.Errorf("%d rows, %v", n, err)
	}
}
