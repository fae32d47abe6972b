package httpapi

import (
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

// take returns a connection: the one used last, unless a new one is wanted.
func (d *direct) take(ctx context.Context, fresh bool) (*link, error) {
	if !fresh {
		if l := d.kept(); l != nil {
			return l, nil
		}
	}
	conn, err := d.dial(ctx)
	if err != nil {
		return nil, err
	}
	return &link{Conn: conn, raw: rawOf(conn)}, nil
}

// kept returns a connection that can be used again, or nil: the one used last whose
// answer has come whole. If there is none, the end of one is waited for.
func (d *direct) kept() *link {
	var owing []*link
	defer func() {
		for _, l := range owing {
			d.put(l)
		}
	}()
	for l := d.pop(); l != nil; l = d.pop() {
		switch {
		case time.Since(l.since) >= idleTimeout || !l.collect() || l.owed == "" && !quiet(l.raw):
			l.Close()
		case l.owed != "":
			owing = slices.Insert(owing, 0, l)
		default:
			return l
		}
	}
	if len(owing) == 0 {
		return nil
	}
	l := owing[0]
	owing = owing[1:]
	if !l.await(restTimeout) || !quiet(l.raw) {
		l.Close()
		return nil
	}
	return l
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
	d.put(l)
}

func (d *direct) put(l *link) {
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
	a.cancel = l.hangUp
	if err := a.exchange(over, *head, r.body); err != nil {
		a.Close()
		return nil, err
	}
	return &a.reply, nil
}

// heads are buffers for what stands before the body of a request.
var heads = sync.Pool{New: func() any { return new(make([]byte, 0, 4<<10)) }}

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

// tokens are the characters of names in HTTP.
var tokens = func() (t [256]bool) {
	for c := '!'; c < 0x7f; c++ {
		t[c] = !strings.ContainsRune(`()<>@,;:\"/[]?={}`, c)
	}
	return t
}()

func isToken[T string | []byte](name T) bool {
	for i := range len(name) {
		if !tokens[name[i]] {
			return false
		}
	}
	return len(name) > 0
}

func isValue[T string | []byte](value T) bool {
	for i := range len(value) {
		if c := value[i]; c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}
