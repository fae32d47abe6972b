package httpapi

import (
	"context"
	"io"
	"net/http"
	"strings"
	"time"
)

// reply is the head of an answer, with the body that is still to be read.
type reply struct {
	status int
	header http.Header
	kind   string // media type of the body
	size   int64  // of the body; -1: not known
	body   io.ReadCloser
	cancel func() // ends the reading of the body, from another goroutine
}

func replyOf(resp *http.Response, body io.ReadCloser, cancel func()) *reply {
	return &reply{
		status: resp.StatusCode, header: resp.Header, kind: mediaType(resp.Header.Get("Content-Type")),
		size: resp.ContentLength, body: body, cancel: cancel,
	}
}

// mediaType returns a media type without its parameters.
func mediaType(value string) string {
	kind, _, _ := strings.Cut(value, ";")
	return strings.ToLower(strings.TrimSpace(kind))
}

// mostAhead is how much room is made for a body on the word of its length alone.
// Beyond it room grows with what arrives: a server that announces much and sends
// nothing costs little.
const mostAhead = 64 << 10

// whole reads the body to its end, or to one byte more than there may be of it.
func (r *reply) whole() ([]byte, error) {
	if 0 <= r.size && r.size <= mostAhead {
		body := make([]byte, r.size)
		_, err := io.ReadFull(r.body, body)
		return body, err
	}
	return io.ReadAll(io.LimitReader(r.body, mostAnswer+1))
}

// RestTimeout is how long to wait for the end of a stream whose last event has come:
// only the connection depends on it.
const RestTimeout = 20 * time.Millisecond

// mostRest is how much there may be behind the last event.
const mostRest = 64 << 10

// leave reads what is left of a stream whose last event has come, so that its
// connection can take another request. It is there already, or not worth waiting for.
func (r *reply) leave() {
	late := time.AfterFunc(RestTimeout, r.cancel)
	defer late.Stop()
	_, _ = io.CopyN(io.Discard, r.body, mostRest) // only the connection depends on it
}

// cancelling is a body that ends its request when it is closed.
type cancelling struct {
	io.ReadCloser
	cancel context.CancelFunc
}

func (c cancelling) Close() error {
	defer c.cancel()
	return c.ReadCloser.Close()
}
