package sglang

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/kv"
)

// kind is a way in which a server keeps sessions.
type kind uint8

const (
	sessionless kind = iota
	// radix sessions own what their turns have cached. Each turn sends its whole
	// context.
	radix
	// streaming sessions hold their tokens outside of the cache. A turn sends what
	// is new behind them, and there is one at a time.
	streaming
)

// session names one. Two tenants have sessions of their own under the same id.
type session struct{ salt, id string }

// name is what the server knows a session by: another one for a tenant, and for an
// id that looks like a tenant's.
func (s session) name() string {
	if s.salt == "" && !strings.HasPrefix(s.id, saltPrefix) {
		return s.id
	}
	return saltPrefix + strconv.Itoa(len(s.salt)) + ":" + s.salt + ":" + s.id
}

// sessions are those that were opened in this life of the server.
type sessions struct {
	mu   sync.Mutex
	open map[session]*held
}

// held is one that is open.
type held struct {
	kind    kind
	timeout time.Duration // of idleness, as the server was told; 0: none
	used    time.Time
	turns   int  // that run
	closing bool // with the last of them; nobody joins any more
	// tokens are what a streaming session holds: all that was sent and generated.
	tokens []uint32
}

func (h *held) expired(now time.Time) bool {
	return h.timeout > 0 && h.turns == 0 && now.Sub(h.used) > h.timeout
}

// turn is a request within a session.
type turn struct {
	session
	*held
	from int // of its prompt, how many tokens the session holds already
}

// put notes a session that was opened, or one that was open already.
func (s *sessions) put(id session, k kind, timeout time.Duration, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for other, h := range s.open {
		if h.expired(now) {
			delete(s.open, other)
		}
	}
	if h := s.open[id]; h != nil && known {
		h.timeout, h.used, h.closing = timeout, now, false
		return
	}
	if s.open == nil {
		s.open = map[session]*held{}
	}
	s.open[id] = &held{kind: k, timeout: timeout, used: now}
}

// join makes a request a turn of its session, if that is open and the request can
// be one; else it returns nil. A session that the prompt does not continue is of
// no use any more: then useless is true, and it is gone from here.
func (s *sessions) join(r *engine.Request) (t *turn, useless bool) {
	id := session{salt: r.KV.Namespace.Salt, id: r.KV.Session.ID}
	if id.id == "" {
		return nil, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	h, now := s.open[id], time.Now()
	switch {
	case h == nil || h.closing:
		return nil, false
	case h.expired(now):
		delete(s.open, id)
		return nil, false
	}
	t = &turn{session: id, held: h}
	if h.kind == streaming {
		if h.turns > 0 || r.Disagg.Phase != engine.PhaseWhole || r.PromptLogprobs != nil {
			return nil, false
		}
		if t.from = len(h.tokens); !h.continuedBy(r.TokenIDs) {
			delete(s.open, id)
			return nil, true
		}
	}
	h.turns++
	h.used = now
	return t, false
}

// continuedBy says whether a prompt has what a session holds, and more. The server
// takes an id that begins texts off from what is added: a text that begins anew
// continues nothing.
func (h *held) continuedBy(prompt []uint32) bool {
	n := len(h.tokens)
	return n == 0 || len(prompt) > n && slices.Equal(prompt[:n], h.tokens) && prompt[n] != prompt[0]
}

// leave ends a turn, and says whether the server has to be told to close its
// session: because that was asked for meanwhile, or because it is not known what a
// streaming session holds after a turn that was cut short. whole is what it holds
// if it was not.
func (s *sessions) leave(t *turn, whole []uint32, ended bool) (over bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t.turns--
	t.used = time.Now()
	if t.kind == streaming {
		t.tokens = whole
		t.closing = t.closing || !ended
	}
	if !t.closing || t.turns > 0 {
		return false
	}
	if s.open[t.session] != t.held {
		return false // of another life
	}
	delete(s.open, t.session)
	return true
}

// drop forgets a session that the server does not know any more.
func (s *sessions) drop(t *turn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t.turns--
	if s.open[t.session] == t.held {
		delete(s.open, t.session)
	}
}

// closed takes a session away that is to be closed, and says whether it was there.
// If turns of it run, the last one closes it.
func (s *sessions) closed(id session) (known, later bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.open[id]
	switch {
	case h == nil || h.closing || h.expired(time.Now()):
		return false, false
	case h.turns > 0:
		h.closing = true
		return true, true
	}
	return true, false
}

func (s *sessions) remove(id session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h := s.open[id]; h != nil && h.turns == 0 {
		delete(s.open, id)
	}
}

// forget drops all of them.
func (s *sessions) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.open)
}

