package frontend_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/frontend"
	"github.com/dynago/dynago/pipeline"
)

// wire is one connection, on which a test speaks HTTP by hand.
type wire struct {
	t *testing.T
	net.Conn
	*bufio.Reader
}

func (s *server) wire() *wire {
	s.t.Helper()
	conn := raw(s.t, s, "")
	s.t.Cleanup(func() { conn.Close() })
	return &wire{s.t, conn, bufio.NewReader(conn)}
}

func post(body string, header ...string) string {
	return fmt.Sprintf("POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n%s\r\n%s", len(body), strings.Join(header, ""), body)
}

func (w *wire) send(text string) {
	w.t.Helper()
	if _, err := io.WriteString(w.Conn, text); err != nil {
		w.t.Fatal(err)
	}
}

// answer reads one answer, the next one on the connection.
func (w *wire) answer() answer {
	w.t.Helper()
	resp, err := http.ReadResponse(w.Reader, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return answer{resp.StatusCode, resp.Header, string(body)}
}

// closed says whether the server has closed the connection.
func (w *wire) closed() bool {
	w.SetReadDeadline(time.Now().Add(5 * time.Second))
	_, err := w.Reader.ReadByte()
	return errors.Is(err, io.EOF)
}

// A connection serves streams and other requests in any order, also when they
// are sent before the answer to the former is complete.
func TestConnectionIsKept(t *testing.T) {
	s := start(t, newFake())
	w := s.wire()
	for range 3 {
		w.send(post(askStream))
		if a := w.answer(); a.status != 200 || contents(t, a.body) != "Hello world" || a.header.Get("Date") == "" || a.header.Get("Request-Id") == "" {
			t.Fatalf("%+v", a)
		}
		w.send(post(ask))
		if a := w.answer(); a.status != 200 || !strings.Contains(a.body, "Hello world") {
			t.Fatalf("%+v", a)
		}
	}
	w.send(post(askStream) + post(askStream) + "GET /live HTTP/1.1\r\nHost: x\r\n\r\n" + post(askStream))
	for i := range 4 {
		if a := w.answer(); a.status != 200 || (i != 2) != strings.HasSuffix(a.body, "[DONE]\n\n") {
			t.Fatalf("pipelined %d: %+v", i, a)
		}
	}
	// A stream that fails before its first event is an answer like any other.
	w.send(post(`{"model":"nobody","stream":true,"messages":[{"role":"user","content":"x"}]}`))
	if a := w.answer(); a.status != 404 || a.header.Get("Content-Length") == "" {
		t.Fatalf("%+v", a)
	}
	w.send(post(askStream))
	if a := w.answer(); a.status != 200 {
		t.Fatalf("%+v", a)
	}
}

// Line ends between requests are skipped after a stream as after any answer, and
// do not hide that the client leaves.
func TestLineEndsBetweenRequests(t *testing.T) {
	more := make(chan struct{})
	causes := make(chan error, 1)
	backend := newFake()
	backend.run = func(ctx context.Context, _ []*pipeline.Request) iter.Seq2[chat.Event, error] {
		return then(beginning(), func(yield func(chat.Event, error) bool) {
			select {
			case <-more:
			case <-ctx.Done():
				causes <- context.Cause(ctx)
				yield(chat.Event{}, ctx.Err())
				return
			}
			for _, e := range helloEvents()[3:] {
				yield(e, nil)
			}
		})
	}
	s := start(t, backend)
	w := s.wire()
	w.send(post(askStream) + "\r\n")
	if _, err := w.Peek(1); err != nil {
		t.Fatal(err)
	}
	w.send("\r\n" + post(ask))
	more <- struct{}{}
	if a := w.answer(); a.status != 200 {
		t.Fatalf("%+v", a)
	}
	more <- struct{}{}
	if a := w.answer(); a.status != 200 || !strings.Contains(a.body, "Hello world") {
		t.Fatalf("%+v", a)
	}
	w.send(post(askStream) + "\r\n")
	if _, err := w.ReadString('}'); err != nil {
		t.Fatal(err)
	}
	w.Conn.Close()
	if cause := <-causes; cause != engine.ErrClientGone {
		t.Errorf("cause: %v", cause)
	}
}

// A client that closes its half of the connection counts as one that leaves. It
// is told so, instead of an empty answer that looks like a good one.
func TestHalfClosedClient(t *testing.T) {
	for name, body := range map[string]string{"unary": post(ask), "stream": post(askStream), "HTTP/1.0": strings.Replace(post(askStream), "HTTP/1.1", "HTTP/1.0", 1)} {
		t.Run(name, func(t *testing.T) {
			backend, _ := untilCancelled(nil)
			s := start(t, backend)
			w := s.wire()
			w.send(body)
			if err := w.Conn.(*net.TCPConn).CloseWrite(); err != nil {
				t.Fatal(err)
			}
			if a := w.answer(); a.status != 499 || !strings.Contains(a.body, "Request cancelled") {
				t.Errorf("%+v", a)
			}
		})
	}
}

// late is a listener whose connections hold the end of a stream back.
type late struct {
	net.Listener
	held chan struct{} // receives when the end is there
	pass chan struct{}
}

type lateConn struct {
	net.Conn
	l *late
}

func (l *late) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return &lateConn{c, l}, err
}

