package toolevents_test

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dynago/dynago/trace"
	"github.com/dynago/dynago/trace/toolevents"
)

// recorder keeps what is published.
type recorder struct {
	mu   sync.Mutex
	rows []*trace.Record
}

func (r *recorder) publish(row *trace.Record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rows = append(r.rows, row)
}

// log is a log that can be read while it is written.
type log struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *log) has(what string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.b.String(), what)
}

// listening runs a listener for as long as the test.
func listening(t *testing.T, endpoint string, l *log) (*toolevents.Intake, *recorder, <-chan string) {
	t.Helper()
	logger := slog.New(slog.NewTextHandler(l, nil))
	rec := new(recorder)
	in := &toolevents.Intake{Publish: rec.publish, Log: logger}
	bound := make(chan string, 1)
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		(&toolevents.Listener{Endpoint: endpoint, Topic: "tools", Intake: in, Log: logger, Bound: func(at string) { bound <- at }}).Run(ctx)
	}()
	t.Cleanup(func() {
		stop()
		<-done
	})
	return in, rec, bound
}

// push connects as a PUSH socket and sends messages, each a list of frames.
func push(t *testing.T, endpoint string, messages ...[]string) {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(endpoint, "tcp://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	said := "\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f\x03\x00NULL" + strings.Repeat("\x00", 48) + "\x04\x1a\x05READY\x0bSocket-Type\x00\x00\x00\x04PUSH"
	for _, m := range messages {
		for i, frame := range m {
			more := byte(0)
			if i < len(m)-1 {
				more = 1
			}
			if n := len(frame); n > 255 {
				said += string([]byte{more | 2, 0, 0, 0, 0, byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}) + frame
			} else {
				said += string([]byte{more, byte(n)}) + frame
			}
		}
	}
	if _, err := conn.Write([]byte(said)); err != nil {
		t.Fatal(err)
	}
}

// until waits until something is so.
func until(t *testing.T, so func() bool) {
	t.Helper()
	deadline := time.After(20 * time.Second)
	for tick := time.Tick(2 * time.Millisecond); !so(); {
		select {
		case <-tick:
		case <-deadline:
			t.Fatal("it has not come to be so")
		}
	}
}

func TestListener(t *testing.T) {
	l := new(log)
	in, rec, bound := listening(t, "tcp://127.0.0.1:*", l)
	at := <-bound
	good := string(packed(t, flat, true))
	push(t, at, []string{"tools", "12345678", good}, []string{"other", "12345678", good}, []string{"tools", good}, []string{"tools", "1", "2", good},
		[]string{"tools", "12345678", "\xc1"}, []string{"tools", "12345678", string(packed(t, with(`"session_id":""`), true))})
	push(t, at, []string{"tools", "", string(packed(t, with(`"session_id":"second"`), false))})
	until(t, func() bool { return in.ZMQ() == toolevents.Counts{Accepted: 2, Dropped: 4, Ignored: 1} })
	sessions := map[string]bool{}
	for _, row := range rec.rows {
		sessions[row.Agent.SessionID] = true
		if row.Source != trace.SourceHarness {
			t.Errorf("%+v", row)
		}
	}
	if len(rec.rows) != 2 || !sessions["s1"] || !sessions["second"] {
		t.Errorf("sessions %v", sessions)
	}
	if !l.has("three frames") {
		t.Error("nothing is said of a message of two frames")
	}
	if in.HTTP() != (toolevents.Counts{}) {
		t.Errorf("over HTTP came %+v", in.HTTP())
	}
}

// A port that somebody has is waited for.
func TestListenerWaitsForPort(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	endpoint, l := "tcp://"+taken.Addr().String(), new(log)
	in, _, bound := listening(t, endpoint, l)
	until(t, func() bool { return l.has("cannot be bound") })
	if err := taken.Close(); err != nil {
		t.Fatal(err)
	}
	at := <-bound
	if at != endpoint {
		t.Errorf("bound at %s, want %s", at, endpoint)
	}
	push(t, at, []string{"tools", "12345678", string(packed(t, flat, true))})
	until(t, func() bool { return in.ZMQ().Accepted == 1 })
}

// A listener that cannot bind ends all the same.
func TestListenerEnds(t *testing.T) {
	l := new(log)
	_, _, _ = listening(t, "udp://127.0.0.1:1", l)
	until(t, func() bool { return l.has("must begin with tcp://") })
	if err := toolevents.CheckEndpoint("udp://127.0.0.1:1"); err == nil {
		t.Error("an endpoint of UDP is good")
	}
	if err := toolevents.CheckEndpoint("tcp://127.0.0.1:20390"); err != nil {
		t.Error(err)
	}
}

// A body with which something is wrong as a whole publishes nothing.
func TestIntakeBody(t *testing.T) {
	l, rec := new(log), new(recorder)
	in := &toolevents.Intake{Publish: rec.publish, Log: slog.New(slog.NewTextHandler(l, nil))}
	if _, err := in.Body([]byte("[" + flat + ",")); err == nil || len(rec.rows) != 0 || in.HTTP() != (toolevents.Counts{}) {
		t.Errorf("%v, %d rows, %+v", err, len(rec.rows), in.HTTP())
	}
	b, err := in.Body([]byte("[" + flat + ",1,2,3]"))
	if err != nil || len(b.Accepted) != 1 || len(rec.rows) != 1 || in.HTTP() != (toolevents.Counts{Accepted: 1, Dropped: 3}) || !l.has("times=3") {
		t.Errorf("%v, %d rows, %+v", err, len(rec.rows), in.HTTP())
	}
	if _, err := in.Body([]byte("[]")); err != nil {
		t.Error(err)
	}
}
