package llamacpp_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/internal/fake/hostile"
)

// What a stream is cost by an ill server has a kind of its own, and a request that
// hangs ends with the cause of its context, at once.
func TestHarmfulStreams(t *testing.T) {
	kinds := map[string]engine.ErrorKind{
		"a failure": engine.Internal, "closes at once": engine.Disconnected, "closes early": engine.Disconnected,
		"half an event": engine.Internal, "no JSON": engine.Internal, "a page": engine.Internal, "another type": engine.Internal,
	}
	for name, spoil := range hostile.Harmful() {
		t.Run(name, func(t *testing.T) {
			fake := serve(t, 1, nil)
			t.Cleanup(func() { fake.Close() })
			e := plain(t, spoil.Handler(fake), nil)
			want, ctx, cancel := kinds[name], t.Context(), func(error) {}
			if spoil.Hangs() {
				want = engine.ResponseTimeout
				ctx, cancel = context.WithCancelCause(t.Context())
				defer cancel(nil)
				defer time.AfterFunc(20*time.Millisecond, func() { cancel(engine.ErrInactive) }).Stop()
			}
			begun := time.Now()
			var err error
			for d, failed := range e.Generate(ctx, ask(12, 100, 101)) {
				if err = failed; d.Finish != engine.Running {
					t.Errorf("an end was made up: %+v", d)
				}
			}
			if engine.KindOf(err) != want || time.Since(begun) > 2*time.Second {
				t.Errorf("%v after %v, want %s", err, time.Since(begun), want)
			}
		})
	}
}

// A server whose answers to questions are none is not ready, and is again once it is
// well: nothing that it said stays.
func TestIllServers(t *testing.T) {
	answers := map[string]func(w http.ResponseWriter){
		"a failure": func(w http.ResponseWriter) { http.Error(w, "oops", http.StatusInternalServerError) },
		"a page":    func(w http.ResponseWriter) { io.WriteString(w, "<html>") },
		"half JSON": func(w http.ResponseWriter) { io.WriteString(w, `{"total_slots":3,"default_gen`) },
		"a list":    func(w http.ResponseWriter) { io.WriteString(w, `[1]`) },
		"it breaks": func(http.ResponseWriter) { panic(http.ErrAbortHandler) },
		"a number":  func(w http.ResponseWriter) { io.WriteString(w, `{"total_slots":-3}`) },
	}
	for name, answer := range answers {
		t.Run(name, func(t *testing.T) {
			fake := serve(t, 1, nil)
			t.Cleanup(func() { fake.Close() })
			var well atomic.Bool
			e := plain(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if !well.Load() && r.URL.Path == "/props" {
					answer(w)
					return
				}
				fake.ServeHTTP(w, r)
			}), nil)
			st := await(t, e, func(engine.Status) bool { return true })
			if st.State != engine.Loading || st.Card != nil || !strings.Contains(st.Reason, "the server") {
				t.Errorf("%+v", st)
			}
			well.Store(true)
			if st := ready(t, e); st.Card.MaxSeqs != 1 {
				t.Errorf("well: %+v", st.Card)
			}
		})
	}
}
