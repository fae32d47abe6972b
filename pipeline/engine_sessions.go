package pipeline

import (
	"context"
	"errors"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/nvext"
	"github.com/dynago/dynago/router"
)

// Some engines keep the cache of a session by its name. A client opens a session
// with a turn, goes on in it and closes it; the router says when the engine that
// computes its prompts is to be told. That is advice: a turn whose session cannot be
// opened is served all the same, unless the operator wants to know.

const (
	// An engine forgets a session later than we do, so that it is always told.
	sessionSlack = 30 * time.Second
	openTime     = 5 * time.Second
	openOp       = "open the session"
	// sessionCapacity is how many tokens engines are told that a session may hold.
	sessionCapacity = 1 << 24
)

// control returns what the client itself says of the session that its request
// belongs to, or nil.
func (r *Request) control() *router.SessionControl {
	if r.Ext == nil || r.Ext.SessionControl == nil || r.Ext.SessionControl.SessionID != r.Identity.Key {
		return nil
	}
	said := r.Ext.SessionControl
	c := &router.SessionControl{Action: actions[said.Action]}
	if said.Timeout != nil {
		c.Timeout = time.Duration(*said.Timeout) * time.Second
	}
	c.Ephemeral = r.KV.Session.Ephemeral || said.Ephemeral != nil && *said.Ephemeral
	return c
}

var actions = map[string]router.SessionAction{
	nvext.SessionBind: router.BindSession, nvext.SessionOpen: router.OpenSession, nvext.SessionClose: router.CloseSession,
}

// enter opens the session on the worker that is to compute the prompt, if that is
// due. degraded says that the engine should keep the session, and does not; the
// error is for operators who want to know.
func (j *job) enter(ctx context.Context, b *router.Booking) (degraded bool, err error) {
	c := j.request.control()
	asked := c != nil && c.Action == router.OpenSession
	if !b.OpensSession() {
		return asked && !b.SessionKept(), nil
	}
	err = j.openSession(ctx, b)
	if err != nil && ctx.Err() != nil {
		return false, engine.CauseOf(ctx, err) // nobody knows what came of it
	}
	b.SessionOpened(err)
	if err != nil && asked && j.p.StrictSessions {
		return true, err
	}
	return err != nil, nil
}

// onTerms lets the worker know what the client has said of its session at its
// beginning, which that worker may not have heard.
func (j *job) onTerms(b *router.Booking) {
	if terms, bound := b.SessionTerms(); bound && j.request.control() != nil {
		s := &j.request.KV.Session
		s.Timeout, s.Ephemeral = terms.Timeout, s.Ephemeral || terms.Ephemeral
	}
}

// unopened says whether a request is refused because its session was not opened, by
// it or by another one.
func unopened(err error) bool {
	e, ok := errors.AsType[*engine.Error](err)
	return ok && e.Op == openOp
}

func (j *job) openSession(ctx context.Context, b *router.Booking) error {
	worker, r := b.Worker(), j.request
	card := worker.Card()
	if card == nil {
		return &engine.Error{Kind: engine.Unavailable, Op: openOp, Worker: worker.ID(), Message: "the worker has left"}
	}
	keeper, ok := engine.As[engine.Sessioner](worker.Engine())
	if !ok || !card.Features.Has(engine.FeatureSessions) {
		e := engine.Errorf(engine.InvalidArgument, "engine has no sessions: %s was started without them", card.Engine)
		e.Param = "nvext.session_control.action"
		return e
	}
	key := kv.SessionKey{Model: r.Notes.Model, Salt: r.KV.Namespace.Salt, ID: r.Identity.Key}
	terms, _ := b.SessionTerms()
	options := engine.SessionOptions{Timeout: terms.Timeout + sessionSlack, Capacity: sessionCapacity, Ephemeral: terms.Ephemeral}
	if card.Ranks() > 1 {
		options.Rank = new(b.Decision().Target.Rank)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, openTime, engine.ErrFirstItem)
	defer cancel()
	j.p.endings.retract(ctx, worker, key)
	if _, err := keeper.OpenSession(ctx, key, options); err != nil {
		return &engine.Error{Kind: engine.Unavailable, Op: openOp, Worker: worker.ID(), Err: err}
	}
	return nil
}
