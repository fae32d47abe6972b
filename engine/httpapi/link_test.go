package httpapi_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/dynago/dynago/engine/httpapi"
)

func TestQuickHeads(t *testing.T) {
	for _, tt := range []struct {
		head, kind     string
		size           int64
		chunked, lasts bool
	}{
		{"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked", "text/event-stream", -1, true, true},
		{"HTTP/1.1 200\r\nserver: uvicorn\r\ncontent-length: 12\r\ncontent-type: Application/JSON", "application/json", 12, false, true},
		{"HTTP/1.1 200 \r\nContent-Length:0\r\nConnection: close", "", 0, false, false},
		{"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: Keep-Alive\r\nContent-Type: x/Y ;a=b", "x/y", 2, false, true},
	} {
		kind, size, chunked, lasts, ok := httpapi.QuickHead([]byte(tt.head))
		if !ok || kind != tt.kind || size != tt.size || chunked != tt.chunked || lasts != tt.lasts {
			t.Errorf("%q: %q, %d, %v, %v, %v", tt.head, kind, size, chunked, lasts, ok)
		}
	}
}

// What may mean something else, or nothing, is left to net/http.
func TestNotQuickHeads(t *testing.T) {
	for _, head := range []string{
		"", "HTTP/1.1 200 OK", "HTTP/1.0 200 OK\r\nContent-Length: 2", "HTTP/1.1 204 No Content", "HTTP/1.1 2000\r\nContent-Length: 2",
		"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2",
		"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 2",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: upgrade",
		"HTTP/1.1 200 OK\r\nContent-Length: +2", "HTTP/1.1 200 OK\r\nContent-Length: ", "HTTP/1.1 200 OK\r\nContent-Length: 9999999999999999999",
		"HTTP/1.1 200 OK\r\nContent-Length : 2", "HTTP/1.1 200 OK\r\nX: 1\r\n Content-Length: 2", "HTTP/1.1 200 OK\r\nX: \n\r\nContent-Length: 2",
		"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nnonsense",
	} {
		if _, _, _, _, ok := httpapi.QuickHead([]byte(head)); ok {
			t.Errorf("%q was read", head)
		}
	}
}

// Where both read a head, they read the same.
func FuzzQuickHead(f *testing.F) {
	f.Add([]byte("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked"))
	f.Add([]byte("HTTP/1.1 200 OK\r\nConnection: close\r\ncontent-length: 12\r\nX-A:\t1 "))
	f.Fuzz(func(t *testing.T, head []byte) {
		if bytes.Contains(head, []byte("\r\n\r\n")) {
			return // the head ends there
		}
		_, size, chunked, lasts, ok := httpapi.QuickHead(head)
		if !ok {
			return
		}
		resp, err := http.ReadResponse(bufio.NewReader(io.MultiReader(bytes.NewReader(head), strings.NewReader("\r\n\r\n"))), nil)
		if err != nil {
			t.Fatalf("%q: %v", head, err)
		}
		if resp.StatusCode != 200 || resp.ContentLength != size || slices.Contains(resp.TransferEncoding, "chunked") != chunked || resp.Close == lasts {
			t.Fatalf("%q: %d, %v, %v; net/http %+v", head, size, chunked, lasts, resp)
		}
	})
}

// A body in chunks is the same however it is cut into packets, and what is owed is
// what follows.
func TestChunksAnyCut(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var doc bytes.Buffer
		var want []byte
		for _, n := range rapid.SliceOfN(rapid.IntRange(1, 40), 0, 5).Draw(t, "chunks") {
			data := bytes.Repeat([]byte{'0' + byte(n%10)}, n)
			fmt.Fprintf(&doc, rapid.SampledFrom([]string{"%x\r\n%s\r\n", "%X;a=b\r\n%s\r\n", "0%x \r\n%s\r\n"}).Draw(t, "form"), n, data)
			want = append(want, data...)
		}
		doc.WriteString("0\r\n\r\n")
		whole := doc.Bytes()
		if theirs, err := io.ReadAll(httputil.NewChunkedReader(bytes.NewReader(whole))); err != nil || !bytes.Equal(theirs, want) {
			t.Fatalf("%q: net/http reads %q, %v", whole, theirs, err)
		}
		var pieces [][]byte
		for rest := whole; len(rest) > 0; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "packet")
			pieces, rest = append(pieces, rest[:n]), rest[n:]
		}
		got, rest, owed, over, err := httpapi.Chunks(pieces...)
		if err != nil || !over || len(rest) > 0 || !bytes.Equal(got, want) {
			t.Fatalf("%q: got %q, left %q, %v, %v", whole, got, rest, over, err)
		}
		if last := owed[len(owed)-1]; last != "" {
			t.Fatalf("%q is owed behind the end", last)
		}
	})
}

func TestOwed(t *testing.T) {
	for came, want := range map[string]string{
		"": "0\r\n\r\n", "2\r\nab": "\r\n0\r\n\r\n", "2\r\na": "data", "2\r\nab\r\n": "0\r\n\r\n",
		"2\r\nab\r\n0\r\n": "\r\n", "2\r\nab\r\n0\r\n\r\n": "",
	} {
		if _, _, owed, _, err := httpapi.Chunks([]byte(came)); err != nil || owed[0] != want {
			t.Errorf("behind %q: %q, %v; want %q", came, owed, err, want)
		}
	}
	for _, came := range []string{"x\r\n", "\r\n", "-1\r\n", "1000000000000000\r\n", "1\r\nab\r\n"} {
		if _, _, _, _, err := httpapi.Chunks([]byte(came)); err == nil {
			t.Errorf("%q is no body in chunks", came)
		}
	}
}

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
		{"half of it", []string{"\r\n0\r\n"}, 3},
		{"more data", []string{"\r\n5\r\nhel"}, 3},
		{"another answer", []string{"\r\n0\r\n\r\n" + fine}, 3},
		{"another answer, later", []string{"\r\n0\r\n\r\n", fine}, 3},
		{"a trailer", []string{"\r\n0\r\nX: 1\r\n\r\n"}, 3},
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

// Nobody waits for the end of an old stream while another connection is free.
func TestOwingIsPassedOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := httpapi.New(httpapi.Config{URL: "http://engine:8000"})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		var dialled atomic.Int32
		posted := make(chan struct{})
		httpapi.DialWith(c, func() net.Conn {
			here, there := net.Pipe()
			first := dialled.Add(1) == 1
			go func() {
				defer there.Close()
				for in := bufio.NewReader(there); asked(in); {
					if !first {
						io.WriteString(there, fine)
						continue
					}
					io.WriteString(there, streamHead+"9\r\ndata: 1\n\n")
					<-posted
					io.WriteString(there, "\r\ne\r\ndata: [DONE]\n\n")
				}
			}()
			return here
		})
		post := func() {
			if _, err := c.Post(t.Context(), "/", nil, []byte(`{}`)); err != nil {
				t.Error(err)
			}
		}
		began := time.Now()
		for _, err := range c.Stream(t.Context(), "/", nil, []byte(`{}`)) {
			if err != nil {
				t.Fatal(err)
			}
			post()
			close(posted)
		}
		post()
		if n, took := dialled.Load(), time.Since(began); n != 2 || took != 0 {
			t.Errorf("%d connections in %v, want the one that is free, at once", n, took)
		}
	})
}
