package engine

import (
	"errors"
	"slices"
	"sync"
	"syscall"
)

// Silence counts the looks in a row at which a server did not answer. An adapter
// keeps one for its server and sets it to 0 with every answer.
type Silence int

// doubt and patience are how many looks in a row may bring nothing before a server
// gets nothing new, and before it is given up: one that is overloaded answers late.
const (
	doubt    = 3
	patience = 5
)

// Grow counts a look that ended in err, and says what has become of a server that
// served before, and why: [Ready] as long as the silence says nothing, then
// [Suspect] and at last [Dead]. Where the server's host says that nobody listens
// there is nothing to wait for; a server that refuses the question is no dead one.
func (s *Silence) Grow(err error) (State, string) {
	switch {
	case isOurs(err):
	case errors.Is(err, syscall.ECONNREFUSED):
		*s = max(*s+1, patience)
	default:
		*s++
	}
	switch {
	case *s >= patience && Silent(err):
		return Dead, "it does not answer: " + err.Error()
	case *s >= doubt:
		return Suspect, complaint(err)
	}
	return Ready, ""
}

// complaint says in which way a server did not answer.
func complaint(err error) string {
	switch {
	case KindOf(err) == Denied:
		return "it refuses our key, or wants one (api_key): " + err.Error()
	case Silent(err):
		return "it does not answer: " + err.Error()
	}
	return "it answers with a failure: " + err.Error()
}

// Silent says whether err is that of a question to which nothing came back, as
// against one that was answered with a failure.
func Silent(err error) bool {
	kind := KindOf(err)
	return err != nil && (kind.Inhibits() || kind == DeadlineExceeded)
}

// isOurs says whether a question never left, because there is too much open here:
// that says nothing of any server.
func isOurs(err error) bool {
	return slices.ContainsFunc([]error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.EADDRNOTAVAIL},
		func(scarce error) bool { return errors.Is(err, scarce) })
}

// Sight is what looks at one server have found. It is safe for concurrent use.
type Sight struct {
	mu      sync.Mutex
	told    Status // by the server itself
	silence Silence
}

// Saw notes what a look has found, and returns it. One that brings no card leaves
// the one that was told.
func (s *Sight) Saw(st Status) Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	if st.Card == nil {
		st.Card = s.told.Card
	}
	s.told, s.silence = st, 0
	return st
}

// Missed notes a look to which nothing came back, and returns what the server is
// by that: [Loading] if it was never there, else what it was, and more doubtful
// with every look.
func (s *Sight) Missed(err error) Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.told
	switch state, why := s.silence.Grow(err); {
	case st.Card == nil:
		st.State, st.Reason = Loading, "the server does not answer: "+err.Error()
	case state != Ready:
		st.State, st.Reason = state, why
	}
	return st
}