func (c *lateConn) Write(b []byte) (int, error) {
	if string(b) == "0\r\n\r\n" {
		c.l.held <- struct{}{}
		<-c.l.pass
	}
	return c.Conn.Write(b)
}

// A stream is in flight until its last byte is written, and the server lives as
// long.
func TestDrainWaitsForTheLastByte(t *testing.T) {
	s, err := frontend.New(frontend.Config{Backend: newFake()})
	if err != nil {
		t.Fatal(err)
	}
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &late{tcp, make(chan struct{}), make(chan struct{})}
	go s.Serve(l)
	resp, err := http.Post("http://"+tcp.Addr().String()+"/v1/chat/completions", "application/json", strings.NewReader(askStream))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	<-l.held
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	cut := make(chan int)
	go func() { cut <- s.Drain(ctx) }()
	stopping := func() bool {
		live, err := http.Get("http://" + tcp.Addr().String() + "/live")
		if err != nil {
			t.Fatal(err)
		}
		live.Body.Close()
		return live.StatusCode == 503
	}
	eventually(t, stopping, func() string { return "the server does not stop" })
	close(l.pass)
	if n := <-cut; n != 1 {
		t.Errorf("%d requests in flight, want 1", n)
	}
	if body, err := io.ReadAll(resp.Body); err != nil || !strings.HasSuffix(string(body), "[DONE]\n\n") {
		t.Errorf("%s %v", body, err)
	}
}

func TestConnectionIsClosed(t *testing.T) {
	s := start(t, newFake(), func(c *frontend.Config) { c.IdleTimeout = 30 * time.Millisecond })
	w := s.wire()
	w.send(post(askStream, "Connection: close\r\n"))
	if a := w.answer(); a.status != 200 || a.header.Get("Connection") != "close" && !strings.HasSuffix(a.body, "[DONE]\n\n") {
		t.Errorf("%+v", a)
	}
	if !w.closed() {
		t.Error("Connection: close is not honoured")
	}
	w = s.wire()
	w.send(post(askStream))
	w.answer()
	if !w.closed() {
		t.Error("an idle connection stays open")
	}
	w = s.wire()
	w.send(post(askStream) + "\x16\x03nonsense\r\n\r\n")
	w.answer()
	if a := w.answer(); a.status != 400 {
		t.Errorf("nonsense is answered by %+v", a)
	}
	w = s.wire()
	w.send(strings.Replace(post(askStream), "HTTP/1.1", "HTTP/1.0", 1))
	if a := w.answer(); a.status != 200 || contents(t, a.body) != "Hello world" {
		t.Errorf("HTTP/1.0: %+v", a)
	}
}

// The end of the server is the end of connections that wait for a request.
func TestDrainClosesKeptConnections(t *testing.T) {
	s := start(t, newFake())
	w := s.wire()
	w.send(post(askStream))
	w.answer()
	s.Drain(context.Background())
	if !w.closed() {
		t.Error("the connection stays open")
	}
}

