package zmtp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"
)

// socket is what all sockets share: connections made and accepted, each served
// by a goroutine that reads and one that writes, and an end to all of them.
type socket struct {
	kind string
	opts Options
	// readLimit bounds the messages that peers send.
	readLimit int
	inbox     *inbox  // nil for a socket that only sends
	changed   *signal // a peer has come or gone, or, for a DEALER, has room
	stats     counters

	// join, if not nil, is called with a new peer before it is one of peers, and
	// topic when a peer subscribes or cancels; both under the lock.
	join  func(p *Peer)
	topic func(p *Peer, on bool, prefix []byte) error

	ctx  context.Context // ends with Close
	stop context.CancelCauseFunc
	run  sync.WaitGroup

	mu     sync.Mutex
	closed bool
	epoch  uint64
	peers  []*Peer
	taken  int // connections accepted, standing or not
}

func newSocket(kind string, o Options) *socket {
	s := &socket{kind: kind, opts: o.filled(), changed: new(signal)}
	s.readLimit = s.opts.MaxMessage
	s.ctx, s.stop = context.WithCancelCause(context.Background())
	s.inbox = newInbox(s.ctx.Done())
	return s
}

// Connect dials the endpoint, again and again whenever the connection is lost
// or cannot be made, until the socket is closed. It does not wait for it.
func (s *socket) Connect(endpoint string) error {
	e, err := ParseEndpoint(endpoint)
	if err != nil {
		return fmt.Errorf("zmtp: connect: %w", err)
	}
	if err := e.dialable(); err != nil {
		return fmt.Errorf("zmtp: connect: %w", err)
	}
	return s.start(func() { s.dial(e) })
}

// Bind listens at the endpoint until the socket is closed, and returns the
// endpoint with the port that it got. The context is for finding the address.
func (s *socket) Bind(ctx context.Context, endpoint string) (string, error) {
	e, err := ParseEndpoint(endpoint)
	if err != nil {
		return "", fmt.Errorf("zmtp: bind: %w", err)
	}
	l, err := e.listen(ctx, &s.opts)
	if err != nil {
		return "", fmt.Errorf("zmtp: bind %v: %w", e, err)
	}
	e.Address = l.Addr().String()
	if err := s.start(func() { s.accept(l, e.String()) }); err != nil {
		_ = l.Close()
		return "", err
	}
	return e.String(), nil
}

// Close ends all connections at once, and what waits to be sent with them. When
// it returns, nothing of the socket runs. It may be called twice.
func (s *socket) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.stop(ErrClosed)
	s.run.Wait()
	return nil
}

// start runs f as a part of the socket.
func (s *socket) start(f func()) error {
	if id := s.opts.Identity; len(id) > maxIdentity || len(id) > 0 && id[0] == 0 {
		return fmt.Errorf("zmtp: the identity %.20q of %d bytes; it has at most %d and does not begin with a zero", id, len(id), maxIdentity)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ErrClosed
	}
	s.run.Go(f)
	return nil
}

// dial keeps a connection to an endpoint.
func (s *socket) dial(e Endpoint) {
	for failures := 0; s.ctx.Err() == nil; failures++ {
		conn, err := s.opts.Dial(s.ctx, e.Network, e.Address)
		stood := false
		if err == nil {
			stood, err = s.serve(conn, e.String())
		}
		switch {
		case stood:
			failures = 0
		case s.ctx.Err() == nil:
			s.stats.failed.Add(1)
			err = fmt.Errorf("connect to %v: %w", e, err)
			_ = s.deliver(s.ctx, delivery{event: Failed, peer: &Peer{endpoint: e.String(), address: e.Address}, err: err})
		}
		rest(s.ctx, redialAfter(failures, s.opts.Jitter()))
	}
}

// accept serves the connections of a listener.
func (s *socket) accept(l net.Listener, endpoint string) {
	defer context.AfterFunc(s.ctx, func() { _ = l.Close() })()
	defer l.Close()
	for failures := 0; ; failures++ {
		conn, err := l.Accept()
		if s.ctx.Err() != nil {
			if err == nil {
				_ = conn.Close()
			}
			return
		}
		if err != nil { // out of descriptors, say: that passes
			rest(s.ctx, redialAfter(failures, s.opts.Jitter()))
			continue
		}
		failures = 0
		if !s.admit() {
			s.stats.refused.Add(1)
			_ = conn.Close()
			continue
		}
		s.run.Go(func() {
			defer s.dismiss()
			if stood, _ := s.serve(conn, endpoint); !stood {
				s.stats.refused.Add(1)
			}
		})
	}
}

// admit takes one of the places of accepted connections; dismiss gives it back.
func (s *socket) admit() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.taken == s.opts.MaxPeers {
		return false
	}
	s.taken++
	return true
}

