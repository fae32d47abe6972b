package router_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/router"
)

// turn is a turn of session "a" of which its client says something.
func turn(action router.SessionAction, timeout time.Duration) router.Query {
	q := session("a")
	q.Session.Control = &router.SessionControl{Action: action, SessionTerms: router.SessionTerms{Timeout: timeout}}
	return q
}

// Turns that do not fit together: what they are told where operators are strict, and
// how they are served where not.
func TestTurnsThatDoNotFit(t *testing.T) {
	const minute = time.Minute
	kept := func(h *house) *router.Booking { // and its turn still runs
		b := h.route(turn(router.OpenSession, minute))
		b.SessionOpened(nil)
		b.Prefilled()
		return b
	}
	bound := func(h *house) { served(h.route(turn(router.BindSession, minute))) }
	for name, c := range map[string]struct {
		before  func(h *house)
		turn    router.Query
		pin     bool // to the worker where the session is not
		refused string
		use     router.SessionUse
		away    bool // it is not where the session was
	}{
		"unknown": {
			turn: turn(router.ContinueSession, 0), refused: "session a must be opened or bound before continuation or close", use: router.SessionUnknown,
		},
		"close of an unknown one": {
			turn: turn(router.CloseSession, 0), refused: "session a must be opened or bound before continuation or close", use: router.SessionUnknown,
		},
		"expired": {
			before: func(h *house) {
				served(kept(h))
				time.Sleep(minute)
				h.router.Tick(time.Now())
			},
			turn: turn(router.ContinueSession, 0), refused: "session a expired and is closing", use: router.SessionUnknown,
		},
		"expired, bound anew": {
			before: func(h *house) { bound(h); time.Sleep(minute) }, turn: turn(router.BindSession, minute), use: router.SessionBound,
		},
		"another kind": {
			before: bound, turn: turn(router.OpenSession, minute), refused: "conflicting duplicate session setup", use: router.SessionFollowed,
		},
		"no downgrade": {
			before: func(h *house) { served(kept(h)) }, turn: turn(router.BindSession, minute), refused: "conflicting duplicate session setup", use: router.SessionFollowed,
		},
		"another timeout": {
			before: bound, turn: turn(router.BindSession, 2*minute), refused: "conflicting duplicate session setup", use: router.SessionFollowed,
		},
		"the same": {before: bound, turn: turn(router.BindSession, minute), use: router.SessionFollowed},
		"a pin against a binding": {
			before: bound, turn: turn(router.ContinueSession, 0), pin: true, refused: "session a target conflict: expected ", use: router.SessionPinned, away: true,
		},
		"a pin against an engine": {
			before: func(h *house) { served(kept(h)) }, turn: turn(router.ContinueSession, 0), pin: true, refused: "target conflict", use: router.SessionPinned, away: true,
		},
		"close while turns run": {
			before: func(h *house) { kept(h) }, turn: turn(router.CloseSession, 0), refused: "session a cannot close while 1 request lease(s) are active", use: router.SessionFollowed,
		},
		"a turn behind the close": {
			before: func(h *house) { served(kept(h)); served(h.route(turn(router.CloseSession, 0))) },
			turn:   turn(router.ContinueSession, 0), refused: "session a is closing and is not routable", use: router.SessionUnknown,
		},
		"set up behind the close": {
			before: func(h *house) { served(kept(h)); served(h.route(turn(router.CloseSession, 0))) },
			turn:   turn(router.BindSession, minute), refused: "session a is closing and is not routable", use: router.SessionBound,
		},
	} {
		for _, strict := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				h := newHouse(t, router.Config{Mode: router.LeastLoaded, StrictSessions: strict, Seed: 1})
				defer h.fleet.Close()
				h.join(1, card())
				h.join(2, card())
				var ended []*router.SessionEnd
				h.router.OnSessionEnd(func(e *router.SessionEnd) { ended = append(ended, e) })
				if c.before != nil {
					c.before(h)
				}
				q := c.turn
				home, _, _ := h.router.SessionTarget(new(session("a")))
				if c.pin {
					q.PinWorker = 3 - home.Worker
				}
				b, err := h.router.Route(t.Context(), &q)
				if strict && c.refused != "" {
					if engine.KindOf(err) != engine.InvalidArgument || !strings.Contains(err.Error(), c.refused) {
						t.Errorf("%s: %v, want %q", name, err, c.refused)
					}
					if n := h.router.Sessions().Refused; n != 1 {
						t.Errorf("%s: %d were refused", name, n)
					}
					return
				}
				if err != nil {
					t.Fatalf("%s, strict %v: %v", name, strict, err)
				}
				if d := b.Decision(); d.Session != c.use || home.Worker != 0 && (d.Target != home) != c.away {
					t.Errorf("%s, strict %v: %+v, the session was on %v", name, strict, d, home)
				}
				after, still, _ := h.router.SessionTarget(new(session("a")))
				if name == "a pin against an engine" && after != home {
					t.Errorf("the session has left its engine for %v", after)
				}
				if name == "a pin against a binding" && (!still || after != b.Decision().Target) {
					t.Errorf("the session has not followed the pin: %v", after)
				}
				b.Release()
			})
		}
	}
}

