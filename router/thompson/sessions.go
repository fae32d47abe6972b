package thompson

import (
	"math"
	"time"

	"github.com/dynago/dynago/router"
)

// sessionKey names a conversation. Two tenants may use one id, and so may two
// models.
type sessionKey struct{ model, salt, id string }

func keyOf(q *router.Query) sessionKey {
	return sessionKey{q.Model, q.Namespace.Salt, q.Session.ID}
}

// session is what is known of a conversation that may go on.
type session struct {
	requests int
	running  int
	ended    time.Time // of its last request; zero: none has
	pause    average   // from the end of a request to the next, milliseconds
	seen     time.Time

	last *arm    // of its last request; nil: none
	work float64 // that this arm expects of it
}

// What the newest counts in the mean length of sessions.
const lengthSmoothing = 0.05

// recall fills in what the session of a request says of it.
func (t *Policy) recall(q *router.Query, r *request, now time.Time) {
	if q.Session.ID == "" {
		return
	}
	s := t.sessions.get(keyOf(q))
	if s == nil {
		s = new(session)
	}
	r.session, r.last = s, s.last
	pause, known := s.pause, true
	switch {
	case s.running > 0: // several at once, as agents do that fan out
		pause.add(0, t.config.Smoothing)
	case !s.ended.IsZero():
		pause.add(float64(now.Sub(s.ended))/float64(time.Millisecond), t.config.Smoothing)
	default:
		known = false
	}
	if known {
		r.pace = paces[levelOf(pause.Value, shortPause, longPause)]
	}
	if !q.Background {
		s.pause = pause
	}
	if !q.Session.Final {
		// One that has gone on for longer than others will hardly end just now.
		left := math.Round(t.length.Value) - float64(s.requests+1)
		r.reuse = min(float64(t.config.MostReuse), max(1, left))
	}
}

// follow notes where a session has gone.
func (t *Policy) follow(q *router.Query, r *request, v *view, a *arm, now time.Time) {
	s := r.session
	if s == nil {
		return
	}
	key := keyOf(q)
	s.requests++
	if q.Session.Final {
		t.end(key, s)
		return
	}
	if t.sessions.len() == mostSessions && t.sessions.get(key) == nil {
		t.end(t.sessions.oldest())
	}
	s.leave()
	s.last, s.work = a, r.reuse*(r.decode+v.prefill)*r.pace
	a.work += s.work
	a.sessions++
	s.seen = now
	if q.ID != "" && !q.Advisory {
		s.running++
	}
	t.sessions.put(key, s)
}

// end forgets a session, and takes its length into account.
func (t *Policy) end(key sessionKey, s *session) {
	s.leave()
	t.sessions.remove(key)
	t.length.add(float64(s.requests), lengthSmoothing)
}

// leave takes back what an arm expects of a session.
func (s *session) leave() {
	if s.last == nil {
		return
	}
	s.last.work -= s.work
	if s.last.sessions--; s.last.sessions == 0 {
		s.last.work = 0 // no rounding is left
	}
	s.last, s.work = nil, 0
}

// pause notes that a request of a session has ended.
func (t *Policy) pause(key sessionKey, now time.Time) {
	if s := t.sessions.get(key); s != nil {
		s.running = max(0, s.running-1)
		s.ended = now
	}
}