func (s *socket) dismiss() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.taken--
}

// serve runs a connection to its end. It tells whether it ever stood, and why it
// ended.
func (s *socket) serve(conn net.Conn, endpoint string) (stood bool, err error) {
	ctx, end := context.WithCancelCause(s.ctx)
	defer end(nil)
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	defer conn.Close()

	told, err := s.shake(conn)
	if err != nil {
		return false, err
	}
	p := &Peer{endpoint: endpoint, address: conn.RemoteAddr().String(), welcome: told, conn: conn}
	if s.kind == "SUB" && told.minor >= 1 {
		p.heartbeat = max(s.opts.Heartbeat, 0)
	}
	p.chunks = make(chan *chunk, chunksPerPeer)
	for range chunksPerPeer {
		p.chunks <- &chunk{home: p.chunks}
	}
	s.enter(p)

	var writer sync.WaitGroup
	writer.Go(func() { end(p.out.write(ctx, conn)) })
	err = s.attend(ctx, p)
	end(err)
	writer.Wait()

	s.leave(p)
	// The first of reader and writer to fail knows why.
	_ = s.deliver(s.ctx, delivery{event: Lost, peer: p, err: context.Cause(ctx)})
	return true, err
}

// shake makes the handshake, which has a time limit.
func (s *socket) shake(conn net.Conn) (welcome, error) {
	if err := conn.SetDeadline(time.Now().Add(handshakeTimeout)); err != nil {
		return welcome{}, err
	}
	told, err := shake(conn, metadata{s.kind, s.opts.Identity})
	if err != nil {
		return welcome{}, err
	}
	return told, conn.SetDeadline(time.Time{})
}

// attend tells of a new connection and reads it.
func (s *socket) attend(ctx context.Context, p *Peer) error {
	if err := s.deliver(ctx, delivery{event: Connected, peer: p}); err != nil {
		return err
	}
	if s.kind == "SUB" && p.welcome.minor < 1 {
		if err := s.deliver(ctx, delivery{event: Subscribed, peer: p}); err != nil {
			return err
		}
	}
	return p.read(ctx, s)
}

// enter makes a peer one of the socket's.
func (s *socket) enter(p *Peer) {
	s.mu.Lock()
	s.epoch++
	p.epoch = s.epoch
	room := s.changed
	if s.kind != "DEALER" { // who writes to one peer waits for that one
		room = new(signal)
	}
	p.out = newOutbox(&s.opts, room)
	if s.join != nil {
		s.join(p)
	}
	s.peers = append(s.peers, p)
	s.mu.Unlock()
	s.stats.connected.Add(1)
	s.changed.broadcast()
}

// leave takes a peer from the socket's.
func (s *socket) leave(p *Peer) {
	s.mu.Lock()
	s.peers = slices.DeleteFunc(s.peers, func(o *Peer) bool { return o == p })
	s.mu.Unlock()
	s.stats.lost.Add(1)
	p.out.leave()
	s.changed.broadcast()
}

// deliver hands something to the loop that reads the socket, if it has one.
func (s *socket) deliver(ctx context.Context, d delivery) error {
	if s.inbox == nil {
		return nil
	}
	return s.inbox.deliver(ctx, d)
}

// receive takes a chunk of messages.
func (s *socket) receive(ctx context.Context, p *Peer, c *chunk) error {
	if s.inbox != nil {
		return s.inbox.deliver(ctx, delivery{peer: p, chunk: c})
	}
	// Only a PUB socket has no inbox, and is sent nothing but subscriptions.
	defer c.release()
	for rest := c.buf[:c.n]; len(rest) > 0; {
		var flags byte
		var body []byte
		flags, body, rest = cut(rest)
		if flags&flagCommand != 0 {
			continue
		}
		if on, prefix, ok := parseSubscription(flags, body); ok {
			if err := s.subscription(p, on, prefix); err != nil {
				return err
			}
		}
	}
	return nil
}

// subscription is a peer's wish to get messages, or no longer.
func (s *socket) subscription(p *Peer, on bool, prefix []byte) error {
	if s.topic == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.topic(p, on, prefix)
}

// check says what is wrong with a message that is to be sent.
func (s *socket) check(parts [][]byte) error {
	_, size := wireSize(parts)
	switch {
	case len(parts) == 0:
		return errors.New("zmtp: a message has at least one part")
	case size > s.opts.MaxMessage || len(parts) > s.opts.MaxParts:
		return fmt.Errorf("%w: %d bytes in %d parts; at most %d in %d are sent", ErrTooLarge, size, len(parts), s.opts.MaxMessage, s.opts.MaxParts)
	}
	return nil
}
