package httpapi

import (
	"context"
	"net"
)

// DialWith makes the connections of c, in place of the network.
func DialWith(c *Client, dial func() net.Conn) {
	c.http.DialContext = func(context.Context, string, string) (net.Conn, error) { return dial(), nil }
	if c.direct != nil {
		c.direct.dial = func(context.Context) (net.Conn, error) { return dial(), nil }
	}
}

// QuickHead is how the head of an answer is read where net/http is not asked.
func QuickHead(head []byte) (kind string, size int64, chunked, lasts, ok bool) {
	var a answering
	ok = a.quickHead(head)
	return a.kind, a.size, a.chunked, a.lasts, ok
}

// Chunks reads a body in chunks that comes in these pieces. It returns what of the
// last one is left, and what is owed at each moment.
func Chunks(pieces ...[]byte) (body, rest []byte, owed []string, over bool, err error) {
	f := framing{chunked: true}
	for _, piece := range pieces {
		rest = append(rest, piece...)
		for err == nil && !f.over() {
			var data []byte
			if data, rest, err = f.next(rest, 7); len(data) == 0 {
				break
			}
			body = append(body, data...)
		}
		end, ok := f.owed()
		if !ok {
			end = "data"
		}
		owed = append(owed, end)
	}
	return body, rest, owed, f.over(), err
}
