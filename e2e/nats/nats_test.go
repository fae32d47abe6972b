// Package nats_test publishes records of traces to a real NATS server. It is a module
// of its own, so that the product does not depend on the server.
package nats_test

import (
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/dynago/dynago/trace"
	sink "github.com/dynago/dynago/trace/nats"
)

// start starts a server with JetStream, at a port that is free, or at one that it had.
func start(t *testing.T, port int, change func(*server.Options)) *server.Server {
	t.Helper()
	o := &server.Options{Host: "127.0.0.1", Port: port, JetStream: true, StoreDir: t.TempDir(), NoLog: true, NoSigs: true}
	if change != nil {
		change(o)
	}
	s, err := server.NewServer(o)
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	if !s.ReadyForConnections(10 * time.Second) {
		t.Fatal("the server does not start")
	}
	t.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	return s
}

// stream makes a stream that keeps what is published, and returns a way to it.
func stream(t *testing.T, s *server.Server, options ...nats.Option) jetstream.Stream {
	t.Helper()
	nc, err := nats.Connect(s.ClientURL(), options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	kept, err := js.CreateOrUpdateStream(t.Context(), jetstream.StreamConfig{Name: "TRACE", Subjects: []string{"dynamo.>"}, Storage: jetstream.MemoryStorage})
	if err != nil {
		t.Fatal(err)
	}
	return kept
}

func open(t *testing.T, url string, env ...string) *sink.Sink {
	t.Helper()
	env = append(env, "NATS_SERVER", url)
	s, err := sink.Open(trace.NATSConfig{Subject: "dynamo.request_trace.v1"}, func(name string) (string, bool) {
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

// kept returns how many messages a stream keeps.
func kept(t *testing.T, s jetstream.Stream) uint64 {
	t.Helper()
	info, err := s.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return info.State.Msgs
}

// What is published lies in the stream: bare lines, in order, all of them.
func TestPublishes(t *testing.T) {
	srv := start(t, server.RANDOM_PORT, nil)
	st := stream(t, srv)
	s := open(t, srv.ClientURL())
	want := records(5000)
	for i := 0; i < len(want); i += 64 {
		if err := s.Write(t.Context(), want[i:min(i+64, len(want))]); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := kept(t, st); n != 5000 {
		t.Fatalf("%d messages are kept", n)
	}
	for _, i := range []int{0, 1, 2500, 4999} {
		m, err := st.GetMsg(t.Context(), uint64(i+1))
		if err != nil {
			t.Fatal(err)
		}
		line, _ := want[i].Append(nil)
		if m.Subject != "dynamo.request_trace.v1" || string(m.Data) != string(line) {
			t.Errorf("%d: %s %s", i, m.Subject, m.Data)
		}
	}
}

// Where no stream keeps the subject, that is told.
func TestNoStream(t *testing.T) {
	srv := start(t, server.RANDOM_PORT, nil)
	s := open(t, srv.ClientURL())
	lostNow := 0
	add := func(err error) {
		if lost, ok := errors.AsType[*trace.Lost](err); ok {
			lostNow += lost.Records
		} else if err != nil {
			t.Error(err)
		}
	}
	add(s.Write(t.Context(), records(10)))
	add(s.Close(t.Context()))
	if lostNow != 10 {
		t.Errorf("%d of 10 are told to be lost", lostNow)
	}
}

// A record that a server does not take costs no other.
func TestTooLarge(t *testing.T) {
	srv := start(t, server.RANDOM_PORT, func(o *server.Options) { o.MaxPayload = 1000 })
	st := stream(t, srv)
	s := open(t, srv.ClientURL())
	list := records(3)
	large := make([]byte, 2000)
	for i := range large {
		large[i] = 'x'
	}
	list[1].Request.Model = string(large)
	if lost, _ := errors.AsType[*trace.Lost](s.Write(t.Context(), list)); lost == nil || lost.Records != 1 {
		t.Errorf("%v", lost)
	}
	if err := s.Close(t.Context()); err != nil || kept(t, st) != 2 {
		t.Errorf("%v, %d are kept", err, kept(t, st))
	}
}

// A server that comes later, or again, gets what the bus has kept meanwhile: the
// newest. Publishing waits for none of it.
func TestServerComesAndGoes(t *testing.T) {
	srv := start(t, server.RANDOM_PORT, nil)
	url, port := srv.ClientURL(), srv.Addr().(interface{ String() string }).String()
	var number int
	if _, err := fmt.Sscanf(port, "127.0.0.1:%d", &number); err != nil {
		t.Fatal(err)
	}
	srv.Shutdown()
	srv.WaitForShutdown()

	s := open(t, url)
	bus := trace.NewBus(100, slog.New(slog.DiscardHandler), s)
	began := time.Now()
	for _, r := range records(1000) {
		bus.Publish(r)
	}
	if took := time.Since(began); took > time.Second {
		t.Errorf("publishing took %v", took)
	}
	srv = start(t, number, nil)
	st := stream(t, srv)
	var n uint64
	for deadline := time.Now().Add(20 * time.Second); n < 100; n = kept(t, st) {
		if time.Now().After(deadline) {
			t.Fatalf("%d are kept", n)
		}
		bus.Publish(records(1)[0])
		<-time.After(20 * time.Millisecond)
	}
	if err := bus.Close(t.Context()); err != nil {
		t.Error(err)
	}
	status := bus.Status()[0]
	if got := kept(t, st); status.Published-status.Dropped != got {
		t.Errorf("%+v, and %d are kept", status, got)
	}
}

// Servers that want a name or a token get it.
func TestAuthentication(t *testing.T) {
	for name, tc := range map[string]struct {
		server func(*server.Options)
		client nats.Option
		env    []string
	}{
		"password": {func(o *server.Options) { o.Username, o.Password = "me", "secret" }, nats.UserInfo("me", "secret"), []string{"NATS_AUTH_USERNAME", "me", "NATS_AUTH_PASSWORD", "secret"}},
		"token":    {func(o *server.Options) { o.Authorization = "token" }, nats.Token("token"), []string{"NATS_AUTH_TOKEN", "token"}},
	} {
		t.Run(name, func(t *testing.T) {
			srv := start(t, server.RANDOM_PORT, tc.server)
			st := stream(t, srv, tc.client)
			s := open(t, srv.ClientURL(), tc.env...)
			if err := s.Write(t.Context(), records(3)); err != nil {
				t.Error(err)
			}
			if err := s.Close(t.Context()); err != nil || kept(t, st) != 3 {
				t.Errorf("%v, %d are kept", err, kept(t, st))
			}
		})
	}
}
