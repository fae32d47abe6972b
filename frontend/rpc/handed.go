package rpc

import (
	"net"
	"sync"
)

// Handed is a listener whose connections another listener has accepted, and handed on
// when it saw that they speak gRPC.
type Handed struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
	addr  net.Addr
}

// NewHanded makes one for a listener on an address.
func NewHanded(addr net.Addr) *Handed {
	return &Handed{conns: make(chan net.Conn), done: make(chan struct{}), addr: addr}
}

// Give hands a connection on, or closes it if nobody takes it any more.
func (h *Handed) Give(c net.Conn) {
	select {
	case h.conns <- c:
	case <-h.done:
		c.Close() //nolint:errcheck // nobody is left to be told
	}
}

// Accept implements net.Listener.
func (h *Handed) Accept() (net.Conn, error) {
	select {
	case c := <-h.conns:
		return c, nil
	case <-h.done:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (h *Handed) Close() error {
	h.once.Do(func() { close(h.done) })
	return nil
}

// Addr implements net.Listener.
func (h *Handed) Addr() net.Addr { return h.addr }
