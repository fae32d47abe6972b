package httpapi_test

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/httpapi"
)

// recorded are answers as servers, gateways and those who mean harm may write them.
var recorded = []string{
	"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
	"HTTP/1.1 200 OK\nContent-Length: 2\n\nok",
	"HTTP/1.1 200\r\nContent-Length: 2\r\n\r\nok",
	"HTTP/1.1 200 \nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok!",
	"HTTP/1.1  200 OK\r\nContent-Length: 2\r\n\r\nok",
	"HTTP/1.0 200 OK\r\n\r\nok",
	"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok",
	"HTTP/2.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
	"HTTP/1.1 200 OK\r\n\r\nuntil the end",
	"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nok",
	"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok!",
	"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n",
	"HTTP/1.1 200 OK\r\nContent-Length: +2\r\n\r\nok",
	"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort",
	"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nX: 1\r\n\r\n",
	"HTTP/1.1 200 OK\r\nX: 1\r\n folded\r\nContent-Length: 2\r\n\r\nok",
	"HTTP/1.1 200 OK\r\nX : 1\r\nContent-Length: 2\r\n\r\nok",
	"HTTP/1.1 200 OK\r\n: 1\r\nContent-Length: 2\r\n\r\nok",
	"HTTP/1.1 200 OK\r\nno colon\r\nContent-Length: 2\r\n\r\nok",
	"HTTP/1.1 200 OK\r\nX: \x00\r\nContent-Length: 2\r\n\r\nok",
	"HTTP/1.1 200 OK\r\nX: \xff\r\nContent-Length: 2\r\n\r\nok",
	"HTTP/1.1 200 OK\r\nX: " + strings.Repeat("long", 3000) + "\r\nContent-Length: 2\r\n\r\nok",
	"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2;name=\"v\"\r\nok\r\n0\r\n\r\n",
	"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX-Late: 1\r\n\r\n",
	"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Late\r\n\r\n2\r\nok\r\n0\r\nX-Late: 1\r\n\r\n",
	"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nok\r\n0\r\n\r\n",
	"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nok\r\n0\r\n\r\n",
	"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\nok\n0\n\n",
	"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\r\nok\r\n0\r\n\r\n",
	"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0x2\r\nok\r\n0\r\n\r\n",
	"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-2\r\nok\r\n0\r\n\r\n",
	"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\nok\r\n0\r\n\r\n",
	"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n00000000000000002\r\nok\r\n0\r\n\r\n",
	"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2 \r\nok\r\n0\r\n\r\n",
	"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2" + strings.Repeat(";x", 5000) + "\r\nok\r\n0\r\n\r\n",
	"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n",
	"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n",
	"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
	"HTTP/1.1 200 OK\r\nTransfer-Encoding: identity\r\nContent-Length: 2\r\n\r\nok",
	"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\n\x1f\x8b",
	"HTTP/1.1 204 No Content\r\nContent-Length: 2\r\n\r\nok",
	"HTTP/1.1 206 Part\r\nContent-Length: 2\r\n\r\nok",
	"HTTP/1.1 304 Not Modified\r\n\r\n",
	"HTTP/1.1 307 Elsewhere\r\nLocation: http://other/\r\nContent-Length: 0\r\n\r\n",
	"HTTP/1.1 429 Busy\r\nRetry-After: 7\r\nContent-Length: 2\r\n\r\nno",
	"HTTP/1.1 400 Bad\r\nTransfer-Encoding: chunked\r\n\r\n10\r\n{\"detail\":\"sad\"}\r\n0\r\n\r\n",
	"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
	"HTTP/1.1 101 Other\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\nok",
	"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nwrong",
	"SSH-2.0-OpenSSH_9.6\r\n", "\r\n\r\n", "", "HTTP/1.1 200 OK\r\nContent-Le", "\x15\x03\x01\x00\x02\x02\x16",
	streamHead + "9\r\ndata: 1\n\n\r\ne\r\ndata: [DONE]\n\n\r\n0\r\n\r\n",
	streamHead + "9\r\ndata: 1\n\n\r\ne\r\ndata: [DONE]\n\n",
	streamHead + "9\r\ndata: 1\n\n\r\n5\r\ndata:",
	streamHead + "9\r\ndata: 1\n\n\r\nnonsense",
	"HTTP/1.1 200 OK\r\nContent-Type: Text/Event-Stream;charset=utf-8\r\nContent-Length: 23\r\n\r\ndata: 1\n\ndata: [DONE]\n\n",
	"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Type: text/html\r\n\r\ndata: 1\n\n",
}

// heard is what an answer in these packets is to a client, asked for as a whole or as
// a stream. The server closes the connection behind it.
func heard(t *testing.T, packets [][]byte, stream, netHTTP bool) string {
	c, err := httpapi.New(httpapi.Config{URL: "http://engine:8000"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if netHTTP {
		httpapi.ByNetHTTP(c)
	}
	httpapi.DialWith(c, func() net.Conn {
		here, there := net.Pipe()
		go func() {
			defer there.Close()
			if !asked(bufio.NewReader(there)) {
				return
			}
			for _, packet := range packets {
				if _, err := there.Write(packet); err != nil {
					return
				}
			}
		}()
		return here
	})
	var said strings.Builder
	if !stream {
		var answer []byte
		answer, err = c.Post(t.Context(), "/", nil, []byte(`{}`))
		fmt.Fprintf(&said, "%q", answer)
	} else {
		for data, failed := range c.Stream(t.Context(), "/", nil, []byte(`{}`)) {
			if err = failed; err == nil {
				fmt.Fprintf(&said, "%q ", data)
			}
		}
	}
	return fmt.Sprint(said.String(), " ", err != nil, " ", engine.KindOf(err))
}

// FuzzAlike holds answers over connections of our own to what net/http makes of the
// same bytes.
func FuzzAlike(f *testing.F) {
	for _, answer := range recorded {
		for _, packet := range []int{1, 7, 1 << 20} {
			f.Add([]byte(answer), packet, false)
			f.Add([]byte(answer), packet, true)
		}
	}
	f.Fuzz(func(t *testing.T, answer []byte, packet int, stream bool) {
		if packet < 1 || bytes.Count(answer, []byte("HTTP/")) > 4 {
			return // net/http takes no more than a few answers before the one that counts
		}
		var packets [][]byte
		for rest := answer; len(rest) > 0; {
			n := min(packet, len(rest))
			packets, rest = append(packets, rest[:n]), rest[n:]
		}
		synctest.Test(t, func(t *testing.T) {
			if ours, theirs := heard(t, packets, stream, false), heard(t, packets, stream, true); ours != theirs {
				t.Errorf("%q in packets of %d:\nours     %s\nnet/http %s", answer, packet, ours, theirs)
			}
		})
	})
}
