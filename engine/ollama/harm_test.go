package ollama_test

import (
	"context"
	"io"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dynago/dynago/chat"
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
			e := attach(t, spoil.Handler(serve(t, nil)), nil)
			ready(t, e)
			want, ctx, cancel := kinds[name], t.Context(), func(error) {}
			if spoil.Hangs() {
				want = engine.ResponseTimeout
				ctx, cancel = context.WithCancelCause(t.Context())
				defer cancel(nil)
				defer time.AfterFunc(20*time.Millisecond, func() { cancel(engine.ErrInactive) }).Stop()
			}
			begun := time.Now()
			var err error
			for ev, failed := range e.Chat(ctx, ask(hello("Hi"))) {
				if err = failed; ev.Kind == chat.Finished {
					t.Errorf("an end was made up: %+v", ev)
				}
			}
			if engine.KindOf(err) != want || time.Since(begun) > 2*time.Second {
				t.Errorf("%v after %v, want %s", err, time.Since(begun), want)
			}
		})
	}
}

// A server whose answers to questions are none is not ready, and is again once it is
// well.
func TestIllServers(t *testing.T) {
	answers := map[string]func(w http.ResponseWriter){
		"a failure": func(w http.ResponseWriter) { http.Error(w, "oops", http.StatusInternalServerError) },
		"a page":    func(w http.ResponseWriter) { io.WriteString(w, "<html>") },
		"half JSON": func(w http.ResponseWriter) { io.WriteString(w, `{"models":[{"na`) },
		"a list":    func(w http.ResponseWriter) { io.WriteString(w, `[1]`) },
		"it breaks": func(http.ResponseWriter) { panic(http.ErrAbortHandler) },
	}
	for name, answer := range answers {
		for _, path := range []string{"/api/tags", "/api/ps", "/api/show", "/api/version"} {
			t.Run(name+" at "+path, func(t *testing.T) {
				f := serve(t, nil)
				var well atomic.Bool
				e := attach(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if !well.Load() && r.URL.Path == path {
						answer(w)
						return
					}
					f.ServeHTTP(w, r)
				}), nil)
				if st := await(t, e, func(engine.Status) bool { return true }); st.State != engine.Loading || st.Card != nil || st.Reason == "" {
					t.Errorf("%+v", st)
				}
				well.Store(true)
				ready(t, e)
			})
		}
	}
}
