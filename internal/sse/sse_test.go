package sse_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/internal/sse"
)

// protocol is an API with a visible piece at every place.
type protocol struct{ opening string }

func (p protocol) AppendOpening(dst []byte) []byte { return append(dst, p.opening...) }
func (protocol) AppendEnd(dst []byte) []byte       { return append(dst, "data: [DONE]\n\n"...) }
func (protocol) AppendPing(dst []byte) []byte      { return append(dst, sse.Comment...) }

func (protocol) AppendFailure(dst []byte, err error) []byte {
	return fmt.Appendf(dst, "data: {%q}\n\n", err)
}

func (protocol) Refuse(w http.ResponseWriter, err error) {
	w.WriteHeader(http.StatusTeapot)
	io.WriteString(w, err.Error())
}

// client records what it is sent, flush by flush, with the time of each.
type client struct {
	t0     time.Time
	mu     sync.Mutex
	header http.Header
	buf    strings.Builder
	log    []string
	// stall, if not nil, is what a flush waits for.
	stall    chan struct{}
	broken   error
	deadline time.Time
}

func newClient() *client { return &client{t0: time.Now(), header: http.Header{}} }

func (c *client) Header() http.Header { return c.header }

func (c *client) WriteHeader(status int) { fmt.Fprintf(&c.buf, "<%d>", status) }

func (c *client) Write(b []byte) (int, error) { return c.buf.Write(b) }

func (c *client) SetWriteDeadline(t time.Time) error {
	c.deadline = t
	return nil
}

func (c *client) FlushError() error {
	if c.stall != nil {
		select {
		case <-c.stall:
		case <-time.After(time.Until(c.deadline)):
			return errors.New("i/o timeout")
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.broken != nil {
		return c.broken
	}
	c.log = append(c.log, fmt.Sprintf("%v %s", time.Since(c.t0), c.buf.String()))
	c.buf.Reset()
	return nil
}

func (c *client) expect(t *testing.T, want ...string) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if got := strings.Join(c.log, "\n"); got != strings.Join(want, "\n") {
		t.Errorf("got\n%q\nwant\n%q", c.log, want)
	}
	if c.buf.Len() != 0 {
		t.Errorf("written and not flushed: %q", c.buf.String())
	}
}

func start(c *client, opening string, timing sse.Timing) (*sse.Writer, context.Context) {
	ctx, cancel := context.WithCancelCause(context.Background())
	return sse.NewWriter(c, protocol{opening}, time.Now(), timing, cancel), ctx
}

func TestEventsAreFlushedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient()
		w, _ := start(c, "", sse.Defaults)
		time.Sleep(20 * time.Millisecond)
		w.Event([]byte("data: 1\n\n"))
		time.Sleep(20 * time.Millisecond)
		w.Event([]byte("data: 2\n\n"))
		time.Sleep(20 * time.Millisecond)
		w.Close()
		c.expect(t, "20ms <200>data: 1\n\n", "40ms data: 2\n\n", "60ms data: [DONE]\n\n")
		for k, want := range map[string]string{"Content-Type": "text/event-stream", "Cache-Control": "no-cache"} {
			if got := c.header.Get(k); got != want {
				t.Errorf("%s: %q, want %q", k, got, want)
			}
		}
	})
}

func TestFastEventsAreBundled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient()
		w, _ := start(c, "", sse.Defaults)
		for i := range 5 {
			w.Event(fmt.Appendf(nil, "%d ", i))
			time.Sleep(300 * time.Microsecond)
		}
		time.Sleep(time.Second)
		w.Event([]byte("late "))
		w.Event([]byte("last "))
		w.Close()
		c.expect(t, "0s <200>0 ", "1ms 1 2 3 ", "3ms 4 ", "1.0015s late ", "1.0015s last data: [DONE]\n\n")
	})
}

// The time between flushes grows with the crowd, up to its bound, and is short
// again once events come one by one.
func TestBundlesGrowAndShrink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient()
		timing := sse.Defaults
		timing.CoalesceMost = 4 * time.Millisecond
		w, _ := start(c, "", timing)
		for range 28 {
			w.Event([]byte("."))
			time.Sleep(370 * time.Microsecond) // never together with the timer
		}
		for range 3 {
			time.Sleep(5 * time.Millisecond)
			w.Event([]byte("!"))
		}
		w.Event([]byte("?"))
		time.Sleep(10 * time.Millisecond)
		c.expect(t, "0s <200>.", "1ms ..", "3ms ......", "7ms ..........", "11ms .........",
			"15.36ms !", "20.36ms !", "25.36ms !", "26.36ms ?")
		w.Abandon()
	})
}

func TestBufferIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient()
		w, _ := start(c, "", sse.Defaults)
		w.Event([]byte("first "))
		big := []byte(strings.Repeat("x", 10<<10))
		w.Event(big)
		w.Event(big)
		c.expect(t, "0s <200>first ", "0s "+string(big)+string(big))
		w.Close()
	})
}

func TestStatusIsHeldBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient()
		w, _ := start(c, "event: opening\n\n", sse.Defaults)
		time.Sleep(14 * time.Second)
		c.expect(t)
		if w.Opened() {
			t.Error("opened before the end of the hold")
		}
		time.Sleep(17 * time.Second)
		w.Event([]byte("data: 1\n\n"))
		time.Sleep(time.Second)
		w.Fail(errors.New("late"))
		if err := w.Event([]byte("data: 2\n\n")); !errors.Is(err, sse.ErrClosed) {
			t.Errorf("event after failure: %v", err)
		}
		w.Close()
		time.Sleep(time.Minute)
		c.expect(t, "15s <200>event: opening\n\n", "30s "+sse.Comment, "31s data: 1\n\n", "32s data: {\"late\"}\n\n")
	})
}

// A header can be set until the status line has been sent, by an event or by the
// end of the wait for one.
func TestHeadersBeforeTheStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, c := range map[string]struct {
			before func(*sse.Writer)
			want   string
		}{
			"at once":         {func(*sse.Writer) {}, "yes"},
			"after an event":  {func(w *sse.Writer) { w.Event([]byte("data: 1\n\n")) }, ""},
			"after the wait":  {func(*sse.Writer) { time.Sleep(sse.Defaults.Hold + time.Millisecond) }, ""},
			"after a failure": {func(w *sse.Writer) { w.Fail(errors.New("no")) }, ""},
		} {
			client := newClient()
			w, _ := start(client, "", sse.Defaults)
			c.before(w)
			w.SetHeader("X-Told", "yes")
			w.Close()
			if got := client.header.Get("X-Told"); got != c.want {
				t.Errorf("%s: %q", name, got)
			}
		}
	})
}

func TestOpeningComesBeforeTheFirstEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient()
		w, _ := start(c, "event: opening\n\n", sse.Defaults)
		w.Event([]byte("data: 1\n\n"))
		w.Close()
		c.expect(t, "0s <200>event: opening\n\ndata: 1\n\n", "0s data: [DONE]\n\n")
	})
}

func TestEarlyFailureHasItsOwnStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient()
		w, _ := start(c, "event: opening\n\n", sse.Defaults)
		time.Sleep(time.Second)
		w.Fail(errors.New("no workers"))
		w.Fail(errors.New("again"))
		w.Close()
		time.Sleep(time.Minute)
		if got, want := c.buf.String(), "<418>no workers"; got != want || len(c.log) != 0 {
			t.Errorf("got %q and %q, want %q", got, c.log, want)
		}
	})
}

func TestEmptyStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient()
		w, _ := start(c, "", sse.Defaults)
		w.Close()
		c.expect(t, "0s <200>data: [DONE]\n\n")
	})
}

func TestKeepAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient()
		timing := sse.Defaults
		timing.KeepAlive = 2 * time.Second
		w, _ := start(c, "", timing)
		w.Event([]byte("1 "))
		time.Sleep(time.Second)
		w.Event([]byte("2 "))
		time.Sleep(5500 * time.Millisecond)
		w.Close()
		time.Sleep(time.Minute)
		c.expect(t, "0s <200>1 ", "1s 2 ", "3s "+sse.Comment, "5s "+sse.Comment, "6.5s data: [DONE]\n\n")
	})
}

func TestKeepAliveOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient()
		w, _ := start(c, "", sse.Timing{Hold: time.Second})
		time.Sleep(time.Hour)
		w.Event([]byte("1 "))
		w.Event([]byte("2 "))
		w.Close()
		c.expect(t, "1s <200>", "1h0m0s 1 ", "1h0m0s 2 ", "1h0m0s data: [DONE]\n\n")
	})
}

// A client that takes nothing for a minute is gone, and whoever waits for it is
// told by the cause of its context.
func TestOverdueWriteCancels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient()
		w, ctx := start(c, "", sse.Defaults)
		w.Event([]byte("1 "))
		c.stall = make(chan struct{})
		time.Sleep(time.Second)
		begin := time.Now()
		err := w.Event([]byte("2 "))
		if took := time.Since(begin); !errors.Is(err, engine.ErrClientGone) || took < 52*time.Second || took > time.Minute {
			t.Errorf("after %v: %v", time.Since(begin), err)
		}
		if context.Cause(ctx) != engine.ErrClientGone {
			t.Errorf("cause: %v", context.Cause(ctx))
		}
		expectGone(t, w)
	})
}

// expectGone checks that a client who has gone once has gone for good.
func expectGone(t *testing.T, w *sse.Writer) {
	t.Helper()
	if err := w.Event([]byte("3 ")); !errors.Is(err, engine.ErrClientGone) {
		t.Errorf("event after a broken write: %v", err)
	}
	if err := w.Close(); !errors.Is(err, engine.ErrClientGone) {
		t.Errorf("close after a broken write: %v", err)
	}
}

func TestEventAfterTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _ := start(newClient(), "", sse.Defaults)
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if err := w.Event([]byte("1 ")); !errors.Is(err, sse.ErrClosed) {
			t.Errorf("event after the end: %v", err)
		}
		if err := w.Close(); err != nil {
			t.Errorf("close after the end: %v", err)
		}
	})
}

