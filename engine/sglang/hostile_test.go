package sglang_test

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
	"github.com/dynago/dynago/engine/mock"
	"github.com/dynago/dynago/engine/sglang"
	"github.com/dynago/dynago/internal/fake/hostile"
	fake "github.com/dynago/dynago/internal/fake/sglang"
)

// spoilt is an engine over a fake of which each stream is spoilt.
func spoilt(t *testing.T, spoil hostile.Spoil) *sglang.Engine {
	t.Helper()
	args := mock.DefaultArgs()
	args.SpeedupRatio = 0
	s, err := fake.New(fake.Config{Mock: mock.Config{Model: "m", Args: args}})
	if err != nil {
		t.Fatal(err)
	}
	hs := httptest.NewServer(spoil.Handler(s))
	t.Cleanup(func() { s.Close(); hs.Close() })
	return open(t, sglang.Config{HTTP: httpapi.Config{URL: hs.URL}, Every: 10 * time.Millisecond})
}

// What means nothing changes no answer.
func TestHarmlessHabits(t *testing.T) {
	r := &engine.Request{ID: "r-1", TokenIDs: []uint32{1, 2, 3}, Logprobs: ptr(1), Stop: engine.Stop{MaxTokens: 30}}
	want, _, err := collect(t.Context(), spoilt(t, hostile.Spoil{}), r)
	if err != nil || len(want) != 30 {
		t.Fatal(want, err)
	}
	for name, spoil := range hostile.Harmless() {
		if got, _, err := collect(t.Context(), spoilt(t, spoil), r); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %v, %v; want %v", name, got, err, want)
		}
	}
}

// Wherever a stream is cut, what has come of it is the beginning of the answer, and
// the rest may be made elsewhere.
func TestCutStreams(t *testing.T) {
	r := &engine.Request{ID: "r-1", TokenIDs: []uint32{1, 2, 3}, Stop: engine.Stop{MaxTokens: 10}}
	want, _, err := collect(t.Context(), spoilt(t, hostile.Spoil{}), r)
	if err != nil {
		t.Fatal(err)
	}
	for cut := 1; cut < 900; cut += 37 {
		got, last, err := collect(t.Context(), spoilt(t, hostile.Spoil{Cut: cut}), r)
		if len(got) > len(want) || !slices.Equal(got, want[:len(got)]) {
			t.Errorf("cut after %d bytes: %v is no beginning of %v", cut, got, want)
		}
		if err == nil && last.Finish == engine.Running || err != nil && engine.KindOf(err).Retry() != engine.RetryMigrate {
			t.Errorf("cut after %d bytes: %+v, %v", cut, last, err)
		}
	}
}

// What costs an answer, or the rest of it, is never taken for one, and holds nobody
// who leaves.
func TestHarmfulHabits(t *testing.T) {
	r := &engine.Request{ID: "r-1", TokenIDs: []uint32{1, 2, 3}, Stop: engine.Stop{MaxTokens: 30}}
	want, _, err := collect(t.Context(), spoilt(t, hostile.Spoil{}), r)
	if err != nil {
		t.Fatal(err)
	}
	for name, spoil := range hostile.Harmful() {
		ctx, cancel := context.WithCancelCause(t.Context())
		if spoil.Hangs() {
			time.AfterFunc(30*time.Millisecond, func() { cancel(engine.ErrFirstItem) })
		}
		got, _, err := collect(ctx, spoilt(t, spoil), r)
		if err == nil || spoil.Hangs() != (engine.KindOf(err) == engine.ResponseTimeout) || len(got) > len(want) || !slices.Equal(got, want[:len(got)]) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
		cancel(nil)
	}
}

