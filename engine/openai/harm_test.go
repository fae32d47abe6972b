package openai_test

import (
	"context"
	"io"
	"net/http"
	"strings"
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
	h := says(delta(`{"content":"Hello "}`), delta(`{"content":"`+strings.Repeat("x", 200)+`"}`), done("stop"), counts)
	for name, spoil := range hostile.Harmful() {
		t.Run(name, func(t *testing.T) {
			e := attach(t, spoil.Handler(h), nil)
			want, ctx, cancel := kinds[name], t.Context(), func(error) {}
			if spoil.Hangs() {
				want = engine.ResponseTimeout
				ctx, cancel = context.WithCancelCause(t.Context())
				defer cancel(nil)
				defer time.AfterFunc(20*time.Millisecond, func() { cancel(engine.ErrInactive) }).Stop()
			}
			begun := time.Now()
			var err error
			for ev, failed := range e.Chat(ctx, ask(hello())) {
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

// Lines may be long, and have an end.
func TestLongLines(t *testing.T) {
	h := says(delta(`{"content":"A"}`), done("stop"), counts)
	for size, fits := range map[int]bool{60 << 20: true, 65 << 20: false} {
		answers, err := chat.Fold(attach(t, hostile.Spoil{Padding: size}.Handler(h), nil).Chat(t.Context(), ask(hello())))
		if fits && (err != nil || answers[0].Blocks[0].Text != "A") || !fits && engine.KindOf(err) != engine.Internal {
			t.Errorf("%d MiB: %v, %v", size>>20, answers, err)
		}
	}
}

// A server whose answers to questions are none is not ready, and is again once it is
// well.
func TestIllServers(t *testing.T) {
	answers := map[string]func(w http.ResponseWriter){
		"a failure": func(w http.ResponseWriter) { http.Error(w, "oops", http.StatusInternalServerError) },
		"a page":    func(w http.ResponseWriter) { io.WriteString(w, "<html>") },
		"half JSON": func(w http.ResponseWriter) { io.WriteString(w, `{"data":[{"id":"m"`) },
		"a list":    func(w http.ResponseWriter) { io.WriteString(w, `[1]`) },
		"it breaks": func(http.ResponseWriter) { panic(http.ErrAbortHandler) },
		"a number":  func(w http.ResponseWriter) { io.WriteString(w, `{"data":[{"id":"m","max_model_len":-1}]}`) },
	}
	for name, answer := range answers {
		t.Run(name, func(t *testing.T) {
			var well atomic.Bool
			e := attach(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if !well.Load() {
					answer(w)
					return
				}
				io.WriteString(w, `{"data":[{"id":"m","max_model_len":7}]}`)
			}), nil)
			told := make(chan engine.Status, 8)
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			go func() {
				for st := range e.Card(ctx) {
					told <- st
				}
				close(told)
			}()
			if st := <-told; st.State != engine.Loading || st.Card != nil || st.Reason == "" {
				t.Errorf("%+v", st)
			}
			well.Store(true)
			for st := range told {
				if st.State == engine.Ready && st.Card.ContextLength == 7 {
					return
				}
			}
			t.Error("it was not ready again")
		})
	}
}
