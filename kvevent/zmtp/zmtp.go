// Package zmtp speaks ZMTP 3.1, the wire protocol of ZeroMQ, as far as engines
// use it to tell of their caches, and agents of their tools: SUB, PUB, DEALER,
// ROUTER and PULL sockets with the NULL mechanism over TCP and Unix sockets, each
// of which binds, connects, or does both. It interoperates with libzmq.
//
// The one idea: a connection is not hidden. Where ZeroMQ shows one socket and
// heals it in silence, a stream of messages here tells in its order when a
// connection stands, when the publisher knows the subscriptions, and when it is
// lost, so that a reader knows which messages can be missing. Whole messages are
// handed over in the buffer that they were read into, many at a time:
//
//	conn ─ read ─▶ chunk ─ scan: whole messages ─▶ inbox ─▶ for m := range Messages
//	conn ◀ write ─ outbox (bounded, one per peer) ◀──────── Send
package zmtp

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"time"
)

// Event says what an item of a stream is.
type Event uint8

// The events of a stream. Those of one connection come in the order in which
// they happened: Connected, then any number of Data and Subscribed, then Lost.
const (
	// Data is a message: Parts holds it.
	Data Event = iota
	// Connected says that a connection stands. No message of it came before.
	Connected
	// Subscribed says that the publisher knows the subscriptions: what it sends
	// from now on will come. Only SUB sockets tell it, after Connected and again
	// after changes. A publisher that speaks ZMTP 3.0 cannot confirm; with it,
	// Subscribed follows Connected and says nothing more.
	Subscribed
	// Lost says that a connection ended, and Err why. An endpoint that was
	// connected to is dialled again.
	Lost
	// Failed says that an attempt to connect failed, and Err why: nobody
	// listened, or who answered was no peer for this socket. It is made again.
	// The Peer has no epoch.
	Failed
)

// String returns the event's lower-case name.
func (e Event) String() string {
	return [...]string{"data", "connected", "subscribed", "lost", "failed"}[min(e, Failed)]
}

// Message is an item of a stream: a message of a peer, or a change of its
// connection.
type Message struct {
	Event Event
	// Peer is the connection that it came over.
	Peer *Peer
	// Parts are the frames of a message, at least one; some may be empty. They
	// lie in a buffer that is read into again: they are good until the loop goes
	// on, or, where it was left, until the next loop begins. Clone keeps them.
	Parts [][]byte
	// Err says why a connection was lost or failed.
	Err error
}

// Clone returns a message with parts of its own.
func (m Message) Clone() Message {
	parts := make([][]byte, len(m.Parts))
	for i, p := range m.Parts {
		parts[i] = bytes.Clone(p)
	}
	m.Parts = parts
	return m
}

// Errors that callers can tell apart.
var (
	// ErrClosed is the error of whatever is asked of a closed socket.
	ErrClosed = errors.New("zmtp: the socket is closed")
	// ErrGone is the error of a message for a peer whose connection has ended.
	ErrGone = errors.New("zmtp: the peer is gone")
	// ErrTooLarge is the error of a message, in or out, beyond the limits.
	ErrTooLarge = errors.New("zmtp: the message is too large")
)

// Options are the limits of a socket and its doors to the outside. The zero
// value of each, or a limit below it, means its default.
type Options struct {
	// MaxMessage bounds the bytes of one message, all parts together (128 MiB).
	// Memory is taken as bytes arrive, never for a length that is only claimed.
	MaxMessage int
	// MaxParts bounds the parts of one message (1,024).
	MaxParts int
	// HighWater bounds the messages that wait for one peer (100,000), and
	// QueueBytes their bytes (64 MiB); one message has room always.
	HighWater  int
	QueueBytes int
	// MaxPeers bounds the connections that bound endpoints have at a time
	// (1,024). Further ones are closed at once.
	MaxPeers int
	// Heartbeat is the silence after which a SUB socket asks a publisher whether
	// it is there (5 s). One that has answered such a question before is given up
	// after three times that silence. A negative duration asks nobody. Peers of
	// other sockets may be silent because they are slow; they are left to TCP's
	// keep-alive.
	Heartbeat time.Duration
	// Identity is the name that a ROUTER sees: at most 255 bytes, of which the
	// first is not zero; empty for none.
	Identity []byte

	// Dial and Listen make connections: network is tcp or unix. The defaults
	// keep TCP connections alive every 15 s.
	Dial   func(ctx context.Context, network, address string) (net.Conn, error)
	Listen func(ctx context.Context, network, address string) (net.Listener, error)
	// Jitter returns numbers in [0, 1) that spread redials.
	Jitter func() float64
}

const (
	dialTimeout      = 10 * time.Second
	handshakeTimeout = 10 * time.Second
)

// keepAlive finds dead TCP connections of peers that cannot be asked.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 15 * time.Second, Count: 4}

// filled returns the options with defaults in place of zeros.
func (o Options) filled() Options {
	orElse(&o.MaxMessage, 128<<20)
	orElse(&o.MaxParts, 1024)
	orElse(&o.HighWater, 100_000)
	orElse(&o.QueueBytes, 64<<20)
	orElse(&o.MaxPeers, 1024)
	if o.Heartbeat == 0 {
		o.Heartbeat = 5 * time.Second
	}
	if o.Dial == nil {
		d := &net.Dialer{Timeout: dialTimeout, KeepAliveConfig: keepAlive}
		o.Dial = d.DialContext
	}
	if o.Listen == nil {
		l := &net.ListenConfig{KeepAliveConfig: keepAlive}
		o.Listen = l.Listen
	}
	if o.Jitter == nil {
		o.Jitter = rand.Float64
	}
	return o
}

func orElse(limit *int, otherwise int) {
	if *limit <= 0 {
		*limit = otherwise
	}
}
