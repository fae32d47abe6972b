package httpapi

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"math"
	"net"
	"net/http"
	"strings"
	"syscall"
	"time"
)

// link is one connection, of one request at a time.
type link struct {
	net.Conn
	raw    syscall.RawConn
	buf    [4 << 10]byte
	unread []byte    // of buf
	since  time.Time // unused; zero for one that is new
	// owed is how its last answer ends, as far as that has not come yet.
	owed string
}

func (l *link) hangUp() { l.Close() }

// Read implements io.Reader.
func (l *link) Read(p []byte) (int, error) {
	if len(l.unread) > 0 {
		n := copy(p, l.unread)
		l.unread = l.unread[n:]
		return n, nil
	}
	return l.Conn.Read(p)
}

// fill reads more behind what is unread.
func (l *link) fill() error {
	n := copy(l.buf[:], l.unread)
	l.unread = l.buf[:n]
	if n == len(l.buf) {
		return bufio.ErrBufferFull
	}
	for range 100 {
		more, err := l.Conn.Read(l.buf[n:])
		if l.unread = l.buf[:n+more]; more > 0 {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return io.ErrNoProgress
}

// collect takes what has come of the owed, without waiting for it. It returns false
// where something else has come.
func (l *link) collect() bool {
	if l.owed == "" {
		return true
	}
	var came [16]byte
	n, ok := receive(l.raw, came[:])
	return ok && l.pay(came[:n])
}

// await waits for the owed.
func (l *link) await(most time.Duration) bool {
	l.SetReadDeadline(time.Now().Add(most)) //nolint:errcheck // without one it is closed all the same
	for l.owed != "" {
		var came [16]byte
		if n, err := l.Conn.Read(came[:]); !l.pay(came[:n]) || err != nil && l.owed != "" {
			return false
		}
	}
	return l.SetReadDeadline(time.Time{}) == nil
}

// pay takes what has come off the owed, and says whether it was that.
func (l *link) pay(came []byte) (ok bool) {
	l.owed, ok = strings.CutPrefix(l.owed, string(came))
	return ok
}

// mostHead bounds what stands before the body of an answer.
const mostHead = 1 << 20

// exchange writes a request and reads the head of the answer.
func (a *answering) exchange(over *connection, head, body []byte) error {
	l := a.link
	var wrote error
	if len(body) <= cap(head)-len(head) {
		_, wrote = l.Write(append(head, body...))
	} else {
		_, wrote = (&net.Buffers{head, body}).WriteTo(l.Conn)
	}
	// A server may refuse a request before it has come whole.
	if err := l.fill(); err != nil {
		if wrote != nil {
			return wrote
		}
		return err
	}
	over.answered.Store(true)
	for wrote == nil {
		if end := bytes.Index(l.unread, []byte("\r\n\r\n")); end >= 0 {
			if !a.quickHead(l.unread[:end]) {
				break
			}
			if l.unread = l.unread[end+4:]; a.over() {
				a.end()
			}
			return nil
		}
		if l.fill() != nil {
			break // net/http will say why
		}
	}
	return a.longHead(wrote == nil)
}

// longHead reads a head by net/http, which is to read the body as well.
func (a *answering) longHead(lasts bool) error {
	bound := &bounded{a.link, mostHead}
	a.in = bufio.NewReader(bound)
	for {
		resp, err := http.ReadResponse(a.in, nil)
		if err != nil {
			return err
		}
		if resp.StatusCode/100 == 1 && resp.StatusCode != http.StatusSwitchingProtocols {
			continue
		}
		bound.left = math.MaxInt64
		a.long, a.lasts = resp.Body, lasts && !resp.Close && resp.StatusCode >= 200
		a.status, a.header, a.size = resp.StatusCode, resp.Header, resp.ContentLength
		a.kind, a.body = mediaType([]byte(resp.Header.Get("Content-Type"))), a
		if a.size == 0 {
			a.end()
		}
		return nil
	}
}

// bounded is a reader of so many bytes.
type bounded struct {
	io.Reader
	left int64
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errors.New("the head of the answer is too long")
	}
	n, err := b.Reader.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}

// quickHead reads the head of an answer as nearly all are: a success of HTTP/1.1,
// whose length is told, or which comes in chunks. What it does not know by heart it
// leaves to net/http; where both read, they read the same.
func (a *answering) quickHead(head []byte) bool {
	status, head, _ := bytes.Cut(head, []byte("\r\n"))
	code, _ := bytes.CutPrefix(status, []byte("HTTP/1.1 "))
	if len(code) == len(status) || !bytes.HasPrefix(code, []byte("200")) || len(code) > 3 && code[3] != ' ' {
		return false
	}
	f := framing{left: -1}
	kind, lasts := "", true
	for len(head) > 0 {
		var line []byte
		line, head, _ = bytes.Cut(head, []byte("\r\n"))
		name, value, ok := bytes.Cut(line, []byte(":"))
		if value = bytes.Trim(value, " \t"); !ok || !isToken(name) || !isValue(value) {
			return false
		}
		switch {
		case is(name, "Content-Length"):
			n, ok := decimal(value)
			if !ok || f.left >= 0 || f.chunked {
				return false
			}
			f.left = n
		case is(name, "Transfer-Encoding"):
			if !is(value, "chunked") || f.left >= 0 || f.chunked {
				return false
			}
			f.chunked = true
		case is(name, "Connection"):
			if lasts = is(value, "keep-alive"); !lasts && !is(value, "close") {
				return false
			}
		case is(name, "Content-Type"):
			if kind != "" {
				return false
			}
			kind = mediaType(value)
		case is(name, "Trailer"):
			return false
		}
	}
	if f.left < 0 && !f.chunked {
		return false // it ends with the connection
	}
	a.status, a.kind, a.size, a.body = http.StatusOK, kind, f.left, a
	a.framing, a.lasts = framing{chunked: f.chunked, left: max(f.left, 0)}, lasts
	return true
}

func is(text []byte, name string) bool {
	return len(text) == len(name) && bytes.EqualFold(text, []byte(name))
}

// decimal reads a number that is written in digits alone.
func decimal(text []byte) (n int64, ok bool) {
	const most = 18 // digits
	for _, c := range text {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = 10*n + int64(c-'0')
	}
	return n, 0 < len(text) && len(text) <= most
}

// mediaType returns a media type without its parameters.
func mediaType(value []byte) string {
	value, _, _ = bytes.Cut(value, []byte(";"))
	value = bytes.TrimRight(value, " \t")
	for _, known := range []string{eventStream, "application/json"} {
		if is(value, known) {
			return known
		}
	}
	return strings.ToLower(string(value))
}
