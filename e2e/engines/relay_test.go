//go:build realengine

package engines_test

import (
	"io"
	"net"
	"sync"
	"testing"
)

// relay stands between dynago and a publisher, and can be cut.
type relay struct {
	port   int
	target string

	mu    sync.Mutex
	whole bool
	conns map[net.Conn]bool
}

func newRelay(t testing.TB, target string) *relay {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{port: l.Addr().(*net.TCPAddr).Port, target: target, whole: true, conns: map[net.Conn]bool{}}
	t.Cleanup(func() {
		_ = l.Close()
		r.cut()
	})
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go r.join(c)
		}
	}()
	return r
}

// join carries bytes both ways until one side closes.
func (r *relay) join(near net.Conn) {
	defer func() { _ = near.Close() }()
	far, err := net.Dial("tcp", r.target)
	if err != nil {
		return
	}
	defer func() { _ = far.Close() }()
	if !r.add(near, far) {
		return
	}
	go func() {
		_, _ = io.Copy(far, near)
		_ = far.Close()
	}()
	_, _ = io.Copy(near, far)
}

func (r *relay) add(conns ...net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range conns {
		r.conns[c] = true
	}
	return r.whole
}

// cut breaks all connections, and every new one.
func (r *relay) cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.whole = false
	for c := range r.conns {
		_ = c.Close()
	}
	clear(r.conns)
}

// mend lets new connections through.
func (r *relay) mend() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.whole = true
}
