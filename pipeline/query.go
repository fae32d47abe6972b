package pipeline

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/nvext"
	"github.com/dynago/dynago/router"
)

// route asks the router for a place. The booking is nil where the leg that answers is
// placed once the prompt has been computed.
func (j *job) route(ctx context.Context, ids []uint32, choices int, exclude []uint64) (*router.Plan, *router.Booking, error) {
	asked := time.Now()
	plan, booking, err := j.placeIn(ctx, ids, choices, exclude)
	if err != nil {
		j.unselected(asked, err)
		return plan, booking, err
	}
	if plan.Prefill != nil {
		j.selected(plan.Prefill)
	}
	if booking != nil {
		j.selected(booking)
	}
	return plan, booking, nil
}

// placeIn places the legs of a request, or one worker for it all where no prefill worker
// takes it.
func (j *job) placeIn(ctx context.Context, ids []uint32, choices int, exclude []uint64) (*router.Plan, *router.Booking, error) {
	p, r := j.p, j.request
	q, legs := j.query(ids, choices, exclude)
	plan, booking, err := p.plan(ctx, q, legs)
	if !elsewhere(ctx, err, legs) {
		return plan, booking, engine.CauseOf(ctx, err)
	}
	legs.Whole = true
	plan, booking, whole := p.plan(ctx, q, legs)
	switch {
	case ctx.Err() != nil && whole != nil:
		return nil, nil, engine.CauseOf(ctx, whole)
	case whole != nil:
		return nil, nil, err
	}
	p.count.wholeInstead.Add(1)
	p.Logger.Info("no prefill worker takes the request: one worker does it all", "request", r.ID, "worker", booking.Worker().Name(), "error", err)
	return plan, booking, nil
}

// query returns what the router must know of the request, with this prompt.
func (j *job) query(ids []uint32, choices int, exclude []uint64) (*router.Query, router.Legs) {
	q := j.request.query(ids)
	q.Choices, q.Exclude = choices, exclude
	q.Allow = j.p.through(j.door, j.request.Notes.Model)
	if j.held.format != nil && len(ids) > len(j.prompt.IDs) {
		q.Allow = j.resume(nil)
	}
	legs := legsOf(j.request.Ext)
	// What is said of a prompt is not handed over with its blocks.
	legs.Whole = legs.Whole || j.door != engine.InputTokens || q.Recompute
	return q, legs
}

// elsewhere says whether a request that nobody could take may have one leg instead of
// two: maybe it is the prefill workers alone that cannot take it just now.
func elsewhere(ctx context.Context, err error, legs router.Legs) bool {
	return engine.KindOf(err) == engine.Unavailable && !legs.Whole && legs.Prefill == 0 && legs.Backend == 0 && !unopened(err) && ctx.Err() == nil
}

// plan places the legs of a request, as far as they can be placed before the first
// one has run.
func (p *Pipeline) plan(ctx context.Context, q *router.Query, legs router.Legs) (*router.Plan, *router.Booking, error) {
	plan, err := p.Router.Place(ctx, q, legs)
	if err != nil {
		return nil, nil, err
	}
	if plan.Prefill != nil && plan.Meeting == nil {
		return plan, nil, nil
	}
	booking, err := plan.Decode(ctx)
	if err != nil {
		if plan.Prefill != nil {
			plan.Prefill.Release()
		}
		return nil, nil, err
	}
	return plan, booking, nil
}

// query returns what the router must know of a request with this prompt.
func (r *Request) query(ids []uint32) *router.Query {
	q := &router.Query{
		ID: r.ID, Model: r.Chat.Model, Tokens: ids, Namespace: r.KV.Namespace,
		Recompute: r.Chat.Sampling.PromptLogprobs != nil, Background: r.Background, Class: r.Class,
		Session: router.Session{ID: r.Identity.Key, Parent: r.Identity.Parent, Tenant: tenantOf(r), Final: r.Identity.Final, Input: InputOf(r.Chat), Control: r.control()},
	}
	if steer(q, r.Ext); q.Expected == 0 {
		q.Expected = r.expected
	}
	return q
}

// steer tells the router what a client says of how soon its request is to run, and
// where.
func steer(q *router.Query, ext *nvext.Ext) {
	if ext == nil {
		return
	}
	if h := ext.AgentHints; h != nil {
		switch {
		case h.Priority != nil:
			q.Priority = max(0, float64(*h.Priority))
		case h.LatencySensitivity != nil:
			q.Priority = max(0, *h.LatencySensitivity)
		}
		if h.StrictPriority != nil {
			q.StrictPriority = *h.StrictPriority
		}
		if h.OSL != nil {
			q.Expected = *h.OSL
		}
	}
	if t := ext.Router; t != nil {
		q.TTFT, q.ITL = hoped(t.TTFT), hoped(t.ITL)
	}
	if c := ext.RoutingConstraints; c != nil {
		// Each once: every worker is held against them, more than once if they wait.
		q.Require = slices.Compact(slices.Sorted(slices.Values(c.RequiredTaints)))
		q.Prefer = c.PreferredTaints
	}
}

// hoped returns a latency of so many milliseconds; 0 if there is none to hope for.
func hoped(ms *float64) time.Duration {
	const most = float64(math.MaxInt64 / int64(time.Millisecond))
	if ms == nil || !(*ms > 0) {
		return 0
	}
	return time.Duration(min(*ms, most) * float64(time.Millisecond))
}

// wholeAnnotation asks that one worker does it all.
const wholeAnnotation = "x-bypass-remote-prefill"

// nobody is the id of no worker: it is beyond all that are made. Who asks for worker 0,
// which is none in particular below here, is not to get just any.
const nobody = math.MaxUint64

// legsOf returns what a client says of where its request is to run.
func legsOf(ext *nvext.Ext) router.Legs {
	if ext == nil {
		return router.Legs{}
	}
	id := func(w *nvext.WorkerID) uint64 {
		switch {
		case w == nil:
			return 0
		case *w == 0:
			return nobody
		}
		return uint64(*w)
	}
	l := router.Legs{
		Backend: id(ext.BackendInstanceID), Prefill: id(ext.PrefillWorkerID), Decode: id(ext.DecodeWorkerID),
		Whole: slices.Contains(ext.Annotations, wholeAnnotation),
	}
	l.Rank, l.PrefillRank = ext.Ranks()
	return l
}

// pinned says whether the client has fixed the worker that answers.
func pinned(r *Request) bool {
	l := legsOf(r.Ext)
	return l.Backend != 0 || l.Decode != 0
}

// stuck says whether the client has fixed the worker where the request is now.
func (j *job) stuck() bool {
	if j.here == j.booking.plan.Prefill {
		l := legsOf(j.request.Ext)
		return l.Backend != 0 || l.Prefill != 0
	}
	return pinned(j.request)
}

// InputOf says what the newest turn of a conversation brings. In Messages that is the
// newest one that is not of the system: Claude Code writes notes behind what somebody has
// said, or a tool.
func InputOf(r *chat.Request) router.Input {
	turns := r.Turns
	for r.API == chat.APIMessages && len(turns) > 0 && turns[len(turns)-1].Role == chat.RoleSystem {
		turns = turns[:len(turns)-1]
	}
	if len(turns) == 0 {
		return router.OtherInput
	}
	last := &turns[len(turns)-1]
	switch {
	case last.Role == chat.RoleTool,
		last.Role == chat.RoleUser && slices.ContainsFunc(last.Blocks, func(b chat.Block) bool { return b.Kind == chat.ToolResult }):
		return router.ToolInput
	case last.Role == chat.RoleUser:
		return router.UserInput
	}
	return router.OtherInput
}
