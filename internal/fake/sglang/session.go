package sglang

import (
	"net/http"
	"slices"

	"github.com/go-json-experiment/json"

	"github.com/dynago/dynago/engine"
)

// session is one that is open. Streaming ones hold their context, one request at a
// time.
type session struct {
	streaming, busy bool
	tokens          []uint32
}

func (s *Server) openSession(w http.ResponseWriter, r *http.Request) {
	var body struct {
		ID        string   `json:"session_id"`
		Capacity  *int     `json:"capacity_of_str_len"`
		Streaming bool     `json:"streaming"`
		Timeout   *float64 `json:"timeout"`
	}
	if err := json.UnmarshalRead(r.Body, &body); err != nil || body.Capacity == nil {
		fail(w, http.StatusUnprocessableEntity, "capacity_of_str_len: Field required")
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case body.Streaming && !s.cfg.Streaming:
		fail(w, http.StatusBadRequest, "Streaming sessions are disabled. Set --enable-streaming-session.")
	case s.sessions[body.ID] != nil:
		fail(w, http.StatusBadRequest, "Failed to open the session. Check if a session with the same id is still open.")
	default:
		s.sessions[body.ID] = &session{streaming: body.Streaming}
		tell(w, http.StatusOK, body.ID)
	}
}

func (s *Server) closeSession(w http.ResponseWriter, r *http.Request) {
	var body struct {
		ID string `json:"session_id"`
	}
	if err := json.UnmarshalRead(r.Body, &body); err != nil {
		fail(w, http.StatusUnprocessableEntity, err.Error())
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.sessions, body.ID)
}

// ExpireSessions ends all sessions, as their timeouts do.
func (s *Server) ExpireSessions() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.sessions)
}

// Sessions tells which are open.
func (s *Server) Sessions() (ids []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id := range s.sessions {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// Refused tells how many turns of sessions were refused.
func (s *Server) Refused() int { return int(s.refused.Load()) }

// enter makes a request the next turn of a session, which puts what it holds in
// front. leave takes what it holds afterwards; nil: as before. Only the first call
// counts.
func (s *Server) enter(id string, r *engine.Request) (leave func(whole []uint32), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.sessions[id]
	switch {
	case o == nil:
		s.refused.Add(1)
		return nil, refusal("Invalid request: session id " + id + " does not exist")
	case !o.streaming:
		return func([]uint32) {}, nil
	case o.busy:
		s.refused.Add(1)
		return nil, refusal("Streaming session already has an active request.")
	}
	o.busy = true
	r.TokenIDs = slices.Concat(o.tokens, r.TokenIDs)
	left := false
	return func(whole []uint32) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if left {
			return
		}
		left, o.busy = true, false
		if whole != nil {
			o.tokens = whole
		}
	}, nil
}
