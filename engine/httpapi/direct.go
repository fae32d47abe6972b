package httpapi

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// The transport of net/http has two goroutines for each connection and hands every
// request and every answer from one to the other, which costs more than all that
// an adapter does. An engine that is reached plainly, without TLS and without a
// proxy, has connections of its own here: who asks writes the request, in one
// piece, and reads the answer.

// direct is the connections to one server. It is safe for concurrent use.
type direct struct {
	host string // of the header
	base string // of all paths
	dial func(context.Context) (net.Conn, error)

	mu   sync.Mutex
	idle []*link // the one used last is the last
	// expiry closes those that nobody has used for long; nil if there are none.
	expiry *time.Timer
}

// link is one connection, of one request at a time.
type link struct {
	net.Conn
	in    *bufio.Reader
	left  int64     // bytes that may still be read
	since time.Time // unused; zero for one that is new
}

// Read implements io.Reader.
func (l *link) Read(p []byte) (int, error) {
	if l.left <= 0 {
		return 0, errors.New("the head of the answer is too long")
	}
	n, err := l.Conn.Read(p[:min(int64(len(p)), l.left)])
	l.left -= int64(n)
	return n, err
}

// mostHead bounds what stands before the body of an answer.
const mostHead = 1 << 20

// take returns a connection: the one used last, unless a new one is wanted.
func (d *direct) take(ctx context.Context, fresh bool) (*link, error) {
	for !fresh {
		l := d.pop()
		if l == nil {
			break
		}
		if time.Since(l.since) < idleTimeout && quiet(l.Conn) {
			return l, nil
		}
		l.Close()
	}
	conn, err := d.dial(ctx)
	if err != nil {
		return nil, err
	}
	l := &link{Conn: conn}
	l.in = bufio.NewReader(l)
	return l, nil
}

func (d *direct) pop() *link {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := len(d.idle)
	if n == 0 {
		return nil
	}
	l := d.idle[n-1]
	d.idle[n-1] = nil
	d.idle = d.idle[:n-1]
	return l
}

// give keeps a connection for another request.
func (d *direct) give(l *link) {
	l.since = time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.idle) >= mostIdle {
		l.Close()
		return
	}
	d.idle = append(d.idle, l)
	if d.expiry == nil {
		d.expiry = time.AfterFunc(idleTimeout, d.expire)
	}
}

// expire closes what was unused for too long, which are the first ones.
func (d *direct) expire() {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	n := 0
	for ; n < len(d.idle) && now.Sub(d.idle[n].since) >= idleTimeout; n++ {
		d.idle[n].Close()
	}
	d.idle = slices.Delete(d.idle, 0, n)
	d.expiry = nil
	if len(d.idle) > 0 {
		d.expiry = time.AfterFunc(d.idle[0].since.Add(idleTimeout).Sub(now), d.expire)
	}
}

// close closes all that nobody uses.
func (d *direct) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, l := range d.idle {
		l.Close()
	}
	d.idle = nil
	if d.expiry != nil {
		d.expiry.Stop()
		d.expiry = nil
	}
}

// send sends a request and reads the head of its answer. Until the body is read to
// its end or closed, the end of ctx closes the connection.
func (d *direct) send(ctx context.Context, over *connection, fresh bool, r request) (*http.Response, error) {
	head := heads.Get().(*[]byte)
	defer heads.Put(head)
	var err error
	if *head, err = d.appendHead((*head)[:0], r); err != nil {
		return nil, err
	}
	l, err := d.take(ctx, fresh)
	if err != nil {
		return nil, err
	}
	over.taken = time.Now()
	if over.kept = !l.since.IsZero(); over.kept {
		over.idle = over.taken.Sub(l.since)
	}
	a := &answering{link: l, to: d, unwatch: context.AfterFunc(ctx, func() { l.Close() })}
	resp, err := l.exchange(over, *head, r.body)
	if err != nil {
		a.Close()
		return nil, err
	}
	a.lasts = !resp.Close && resp.StatusCode >= 200
	if a.body = resp.Body; resp.ContentLength == 0 {
		a.end()
	}
	resp.Body = a
	return resp, nil
}