// The timer finds out too, while the feeder waits for its next event, which then
// hears of it.
func TestBrokenKeepAliveCancels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient()
		w, ctx := start(c, "", sse.Defaults)
		w.Event([]byte("1 "))
		c.mu.Lock()
		c.broken = errors.New("broken pipe")
		c.mu.Unlock()
		begin := time.Now()
		<-ctx.Done()
		if got := time.Since(begin); got != 15*time.Second || context.Cause(ctx) != engine.ErrClientGone {
			t.Errorf("after %v: %v", got, context.Cause(ctx))
		}
		expectGone(t, w)
	})
}

// A timer that finds a write in progress leaves it alone and takes up its work
// again afterwards.
func TestTimerDuringSlowWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient()
		w, ctx := start(c, "", sse.Defaults)
		w.Event([]byte("1 "))
		c.stall = make(chan struct{})
		go func() {
			time.Sleep(40 * time.Second)
			close(c.stall)
		}()
		time.Sleep(14 * time.Second)
		w.Event([]byte("2 "))
		w.Event([]byte("3 "))
		time.Sleep(15*time.Second + time.Millisecond)
		w.Close()
		if ctx.Err() != nil {
			t.Error("a slow client was cancelled")
		}
		c.expect(t, "0s <200>1 ", "40s 2 ", "40s 3 ", "55s "+sse.Comment, "55.001s data: [DONE]\n\n")
	})
}

// Many events from one goroutine while the timer works: every byte arrives once
// and in order.
func TestOrderUnderLoad(t *testing.T) {
	c := newClient()
	timing := sse.Defaults
	timing.Coalesce, timing.KeepAlive = 50*time.Microsecond, 20*time.Microsecond
	w, _ := start(c, "", timing)
	var want strings.Builder
	for i := range 20_000 {
		fmt.Fprintf(&want, "%d ", i)
		if err := w.Event(fmt.Appendf(nil, "%d ", i)); err != nil {
			t.Fatal(err)
		}
	}
	w.Close()
	var got strings.Builder
	for _, line := range c.log {
		_, line, _ = strings.Cut(line, " ")
		got.WriteString(strings.ReplaceAll(line, sse.Comment, ""))
	}
	if got.String() != "<200>"+want.String()+"data: [DONE]\n\n" {
		t.Error("bytes were lost, doubled or out of order")
	}
}

func Example() {
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		_, cancel := context.WithCancelCause(r.Context())
		w := sse.NewWriter(rw, protocol{}, time.Now(), sse.Defaults, cancel)
		w.Event([]byte("data: hello\n\n"))
		w.Close()
	}))
	defer server.Close()
	resp, err := http.Get(server.URL)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	io.Copy(exampleOut{}, resp.Body)
	// Output:
	// data: hello
	//
	// data: [DONE]
}

type exampleOut struct{}

func (exampleOut) Write(b []byte) (int, error) { return fmt.Print(string(b)) }

// discard is a client that costs nothing.
type discard struct{ header http.Header }

func (d discard) Header() http.Header            { return d.header }
func (discard) WriteHeader(int)                  {}
func (discard) Write(b []byte) (int, error)      { return len(b), nil }
func (discard) FlushError() error                { return nil }
func (discard) SetWriteDeadline(time.Time) error { return nil }

var frame = []byte(`data: {"id":"chatcmpl-1b3f0c52-8a55-4a8e-b1a7-0a7b6bd0f001","object":"chat.completion.chunk","created":1790000001,"model":"demo","choices":[{"index":0,"delta":{"content":"ne"},"finish_reason":null,"logprobs":null}]}` + "\n\n")

// BenchmarkEvent is the writer's own cost of an event on a fast stream.
func BenchmarkEvent(b *testing.B) {
	_, cancel := context.WithCancelCause(context.Background())
	w := sse.NewWriter(discard{http.Header{}}, protocol{}, time.Now(), sse.Defaults, cancel)
	b.ReportAllocs()
	for b.Loop() {
		w.Event(frame)
	}
	w.Close()
}

// BenchmarkEventHTTP adds net/http, the kernel, and a client that reads.
func BenchmarkEventHTTP(b *testing.B) {
	for _, coalesce := range []time.Duration{0, sse.Defaults.Coalesce} {
		b.Run(fmt.Sprint("coalesce=", coalesce), func(b *testing.B) {
			timing := sse.Defaults
			timing.Coalesce = coalesce
			server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				_, cancel := context.WithCancelCause(r.Context())
				w := sse.NewWriter(rw, protocol{}, time.Now(), timing, cancel)
				defer w.Close()
				for range b.N {
					if w.Event(frame) != nil {
						return
					}
				}
			}))
			defer server.Close()
			b.SetBytes(int64(len(frame)))
			b.ReportAllocs()
			resp, err := http.Get(server.URL)
			if err != nil {
				b.Fatal(err)
			}
			io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		})
	}
}
