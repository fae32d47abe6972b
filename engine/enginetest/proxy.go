package enginetest

import (
	"io"
	"maps"
	"net"
	"sync"
	"testing"
)

// Proxy passes connections on, and breaks them. It is safe for concurrent use.
type Proxy struct {
	net.Listener
	to      string
	running sync.WaitGroup

	mu     sync.Mutex
	conns  map[net.Conn]bool
	frozen map[net.Conn]bool // of these nothing is passed on any more
}

// NewProxy returns a proxy on the loopback before the address of a server. It is closed
// when the test ends.
func NewProxy(t *testing.T, to string) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{Listener: l, to: to, conns: map[net.Conn]bool{}}
	p.running.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", p.to)
			if err != nil {
				in.Close()
				continue
			}
			p.join(in, out)
			p.join(out, in)
		}
	})
	t.Cleanup(func() { p.Close() })
	return p
}

// join copies from one connection to another until either is closed.
func (p *Proxy) join(from, to net.Conn) {
	p.mu.Lock()
	p.conns[from] = true
	p.mu.Unlock()
	p.running.Go(func() {
		io.Copy(melting{p, from, to}, from) //nolint:errcheck // it ends when it ends
		to.Close()
		from.Close()
		p.mu.Lock()
		delete(p.conns, from)
		p.mu.Unlock()
	})
}

// melting drops what comes over connections that are frozen.
type melting struct {
	*Proxy
	from, to net.Conn
}

func (m melting) Write(b []byte) (int, error) {
	m.mu.Lock()
	frozen := m.frozen[m.from]
	m.mu.Unlock()
	if frozen {
		return len(b), nil
	}
	return m.to.Write(b)
}

// Freeze makes all connections lead nowhere from now on, and close none.
func (p *Proxy) Freeze() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.frozen = maps.Clone(p.conns)
}

// Cut closes all connections.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		c.Close()
	}
}

// Close ends the proxy and all connections.
func (p *Proxy) Close() error {
	p.Listener.Close()
	p.Cut()
	p.running.Wait()
	return nil
}
