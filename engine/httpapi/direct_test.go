package httpapi_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/httpapi"
)

// scripted is a server that says what serve says on each of its connections.
func scripted(t *testing.T, serve func(n int32, conn net.Conn, in *bufio.Reader)) (c *httpapi.Client, connections *atomic.Int32) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	connections = new(atomic.Int32)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			n := connections.Add(1)
			go func() {
				defer conn.Close()
				serve(n, conn, bufio.NewReader(conn))
			}()
		}
	}()
	if c, err = httpapi.New(httpapi.Config{URL: "http://" + l.Addr().String()}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c, connections
}

// asked reads a request, and says whether there was one.
func asked(in *bufio.Reader) bool {
	r, err := http.ReadRequest(in)
	if err != nil {
		return false
	}
	_, err = io.Copy(io.Discard, r.Body)
	return err == nil
}

// However the end of an answer is told, all of it comes, and a connection takes
// another request if and only if that is right.
func TestAnswerEnds(t *testing.T) {
	for _, tt := range []struct {
		name, answer, want string
		connections        int32
		closes             bool // the server ends the connection behind its answer
	}{
		{"length", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", "ok", 1, false},
		{"nothing", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "", 1, false},
		{"no content", "HTTP/1.1 204 No Content\r\n\r\n", "", 1, false},
		{"chunks", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\no\r\n1\r\nk\r\n0\r\n\r\n", "ok", 1, false},
		{"continued", "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", "ok", 1, false},
		{"said to close", "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok", "ok", 3, false},
		{"closed without a word", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", "ok", 3, true},
		{"until the end", "HTTP/1.1 200 OK\r\n\r\nok", "ok", 3, true},
		{"an old server", "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", "ok", 3, false},
		{"more than said", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nwrong", "ok", 3, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ended := make(chan struct{}, 3)
			c, connections := scripted(t, func(_ int32, conn net.Conn, in *bufio.Reader) {
				for asked(in) {
					io.WriteString(conn, tt.answer)
					if tt.closes {
						conn.Close()
						ended <- struct{}{}
					}
				}
			})
			for range 3 {
				got, err := c.Post(t.Context(), "/", nil, []byte(`{}`))
				if err != nil || string(got) != tt.want {
					t.Fatalf("%q, %v", got, err)
				}
				if tt.closes {
					<-ended
				}
			}
			if n := connections.Load(); n != tt.connections {
				t.Errorf("%d connections, want %d", n, tt.connections)
			}
		})
	}
}

// A long body comes whole, behind its head.
func TestLongBody(t *testing.T) {
	c := client(t, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		fmt.Fprint(w, len(body), bytes.Count(body, []byte("7")), err)
	})
	for _, n := range []int{0, 1, 4 << 10, 1 << 20} {
		got, err := c.Post(t.Context(), "/", nil, bytes.Repeat([]byte("7"), n))
		if want := fmt.Sprint(n, n, nil); err != nil || string(got) != want {
			t.Errorf("got %s, %v; want %s", got, err, want)
		}
	}
}

// A server may refuse a body that it does not read, whether or not it hangs up then.
func TestRefusedEarly(t *testing.T) {
	for _, tt := range []struct {
		name string
		then func(conn net.Conn, in *bufio.Reader)
		size int
	}{
		{"it hangs up", func(conn net.Conn, in *bufio.Reader) {
			conn.(*net.TCPConn).CloseWrite()
			io.Copy(io.Discard, in)
		}, 8 << 20},
		{"it never reads", func(net.Conn, *bufio.Reader) { <-t.Context().Done() }, 32 << 10},
		{"it never reads what is long", func(net.Conn, *bufio.Reader) { <-t.Context().Done() }, 8 << 20},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, connections := scripted(t, func(_ int32, conn net.Conn, in *bufio.Reader) {
				conn.(*net.TCPConn).SetReadBuffer(4 << 10)
				for {
					line, err := in.ReadString('\n')
					if err != nil || line == "\r\n" {
						break
					}
				}
				io.WriteString(conn, "HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
				tt.then(conn, in)
			})
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			for range 2 {
				if _, err := c.Post(ctx, "/", nil, make([]byte, tt.size)); engine.KindOf(err) != engine.InvalidArgument {
					t.Errorf("%v", err)
				}
			}
			if n := connections.Load(); n != 2 {
				t.Errorf("%d connections, want 2", n)
			}
		})
	}
}

