package engine_test

import (
	"context"
	"fmt"
	"net"
	"slices"
	"syscall"
	"testing"

	"github.com/dynago/dynago/engine"
)

// Silence becomes doubt, and then death; a refusal is death at once, and what goes
// wrong on our side is nothing.
func TestSilence(t *testing.T) {
	failed := func(kind engine.ErrorKind, why error) error {
		return fmt.Errorf("look: %w", &engine.Error{Kind: kind, Err: why})
	}
	dial := func(why error) error {
		return failed(engine.CannotConnect, &net.OpError{Op: "dial", Err: why})
	}
	ready, suspect, dead := engine.Ready, engine.Suspect, engine.Dead
	for name, tc := range map[string]struct {
		err  error
		want []engine.State
	}{
		"late":            {failed(engine.DeadlineExceeded, context.DeadlineExceeded), []engine.State{ready, ready, suspect, suspect, dead, dead}},
		"cut off":         {failed(engine.Disconnected, nil), []engine.State{ready, ready, suspect, suspect, dead}},
		"refused":         {dial(syscall.ECONNREFUSED), []engine.State{dead, dead}},
		"no such name":    {dial(&net.DNSError{Err: "no such host"}), []engine.State{ready, ready, suspect, suspect, dead}},
		"no way there":    {dial(syscall.EHOSTUNREACH), []engine.State{ready, ready, suspect, suspect, dead}},
		"too much open":   {dial(syscall.EMFILE), []engine.State{ready, ready, ready, ready, ready, ready}},
		"no port left":    {dial(syscall.EADDRNOTAVAIL), []engine.State{ready, ready, ready, ready, ready, ready}},
		"too many ask":    {failed(engine.WorkerOverloaded, nil), []engine.State{ready, ready, suspect, suspect, suspect, suspect}},
		"something else":  {fmt.Errorf("no JSON"), []engine.State{ready, ready, suspect, suspect, suspect}},
		"no such address": {failed(engine.NotFound, nil), []engine.State{ready, ready, suspect, suspect, suspect}},
	} {
		var s engine.Silence
		var got []engine.State
		for range tc.want {
			state, why := s.Grow(tc.err)
			if got = append(got, state); (why == "") != (state == ready) {
				t.Errorf("%s: %s because of %q", name, state, why)
			}
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}

// What a server is said to do is what it does.
func TestComplaint(t *testing.T) {
	for want, err := range map[string]error{
		"it refuses our key, or wants one (api_key): denied: Unauthorized": engine.Errorf(engine.Denied, "Unauthorized"),
		"it does not answer: deadline_exceeded: late":                      engine.Errorf(engine.DeadlineExceeded, "late"),
		"it answers with a failure: unsupported: Not Found":                engine.Errorf(engine.Unsupported, "Not Found"),
	} {
		var s engine.Silence
		s.Grow(err)
		s.Grow(err)
		if _, got := s.Grow(err); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// Who was seen stays what it was while little speaks against it, and who was dead is
// not well because the next silence is another one.
func TestSight(t *testing.T) {
	var s engine.Sight
	refused := &engine.Error{Kind: engine.CannotConnect, Err: syscall.ECONNREFUSED}
	late := engine.Errorf(engine.DeadlineExceeded, "late")
	if st := s.Missed(refused); st.State != engine.Loading || st.Reason == "" {
		t.Errorf("never seen: %+v", st)
	}
	card := &engine.Card{Model: "m"}
	was := s.Saw(engine.Status{Epoch: 7, State: engine.Draining, Reason: "it leaves", Card: card})
	if st := s.Missed(late); st != was {
		t.Errorf("missed once: %+v", st)
	}
	if st := s.Missed(refused); st.State != engine.Dead || st.Card != card || st.Epoch != 7 {
		t.Errorf("refused: %+v", st)
	}
	if st := s.Missed(late); st.State != engine.Dead {
		t.Errorf("refused, and then late: %+v", st)
	}
	if st := s.Saw(engine.Status{Epoch: 7, Reason: "it loads"}); st.State != engine.Loading || st.Card != card {
		t.Errorf("back: %+v", st)
	}
	if st := s.Missed(late); st.State != engine.Loading {
		t.Errorf("late once while it loads: %+v", st)
	}
}

// What came back, be it a failure, is no silence.
func TestSilent(t *testing.T) {
	for kind, want := range map[engine.ErrorKind]bool{
		engine.CannotConnect: true, engine.ConnectionTimeout: true, engine.Disconnected: true, engine.DeadlineExceeded: true,
		engine.Unavailable: false, engine.Internal: false, engine.Denied: false, engine.NotFound: false, engine.Cancelled: false,
	} {
		if got := engine.Silent(engine.Errorf(kind, "")); got != want {
			t.Errorf("%s: %v", kind, got)
		}
	}
	if engine.Silent(nil) {
		t.Error("an answer")
	}
}
