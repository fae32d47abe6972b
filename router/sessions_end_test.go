package router

import (
	"context"
	"errors"
	"testing"
	"time"
)

// opens takes a session's first turn, which has its engine open it, up to the answer.
func (s *sessions) opens(t *testing.T, id string, p place, failed error) *binding {
	t.Helper()
	b := s.must(t, control(id, OpenSession, time.Hour), nil, at(0), selects)
	if opens, _ := s.bind(b, p, false); !opens {
		t.Fatalf("nobody opens %s", id)
	}
	s.opened(b, failed)
	return b
}

// An engine that has not said whether it opened a session is told of its end too when
// another session takes its place, unless its life is over.
func TestEndOfWhatMayBeOpen(t *testing.T) {
	for name, alive := range map[string]bool{"alive": true, "restarted": false} {
		t.Run(name, func(t *testing.T) {
			life, end := context.WithCancel(t.Context())
			defer end()
			s := newSessions(1, false)
			p := on(7)
			p.life = life
			b := s.opens(t, "a", p, errors.New("no answer"))
			s.release(b, leased{served: true, first: true}, at(0))
			if !alive {
				end()
			}
			other := s.must(t, by("b"), nil, at(1), selects)
			s.bind(other, on(8), false)
			told := s.endings()
			if want := map[bool]int{true: 1}[alive]; len(told) != want {
				t.Fatalf("%d engines are told of an end, want %d", len(told), want)
			}
			for _, e := range told {
				if e.key != b.key || e.target != p.target || e.life != life {
					t.Errorf("%+v is told to have ended, want that of a", e)
				}
				s.told(e)
			}
			if s.boundTo("b", at(1)) != other || s.stats().Evicted != 1 {
				t.Errorf("who took the place has lost it: %+v", s.stats())
			}
		})
	}
}

// A binding that was lost, and whose last request ends when the session has been opened
// anew on the same worker, does not end it there: to the engine both are the same one.
func TestEndBehindAnotherBeginning(t *testing.T) {
	for name, next := range map[string]struct {
		worker uint64
		opened bool // the new one, else it is about to be
		told   int
	}{
		"opened there":     {7, true, 0},
		"about to be":      {7, false, 0},
		"opened elsewhere": {8, true, 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSessions(10, false)
			b := s.opens(t, "a", on(7), nil)
			again := control("a", ContinueSession, 0)
			if s.must(t, again, nil, at(1), follow) != b {
				t.Fatal("another binding")
			}
			fresh := s.lose(b, again, at(1)) // the first turn still runs there
			if fresh == nil {
				t.Fatal("nothing takes its place")
			}
			if opens, _ := s.bind(fresh, on(next.worker), false); !opens {
				t.Fatal("nobody opens it anew")
			}
			if next.opened {
				s.opened(fresh, nil)
			}
			s.release(b, leased{served: true, first: true}, at(2))
			if told := s.endings(); len(told) != next.told {
				t.Errorf("%d engines are told of an end, want %d", len(told), next.told)
			}
			if s.all[chat("a")] != fresh {
				t.Error("the new binding is gone")
			}
		})
	}
}
