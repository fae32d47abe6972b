package trtllm_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/httpapi"
	"github.com/dynago/dynago/engine/trtllm"
	"github.com/dynago/dynago/internal/fake/hostile"
	fake "github.com/dynago/dynago/internal/fake/trtllm"
)

// spoilt is an engine over a fake of which each stream is spoilt.
func spoilt(t *testing.T, a *attached, spoil hostile.Spoil) *trtllm.Engine {
	t.Helper()
	h := httptest.NewServer(spoil.Handler(a.server))
	t.Cleanup(h.Close)
	e, err := trtllm.New(trtllm.Config{Config: httpapi.Config{URL: h.URL}, ContextLength: 4096})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

func thirty() *engine.Request {
	return &engine.Request{Model: "m", TokenIDs: []uint32{1, 2, 3}, Stop: engine.Stop{MaxTokens: 30}}
}

// What means nothing changes no answer.
func TestHarmlessHabits(t *testing.T) {
	a := attach(t, fake.Config{}, trtllm.Config{})
	a.ready(t)
	want, _, err := collect(t.Context(), a, thirty())
	if err != nil || len(want) != 30 {
		t.Fatal(want, err)
	}
	for name, spoil := range hostile.Harmless() {
		got, last, err := collect(t.Context(), spoilt(t, a, spoil), thirty())
		if err != nil || !slices.Equal(got, want) || last.Usage.Output != 30 || last.Usage.Cached == nil {
			t.Errorf("%s: %v, %+v, %v; want %v", name, got, last.Usage, err, want)
		}
	}
}

// What costs an answer, or the rest of it, is never taken for one, and holds nobody
// who leaves.
func TestHarmfulHabits(t *testing.T) {
	a := attach(t, fake.Config{}, trtllm.Config{})
	a.ready(t)
	want, _, err := collect(t.Context(), a, thirty())
	if err != nil {
		t.Fatal(err)
	}
	for name, spoil := range hostile.Harmful() {
		ctx, cancel := context.WithCancelCause(t.Context())
		if spoil.Hangs() {
			time.AfterFunc(30*time.Millisecond, func() { cancel(engine.ErrFirstItem) })
		}
		got, _, err := collect(ctx, spoilt(t, a, spoil), thirty())
		if err == nil || spoil.Hangs() != (engine.KindOf(err) == engine.ResponseTimeout) || len(got) > len(want) || !slices.Equal(got, want[:len(got)]) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
		cancel(nil)
	}
}

// Wherever a stream is cut, what has come of it is the beginning of the answer, and
// the rest may be made elsewhere.
func TestCutStreams(t *testing.T) {
	a := attach(t, fake.Config{}, trtllm.Config{})
	a.ready(t)
	want, _, err := collect(t.Context(), a, thirty())
	if err != nil {
		t.Fatal(err)
	}
	for cut := 1; cut < 9000; cut += 401 {
		got, last, err := collect(t.Context(), spoilt(t, a, hostile.Spoil{Cut: cut}), thirty())
		if len(got) > len(want) || !slices.Equal(got, want[:len(got)]) {
			t.Errorf("cut after %d bytes: %v is no beginning of %v", cut, got, want)
		}
		if err == nil && last.Finish == engine.Running || err != nil && engine.KindOf(err).Retry() != engine.RetryMigrate {
			t.Errorf("cut after %d bytes: %+v, %v", cut, last, err)
		}
	}
}

// A server that is ill costs each request one call and one error, and answers again
// when it is well: nothing here remembers.
func TestIllServers(t *testing.T) {
	stream := func(w http.ResponseWriter, text string) {
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, text)
		http.NewResponseController(w).Flush()
	}
	for name, tc := range map[string]struct {
		ill  http.HandlerFunc
		want engine.ErrorKind
	}{
		"500":                {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) }, engine.Internal},
		"502":                {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(502) }, engine.Unavailable},
		"closes":             {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, engine.Disconnected},
		"closes early":       {func(w http.ResponseWriter, _ *http.Request) { stream(w, ": \n\n"); panic(http.ErrAbortHandler) }, engine.Disconnected},
		"no events":          {func(w http.ResponseWriter, _ *http.Request) { stream(w, "hello\n\nevent: x\n\n") }, engine.StreamIncomplete},
		"another type":       {func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, end) }, engine.Internal},
		"a failure with 200": {func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, `{"object":"error","message":"x"}`) }, engine.Internal},
		"half of JSON":       {func(w http.ResponseWriter, _ *http.Request) { stream(w, `data: {"choices":[{"tok`+"\n\n") }, engine.StreamIncomplete},
		"an array":           {func(w http.ResponseWriter, _ *http.Request) { stream(w, "data: [1,2]\n\n") }, engine.Internal},
		"binary":             {func(w http.ResponseWriter, _ *http.Request) { stream(w, "data: \x00\xff\xfe\n\n") }, engine.Internal},
		"a line too long":    {func(w http.ResponseWriter, _ *http.Request) { stream(w, "data: "+strings.Repeat("x", 65<<20)) }, engine.Internal},
		"a redirect": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
		}, engine.Internal},
	} {
		t.Run(name, func(t *testing.T) {
			var calls atomic.Int32
			var well atomic.Bool
			e := stub(t, func(w http.ResponseWriter, r *http.Request) {
				io.Copy(io.Discard, r.Body)
				if calls.Add(1); well.Load() {
					stream(w, events(end))
					return
				}
				tc.ill(w, r)
			})
			if _, _, err := collect(t.Context(), e, thirty()); err == nil || engine.KindOf(err) != tc.want {
				t.Errorf("%v, want %s", err, tc.want)
			}
			if n := calls.Load(); n != 1 {
				t.Errorf("asked %d times", n)
			}
			well.Store(true)
			if ids, _, err := collect(t.Context(), e, thirty()); err != nil || len(ids) != 1 {
				t.Errorf("when it is well again: %v, %v", ids, err)
			}
		})
	}
}

