package router

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/google/uuid"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/fleet"
	"github.com/dynago/dynago/kv"
)

// Where prompts and answers are computed by different workers, a request has two
// legs: a prefill worker computes the prompt, and a decode worker gets its blocks
// and goes on. Placing the legs is all that is done here. Whoever places a request
// also carries out the hand-off: it runs the prefill leg, either beside the other
// one, if they meet in a room, or before it.

// Legs is what a client says of the legs of its request. Worker 0 is none in
// particular.
type Legs struct {
	Backend         uint64 // for both, where nothing else is said
	Prefill, Decode uint64
	// Rank is that of a leg that goes to a certain worker, PrefillRank that of the
	// prefill leg if it is another one.
	Rank, PrefillRank *uint32
	// Whole asks that the decode worker computes the prompt as well, whoever has
	// cached it.
	Whole bool
}

// prefill returns q as the query for a prefill leg.
func (l *Legs) prefill(q *Query) *Query {
	p := *q
	p.Role, p.Choices, p.Expected = engine.Prefill, 1, 1
	p.pin(cmp.Or(l.Prefill, l.Backend), cmp.Or(l.PrefillRank, l.Rank))
	return &p
}

// decode returns q as the query for a leg that answers, alone or after another.
func (l *Legs) decode(q *Query) *Query {
	d := *q
	d.Role = engine.Aggregated
	d.pin(cmp.Or(l.Decode, l.Backend), l.Rank)
	return &d
}

// pin lets only one worker, and there one rank, serve a query. A rank without a
// worker means nothing, since every worker has its own.
func (q *Query) pin(worker uint64, rank *uint32) {
	if q.PinWorker, q.PinRank = worker, nil; worker != 0 {
		q.PinRank = rank
	}
}

// Plan is where the legs of one request run. It is for one goroutine.
type Plan struct {
	// Prefill is the booking of the prefill leg, which its owner releases when that
	// leg has ended. It is nil if there is none, and Why says why.
	Prefill *Booking
	Why     Wholeness
	// Meeting, if not nil, is where the legs find each other. They run at once
	// then, and otherwise one after the other.
	Meeting *Meeting

	router *Router
	decode *Query
}

// Meeting is what both legs are told, so that blocks can go from one to the other
// while they are made.
type Meeting struct {
	Host    string // of the prefill worker
	Port    uint16
	Room    uint64 // below 2^63-1, and congruent to the prefill rank
	Handoff string // UUID
}

// Wholeness says why a request has one leg alone.
type Wholeness string

// Reasons for one leg.
const (
	TwoLegs      Wholeness = ""
	WholeNoPool  Wholeness = "no_prefill_worker" // none has been there, or they have gone
	WholeAsked   Wholeness = "asked"             // by the client
	WholeCheaper Wholeness = "conditional"       // by [Config.Conditional]
	WholeOnly    Wholeness = "aggregated"        // the worker asked for, or any, takes blocks from nobody
)

// Pool says whether a model has workers for one leg.
type Pool uint8

// The states of a pool.
const (
	Pending     Pool = iota // none has been seen so far
	Active                  // some take requests
	Unavailable             // there were some
)

// String returns the state's lower-case name.
func (p Pool) String() string { return [...]string{"pending", "active", "unavailable"}[p] }

// PrefillPool returns the state of a model's prefill workers. Only where it is
// Active, requests have two legs.
func (r *Router) PrefillPool(model string) Pool {
	name := r.primary(model)
	active := live(r.fleet.Snapshot(), model, engine.Prefill)
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case active:
		r.prefilled[name] = true
		return Active
	case r.prefilled[name]:
		return Unavailable
	}
	return Pending
}

// live says whether a model has workers of a role that take requests.
func live(workers []*fleet.Worker, model string, role engine.Role) bool {
	return slices.ContainsFunc(workers, func(w *fleet.Worker) bool {
		card := w.Card()
		return card != nil && card.Role == role && named(card, model) && w.Admitted()
	})
}

// named says whether a worker serves a model under this name.
func named(card *engine.Card, model string) bool {
	return card.Model == model || slices.Contains(card.Aliases, model)
}

// plays says whether a worker may do what is asked for. Whoever decodes can also
// do whole requests; whoever does whole requests can decode for others if it takes
// blocks from them.
func plays(card *engine.Card, role engine.Role) bool {
	switch role {
	case engine.Aggregated:
		return card.Role == engine.Aggregated || card.Role == engine.Decode
	case engine.Decode:
		return card.Role == engine.Decode || card.Role == engine.Aggregated && card.Features.Has(engine.FeatureHandoff)
	}
	return card.Role == role
}

// Place begins to place a request: it books the prefill leg, if it is to have one.
// [Plan.Decode] then places the other one, at once if the legs meet, and otherwise
// when the first has ended. q.Role and the pin of q do not count. The errors are
// those of [Router.Route]; a request whose prefill leg cannot be placed fails.
func (r *Router) Place(ctx context.Context, q *Query, l Legs) (*Plan, error) {
	p, prefill := r.plan(ctx, q, l)
	if prefill == nil {
		return p, nil
	}
	return p.begin(r.Route(ctx, prefill))
}