// No head of an answer is read without end.
func TestEndlessHead(t *testing.T) {
	c, _ := scripted(t, func(_ int32, conn net.Conn, in *bufio.Reader) {
		if asked(in) {
			io.WriteString(conn, "HTTP/1.1 200 OK\r\n")
			for {
				if _, err := io.WriteString(conn, "X: "+strings.Repeat("x", 1000)+"\r\n"); err != nil {
					return
				}
			}
		}
	})
	if _, err := c.Get(t.Context(), "/"); engine.KindOf(err) != engine.Disconnected {
		t.Errorf("%v", err)
	}
}

// Nothing that a header says ends it.
func TestHeadersCannotBreakOut(t *testing.T) {
	c := client(t, func(http.ResponseWriter, *http.Request) { t.Error("it was sent") })
	for name, value := range map[string]string{"X-Request-Id": "1\r\nX-Other: 2", "X-A": "\n", "X B": "1", "": "1", "X-C:": "1"} {
		if _, err := c.Post(t.Context(), "/", http.Header{name: {value}}, nil); err == nil {
			t.Errorf("%q: %q: no error", name, value)
		}
	}
}

func TestWhatOnlyTheConnectionSays(t *testing.T) {
	c := client(t, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, r.Host != "elsewhere", r.ContentLength, r.TransferEncoding)
	})
	got, err := c.Post(t.Context(), "/", http.Header{"Host": {"elsewhere"}, "Content-Length": {"9"}, "Transfer-Encoding": {"chunked"}}, []byte(`{}`))
	if err != nil || string(got) != "true 2 []" {
		t.Errorf("%s, %v", got, err)
	}
}

// Paths that HTTP does not take as they are go the long way.
func TestPathsAreEscaped(t *testing.T) {
	c := client(t, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.URL.Path) })
	got, err := c.Get(t.Context(), "/a b é")
	if err != nil || string(got) != "/base/a b é" {
		t.Errorf("%s, %v", got, err)
	}
}

func TestNameAndPassword(t *testing.T) {
	var url string
	s := client(t, func(w http.ResponseWriter, r *http.Request) {
		name, password, _ := r.BasicAuth()
		fmt.Fprint(w, name, " ", password)
	})
	url = strings.Replace(s.URL(), "http://", "http://me:secret@", 1)
	c, err := httpapi.New(httpapi.Config{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if got, err := c.Get(t.Context(), "/"); err != nil || string(got) != "me secret" {
		t.Errorf("%s, %v", got, err)
	}
}

// Connections that nobody uses are closed, and so are all of a client that is.
func TestIdleConnectionsAreClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := httpapi.New(httpapi.Config{URL: "http://engine:8000"})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		var open atomic.Int32
		var first atomic.Bool
		first.Store(true)
		both := make(chan struct{}) // are there
		httpapi.DialWith(c, func() net.Conn {
			here, there := net.Pipe()
			if open.Add(1) == 2 && first.CompareAndSwap(true, false) {
				close(both)
			}
			go func() {
				defer open.Add(-1)
				defer there.Close()
				for in := bufio.NewReader(there); asked(in); {
					<-both
					io.WriteString(there, fine)
				}
			}()
			return here
		})
		post := func() {
			if _, err := c.Post(t.Context(), "/", nil, []byte(`{}`)); err != nil {
				t.Error(err)
			}
		}
		go post()
		post()
		synctest.Wait()
		if n := open.Load(); n != 2 {
			t.Fatalf("%d connections, want 2", n)
		}
		time.Sleep(2 * time.Second)
		post() // over the one used last
		synctest.Wait()
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if n := open.Load(); n != 1 {
			t.Fatalf("%d connections, want the one in use of late", n)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if n := open.Load(); n != 0 {
			t.Fatalf("%d connections, want none", n)
		}
		post()
		c.Close()
		synctest.Wait()
		if n := open.Load(); n != 0 {
			t.Fatalf("%d connections of a closed client", n)
		}
	})
}

// The end of a context ends a request at any point of it.
func TestContextEndsAnywhere(t *testing.T) {
	for _, answer := range []string{"", "HTTP/1.1 200", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf"} {
		ctx, cancel := context.WithCancelCause(t.Context())
		c, _ := scripted(t, func(_ int32, conn net.Conn, in *bufio.Reader) {
			if asked(in) {
				io.WriteString(conn, answer)
				cancel(engine.ErrFirstItem)
				io.Copy(io.Discard, in) // until the client hangs up
			}
		})
		if _, err := c.Post(ctx, "/", nil, []byte(`{}`)); engine.KindOf(err) != engine.ResponseTimeout {
			t.Errorf("behind %q: %v", answer, err)
		}
	}
}
