package httpapi_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/httpapi"
)

const fine = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

// resetting is a connection whose end is a reset.
type resetting struct{ net.Conn }

func (c resetting) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err == io.EOF {
		err = syscall.ECONNRESET
	}
	return n, err
}

// A request that crosses the engine's closing of an idle connection is sent again,
// once. What may have been read is not: it may be running.
func TestKeptConnections(t *testing.T) {
	hangUp := func(net.Conn) {}
	for _, tt := range []struct {
		name string
		idle time.Duration       // before the second request
		then func(conn net.Conn) // what becomes of it, on the kept connection
		want engine.ErrorKind    // of the second request; "": it is answered
		read int32               // requests that the server has read in all
	}{
		{"closed for being idle", time.Second, hangUp, "", 3},
		{"closed in use", 0, hangUp, engine.Disconnected, 2},
		{"closed after a while", time.Second, func(net.Conn) { time.Sleep(5 * time.Second) }, engine.Disconnected, 2},
		{"closed in the answer", time.Second, func(c net.Conn) { io.WriteString(c, "HTTP/1.1 200") }, engine.Disconnected, 2},
		{"reset in use", 0, hangUp, "", 3},
		{"reset after a while", 0, func(net.Conn) { time.Sleep(5 * time.Second) }, engine.Disconnected, 2},
		{"reset in the answer", 0, func(c net.Conn) { io.WriteString(c, "HTTP/1.1 200") }, engine.Disconnected, 2},
		{"answered", time.Second, func(c net.Conn) { io.WriteString(c, fine) }, "", 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, err := httpapi.New(httpapi.Config{URL: "http://engine:8000"})
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				var read atomic.Int32
				httpapi.DialWith(c, func() net.Conn {
					here, there := net.Pipe()
					go func() {
						defer there.Close()
						in := bufio.NewReader(there)
						for first := true; ; first = false {
							r, err := http.ReadRequest(in)
							if err != nil {
								return
							}
							io.Copy(io.Discard, r.Body)
							read.Add(1)
							if !first {
								tt.then(there)
								return
							}
							io.WriteString(there, fine)
						}
					}()
					if strings.HasPrefix(tt.name, "reset") {
						return resetting{here}
					}
					return here
				})
				post := func() error {
					_, err := c.Post(t.Context(), "/", nil, []byte(`{}`))
					return err
				}
				if err := post(); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				time.Sleep(tt.idle)
				if err := post(); (err == nil) != (tt.want == "") || err != nil && engine.KindOf(err) != tt.want {
					t.Errorf("%v, want %q", err, tt.want)
				}
				if n := read.Load(); n != tt.read {
					t.Errorf("the server has read %d requests, want %d", n, tt.read)
				}
			})
		})
	}
}

// Streams one after the other go over one connection, whether they end at [DONE] or
// where the answer ends; one that does not end holds nobody up.
func TestStreamsKeepTheirConnection(t *testing.T) {
	for _, tt := range []struct {
		name, text  string
		hang        bool
		connections int32
	}{
		{"done", "data: 1\n\ndata: [DONE]\n\n", false, 1},
		{"no done", "data: 1\n\n", false, 1},
		{"an end that does not come", "data: 1\n\ndata: [DONE]\n\n", true, 3},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var connections atomic.Int32
			s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				io.Copy(io.Discard, r.Body)
				w.Header().Set("Content-Type", "text/event-stream")
				io.WriteString(w, tt.text)
				w.(http.Flusher).Flush()
				if tt.hang {
					<-r.Context().Done()
				}
			}))
			s.Config.ConnContext = func(ctx context.Context, _ net.Conn) context.Context {
				connections.Add(1)
				return ctx
			}
			s.Start()
			defer s.Close()
			c, err := httpapi.New(httpapi.Config{URL: s.URL})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			for range 3 {
				n := 0
				for _, err := range c.Stream(t.Context(), "/", nil, []byte(`{}`)) {
					if err != nil {
						t.Fatal(err)
					}
					n++
				}
				if n != 1 {
					t.Errorf("%d events", n)
				}
			}
			if n := connections.Load(); n != tt.connections {
				t.Errorf("%d connections, want %d", n, tt.connections)
			}
		})
	}
}