// SubmitPlan is to [Router.Place] what [Router.Submit] is to Route. q must not be
// changed until the decode leg is placed.
func (r *Router) SubmitPlan(ctx context.Context, q *Query, l Legs, done func(*Plan, error)) {
	p, prefill := r.plan(ctx, q, l)
	if prefill == nil {
		done(p, nil)
		return
	}
	r.Submit(ctx, prefill, func(b *Booking, err error) { done(p.begin(b, err)) })
}

// plan returns a plan without its first leg, and the query for that leg, or nil if
// there is to be none.
func (r *Router) plan(ctx context.Context, q *Query, l Legs) (*Plan, *Query) {
	p := &Plan{router: r, decode: l.decode(q)}
	if l.Whole {
		p.Why = WholeAsked
		return p, nil
	}
	prefill := l.prefill(q)
	switch {
	case r.PrefillPool(q.Model) != Active:
		p.Why = WholeNoPool
		return p, nil
	case !r.handsOver(p.decode):
		p.Why = WholeOnly
		return p, nil
	case r.conditional != nil && r.cheaper(ctx, p.decode, prefill):
		p.Why = WholeCheaper
		return p, nil
	}
	return p, prefill
}

// handsOver says whether a worker that may answer takes blocks from others.
func (r *Router) handsOver(d *Query) bool {
	return slices.ContainsFunc(r.fleet.Snapshot(), func(w *fleet.Worker) bool {
		card := w.Card()
		return card != nil && plays(card, engine.Decode) && named(card, d.Model) && (!d.pinned() || w.ID() == d.PinWorker)
	})
}

// begin adds the first leg to a plan, as it was placed.
func (p *Plan) begin(b *Booking, err error) (*Plan, error) {
	if err != nil {
		return nil, err
	}
	card := b.worker.Card()
	if err := p.router.second(p.decode, card); err != nil {
		b.Release()
		return nil, err
	}
	p.Prefill = b
	if card != nil && card.Disagg.Host != "" && card.Disagg.Port != 0 {
		p.Meeting = p.router.meet(card, b.decision.Target)
	}
	return p, nil
}

// QueryPrefill returns where the prefill leg of a request would go, and books
// nothing: for gateways that see to the rest themselves.
func (r *Router) QueryPrefill(ctx context.Context, q *Query, l Legs) (kv.Target, error) {
	d, err := r.Advise(ctx, l.prefill(q))
	return d.Target, err
}

// Decode places the leg that answers. Its booking belongs to the caller.
func (p *Plan) Decode(ctx context.Context) (*Booking, error) {
	return p.router.Route(ctx, p.decode)
}

// Elsewhere returns a plan for the decode leg alone, which keeps away from these
// workers: for a request whose prompt is computed and whose decode worker was never
// reached.
func (p *Plan) Elsewhere(exclude []uint64) *Plan {
	d := *p.decode
	d.Exclude = exclude
	return &Plan{router: p.router, decode: &d}
}

// SubmitDecode is to [Plan.Decode] what [Router.Submit] is to Route.
func (p *Plan) SubmitDecode(ctx context.Context, done func(*Booking, error)) {
	p.router.Submit(ctx, p.decode, done)
}

// second turns the query of a whole request into that of a second leg, whose
// prompt has been computed by the worker of this card: what is cached counts for
// nothing, since the blocks come from there, and there is no prefill.
func (r *Router) second(d *Query, prefill *engine.Card) error {
	var pool []*engine.Card
	mixed := false
	for _, w := range r.fleet.Snapshot() {
		card := w.Card()
		switch {
		case card == nil || !named(card, d.Model):
		case card.Role == engine.Prefill:
			pool = append(pool, card)
		case prefill != nil && card.Disagg.Style != "" && card.Disagg.Style != prefill.Disagg.Style:
			mixed = true
		}
	}
	// Where all take blocks in one way there is nothing to look at.
	if mixed && prefill.Disagg.Style != "" {
		d.style = prefill.Disagg.Style
	}
	near, err := nearby(prefill, pool)
	if err != nil {
		return err
	}
	d.Role = engine.Decode
	if near.require != "" {
		d.Require, d.near = append(slices.Clone(d.Require), near.require), near.require
	}
	if near.prefer != "" {
		d.Prefer = maps.Clone(d.Prefer)
		if d.Prefer == nil {
			d.Prefer = make(map[string]float64, 1)
		}
		d.Prefer[near.prefer] += near.weight
	}
	var o Overrides
	if d.Overrides != nil {
		o = *d.Overrides
	}
	var none float64
	var no bool
	if r.conditional == nil {
		o.OverlapScoreCredit = &none
	}
	o.AssumeKVReuse, o.TrackPrefillTokens = &no, &no
	d.Overrides = &o
	return nil
}

// meet returns where the legs of one more request find each other.
func (r *Router) meet(card *engine.Card, t kv.Target) *Meeting {
	bound := uint64(roomBound)
	if card.Disagg.SmallRooms {
		bound = smallRoomBound
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	id, _ := uuid.NewRandomFromReader(randomBytes{r.rand}) // never fails
	return &Meeting{
		Host: card.Disagg.Host, Port: card.Disagg.Port,
		Room:    meetingRoom(r.rand, bound, card.Ranks(), t.Rank),
		Handoff: id.String(),
	}
}
