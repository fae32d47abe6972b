package frontend

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// A stream may be open for minutes and idle for most of them, while net/http
// keeps two buffers, a parsed request and a deep stack for it. So a stream takes
// its connection away from net/http: it goes on in a goroutine of its own, with
// nothing in memory but what waits to be sent, and every flush is one write.
// When the answer is complete the connection waits for its next request, and
// goes back to net/http with the first byte of it.

// detached is a connection on its own, and the answer to the request that came
// by it. Its methods as a ResponseWriter are for the goroutine that answers.
type detached struct {
	server *Server
	conn   net.Conn
	back   *returns
	header http.Header
	// ahead are bytes that came behind the request.
	ahead []byte

	wroteHeader, chunked bool
	keep                 bool    // for further requests
	failed               bool    // to write; nothing that follows would be understood
	out                  *[]byte // until the next flush

	mu    sync.Mutex
	gone  func()        // what to do when the client leaves; nil when the answer is complete
	ended chan struct{} // closed then
}

// returns takes back connections whose answer is complete: it is a listener
// that accepts them a second time.
type returns struct {
	conns chan net.Conn
	done  chan struct{}
	close sync.Once
	addr  net.Addr
}

type returnsKey struct{}

func newReturns(addr net.Addr) *returns {
	return &returns{conns: make(chan net.Conn), done: make(chan struct{}), addr: addr}
}

