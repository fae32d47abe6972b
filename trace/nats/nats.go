// Package nats publishes the records of a trace on a subject of JetStream. A stream
// that keeps the subject is made by whoever reads it.
//
// The one idea: what is not acknowledged is not waited for. While no server is there,
// records wait in the bus, which has the newest of them when one comes; what a server
// does not acknowledge in time is counted as lost, and not sent again.
package nats

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/dynago/dynago/trace"
)

const (
	// maxPending is how many records may be unacknowledged.
	maxPending = 2048
	// ackTimeout is how long an acknowledgement may take, until a record counts as lost.
	ackTimeout = 5 * time.Second
	// stall is how long one more than maxPending waits for room.
	stall = 100 * time.Millisecond
	// patience is how long records are held up by a server that is not there, which is
	// also how much longer a program takes to end.
	patience = 2 * time.Second
	// tellEvery is how often losses are told of that came to light meanwhile.
	tellEvery = time.Second
)

// Sink is a [trace.Sink] to a subject.
type Sink struct {
	subject string
	conn    *nats.Conn
	js      jetstream.JetStream
	up      chan struct{} // holds a token when a connection has come to stand

	mu     sync.Mutex
	failed int   // records that were not acknowledged, and are not told of yet
	why    error // of the last of them
}

// Open returns a sink to the server that the environment names: NATS_SERVER, which may
// be a list and is nats://localhost:4222 otherwise, with NATS_AUTH_USERNAME and
// NATS_AUTH_PASSWORD, NATS_AUTH_TOKEN or NATS_AUTH_CREDENTIALS_FILE.
// The server need not be there yet.
func Open(c trace.NATSConfig, lookup func(name string) (string, bool)) (*Sink, error) {
	s := &Sink{subject: c.Subject, up: make(chan struct{}, 1)}
	server, ok := lookup("NATS_SERVER")
	if !ok || server == "" {
		server = nats.DefaultURL
	}
	options := append(
		authentication(lookup), nats.Name("dynago trace"),
		nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1), nats.ReconnectWait(time.Second),
		nats.ReconnectBufSize(-1), // the bus has the newest, and counts the others
		nats.ConnectHandler(s.stands), nats.ReconnectHandler(s.stands),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { s.fail(0, err) }),
	)
	var err error
	if s.conn, err = nats.Connect(server, options...); err != nil {
		return nil, fmt.Errorf("trace/nats: connect: %w", err)
	}
	s.js, err = jetstream.New(
		s.conn, jetstream.WithPublishAsyncMaxPending(maxPending), jetstream.WithPublishAsyncTimeout(ackTimeout),
		jetstream.WithPublishAsyncErrHandler(func(_ jetstream.JetStream, _ *nats.Msg, err error) { s.fail(1, err) }),
	)
	if err != nil {
		s.conn.Close()
		return nil, fmt.Errorf("trace/nats: %w", err)
	}
	return s, nil
}

// authentication says who we are.
func authentication(lookup func(name string) (string, bool)) []nats.Option {
	get := func(name string) string {
		if value, ok := lookup(name); ok {
			return value
		}
		return ""
	}
	switch {
	case get("NATS_AUTH_USERNAME") != "":
		return []nats.Option{nats.UserInfo(get("NATS_AUTH_USERNAME"), get("NATS_AUTH_PASSWORD"))}
	case get("NATS_AUTH_TOKEN") != "":
		return []nats.Option{nats.Token(get("NATS_AUTH_TOKEN"))}
	case get("NATS_AUTH_CREDENTIALS_FILE") != "":
		return []nats.Option{nats.UserCredentials(get("NATS_AUTH_CREDENTIALS_FILE"))}
	}
	return nil
}

// stands is told that there is a connection.
func (s *Sink) stands(*nats.Conn) {
	select {
	case s.up <- struct{}{}:
	default:
	}
}

func (s *Sink) fail(records int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed += records
	s.why = err
}

// lost returns what came to light since it was asked last.
func (s *Sink) lost() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.why == nil {
		return nil
	}
	err := &trace.Lost{Records: s.failed, Err: fmt.Errorf("trace/nats: publish on %s: %w", s.subject, s.why)}
	s.failed, s.why = 0, nil
	return err
}

// Name implements [trace.Sink].
func (*Sink) Name() string { return trace.SinkNATS }

// Interval implements [trace.Ticker].
func (*Sink) Interval() time.Duration { return tellEvery }

// Tick implements [trace.Ticker].
func (s *Sink) Tick(context.Context) error { return s.lost() }

// Write implements [trace.Sink].
func (s *Sink) Write(ctx context.Context, records []*trace.Record) error {
	if err := s.connected(ctx); err != nil {
		s.fail(len(records), err)
		return s.lost()
	}
	for i, r := range records {
		line, err := r.Append(nil) // which the library keeps
		if err == nil {
			_, err = s.js.PublishAsync(s.subject, line, jetstream.WithStallWait(stall))
		}
		if errors.Is(err, jetstream.ErrTooManyStalledMsgs) {
			s.fail(len(records)-i, err) // the others would wait as long, in vain
			break
		}
		if err != nil {
			s.fail(1, err)
		}
	}
	return s.lost()
}

// connected waits a while for a server.
func (s *Sink) connected(ctx context.Context) error {
	late := time.NewTimer(patience)
	defer late.Stop()
	for !s.conn.IsConnected() {
		select {
		case <-s.up:
		case <-ctx.Done():
			return ctx.Err()
		case <-late.C:
			return fmt.Errorf("no server is there: %w", nats.ErrDisconnected)
		}
	}
	return nil
}

// Close implements [trace.Sink]. It waits for what is not acknowledged, but not long.
func (s *Sink) Close(ctx context.Context) error {
	if s.conn.IsConnected() {
		select {
		case <-s.js.PublishAsyncComplete():
		case <-ctx.Done():
		}
	}
	if n := s.js.PublishAsyncPending(); n > 0 {
		s.fail(n, errors.New("the end came before the acknowledgement"))
	}
	err := s.lost()
	s.conn.Close()
	return err
}