// A server that is ill costs each request one call and one error of the right kind,
// and answers again when it is well: nothing here remembers.
func TestIllServers(t *testing.T) {
	stream := func(w http.ResponseWriter, text string) {
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, text)
		http.NewResponseController(w).Flush()
	}
	for name, tc := range map[string]struct {
		ill  func(w http.ResponseWriter, r *http.Request)
		want engine.ErrorKind
	}{
		"500":                {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) }, engine.Internal},
		"502":                {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(502) }, engine.Unavailable},
		"closes":             {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, engine.Disconnected},
		"closes early":       {func(w http.ResponseWriter, _ *http.Request) { stream(w, ": \n\n"); panic(http.ErrAbortHandler) }, engine.Disconnected},
		"says nothing":       {func(w http.ResponseWriter, _ *http.Request) { stream(w, "") }, engine.StreamIncomplete},
		"no events":          {func(w http.ResponseWriter, _ *http.Request) { stream(w, "hello\n\nevent: x\n\n") }, engine.StreamIncomplete},
		"another type":       {func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, chunk([]uint32{7}, 1, length)) }, engine.Internal},
		"a failure with 200": {func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, `{"error":{"message":"x"}}`) }, engine.Internal},
		"half of JSON":       {func(w http.ResponseWriter, _ *http.Request) { stream(w, `data: {"output_ids":[7`+"\n\n") }, engine.StreamIncomplete},
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
			e := scripted{"/generate": func(w http.ResponseWriter, r *http.Request) {
				io.Copy(io.Discard, r.Body)
				if calls.Add(1); well.Load() {
					stream(w, "data: "+chunk([]uint32{7}, 1, length)+"\n\n")
					return
				}
				tc.ill(w, r)
			}}.serve(t, sglang.Config{})
			if _, _, err := collect(t.Context(), e, ask()); err == nil || engine.KindOf(err) != tc.want || strings.Contains(err.Error(), "output_ids") {
				t.Errorf("%v, want %s, without what was said", err, tc.want)
			}
			if n := calls.Load(); n != 1 {
				t.Errorf("asked %d times", n)
			}
			well.Store(true)
			if ids, _, err := collect(t.Context(), e, ask()); err != nil || len(ids) != 1 {
				t.Errorf("when it is well again: %v, %v", ids, err)
			}
		})
	}
}

// A server that hangs, before its answer or within it, holds nobody who leaves.
func TestServersThatHang(t *testing.T) {
	for name, text := range map[string]string{"at once": "", "in a comment": ": pi", "in a chunk": `data: {"output_`, "behind a chunk": "data: " + chunk([]uint32{7}, 1, "") + "\n\n"} {
		asked := make(chan struct{}, 1)
		e := scripted{"/generate": func(w http.ResponseWriter, r *http.Request) {
			if text != "" {
				w.Header().Set("Content-Type", "text/event-stream")
				io.WriteString(w, text)
				http.NewResponseController(w).Flush()
			}
			io.Copy(io.Discard, r.Body)
			asked <- struct{}{}
			<-r.Context().Done()
		}}.serve(t, sglang.Config{})
		ctx, cancel := context.WithCancelCause(t.Context())
		var left time.Time
		go func() {
			<-asked
			left = time.Now()
			cancel(engine.ErrInactive)
		}()
		_, _, err := collect(ctx, e, ask())
		if d := time.Since(left); engine.KindOf(err) != engine.ResponseTimeout || d > 250*time.Millisecond {
			t.Errorf("hangs %s: %v after %v", name, err, d)
		}
	}
}

// A slow server's tokens come as it sends them.
func TestSlowServers(t *testing.T) {
	next := make(chan struct{})
	e := scripted{"/generate": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for n := range 3 {
			for _, b := range "data: " + chunk([]uint32{7, 7, 7}[:n+1], n+1, map[bool]string{true: length}[n == 2]) + "\n\n" {
				fmt.Fprintf(w, "%c", b)
				http.NewResponseController(w).Flush()
			}
			<-next
		}
	}}.serve(t, sglang.Config{})
	n := 0
	for d, err := range e.Generate(t.Context(), ask()) {
		if err != nil || len(d.TokenIDs) != 1 {
			t.Fatalf("%+v, %v", d, err)
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
	e := scripted{"/v1/models": func(_ http.ResponseWriter, r *http.Request) {
		looks.Add(1)
		<-r.Context().Done()
	}}.serve(t, sglang.Config{Every: time.Millisecond})
	began := time.Now()
	if s := status(t, e, engine.Loading); s.Reason == "" || s.Epoch == 0 || looks.Load() != 1 {
		t.Errorf("%+v after %d looks and %v", s, looks.Load(), time.Since(began))
	}
}
