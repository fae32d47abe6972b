package httpapi_test

import (
	"bufio"
	"io"
	"net"
	"slices"
	"testing"
)

const (
	streamHead = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
	doneChunk  = "17\r\ndata: 1\n\ndata: [DONE]\n\n"
)

// A connection is used again once the end of its last stream has come, and never if
// something else does.
func TestEndsBehindDone(t *testing.T) {
	for _, tt := range []struct {
		name        string
		rest        []string // packets behind [DONE]
		connections int32
	}{
		{"at once", []string{"\r\n0\r\n\r\n"}, 1},
		{"in pieces", []string{"\r", "\n0\r", "\n\r\n"}, 1},
		{"never", nil, 3},
		{"more data", []string{"\r\n5\r\nhello\r\n"}, 3},
		{"another answer", []string{"\r\n0\r\n\r\n" + fine}, 3},
		{"another answer, later", []string{"\r\n0\r\n\r\n", fine}, 3},
		{"a trailer", []string{"\r\n0\r\nX: 1\r\n\r\n"}, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			said := make(chan struct{}, 3)
			c, connections := scripted(t, func(_ int32, conn net.Conn, in *bufio.Reader) {
				conn.(*net.TCPConn).SetNoDelay(true)
				for asked(in) {
					io.WriteString(conn, streamHead+doneChunk)
					for _, packet := range tt.rest {
						io.WriteString(conn, packet)
					}
					said <- struct{}{}
				}
			})
			for range 3 {
				var got []string
				for data, err := range c.Stream(t.Context(), "/", nil, []byte(`{}`)) {
					if err != nil {
						t.Fatal(err)
					}
					got = append(got, string(data))
				}
				if !slices.Equal(got, []string{"1"}) {
					t.Fatalf("got %q", got)
				}
				<-said
			}
			if n := connections.Load(); n != tt.connections {
				t.Errorf("%d connections, want %d", n, tt.connections)
			}
		})
	}
}