// heads are buffers for what stands before the body of a request.
var heads = sync.Pool{New: func() any { return new(make([]byte, 0, 4<<10)) }}

// exchange writes a request and reads the head of the answer.
func (l *link) exchange(over *connection, head, body []byte) (*http.Response, error) {
	l.left = mostHead
	var wrote error
	if len(body) <= cap(head)-len(head) {
		_, wrote = l.Write(append(head, body...))
	} else {
		_, wrote = (&net.Buffers{head, body}).WriteTo(l.Conn)
	}
	// A server may refuse a request before it has come whole.
	if _, err := l.in.Peek(1); err != nil {
		if wrote != nil {
			return nil, wrote
		}
		return nil, err
	}
	over.answered.Store(true)
	for {
		resp, err := http.ReadResponse(l.in, nil)
		if err != nil {
			return nil, err
		}
		if resp.StatusCode/100 != 1 || resp.StatusCode == http.StatusSwitchingProtocols {
			l.left = math.MaxInt64
			resp.Close = resp.Close || wrote != nil
			return resp, nil
		}
	}
}

// answering is the body of an answer, and its connection.
type answering struct {
	*link
	to      *direct
	body    io.Reader
	unwatch func() bool // stops watching the context, and says whether that has not ended
	lasts   bool        // the connection may be used again
	ended   bool
}

// Read implements io.Reader.
func (a *answering) Read(p []byte) (int, error) {
	if a.ended {
		return 0, io.EOF
	}
	n, err := a.body.Read(p)
	if err == io.EOF {
		a.end()
	}
	return n, err
}

// end gives the connection back behind a whole answer.
func (a *answering) end() {
	a.ended = true
	if !a.unwatch() || !a.lasts || a.in.Buffered() > 0 {
		a.link.Close()
		return
	}
	a.to.give(a.link)
}

// Close implements io.Closer. A connection in the middle of an answer is lost.
func (a *answering) Close() error {
	if a.ended {
		return nil
	}
	a.ended = true
	a.unwatch()
	return a.link.Close()
}

// request is what is asked of a server.
type request struct {
	method, path string
	header       []http.Header // the last one that has a name counts
	body         []byte
}

// plain says whether a path can be sent as it is.
func plain(path string) bool {
	for _, c := range []byte(path) {
		if c <= ' ' || c >= 0x7f || c == '#' {
			return false
		}
	}
	return strings.HasPrefix(path, "/")
}

func (d *direct) appendHead(dst []byte, r request) ([]byte, error) {
	dst = append(append(append(append(dst, r.method...), ' '), d.base...), r.path...)
	dst = append(append(dst, " HTTP/1.1\r\nHost: "...), d.host...)
	if r.method != http.MethodGet || len(r.body) > 0 {
		dst = append(dst, "\r\nContent-Length: "...)
		dst = strconv.AppendInt(dst, int64(len(r.body)), 10)
	}
	dst = append(dst, "\r\n"...)
	for i, header := range r.header {
		for name, values := range header {
			if has(r.header[i+1:], name) || slices.Contains(framing, name) {
				continue
			}
			for _, value := range values {
				if !isToken(name) || !isValue(value) {
					return nil, fmt.Errorf("header %q: no such name or value can be sent", name)
				}
				dst = append(append(append(append(dst, name...), ": "...), value...), "\r\n"...)
			}
		}
	}
	return append(dst, "\r\n"...), nil
}

// framing are headers that only the connection may set.
var framing = []string{"Host", "Content-Length", "Transfer-Encoding", "Trailer"}

func has(headers []http.Header, name string) bool {
	return slices.ContainsFunc(headers, func(h http.Header) bool { _, ok := h[name]; return ok })
}

func isToken(name string) bool {
	return name != "" && !strings.ContainsFunc(name, func(r rune) bool {
		return r <= ' ' || r >= 0x7f || strings.ContainsRune(`()<>@,;:\"/[]?={}`, r)
	})
}

func isValue(value string) bool {
	for _, c := range []byte(value) {
		if c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}
