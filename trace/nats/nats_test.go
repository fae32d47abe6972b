package nats_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dynago/dynago/trace"
	"github.com/dynago/dynago/trace/nats"
)

// fake speaks as much of NATS as a publisher hears: it keeps what is published, and
// acknowledges it if it is to. The suite with a real server is e2e/nats.
type fake struct {
	net.Listener
	silent bool

	mu   sync.Mutex
	kept []string // subject and text
	auth string   // of CONNECT
}

func serve(t *testing.T, silent bool) *fake {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &fake{Listener: l, silent: silent}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go f.talk(conn)
		}
	}()
	t.Cleanup(func() { l.Close() })
	return f
}

func (f *fake) talk(conn net.Conn) {
	defer conn.Close()
	fmt.Fprintf(conn, "INFO {\"server_id\":\"fake\",\"version\":\"2.15.0\",\"proto\":1,\"headers\":true,\"max_payload\":1048576}\r\n")
	in, inbox := bufio.NewReader(conn), map[string]string{}
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return
		}
		words := strings.Fields(line)
		switch words[0] {
		case "CONNECT":
			f.mu.Lock()
			f.auth = line
			f.mu.Unlock()
		case "PING":
			io.WriteString(conn, "PONG\r\n") //nolint:errcheck // the client tells
		case "SUB":
			inbox[strings.TrimSuffix(words[1], "*")] = words[len(words)-1]
		case "PUB":
			var size int
			fmt.Sscan(words[len(words)-1], &size) //nolint:errcheck // 0 tells
			text := make([]byte, size+2)
			if _, err := io.ReadFull(in, text); err != nil {
				return
			}
			f.mu.Lock()
			f.kept = append(f.kept, words[1]+" "+string(text[:size]))
			f.mu.Unlock()
			for prefix, sid := range inbox {
				if reply := words[2]; strings.HasPrefix(reply, prefix) && !f.silent {
					const ack = `{"stream":"TRACE","seq":1}`
					fmt.Fprintf(conn, "MSG %s %s %d\r\n%s\r\n", reply, sid, len(ack), ack)
				}
			}
		}
	}
}

func (f *fake) all() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string(nil), f.kept...)
}

func open(t *testing.T, address string, env ...string) *nats.Sink {
	t.Helper()
	env = append(env, "NATS_SERVER", "nats://"+address)
	s, err := nats.Open(trace.NATSConfig{Subject: "a.subject"}, func(name string) (string, bool) {
		for i := 0; i < len(env); i += 2 {
			if env[i] == name {
				return env[i+1], true
			}
		}
		return "", false
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func records(n int) (list []*trace.Record) {
	for i := range n {
		list = append(list, &trace.Record{Schema: trace.Schema, EventType: trace.RequestEnd, EventTime: uint64(i), Request: &trace.Request{RequestID: fmt.Sprint("r", i)}})
	}
	return list
}

func lost(t *testing.T, err error) int {
	t.Helper()
	l, ok := errors.AsType[*trace.Lost](err)
	if err != nil && !ok {
		t.Error(err)
	}
	if !ok {
		return 0
	}
	return l.Records
}

// Records are published bare, in order.
func TestPublishes(t *testing.T) {
	f := serve(t, false)
	s := open(t, f.Addr().String(), "NATS_AUTH_TOKEN", "letmein")
	want := records(200)
	if err := s.Write(t.Context(), want); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	got := f.all()
	if len(got) != len(want) {
		t.Fatalf("%d records came", len(got))
	}
	for i, r := range want {
		if line, _ := r.Append(nil); got[i] != "a.subject "+string(line) {
			t.Errorf("%d: %s", i, got[i])
		}
	}
	if !strings.Contains(f.auth, `"auth_token":"letmein"`) {
		t.Errorf("%s", f.auth)
	}
}

// Nobody waits for an acknowledgement; at the end, those without one count as lost.
func TestSilentServer(t *testing.T) {
	f := serve(t, true)
	s := open(t, f.Addr().String())
	began := time.Now()
	if err := s.Write(t.Context(), records(100)); err != nil || time.Since(began) > time.Second {
		t.Errorf("%v after %v", err, time.Since(began))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if n := lost(t, s.Close(ctx)); n != 100 {
		t.Errorf("%d of 100 are told to be lost", n)
	}
}

// A server that is not there costs a moment, and all that it does not get is counted.
func TestNoServer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	s := open(t, l.Addr().String())
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	began := time.Now()
	if n := lost(t, s.Write(ctx, records(7))); n != 7 {
		t.Errorf("%d of 7 are told to be lost", n)
	}
	if n := lost(t, s.Close(t.Context())); n != 0 || time.Since(began) > time.Second {
		t.Errorf("%d more are lost, after %v", n, time.Since(began))
	}
}

func TestBadServer(t *testing.T) {
	if _, err := nats.Open(trace.NATSConfig{Subject: "a"}, func(name string) (string, bool) { return "nats://:a:b", name == "NATS_SERVER" }); err == nil {
		t.Error("a server without a name is good")
	}
}

func Example() {
	// No server need be there yet.
	s, err := nats.Open(trace.NATSConfig{Subject: "dynamo.request_trace.v1"}, func(name string) (string, bool) {
		return "nats://127.0.0.1:1", name == "NATS_SERVER"
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(s.Name(), s.Close(context.Background()))
	// Output: nats <nil>
}
