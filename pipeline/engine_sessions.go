package pipeline

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/fleet"
	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/nvext"
)

// Some engines keep the cache of a session by its name. A client opens a session
// with a turn, goes on in it and closes it, and the engine that computes its prompts
// is told. That is advice: a turn whose session cannot be opened is served all the
// same, unless the operator wants to know.

// Times of sessions in engines.
const (
	sessionTimeout = 300 * time.Second // idle, unless the client says otherwise
	// An engine forgets a session later than we do, so that it is always told.
	sessionSlack    = 30 * time.Second
	openTime        = 5 * time.Second
	firstCloseAgain = 100 * time.Millisecond
	lastCloseAgain  = 5 * time.Second
)

// sessionCapacity is how many tokens engines are told that a session may hold.
const sessionCapacity = 1 << 24

// engineSessions are the sessions that are open in engines. It is safe for
// concurrent use.
type engineSessions struct {
	behind *behind

	mu       sync.Mutex
	open     map[kv.SessionKey]*engineSession
	opened   atomic.Int64
	degraded atomic.Int64
}

// engineSession is one session. All of it is guarded by the lock of all.
type engineSession struct {
	worker  *fleet.Worker
	life    context.Context // of the worker in which it was opened
	timeout time.Duration
	turns   int // that run
	final   bool
	idle    *time.Timer // closes it; nil while turns run
}

// turn is a request of a session on its way.
type turn struct {
	sessions *engineSessions
	key      kv.SessionKey
	options  engine.SessionOptions
	opens    bool // the client wants it opened
	strict   bool
	final    bool // … or closed behind it

	begun, ended sync.Once
	session      *engineSession // that it counts in, or nil
}

// turnOf returns the turn that a request is, or nil if it names no session.
func (p *Pipeline) turnOf(r *Request, model string) *turn {
	if r.KV.Session.ID == "" || r.Background {
		return nil
	}
	t := &turn{
		sessions: &p.sessions, strict: p.StrictSessions,
		key:     kv.SessionKey{Model: model, Salt: r.KV.Namespace.Salt, ID: r.KV.Session.ID},
		options: engine.SessionOptions{Timeout: sessionTimeout + sessionSlack, Capacity: sessionCapacity},
	}
	var c nvext.SessionControl
	if r.Ext != nil && r.Ext.SessionControl != nil && r.Ext.SessionControl.SessionID == r.KV.Session.ID {
		c = *r.Ext.SessionControl
	}
	if c.Timeout != nil {
		t.options.Timeout = time.Duration(*c.Timeout)*time.Second + sessionSlack
	}
	if c.Ephemeral != nil {
		t.options.Ephemeral = *c.Ephemeral
	}
	t.opens = c.Action == "open"
	t.final = c.Action == "close" || r.KV.EvictSession
	return t
}

// begin counts a turn in its session, if that is open. The last turn of a session
// says so; it is closed when no other one runs.
func (s *engineSessions) begin(key kv.SessionKey, final bool) *engineSession {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.open[key]
	if e == nil || e.final { // one that is being closed is unknown
		return nil
	}
	e.turns++
	e.final = final
	if e.idle != nil {
		e.idle.Stop()
		e.idle = nil
	}
	return e
}

// enter opens the session on the worker that is to compute the turn's prompt, where
// the client wants it opened, or it is open on another one. It says whether the
// session is there. The error is for operators who want to know.
func (t *turn) enter(ctx context.Context, worker *fleet.Worker, rank uint32) (there bool, err error) {
	card, life := worker.Card(), worker.Lost()
	if card == nil {
		return false, nil
	}
	s := t.sessions
	t.begun.Do(func() { t.session = s.begin(t.key, t.final) })
	s.mu.Lock()
	e := t.session
	moved := e != nil && (e.worker != worker || e.life != life)
	s.mu.Unlock()
	if !t.opens && !moved {
		return e != nil, nil
	}
	engineOf, ok := engine.As[engine.Sessioner](worker.Engine())
	if !ok || !card.Features.Has(engine.FeatureSessions) {
		if t.opens {
			s.degraded.Add(1)
		}
		if t.opens && t.strict {
			e := engine.Errorf(engine.InvalidArgument, "engine has no sessions: %s was started without them", card.Engine)
			e.Param = "nvext.session_control.action"
			return false, e
		}
		return false, nil
	}
	options := t.options
	if card.Ranks() > 1 {
		options.Rank = &rank
	}
	within, cancel := context.WithTimeoutCause(ctx, openTime, engine.ErrFirstItem)
	defer cancel()
	if _, err := engineOf.OpenSession(within, t.key, options); err != nil {
		if ctx.Err() != nil {
			return false, engine.CauseOf(ctx, err)
		}
		s.degraded.Add(1)
		if t.opens && t.strict {
			return false, &engine.Error{Kind: engine.Unavailable, Op: "open the session", Worker: worker.ID(), Err: err}
		}
		return false, nil
	}
	s.opened.Add(1)
	t.stay(worker, life)
	return true, nil
}

