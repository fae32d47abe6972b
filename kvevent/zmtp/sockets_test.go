package zmtp_test

import (
	"context"
	"encoding/binary"
	"iter"
	"slices"
	"testing"
	"time"

	"github.com/dynago/dynago/kvevent/zmtp"
)

// socket is what all sockets can do.
type socket interface {
	Connect(endpoint string) error
	Bind(ctx context.Context, endpoint string) (string, error)
	Stats() zmtp.Stats
	Close() error
}

// kept closes a socket with its test, and checks that it closes.
func kept[S socket](t testing.TB, s S) S {
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func newPub(t testing.TB, o zmtp.Options) *zmtp.Pub       { return kept(t, zmtp.NewPub(o)) }
func newDealer(t testing.TB, o zmtp.Options) *zmtp.Dealer { return kept(t, zmtp.NewDealer(o)) }
func newRouter(t testing.TB, o zmtp.Options) *zmtp.Router { return kept(t, zmtp.NewRouter(o)) }
func newSub(t testing.TB, o zmtp.Options, prefixes ...string) *zmtp.Sub {
	t.Helper()
	sub := kept(t, zmtp.NewSub(o))
	for _, p := range prefixes {
		if err := sub.Subscribe(p); err != nil {
			t.Fatal(err)
		}
	}
	return sub
}

func bind(t testing.TB, s socket, endpoint string) string {
	t.Helper()
	at, err := s.Bind(t.Context(), endpoint)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

func connect(t testing.TB, s socket, endpoint string) {
	t.Helper()
	if err := s.Connect(endpoint); err != nil {
		t.Fatal(err)
	}
}

// to is a router that sends to one peer.
type to struct {
	*zmtp.Router
	peer *zmtp.Peer
}

func (r to) Send(ctx context.Context, parts ...[]byte) error {
	return r.Router.Send(ctx, r.peer, parts...)
}

// send sends a message, which must not fail.
func send(t testing.TB, s any, parts ...string) {
	t.Helper()
	list := make([][]byte, len(parts))
	for i, p := range parts {
		list[i] = []byte(p)
	}
	var err error
	switch s := s.(type) {
	case *zmtp.Pub:
		err = s.Send(list...)
	case interface {
		Send(ctx context.Context, parts ...[]byte) error
	}:
		err = s.Send(t.Context(), list...)
	default:
		t.Fatalf("%T sends nothing", s)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// reader reads a stream item by item.
type reader struct {
	t    testing.TB
	pull func() (zmtp.Message, error, bool)
}

// read reads the messages of a socket.
func read(t testing.TB, s interface {
	Messages(ctx context.Context) iter.Seq2[zmtp.Message, error]
},
) *reader {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	pull, stop := iter.Pull2(s.Messages(ctx))
	t.Cleanup(func() {
		cancel()
		stop()
	})
	return &reader{t, pull}
}

// next returns the next item.
func (r *reader) next() zmtp.Message {
	r.t.Helper()
	m, err, ok := r.pull()
	if !ok || err != nil {
		r.t.Fatalf("the stream ended: %v", err)
	}
	return m
}

// want returns the next item, which must be of an event.
func (r *reader) want(e zmtp.Event) zmtp.Message {
	r.t.Helper()
	m := r.next()
	if m.Event != e {
		r.t.Fatalf("%v %q (%v), want %v", m.Event, m.Parts, m.Err, e)
	}
	return m
}

// past returns the first item that is not of an event; it must be of another.
func (r *reader) past(skip, e zmtp.Event) zmtp.Message {
	r.t.Helper()
	for {
		m := r.next()
		if m.Event == e {
			return m
		}
		if m.Event != skip {
			r.t.Fatalf("%v %q (%v), want %v", m.Event, m.Parts, m.Err, e)
		}
	}
}

// wantParts checks the next message.
func (r *reader) wantParts(parts ...string) zmtp.Message {
	r.t.Helper()
	m := r.want(zmtp.Data)
	got := make([]string, len(m.Parts))
	for i, p := range m.Parts {
		got[i] = string(p)
	}
	if !slices.Equal(got, parts) {
		r.t.Fatalf("received %.200q, want %.200q", got, parts)
	}
	return m
}

// number is a sequence number as engines write it.
func number(n int) string {
	return string(binary.BigEndian.AppendUint64(nil, uint64(n)))
}

func sequence(b []byte) uint64 {
	if len(b) != 8 {
		return 1<<64 - 1
	}
	return binary.BigEndian.Uint64(b)
}

// waitFor waits until something is so.
func waitFor(t testing.TB, so func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !so(); <-time.After(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it did not come to be")
		}
	}
}
