package zmtp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"
)

// Peer is one connection of a socket. It stays what it is when the connection
// has ended; the connection after it is another Peer.
type Peer struct {
	endpoint, address string
	epoch             uint64
	welcome           welcome

	conn   net.Conn
	out    *outbox
	chunks chan *chunk // those that are free

	ponged bool // it answers questions; only the reader knows

	// What it subscribed to at a PUB socket, under that socket's lock.
	topics topics
}

// Epoch numbers the connections of a socket from 1 on, in the order in which
// they came to stand. It is 0 where an attempt failed.
func (p *Peer) Epoch() uint64 { return p.epoch }

// Endpoint returns the endpoint that the socket connected to or bound.
func (p *Peer) Endpoint() string { return p.endpoint }

// Address returns the network address of the other side.
func (p *Peer) Address() string { return p.address }

// SocketType returns what the peer is: PUB, ROUTER and so on.
func (p *Peer) SocketType() string { return p.welcome.socketType }

// Identity returns the name that the peer gave itself, if any.
func (p *Peer) Identity() []byte { return bytes.Clone(p.welcome.identity) }

// confirm is the context of the PING that is sent behind subscriptions. Frames
// are handled in order, so that its PONG says that they have been read.
const confirm = "subscribed"

// read reads messages and hands them to the socket, until the connection ends.
func (p *Peer) read(ctx context.Context, s *socket) error {
	scan := scanner{maxMessage: s.readLimit, maxParts: s.opts.MaxParts}
	size := firstChunk
	c, err := p.takeChunk(ctx, size)
	if err != nil {
		return err
	}
	for {
		room := c.buf[c.n:]
		n, err := p.receive(room, s.opts.Heartbeat)
		if err != nil {
			return err
		}
		c.n += n
		if n == len(room) {
			size = min(2*size, usualChunk)
		}
		confirmed := false
		need, err := scan.scan(c.buf[:c.n], func(body []byte) error {
			yes, err := p.obey(s, body)
			confirmed = confirmed || yes
			return err
		})
		if err != nil {
			return err
		}
		if scan.whole > 0 {
			if c, err = p.handOver(ctx, s, c, &scan, max(size, c.n-scan.whole)); err != nil {
				return err
			}
			need -= scan.whole
			scan.shift()
		}
		if confirmed {
			if err := s.deliver(ctx, delivery{event: Subscribed, peer: p}); err != nil {
				return err
			}
		}
		if c.n == len(c.buf) {
			c.grow(need)
		}
	}
}

// handOver gives the whole messages of a chunk to the socket, and returns a
// chunk that begins with what lies behind them.
func (p *Peer) handOver(ctx context.Context, s *socket, c *chunk, scan *scanner, size int) (*chunk, error) {
	if scan.messages == 0 { // only commands
		c.n = copy(c.buf, c.buf[scan.whole:c.n])
		return c, nil
	}
	next, err := p.takeChunk(ctx, size)
	if err != nil {
		return nil, err
	}
	next.n = copy(next.buf, c.buf[scan.whole:c.n])
	c.n = scan.whole
	s.stats.received.Add(uint64(scan.messages))
	s.stats.receivedBytes.Add(uint64(scan.whole))
	return next, s.receive(ctx, p, c)
}

// takeChunk waits for a free chunk and gives it the size.
func (p *Peer) takeChunk(ctx context.Context, size int) (*chunk, error) {
	select {
	case c := <-p.chunks:
		if cap(c.buf) < size {
			c.buf = make([]byte, size)
		}
		c.buf = c.buf[:cap(c.buf)]
		return c, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// receive reads what there is. A peer that is silent for a heartbeat is asked
// for a sign of life, if it speaks a version that has such questions.
func (p *Peer) receive(b []byte, heartbeat time.Duration) (int, error) {
	asks := heartbeat > 0 && p.welcome.minor >= 1
	for silent := 0; ; silent++ {
		if asks {
			if err := p.conn.SetReadDeadline(time.Now().Add(heartbeat)); err != nil {
				return 0, err
			}
		}
		n, err := p.conn.Read(b)
		switch {
		case n > 0:
			return n, nil
		case errors.Is(err, io.EOF):
			return 0, errors.New("the peer closed the connection")
		case !errors.Is(err, os.ErrDeadlineExceeded):
			return 0, err
		case silent >= 2 && p.ponged:
			return 0, fmt.Errorf("the peer has been silent for %v", 3*heartbeat)
		}
		p.out.command(appendPing(nil, ""))
	}
}

// maxPending bounds the answers that wait for a peer that asks but does not read.
const maxPending = 64 << 10

// obey does what a command of the peer says. It tells whether the command
// confirms our subscriptions.
func (p *Peer) obey(s *socket, body []byte) (confirmed bool, err error) {
	name, content, err := parseCommand(body)
	if err != nil {
		return false, err
	}
	switch name {
	case ping:
		answer, err := appendPong(nil, content)
		if err == nil && p.out.pending() < maxPending {
			p.out.command(answer)
		}
		return false, err
	case pong:
		p.ponged = true
		return string(content) == confirm && s.kind == "SUB", nil
	case failure:
		return false, parseError(content)
	case subscribe, cancel:
		return false, s.subscription(p, name == subscribe, content)
	}
	return false, nil // a later version may know it
}
