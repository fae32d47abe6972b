package httpapi

import (
	"bufio"
	"context"
	"fmt"
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
// piece, and reads the answer. What the answer says is read by net/http.

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
func (d *direct) send(ctx context.Context, over *connection, fresh bool, r request) (*reply, error) {
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
	a := &answering{link: l, to: d, unwatch: context.AfterFunc(ctx, l.hangUp)}
	resp, err := l.exchange(over, *head, r.body)
	if err != nil {
		a.Close()
		return nil, err
	}
	a.body, a.lasts = resp.Body, !resp.Close && resp.StatusCode >= 200
	if resp.ContentLength == 0 {
		a.end()
	}
	return replyOf(resp, a, l.hangUp), nil
}

// heads are buffers for what stands before the body of a request.
var heads = sync.Pool{New: func() any { return new(make([]byte, 0, 4<<10)) }}

// request is what is asked of a server.
type request struct {
	method, path string
	header       []http.Header // the last one that has a name counts
	body         []byte
}

// mostAtOnce is how long the body of a request may be that is written whole before
// its answer is looked for: the buffers of both sides have room for it, so that a
// server that answers without reading it holds nobody up. Of long ones, the transport
// of net/http costs little.
const mostAtOnce = 32 << 10

// takes says whether a request is one for these connections.
func (d *direct) takes(r request) bool {
	return r.method != http.MethodHead && len(r.body) <= mostAtOnce && plain(r.path)
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
			if has(r.header[i+1:], name) || slices.Contains(ofConnection, name) {
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

// ofConnection are headers that only the connection may set.
var ofConnection = []string{"Host", "Content-Length", "Transfer-Encoding", "Trailer"}

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