// longest is the capacity that a session is opened with, in the server's units.
const longest = 1 << 24

// OpenSession makes a session. One that exists is known, which is success. Turns of
// a streaming session belong to it only as long as each prompt is the last one with
// its answer and more behind them; from the first one on that is not, the session
// is over, and its turns are requests like any other.
func (e *Engine) OpenSession(ctx context.Context, key kv.SessionKey, o engine.SessionOptions) (known bool, err error) {
	f := e.facts.Load()
	if f == nil || f.sessions == sessionless {
		return false, engine.Errorf(engine.Unsupported, "sglang: the server was started without --enable-session-radix-cache")
	}
	id := session{salt: key.Salt, id: key.ID}
	body := map[string]any{"session_id": id.name(), "capacity_of_str_len": first(o.Capacity, longest)}
	if f.sessions == streaming {
		body["streaming"] = true
	}
	if o.Timeout > 0 {
		body["timeout"] = (o.Timeout + time.Second - 1).Truncate(time.Second).Seconds()
	}
	text, err := json.Marshal(body)
	if err != nil {
		return false, err
	}
	ctx, done := e.within(ctx)
	defer done()
	if _, err = e.http.Post(ctx, "/open_session", nil, text); err != nil {
		if !exists(err) {
			return false, err
		}
		known = true
	}
	if known && f.sessions == streaming && !e.sessions.has(id) {
		// Somebody else's, of whom it is not known what it holds.
		return true, engine.Errorf(engine.Unavailable, "sglang: session %q is open already and was not opened from here", key.ID)
	}
	e.sessions.put(id, f.sessions, o.Timeout, known)
	return known, nil
}

func (s *sessions) has(id session) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open[id] != nil
}

// exists says whether a session could not be opened because it is open already.
// The server has one status for all refusals, and sometimes no text.
func exists(err error) bool {
	told, ok := err.(*engine.Error)
	if !ok || told.Status != http.StatusBadRequest {
		return false
	}
	text := strings.ToLower(told.Message)
	return text == "" || strings.Contains(text, "still open") || strings.Contains(text, "exist")
}

// CloseSession ends one. The server lets go of the cache that was the session's
// own first. While turns of it run, it ends with the last of them.
func (e *Engine) CloseSession(ctx context.Context, key kv.SessionKey) (known bool, err error) {
	id := session{salt: key.Salt, id: key.ID}
	known, later := e.sessions.closed(id)
	if !known || later {
		return known, nil
	}
	ctx, done := e.within(ctx)
	defer done()
	if err := e.closeSession(ctx, id); err != nil {
		return true, err // it may be closed another time
	}
	e.sessions.remove(id)
	return true, nil
}

func (e *Engine) closeSession(ctx context.Context, id session) error {
	text, err := json.Marshal(map[string]string{"session_id": id.name()})
	if err != nil {
		return err
	}
	_, err = e.http.Post(ctx, "/close_session", nil, text)
	return err
}

// closeLater closes a session for which nobody waits.
func (e *Engine) closeLater(id session) {
	e.behind(func(ctx context.Context) {
		if err := e.closeSession(ctx, id); err != nil {
			e.log.Warn("sglang: a session was not closed; it ends with its timeout", "url", e.http.URL(), "error", err)
		}
	})
}
