package sglang

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/kv"
)

var controls = map[string]string{
	engine.ControlReset:      "/flush_cache",
	engine.ControlPause:      "/pause_generation",
	engine.ControlResume:     "/continue_generation",
	engine.ControlSleep:      "/release_memory_occupation",
	engine.ControlWake:       "/resume_memory_occupation",
	engine.ControlLoadLoRA:   "/load_lora_adapter",
	engine.ControlUnloadLoRA: "/unload_lora_adapter",
}

// Control tells the server to do something; args is the body of its route, or
// nil. A server that was paused or put to sleep would take requests and not
// answer them: until it is told to go on, its card says draining.
func (e *Engine) Control(ctx context.Context, name string, args json.RawMessage) (json.RawMessage, error) {
	path, ok := controls[name]
	if !ok {
		return nil, engine.Errorf(engine.Unsupported, "sglang: no control %q", name)
	}
	if len(args) == 0 {
		args = json.RawMessage(`{}`)
	}
	ctx, done := e.within(ctx)
	defer done()
	answer, err := e.http.Post(ctx, path, nil, args)
	if name == engine.ControlReset && statusOf(err) == http.StatusMethodNotAllowed {
		answer, err = e.http.Get(ctx, path) // older builds
	}
	if err != nil {
		return nil, err
	}
	switch name {
	case engine.ControlPause, engine.ControlSleep:
		reason := "the server was told to " + name
		e.parked.Store(&reason)
	case engine.ControlResume, engine.ControlWake:
		e.parked.Store(nil)
	}
	if !json.Valid(answer) {
		return json.Marshal(string(answer)) // a sentence
	}
	return answer, nil
}

func statusOf(err error) int {
	if told, ok := err.(*engine.Error); ok {
		return told.Status
	}
	return 0
}

// longest is the capacity that a session is opened with, in the server's units.
const longest = 1 << 24

// OpenSession makes a session of the session radix cache: its turns send their
// whole context. A session that exists is known, which is success.
func (e *Engine) OpenSession(ctx context.Context, key kv.SessionKey, o engine.SessionOptions) (known bool, err error) {
	f := e.facts.Load()
	if f == nil || !f.card.Features.Has(engine.FeatureSessions) {
		return false, engine.Errorf(engine.Unsupported, "sglang: the server was started without --enable-session-radix-cache")
	}
	s := session{salt: key.Salt, id: key.ID}
	body := map[string]any{"session_id": s.name(), "capacity_of_str_len": first(o.Capacity, longest)}
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
		if statusOf(err) != http.StatusBadRequest {
			return false, err
		}
		known = true // which is what this status says here
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.sessions[s] = f.epoch
	return known, nil
}

// CloseSession ends one. The server lets go of the cache that was the session's
// own first.
func (e *Engine) CloseSession(ctx context.Context, key kv.SessionKey) (known bool, err error) {
	s := session{salt: key.Salt, id: key.ID}
	e.mu.Lock()
	_, known = e.sessions[s]
	e.mu.Unlock()
	if !known {
		return false, nil
	}
	text, err := json.Marshal(map[string]string{"session_id": s.name()})
	if err != nil {
		return known, err
	}
	ctx, done := e.within(ctx)
	defer done()
	if _, err = e.http.Post(ctx, "/close_session", nil, text); err != nil {
		return true, err // it may be closed another time
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.sessions, s)
	return true, nil
}

// sessionOf is the name under which the server knows a request's session, if it
// was opened in this life of the server; else none.
func (e *Engine) sessionOf(r *engine.Request) string {
	f := e.facts.Load()
	if r.KV.Session.ID == "" || f == nil {
		return ""
	}
	s := session{salt: r.KV.Namespace.Salt, id: r.KV.Session.ID}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.sessions[s] != f.epoch {
		return ""
	}
	return s.name()
}

// name keeps two tenants apart who chose one id, or an id that looks like the
// other's.
func (s session) name() string {
	if s.salt == "" && !strings.HasPrefix(s.id, saltPrefix) {
		return s.id
	}
	return saltPrefix + strconv.Itoa(len(s.salt)) + ":" + s.salt + ":" + s.id
}