// A client that leaves in the middle of a stream is noticed although nothing is
// written, and one that talks meanwhile is not taken for one that leaves.
func TestLeavingIsNoticed(t *testing.T) {
	backend, causes := untilCancelled(beginning())
	s := start(t, backend)
	w := s.wire()
	w.send(post(askStream))
	if _, err := w.ReadString('}'); err != nil {
		t.Fatal(err)
	}
	w.Conn.Close()
	if cause := <-causes; cause != engine.ErrClientGone {
		t.Errorf("cause: %v", cause)
	}
}

// Events of all sizes arrive byte for byte.
func TestLargeEvents(t *testing.T) {
	backend := newFake()
	var want strings.Builder
	backend.run = func(context.Context, []*pipeline.Request) iter.Seq2[chat.Event, error] {
		return then(helloEvents()[:2], func(yield func(chat.Event, error) bool) {
			for size := 1; size < 1<<20; size = size*3 + 1 {
				text := strings.Repeat("x", size)
				want.WriteString(text)
				yield(chat.Event{Kind: chat.TextDelta, Text: text, IDs: []uint32{1}}, nil)
			}
			for _, e := range helloEvents()[4:] {
				yield(e, nil)
			}
		})
	}
	s := start(t, backend)
	a := s.do("POST", "/v1/chat/completions", askStream)
	if got := contents(t, a.body); got != want.String() {
		t.Errorf("%d bytes of content, want %d", len(got), want.Len())
	}
}

// Tenant is known to the backend.
func TestTenantReachesTheBackend(t *testing.T) {
	tenants := make(chan string, 2)
	backend := newFake()
	backend.run = func(ctx context.Context, requests []*pipeline.Request) iter.Seq2[chat.Event, error] {
		if got := requests[0].Tenant; got != "team-a" {
			t.Errorf("the request is of tenant %q", got)
		}
		tenants <- frontend.Tenant(ctx)
		return hello(1)
	}
	s := start(t, backend, withKeys(t, "sk-one team-a\n"))
	for _, body := range []string{ask, askStream} {
		s.do("POST", "/v1/chat/completions", body, "X-Api-Key", "sk-one")
		if got := <-tenants; got != "team-a" {
			t.Errorf("tenant %q", got)
		}
	}
	if got := frontend.Tenant(context.Background()); got != "" {
		t.Errorf("tenant of nobody: %q", got)
	}
}

// BenchmarkStream is the whole way of an event through the server, on one
// connection that reads as fast as it can.
func BenchmarkStream(b *testing.B) {
	backend := newFake()
	backend.run = func(context.Context, []*pipeline.Request) iter.Seq2[chat.Event, error] {
		return then(beginning(), func(yield func(chat.Event, error) bool) {
			e := chat.Event{Kind: chat.TextDelta, Text: " world", IDs: []uint32{2}}
			for range b.N {
				if !yield(e, nil) {
					return
				}
			}
			for _, e := range helloEvents()[4:] {
				yield(e, nil)
			}
		})
	}
	s, err := frontend.New(frontend.Config{Backend: backend})
	if err != nil {
		b.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	go s.Serve(l)
	defer s.Close()
	b.ReportAllocs()
	resp, err := http.Post("http://"+l.Addr().String()+"/v1/chat/completions", "application/json", strings.NewReader(askStream))
	if err != nil {
		b.Fatal(err)
	}
	defer resp.Body.Close()
	io.Copy(io.Discard, resp.Body)
}

// BenchmarkUnary is what the server adds to a short answer.
func BenchmarkUnary(b *testing.B) {
	s, err := frontend.New(frontend.Config{Backend: newFake()})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		r, _ := http.NewRequest("POST", "http://x/v1/chat/completions", strings.NewReader(ask))
		w := &recorder{header: http.Header{}}
		s.Handler().ServeHTTP(w, r)
		if w.status != 200 {
			b.Fatal(w.body.String())
		}
	}
}