// Accept implements net.Listener.
func (r *returns) Accept() (net.Conn, error) {
	select {
	case c := <-r.conns:
		return c, nil
	case <-r.done:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (r *returns) Close() error {
	r.close.Do(func() { close(r.done) })
	return nil
}

// Addr implements net.Listener.
func (r *returns) Addr() net.Addr { return r.addr }

// give hands a connection back, or closes it if nobody takes it any more.
func (r *returns) give(c net.Conn) {
	select {
	case r.conns <- c:
	case <-r.done:
		c.Close()
	}
}

// readConn is a connection of which some bytes were read already.
type readConn struct {
	net.Conn
	ahead []byte
}

// Read returns what was read already, then what comes.
func (c *readConn) Read(b []byte) (int, error) {
	if len(c.ahead) == 0 {
		return c.Conn.Read(b)
	}
	n := copy(b, c.ahead)
	c.ahead = c.ahead[n:]
	return n, nil
}

// detach takes the connection of a request whose body is read, or returns nil
// where that cannot be done. gone is called if the client leaves before the
// answer is complete.
func (s *Server) detach(w http.ResponseWriter, r *http.Request, gone func()) *detached {
	back, ok := r.Context().Value(returnsKey{}).(*returns)
	if !ok || r.ProtoMajor != 1 || r.ProtoMinor < 1 {
		return nil
	}
	header := w.Header()
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return nil
	}
	d := &detached{
		server: s, conn: conn, back: back, header: header, keep: !r.Close,
		gone: gone, ended: make(chan struct{}),
	}
	if n := buffered.Reader.Buffered(); n > 0 {
		ahead, _ := buffered.Reader.Peek(n) // that many are there
		d.ahead = bytes.Clone(ahead)
	}
	if c, ok := conn.(*readConn); ok && len(c.ahead) == 0 {
		d.conn = c.Conn
	}
	s.kept.add(d.conn)
	go d.listen()
	return d
}

// listen waits for the one thing that a client may do while it is answered,
// which is to leave, and after that for the next request.
func (d *detached) listen() {
	defer d.server.kept.remove(d.conn)
	if d.request() != nil {
		d.mu.Lock()
		if d.gone != nil {
			d.gone()
		}
		d.mu.Unlock()
		<-d.ended
		d.conn.Close()
		return
	}
	<-d.ended
	if !d.keep {
		d.conn.Close()
		return
	}
	d.conn.SetDeadline(time.Time{}) //nolint:errcheck // a broken connection fails at the next read
	d.back.give(&readConn{d.conn, d.ahead})
}

// lineEnds is how many bytes of line ends may stand before a request.
const lineEnds = 4

// request waits for the beginning of the next request. Line ends before it are
// skipped, as net/http does it: some clients send one behind a body.
func (d *detached) request() error {
	for skipped := 0; ; {
		for len(d.ahead) > 0 && skipped < lineEnds && (d.ahead[0] == '\r' || d.ahead[0] == '\n') {
			d.ahead = d.ahead[1:]
			skipped++
		}
		if len(d.ahead) > 0 {
			return nil
		}
		d.ahead = make([]byte, 1)
		if _, err := d.conn.Read(d.ahead); err != nil {
			return err
		}
	}
}

// end completes the answer. The connection then waits for its next request, or
// is closed.
func (d *detached) end() {
	if d.chunked && !d.failed {
		d.buffer("0\r\n\r\n")
	}
	d.FlushError() //nolint:errcheck // noted in failed
	d.keep = d.keep && d.wroteHeader && !d.failed && d.server.stage.get() == Ready
	d.mu.Lock()
	d.gone = nil
	d.mu.Unlock()
	// The pending read ends now, or at the end of a client's patience.
	deadline := time.Now()
	if d.keep {
		deadline = deadline.Add(d.server.IdleTimeout)
	}
	d.conn.SetReadDeadline(deadline) //nolint:errcheck // a broken connection ends the read as well
	close(d.ended)
}

// Header implements http.ResponseWriter.
func (d *detached) Header() http.Header { return d.header }

// WriteHeader implements http.ResponseWriter. A body without Content-Length is
// sent in chunks.
func (d *detached) WriteHeader(status int) {
	if d.wroteHeader {
		return
	}
	d.wroteHeader = true
	d.header.Set("Date", time.Now().UTC().Format(http.TimeFormat))
	if d.header.Get("Content-Length") == "" {
		d.chunked = true
		d.header.Set("Transfer-Encoding", "chunked")
	}
	if !d.keep {
		d.header.Set("Connection", "close")
	}
	d.buffer(fmt.Sprintf("HTTP/1.1 %03d %s\r\n", status, http.StatusText(status)))
	var lines bytes.Buffer
	d.header.Write(&lines) //nolint:errcheck // a buffer takes everything
	d.buffer(lines.String() + "\r\n")
	d.header = nil
}

// Write implements http.ResponseWriter. Nothing is sent before the next flush.
func (d *detached) Write(b []byte) (int, error) {
	if !d.wroteHeader {
		d.WriteHeader(http.StatusOK)
	}
	if !d.chunked {
		d.buffer(string(b))
		return len(b), nil
	}
	if len(b) == 0 {
		return 0, nil
	}
	out := d.take()
	*out = strconv.AppendUint(*out, uint64(len(b)), 16)
	*out = append(*out, "\r\n"...)
	*out = append(*out, b...)
	*out = append(*out, "\r\n"...)
	return len(b), nil
}

// FlushError sends what waits, in one write.
func (d *detached) FlushError() error {
	if d.out == nil {
		return nil
	}
	_, err := d.conn.Write(*d.out)
	*d.out = (*d.out)[:0]
	release(d.out)
	d.out = nil
	d.failed = d.failed || err != nil
	return err
}

// SetWriteDeadline bounds the flushes that follow.
func (d *detached) SetWriteDeadline(t time.Time) error { return d.conn.SetWriteDeadline(t) }

func (d *detached) take() *[]byte {
	if d.out == nil {
		d.out = buffers.Get().(*[]byte)
		*d.out = (*d.out)[:0]
	}
	return d.out
}

func (d *detached) buffer(s string) {
	out := d.take()
	*out = append(*out, s...)
}

// conns are the connections that net/http does not know of.
type conns struct {
	mu     sync.Mutex
	open   map[net.Conn]struct{}
	closed bool
}

func (c *conns) add(conn net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open == nil {
		c.open = map[net.Conn]struct{}{}
	}
	c.open[conn] = struct{}{}
	if c.closed {
		conn.SetReadDeadline(time.Now()) //nolint:errcheck // a broken connection ends the read as well
	}
}

func (c *conns) remove(conn net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.open, conn)
}

// hangUp ends the wait for further requests.
func (c *conns) hangUp() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for conn := range c.open {
		conn.SetReadDeadline(time.Now()) //nolint:errcheck // a broken connection ends the read as well
	}
}
