package zmtp_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
)

// scripted is the other side of a connection: a peer that says what a test says,
// and keeps what it hears.
type scripted struct {
	t    testing.TB
	conn net.Conn
	done chan struct{}

	mu    sync.Mutex
	heard bytes.Buffer
}

// pipes returns a way to dial scripted peers, each passed to serve, which runs
// until its connection is to end. A peer that is deaf reads nothing by itself.
func pipes(t testing.TB, deaf bool, serve func(p *scripted)) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(context.Context, string, string) (net.Conn, error) {
		ours, theirs := net.Pipe()
		p := &scripted{t: t, conn: theirs, done: make(chan struct{})}
		go func() {
			defer close(p.done)
			if !deaf {
				p.listen()
			}
		}()
		go func() {
			serve(p)
			_ = theirs.Close()
		}()
		return ours, nil
	}
}

// listen hears until the connection ends.
func (p *scripted) listen() {
	buf := make([]byte, 4096)
	for {
		n, err := p.conn.Read(buf)
		p.mu.Lock()
		p.heard.Write(buf[:n])
		p.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// say says it, unless the connection has ended.
func (p *scripted) say(what ...string) {
	for _, w := range what {
		_, _ = io.WriteString(p.conn, w)
	}
}

// has says whether it heard it.
func (p *scripted) has(what string) bool { return p.times(what) > 0 }

func (p *scripted) times(what string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Count(p.heard.String(), what)
}

// all is what it heard so far.
func (p *scripted) all() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.heard.String()
}

// What peers say.
const (
	hello30   = signature + "\x03\x00" + mechanism
	hello31   = signature + "\x03\x01" + mechanism
	signature = "\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f"
	mechanism = "NULL\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00" +
		"\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"

	readyPub    = "\x04\x19\x05READY\x0bSocket-Type\x00\x00\x00\x03PUB"
	readySub    = "\x04\x19\x05READY\x0bSocket-Type\x00\x00\x00\x03SUB"
	readyDealer = "\x04\x1c\x05READY\x0bSocket-Type\x00\x00\x00\x06DEALER"
	readyRouter = "\x04\x1c\x05READY\x0bSocket-Type\x00\x00\x00\x06ROUTER"

	askProbe   = "\x04\x0c\x04PING\x00\x00probe"
	askConfirm = "\x04\x0e\x04PING\x00\x00confirm"
	sayProbe   = "\x04\x0a\x04PONGprobe"
	sayConfirm = "\x04\x0c\x04PONGconfirm"
	askAlive   = "\x04\x07\x04PING\x00\x00"
	sayAlive   = "\x04\x05\x04PONG"
)

// rawDial connects to an endpoint without a socket.
func rawDial(t testing.TB, endpoint string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(endpoint, "tcp://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// unreachable is a network where nobody listens.
func unreachable(context.Context, string, string) (net.Conn, error) {
	return nil, errors.New("nobody listens")
}

// greet says what it says, and reads just as many bytes as are the answer.
func (p *scripted) greet(said string, answer int) {
	go p.say(said)
	if _, err := io.CopyN(&p.heard, p.conn, int64(answer)); err != nil {
		p.t.Errorf("greet: %v", err)
	}
}
