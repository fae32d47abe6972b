package httpapi

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"
)

// reply is the head of an answer, with the body that is still to be read.
type reply struct {
	status int
	header http.Header // nil for most successes
	kind   string      // media type of the body
	size   int64       // of the body; -1: not known
	body   io.ReadCloser
	cancel func() // ends the reading of the body, from another goroutine
}

// How much there may be behind the last event of a stream, and how long it may take
// to come.
const (
	mostRest    = 64 << 10
	restTimeout = 20 * time.Millisecond
)

// leave closes a stream whose last event has come. What is left of it is there
// already, or not worth waiting for, since only the connection depends on it; and
// where that is no more than the end of the last chunk, who needs the connection next
// looks whether it has come.
func (r *reply) leave() {
	if a, ok := r.body.(*answering); ok && a.leave() {
		return
	}
	late := time.AfterFunc(restTimeout, r.cancel)
	defer late.Stop()
	_, _ = io.CopyN(io.Discard, r.body, mostRest)
}

// answering is an answer that comes over a connection of ours.
type answering struct {
	reply
	framing
	link    *link
	to      *direct
	unwatch func() bool // stops watching the context, and says whether that has not ended
	lasts   bool        // the connection may be used again
	ended   bool

	// Of one whose head was read by net/http.
	in   *bufio.Reader // before link
	long io.Reader     // the body
}

// Read implements io.Reader. It returns as much as is there.
func (a *answering) Read(p []byte) (n int, err error) {
	switch {
	case a.ended:
		return 0, io.EOF
	case a.long != nil:
		if n, err = a.long.Read(p); err == io.EOF {
			a.end()
		}
		return n, err
	}
	l := a.link
	for n < len(p) {
		var data []byte
		data, l.unread, err = a.next(l.unread, len(p)-n)
		n += copy(p[n:], data)
		switch {
		case err != nil:
			return n, err
		case a.over():
			a.end()
			return n, io.EOF
		case len(data) > 0:
			continue
		case n > 0:
			return n, nil
		case min(a.left, int64(len(p))) >= int64(len(l.buf)):
			n, err = l.Conn.Read(p[:min(a.left, int64(len(p)))])
			a.left -= int64(n)
		default:
			err = l.fill()
		}
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		if n > 0 || err != nil {
			return n, err
		}
	}
	return n, nil
}

// end gives the connection back behind a whole answer.
func (a *answering) end() {
	a.ended = true
	if !a.unwatch() || !a.lasts || a.trailed || len(a.link.unread) > 0 || a.in != nil && a.in.Buffered() > 0 {
		a.link.Close()
		return
	}
	a.to.give(a.link)
}

// leave gives the connection back if nothing but the end of the answer is to come.
func (a *answering) leave() bool {
	switch {
	case a.ended:
		return true
	case a.long != nil:
		return false
	}
	end, ok := a.owed()
	left, is := strings.CutPrefix(end, string(a.link.unread))
	if !ok || !is {
		return false
	}
	a.link.unread, a.link.owed = nil, left
	a.end()
	return true
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

// framing is where a body ends: behind so many bytes, or in chunks behind the one
// that is empty. It is plain data.
type framing struct {
	chunked bool
	left    int64 // of the body, or of the chunk
	due     due   // behind that, in chunks
	trailed bool  // something stands behind the last chunk
}

// due is the line that comes next.
type due uint8

const (
	dueSize due = iota // of a chunk
	dueGap             // the line end behind a chunk
	dueEnd             // the line end behind the last one
	dueNothing
)

// over says whether all of the body has come.
func (f *framing) over() bool {
	if f.chunked {
		return f.due == dueNothing
	}
	return f.left == 0
}

var errChunk = errors.New("a chunk of the answer does not begin with its size")

// next takes up to most bytes of the body off what has come. There are none if more
// has to come first, or if the body is over.
func (f *framing) next(came []byte, most int) (data, rest []byte, err error) {
	for f.left == 0 && !f.over() {
		line, rest, ok := bytes.Cut(came, []byte("\r\n"))
		switch {
		case !ok:
			return nil, came, nil
		case f.due == dueSize:
			if f.left, ok = chunkSize(line); !ok {
				return nil, came, errChunk
			}
			f.due = dueGap
			if f.left == 0 {
				f.due = dueEnd
			}
		case f.due == dueGap && len(line) > 0:
			return nil, came, errChunk
		case f.due == dueGap:
			f.due = dueSize
		default:
			f.due, f.trailed = dueNothing, len(line) > 0
		}
		came = rest
	}
	n := int(min(f.left, int64(most), int64(len(came))))
	f.left -= int64(n)
	return came[:n], came[n:], nil
}

// owed returns what a body ends with that has come up to here, if there is no more
// data to come.
func (f *framing) owed() (end string, ok bool) {
	end = "\r\n0\r\n\r\n"
	switch {
	case f.over():
		return "", true
	case f.left > 0:
		return "", false
	case f.due == dueSize:
		return end[2:], true
	case f.due == dueEnd:
		return end[5:], true
	}
	return end, true
}

// chunkSize reads the line before a chunk. What may stand behind the size says
// nothing to us.
func chunkSize(line []byte) (n int64, ok bool) {
	const most = 15 // digits
	line, _, _ = bytes.Cut(line, []byte(";"))
	line = bytes.TrimRight(line, " \t")
	for _, c := range line {
		switch {
		case '0' <= c && c <= '9':
			n = n<<4 + int64(c-'0')
		case 'a' <= c|0x20 && c|0x20 <= 'f':
			n = n<<4 + int64(c|0x20-'a') + 10
		default:
			return 0, false
		}
	}
	return n, 0 < len(line) && len(line) <= most
}
