package sglang_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/sglang"
	fake "github.com/dynago/dynago/internal/fake/sglang"
)

// The habits of servers that have tripped others up, by their numbers in
// engine/README.md. Those about streams, hand-offs and limits stand with the tests
// of what they are about.

// A route that takes a request as long as any other is no probe.
func TestQuirk23HealthIsNotAskedByGenerating(t *testing.T) {
	server := described(`{}`)
	server["/health_generate"] = func(http.ResponseWriter, *http.Request) { t.Error("asked") }
	e := server.serve(t, sglang.Config{})
	status(t, e, engine.Ready)
	reading(t, e)
}

// SGLang's cheap route makes a token as well, in most builds: it is asked now and
// then, and one that leaves it open whether it is well is busy with a long prompt. It
// gets nothing new if that goes on, and is dead only when its front is silent.
func TestQuirk23BusyIsNotDead(t *testing.T) {
	var busy atomic.Bool
	var looks, asked, hung atomic.Int32
	server := described(`{}`)
	models := server["/v1/models"]
	server["/v1/models"] = func(w http.ResponseWriter, r *http.Request) { looks.Add(1); models(w, r) }
	server["/health"] = func(http.ResponseWriter, *http.Request) {
		asked.Add(1)
		if busy.Load() {
			hung.Add(1)
			panic(http.ErrAbortHandler)
		}
	}
	e := server.serve(t, sglang.Config{Every: time.Millisecond})
	var seen []engine.State
	for s := range e.Card(t.Context()) {
		switch seen = append(seen, s.State); len(seen) {
		case 1:
			go func() {
				for looks.Load() < 20 {
					<-time.After(time.Millisecond)
				}
				if n, of := asked.Load(), looks.Load(); n > of/3 {
					t.Errorf("asked %d times at %d looks", n, of)
				}
				busy.Store(true)
			}()
		case 2:
			if n := hung.Load(); n < 5 || s.Card == nil {
				t.Errorf("after %d times: %+v", n, s)
			}
			go func() {
				for n := hung.Load() + 5; hung.Load() < n; {
					<-time.After(time.Millisecond)
				}
				busy.Store(false)
			}()
		}
		if len(seen) == 3 {
			break
		}
	}
	if !slices.Equal(seen, []engine.State{engine.Ready, engine.Suspect, engine.Ready}) {
		t.Errorf("states %v", seen)
	}
}

// A server that was not started for priorities refuses them: it is sent none.
func TestQuirk28PriorityWhereThereIsNone(t *testing.T) {
	e := attach(t, fake.Config{})
	status(t, e, engine.Ready)
	r := ask()
	r.Priority = ptr(int32(5))
	if _, _, err := collect(t.Context(), e, r); err != nil {
		t.Error(err)
	}
}

// The same turns up where lower numbers are sooner: the most urgent of all has a
// number that the server can hold.
func TestPriorityTurnedRound(t *testing.T) {
	e := attach(t, fake.Config{Priority: true, LowFirst: true})
	status(t, e, engine.Ready)
	r := ask()
	r.Priority = ptr(int32(-1 << 31))
	if _, _, err := collect(t.Context(), e, r); err != nil {
		t.Error(err)
	}
}

// A kept-alive connection that the server closes just then loses no request.
func TestQuirk12ConnectionClosedBetween(t *testing.T) {
	var calls atomic.Int32
	server := described(`{}`)
	server["/generate"] = func(w http.ResponseWriter, r *http.Request) {
		if calls.Add(1) == 1 {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			conn.(*net.TCPConn).SetLinger(0) // what was sent crossed the end of the connection
			conn.Close()
			return
		}
		io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprintf(w, "data: %s\n\n", chunk([]uint32{7}, 1, length))
	}
	e := server.serve(t, sglang.Config{Every: 1 << 40})
	status(t, e, engine.Ready) // leaves a connection that is kept
	ids, _, err := collect(t.Context(), e, ask())
	if err != nil || len(ids) != 1 || calls.Load() != 2 {
		t.Errorf("%v, %v after %d calls", ids, err, calls.Load())
	}
}

// An id that is still being aborted is refused by the server: the next attempt
// under it waits for the abort.
func TestQuirk36IDUsedAgain(t *testing.T) {
	e := attach(t, fake.Config{})
	status(t, e, engine.Ready)
	for range 20 {
		r := ask()
		r.Stop.MaxTokens = 2000
		for _, err := range e.Generate(t.Context(), r) {
			if err != nil {
				t.Fatal(err)
			}
			break
		}
	}
}
