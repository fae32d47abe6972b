package remote

import (
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// line is a connection to the worker. The library makes it again when it breaks, but
// not when nothing comes over it any more: that is for the heartbeat to find.
type line struct {
	open func() (*grpc.ClientConn, error)
	busy atomic.Int64 // requests on it

	mu     sync.Mutex
	conn   *grpc.ClientConn
	closed bool
}

func newLine(open func() (*grpc.ClientConn, error)) (*line, error) {
	conn, err := open()
	return &line{open: open, conn: conn}, err
}

// now returns the connection as it is at present.
func (l *line) now() *grpc.ClientConn {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.conn
}

// renew replaces the connection. What runs over it ends.
func (l *line) renew() error {
	conn, err := l.open()
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return conn.Close()
	}
	l.conn, conn = conn, l.conn
	return conn.Close()
}

// close may be called any number of times.
func (l *line) close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	if err := l.conn.Close(); status.Code(err) != codes.Canceled {
		return err
	}
	return nil // it was closed before
}
