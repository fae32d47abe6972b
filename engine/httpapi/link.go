package httpapi

import (
	"bufio"
	"errors"
	"io"
	"math"
	"net"
	"net/http"
	"time"
)

// link is one connection, of one request at a time.
type link struct {
	net.Conn
	in    *bufio.Reader
	left  int64     // bytes that may still be read
	since time.Time // unused; zero for one that is new
}

func (l *link) hangUp() { l.Close() }

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