// A server that hangs, before its answer or within it, holds nobody who leaves.
func TestServersThatHang(t *testing.T) {
	for name, text := range map[string]string{"at once": "", "in a comment": ": pi", "in a chunk": `data: {"choi`, "behind a chunk": events(one)} {
		asked := make(chan struct{}, 1)
		e := stub(t, func(w http.ResponseWriter, r *http.Request) {
			if text != "" {
				w.Header().Set("Content-Type", "text/event-stream")
				io.WriteString(w, text)
				http.NewResponseController(w).Flush()
			}
			io.Copy(io.Discard, r.Body)
			asked <- struct{}{}
			<-r.Context().Done()
		})
		ctx, cancel := context.WithCancelCause(t.Context())
		var left time.Time
		go func() {
			<-asked
			left = time.Now()
			cancel(engine.ErrInactive)
		}()
		_, _, err := collect(ctx, e, thirty())
		if d := time.Since(left); engine.KindOf(err) != engine.ResponseTimeout || d > 2*time.Second {
			t.Errorf("hangs %s: %v after %v", name, err, d)
		}
	}
}

// A slow server's tokens come as it sends them.
func TestSlowServers(t *testing.T) {
	next := make(chan struct{})
	e := stub(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for _, chunk := range []string{one, one, end} {
			for _, b := range events(chunk) {
				fmt.Fprintf(w, "%c", b)
				http.NewResponseController(w).Flush()
			}
			<-next
		}
	})
	n := 0
	for d, err := range e.Generate(t.Context(), thirty()) {
		if err != nil {
			t.Fatalf("%+v, %v", d, err)
		}
		if d.Finish != engine.Running {
			break
		}
		n++
		next <- struct{}{}
	}
	if n != 3 {
		t.Errorf("%d deltas", n)
	}
}

// A server that keeps every look waiting is loading, with a reason, and is not
// looked at more often for that.
func TestLooksThatHang(t *testing.T) {
	var looks atomic.Int32
	e := stub(t, func(_ http.ResponseWriter, r *http.Request) {
		looks.Add(1)
		<-r.Context().Done()
	})
	for s := range e.Card(t.Context()) {
		if s.State != engine.Loading || s.Reason == "" || s.Epoch == 0 || looks.Load() != 1 {
			t.Errorf("%+v after %d looks", s, looks.Load())
		}
		break
	}
}