// stay notes where a session is open now, and closes it where it was before.
func (t *turn) stay(worker *fleet.Worker, life context.Context) {
	s := t.sessions
	s.mu.Lock()
	defer s.mu.Unlock()
	e := t.session
	if e == nil {
		if e = s.open[t.key]; e == nil || e.final {
			e = &engineSession{worker: worker, life: life}
			if s.open == nil {
				s.open = map[kv.SessionKey]*engineSession{}
			}
			s.open[t.key] = e
		}
		e.turns++
		if e.idle != nil {
			e.idle.Stop()
			e.idle = nil
		}
		t.session = e
	}
	if t.opens {
		e.timeout = t.options.Timeout - sessionSlack // the newest wins
	}
	if before, life, timeout := e.worker, e.life, e.timeout; before != worker && life.Err() == nil {
		s.behind.run(func(ctx context.Context) { closeSession(ctx, before, life, t.key, timeout) })
	}
	e.worker, e.life = worker, life
}

// end says that the turn is over. The last one of a session closes it, and one that
// no other follows in time.
func (t *turn) end() {
	if t == nil {
		return
	}
	t.ended.Do(func() {
		s := t.sessions
		s.mu.Lock()
		defer s.mu.Unlock()
		e := t.session
		if e == nil {
			return
		}
		if e.turns--; e.turns > 0 {
			return
		}
		if e.final {
			s.closeLocked(t.key, e)
			return
		}
		e.idle = time.AfterFunc(e.timeout, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			if e.turns == 0 && s.open[t.key] == e {
				s.closeLocked(t.key, e)
			}
		})
	})
}

// closeLocked forgets a session and tells its engine. The lock must be held.
func (s *engineSessions) closeLocked(key kv.SessionKey, e *engineSession) {
	if s.open[key] == e {
		delete(s.open, key)
	}
	worker, life, timeout := e.worker, e.life, e.timeout
	s.behind.run(func(ctx context.Context) { closeSession(ctx, worker, life, key, timeout) })
}

// stop forgets all sessions: engines let go of them by themselves.
func (s *engineSessions) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.open {
		if e.idle != nil {
			e.idle.Stop()
		}
	}
	clear(s.open)
}

// closeSession tells an engine that a session is over, again and again until it has
// heard, its life has ended, or it has forgotten by itself.
func closeSession(ctx context.Context, worker *fleet.Worker, life context.Context, key kv.SessionKey, timeout time.Duration) {
	e, ok := engine.As[engine.Sessioner](worker.Engine())
	if !ok {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, timeout+sessionSlack)
	defer cancel()
	defer context.AfterFunc(life, cancel)()
	for wait := firstCloseAgain; ctx.Err() == nil; wait = min(2*wait, lastCloseAgain) {
		if _, err := e.CloseSession(ctx, key); err == nil {
			return
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
		}
	}
}

// SessionCounts are what became of sessions that clients wanted engines to open.
type SessionCounts struct {
	Open     int   // now
	Opened   int64 // in all, a second time on another worker included
	Degraded int64 // that could not be opened
}

// EngineSessions tells what became of sessions in engines.
func (p *Pipeline) EngineSessions() SessionCounts {
	s := &p.sessions
	s.mu.Lock()
	defer s.mu.Unlock()
	return SessionCounts{len(s.open), s.opened.Load(), s.degraded.Load()}
}
