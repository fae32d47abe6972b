package enginetest

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dynago/dynago/engine"
)

// Silence holds an adapter that looks at its server again and again to what silence
// means: one look that brings nothing says nothing, several make the server
// [engine.Suspect] and then [engine.Dead], and one where nobody listens is dead at
// once. Neither takes its card or its life from it. attach makes an adapter of the
// server at a URL, which serves what server does.
func Silence(t *testing.T, server http.Handler, attach func(t *testing.T, url string) engine.Engine) {
	t.Helper()
	var silent, served atomic.Int64 // requests to leave unanswered, and those that were answered
	h := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if silent.Add(-1) >= 0 {
			panic(http.ErrAbortHandler)
		}
		served.Add(1)
		server.ServeHTTP(w, r)
	}))
	h.Config.SetKeepAlivesEnabled(false) // or a request is sent twice
	h.Start()
	defer h.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	told := make(chan engine.Status, 64)
	e := attach(t, h.URL)
	go func() {
		defer close(told)
		for st, err := range e.Card(ctx) {
			if err != nil {
				t.Errorf("the card ends with %v", err)
			}
			told <- st
		}
	}()
	// until returns the states that are told up to one, and the status with it.
	until := func(want engine.State) (seen []engine.State, st engine.Status) {
		t.Helper()
		for st = range told {
			if seen = append(seen, st.State); st.State == want {
				return seen, st
			}
		}
		t.Fatalf("told of %v, want %s", seen, want)
		return seen, st
	}
	_, first := until(engine.Ready)

	silent.Store(1)
	for silent.Load() >= 0 {
		<-time.After(time.Millisecond)
	}
	for looks := served.Load(); served.Load() < looks+2; {
		<-time.After(time.Millisecond)
	}
	if len(told) > 0 {
		t.Errorf("one look that brought nothing makes it %+v", <-told)
	}

	silent.Store(1 << 20)
	seen, dead := until(engine.Dead)
	if !slices.Equal(seen, []engine.State{engine.Suspect, engine.Dead}) || dead.Epoch != first.Epoch || dead.Card == nil || dead.Reason == "" {
		t.Errorf("silent: %v, and at last %+v", seen, dead)
	}
	silent.Store(0)
	until(engine.Ready)
	h.Listener.Close()
	if seen, _ := until(engine.Dead); !slices.Equal(seen, []engine.State{engine.Dead}) {
		t.Errorf("refused: %v", seen)
	}
}