// served ends a request as those end that were answered.
func served(b *router.Booking) {
	b.Prefilled()
	b.Completed()
	b.Release()
}

// Those who only ask change nothing, and a session expires for them as for others.
func TestAskingLeavesSessionsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, router.Config{Mode: router.RoundRobin, StrictSessions: true})
		defer h.fleet.Close()
		h.join(1, card())
		h.join(2, card())
		for action, want := range map[router.SessionAction]string{
			router.BindSession: "", router.OpenSession: "", router.ContinueSession: "must be opened or bound", router.CloseSession: "must be opened or bound",
		} {
			_, err := h.router.Advise(t.Context(), new(turn(action, time.Minute)))
			if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("action %d: %v, want %q", action, err, want)
			}
		}
		if n := h.router.Sessions(); n.Bindings != 0 {
			t.Errorf("%+v", n)
		}
		first := h.route(turn(router.OpenSession, time.Minute))
		if _, err := h.router.Advise(t.Context(), new(turn(router.ContinueSession, 0))); err == nil || !strings.Contains(err.Error(), "is opening and is not yet routable") {
			t.Error(err)
		}
		first.SessionOpened(nil)
		served(first)
		for range 3 {
			time.Sleep(19 * time.Second)
			d, err := h.router.Advise(t.Context(), new(turn(router.ContinueSession, 0)))
			if err != nil || d.Target != first.Decision().Target || d.Session != router.SessionFollowed {
				t.Errorf("%+v, %v", d, err)
			}
		}
		time.Sleep(3 * time.Second)
		if _, err := h.router.Advise(t.Context(), new(turn(router.ContinueSession, 0))); err == nil || !strings.Contains(err.Error(), "session a has expired") {
			t.Error(err)
		}
		if n := h.router.Sessions(); n.Expired != 0 || n.Followed != 0 {
			t.Errorf("somebody who asked has ended it: %+v", n)
		}
	})
}

// Ten thousand sessions that nobody closes are gone when their time is over, those
// that an engine keeps once it has heard.
func TestForgottenSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, router.Config{})
		defer h.fleet.Close()
		h.join(1, card())
		told := 0
		h.router.OnSessionEnd(func(e *router.SessionEnd) {
			told++
			go e.Done()
		})
		for i := range 10_000 {
			q := turn(router.BindSession+router.SessionAction(i%2), time.Duration(1+i%60)*time.Second)
			q.Session.ID = strings.Repeat("x", i%200) + time.Duration(i).String()
			b := h.route(q)
			if b.OpensSession() {
				b.SessionOpened(nil)
			}
			served(b)
		}
		if n := h.router.Sessions(); n.Bindings != 10_000 || n.Kept != 5_000 {
			t.Fatalf("%+v", n)
		}
		time.Sleep(time.Minute)
		h.router.Tick(time.Now())
		synctest.Wait()
		if n := h.router.Sessions(); n.Bindings != 0 || n.Expired != 10_000 || told != 5_000 {
			t.Errorf("%+v, %d told", n, told)
		}
	})
}

// A worker that begins a new life has kept nothing: the next turn opens its session
// there again.
func TestSessionOfANewLife(t *testing.T) {
	h := newHouse(t, router.Config{})
	defer h.fleet.Close()
	h.join(1, card())
	first := h.route(turn(router.OpenSession, time.Minute))
	first.SessionOpened(nil)
	served(first)
	h.fleet.Remove(1)
	h.join(1, card())
	second := h.route(turn(router.ContinueSession, 0))
	if !second.OpensSession() || second.SessionKept() {
		t.Errorf("%+v: nobody opens it", second.Decision())
	}
	second.SessionOpened(nil)
	if !second.SessionKept() {
		t.Error("it is not kept")
	}
	served(second)
	if n := h.router.Sessions(); n.Opened != 2 || n.Bindings != 1 {
		t.Errorf("%+v", n)
	}
}
