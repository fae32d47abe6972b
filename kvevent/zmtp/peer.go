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

	conn      net.Conn
	heartbeat time.Duration // 0 for a peer that is not asked
	out       *outbox
	chunks    chan *chunk // those that are free

	// Only the reader knows these.
	ponged  bool      // it answers questions
	settles time.Time // when subscriptions that it confirmed hold, if any are new

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

// Behind subscriptions goes a PING with the context probing. Frames are handled in
// order, so that its PONG says that the subscriptions have been read. But libzmq
// answers before it passes on what it read together with the question; that it
// has done so is said by the answer to a second question, confirming. And while a
// program sends without a pause, libzmq looks only once in three million ticks of
// the processor's clock whether something was passed on: settle is longer.
const (
	probing    = "probe"
	confirming = "confirm"
	settle     = 5 * time.Millisecond
)

// probe appends the first question, if the peer speaks a version that has such.
func (p *Peer) probe(frames []byte) []byte {
	if p.welcome.minor < 1 {
		return frames
	}
	return appendPing(frames, probing)
}

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
		n, err := p.receive(room)
		if err != nil {
			return err
		}
		c.n += n
		if n == len(room) {
			size = min(2*size, usualChunk)
		}
		need, wrong := scan.scan(c.buf[:c.n], func(body []byte) error { return p.obey(s, body) })
		if scan.whole > 0 {
			if c, err = p.handOver(ctx, s, c, &scan, max(size, c.n-scan.whole)); err != nil {
				return err
			}
			need -= scan.whole
			scan.shift()
		}
		if wrong != nil { // what came before is good
			return wrong
		}
		if p.settled() {
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

// receive reads what there is, which is nothing if subscriptions have settled
// before anything came. A peer with a heartbeat that is silent is asked for a
// sign of life.
func (p *Peer) receive(b []byte) (int, error) {
	for silent := 0; ; silent++ {
		var deadline time.Time
		if p.heartbeat > 0 {
			deadline = time.Now().Add(p.heartbeat)
		}
		settling := !p.settles.IsZero()
		if settling {
			deadline = p.settles
		}
		if err := p.conn.SetReadDeadline(deadline); err != nil {
			return 0, err
		}
		n, err := p.conn.Read(b)
		switch {
		case n > 0:
			return n, nil
		case errors.Is(err, io.EOF):
			return 0, errors.New("the peer closed the connection")
		case !errors.Is(err, os.ErrDeadlineExceeded):
			return 0, err
		case settling:
			return 0, nil
		case silent >= 2 && p.ponged:
			return 0, fmt.Errorf("the peer has been silent for %v", 3*p.heartbeat)
		}
		p.say(appendPing(nil, ""))
	}
}

// settled says, once, that new subscriptions hold.
func (p *Peer) settled() bool {
	if p.settles.IsZero() || time.Now().Before(p.settles) {
		return false
	}
	p.settles = time.Time{}
	return true
}

// maxPending bounds the questions and answers that wait for a peer that does not
// read.
const maxPending = 64 << 10

// say sends a question or an answer, unless too many wait already.
func (p *Peer) say(frames []byte) {
	if p.out.pending() < maxPending {
		p.out.command(frames)
	}
}

// obey does what a command of the peer says.
func (p *Peer) obey(s *socket, body []byte) error {
	name, content, err := parseCommand(body)
	if err != nil {
		return err
	}
	switch name {
	case ping:
		answer, err := appendPong(nil, content)
		if err != nil {
			return err
		}
		p.say(answer)
	case pong:
		if s.kind == "SUB" { // others ask nothing
			p.answered(string(content))
		}
	case failure:
		return parseError(content)
	case subscribe, cancel:
		return s.subscription(p, name == subscribe, content)
	}
	return nil // a later version may know it
}

// answered goes on with the question after the one that was answered.
func (p *Peer) answered(question string) {
	p.ponged = true
	switch question {
	case probing:
		p.say(appendPing(nil, confirming))
	case confirming:
		p.settles = time.Now().Add(settle)
	}
}
