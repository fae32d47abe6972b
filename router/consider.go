package router

import (
	"context"
	"fmt"
	"slices"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/fleet"
	"github.com/dynago/dynago/kv"
)

// scratch is the memory of one decision.
type scratch struct {
	tuning  Tuning
	rows    []Candidate
	sides   []side   // what belongs to each row and is no policy's business
	prompts []prompt // one for each pool
}

type side struct {
	prompt int // which of the prompts
	card   *engine.Card
	life   context.Context // of the worker, when it was considered
	// What the worker's own events say to be cached, in blocks: on the device, and
	// with lower tiers.
	device, told int
	doubted      bool // they are not believed
	shown        int  // what answers, and what was routed there, say of the device
}

// recycle keeps the memory of a decision for the next one, but nothing that
// would keep a worker alive.
func (r *Router) recycle(s *scratch) {
	clear(s.rows)
	clear(s.sides)
	s.rows, s.sides = s.rows[:0], s.sides[:0]
	for i := range s.prompts {
		p := &s.prompts[i]
		p.local, p.seq, p.tracked, p.shared = nil, nil, nil, nil
	}
	r.scratch.Put(s)
}

// consider fills s with the tuning for q, a row for each rank that may serve it,
// and what is cached there.
func (r *Router) consider(ctx context.Context, q *Query, s *scratch) error {
	s.tuning = r.tuning
	if err := q.Overrides.apply(&s.tuning); err != nil {
		return err
	}
	if err := r.eligible(q, s); err != nil {
		r.refuse()
		return err
	}
	s.prompts = s.prompts[:0]
	for i := range s.rows {
		s.sides[i].prompt = r.cut(ctx, q, s, r.pool(s.sides[i].card))
	}
	for i := range s.prompts {
		r.look(&s.prompts[i])
	}
	for i := range s.rows {
		r.credit(&s.rows[i], &s.sides[i], &s.prompts[s.sides[i].prompt])
	}
	return nil
}

// credit fills in what is cached of p where a row stands for.
func (r *Router) credit(c *Candidate, side *side, p *prompt) {
	if held := p.found.of(c.Target); held != nil {
		c.Device = int(held[kv.TierDevice])
		c.Host = int(held[kv.TierHost])
		c.Disk = int(held[kv.TierDisk]) + int(held[kv.TierShared])
	}
	side.device, side.told = c.Device, c.Device+c.Host+c.Disk
	if side.doubted = !r.watch.believes(c.Target); side.doubted {
		c.Device, c.Host, c.Disk = 0, 0, 0
	}
	if held := p.ahead.of(c.Target); held != nil && !side.doubted {
		c.expect(int(held[kv.TierDevice]))
	}
	if held := p.instead.of(c.Target); held != nil {
		side.shown = int(held[kv.TierDevice])
		c.expect(side.shown)
	}
	c.Shared = beyond(p.shared, c.Device)
}

// weigh fills in what is booked on each row, and what the request would cost
// there. The lock must be held.
func (r *Router) weigh(q *Query, s *scratch) {
	t := &s.tuning
	loads := r.books.loads
	at := 0
	find := func(c *Candidate) *load {
		for at < len(loads) && loads[at].target.Compare(c.Target) < 0 {
			at++
		}
		if at < len(loads) && loads[at].target == c.Target && loads[at].life == c.Worker.Lost() {
			return loads[at]
		}
		return nil
	}
	for _, l := range loads {
		l.depth = 0
	}
	share := t.TrackActiveBlocks && t.AssumeKVReuse
	if share {
		for i := range s.prompts {
			r.books.blocks.depths(s.prompts[i].tracked)
		}
	}
	a := ask{tokens: len(q.Tokens), prefillPool: q.Role == engine.Prefill}
	for i := range s.rows {
		c := &s.rows[i]
		depth := 0
		if l := find(c); l != nil {
			c.PrefillTokens, c.ActiveBlocks, c.Requests, c.LastPick = l.prefillTokens, l.activeBlocks(), l.requests, l.lastPick
			depth = l.depth
		}
		c.DecodeBlocks = c.ActiveBlocks
		if t.TrackActiveBlocks {
			c.DecodeBlocks += len(s.prompts[s.sides[i].prompt].tracked) - depth
		}
		if i == 0 || c.PrefillTokens < a.minPrefill {
			a.minPrefill = c.PrefillTokens
		}
	}
	for i := range s.rows {
		s.rows[i].Cost = t.cost(a, &s.rows[i])
	}
}

// eligible appends a row for each rank that may serve q, or says why there is
// none.
func (r *Router) eligible(q *Query, s *scratch) error {
	s.rows, s.sides = s.rows[:0], s.sides[:0]
	var out refusals
	for _, w := range r.fleet.Snapshot() {
		card := w.Card()
		if card == nil || card.Role != q.Role || card.Model != q.Model && !slices.Contains(card.Aliases, q.Model) {
			continue
		}
		out.known++
		life := w.Lost()
		switch {
		case q.pinned() && w.ID() != q.PinWorker:
			out.others++
		case !w.Admitted(), life.Err() != nil:
			out.closed++
		case slices.Contains(q.Exclude, w.ID()):
			out.tried++
		case !q.pinned() && !w.Ready():
			out.inhibited++
		case !subset(q.Require, card.Taints):
			out.untainted++
		case card.ContextLength > 0 && len(q.Tokens) >= int(card.ContextLength):
			out.short++
			out.longest = max(out.longest, int(card.ContextLength))
		case w.Overloaded():
			out.full++
		default:
			if err := s.add(q, w, card, life); err != nil {
				return err
			}
		}
	}
	if out.known > 0 && !r.begun.Load() {
		if ready := out.known - out.closed - out.inhibited; ready < r.minimum {
			return notReady(q.Model)
		}
		r.begun.Store(true)
	}
	if len(s.rows) == 0 {
		return out.reason(q)
	}
	return nil
}

// add appends the ranks of a worker, of a pinned one only that which is meant.
func (s *scratch) add(q *Query, w *fleet.Worker, card *engine.Card, life context.Context) error {
	first, last := card.DPStart, card.DPStart+card.Ranks()-1
	if q.pinned() {
		switch {
		case q.PinRank == nil && first != last:
			return &engine.Error{
				Kind: engine.InvalidArgument, Worker: w.ID(), Param: "nvext.dp_rank",
				Message: fmt.Sprintf("the worker has ranks %d to %d, and the request must say which", first, last),
			}
		case q.PinRank != nil && (*q.PinRank < first || *q.PinRank > last):
			return &engine.Error{
				Kind: engine.InvalidArgument, Worker: w.ID(), Param: "nvext.dp_rank",
				Message: fmt.Sprintf("the worker has ranks %d to %d, not %d", first, last, *q.PinRank),
			}
		case q.PinRank != nil:
			first, last = *q.PinRank, *q.PinRank
		}
	}
	size := blockSize(card)
	for rank := first; ; rank++ {
		s.rows = append(s.rows, Candidate{Target: kv.Target{Worker: w.ID(), Rank: rank}, Worker: w, BlockSize: size})
		s.sides = append(s.sides, side{card: card, life: life})
		if rank == last {
			return nil
		}
	}
}

// refusals counts the workers of a model that may not serve a request, by the
// first reason.
type refusals struct {
	known                                                    int
	others, closed, tried, inhibited, untainted, short, full int
	longest                                                  int // context, of the short ones
}

// reason makes the error for a request that nobody may serve. What the client
// can do something about comes last, since it holds only for workers that would
// serve otherwise.
func (n *refusals) reason(q *Query) error {
	switch {
	case n.known == 0:
		return &engine.Error{
			Kind: engine.NotFound, Param: "model", Code: "model_not_found",
			Message: fmt.Sprintf("The model `%s` does not exist", q.Model),
		}
	case q.pinned():
		return n.pinReason(q)
	case n.full > 0:
		return engine.Errorf(engine.ResourceExhausted, "all eligible workers are overloaded")
	case n.short > 0:
		return &engine.Error{
			Kind: engine.InvalidArgument, Param: "messages", Code: "context_length_exceeded",
			Message: fmt.Sprintf("the prompt has %d tokens, and the longest context of a worker that is ready is %d", len(q.Tokens), n.longest),
		}
	case n.untainted > 0:
		return engine.Errorf(engine.Unavailable, "no worker that is ready has all of the required taints %q", q.Require)
	case n.tried > 0:
		return engine.Errorf(engine.Unavailable, "no untried eligible worker remains after migration")
	case n.inhibited > 0:
		return engine.Errorf(engine.Unavailable, "all workers of model `%s` have failed just now. Please retry shortly.", q.Model)
	}
	return notReady(q.Model)
}

func (n *refusals) pinReason(q *Query) error {
	e := &engine.Error{Kind: engine.Unavailable, Worker: q.PinWorker}
	switch {
	case n.others == n.known:
		e.Message = fmt.Sprintf("the request is pinned to this worker, and it is not among those of model `%s`", q.Model)
	case n.full > 0:
		e.Kind, e.Message = engine.WorkerOverloaded, "the request is pinned to this worker, and it is overloaded"
	case n.short > 0:
		e.Kind, e.Code, e.Param = engine.InvalidArgument, "context_length_exceeded", "messages"
		e.Message = fmt.Sprintf("the prompt has %d tokens, and the worker that the request is pinned to has a context of %d", len(q.Tokens), n.longest)
	case n.untainted > 0:
		e.Message = fmt.Sprintf("the request is pinned to this worker, and it lacks some of the required taints %q", q.Require)
	case n.tried > 0:
		e.Message = "no untried eligible worker remains after migration"
	default:
		e.Message = "the request is pinned to this worker, and it is not ready"
	}
	return e
}

func notReady(model string) error {
	return &engine.Error{
		Kind: engine.Unavailable, Param: "model",
		Message: fmt.Sprintf("Model `%s` is not ready to serve requests yet. The deployment may still be starting up or is not fully provisioned. Please retry shortly.", model),
	}
}

// subset says whether all of want are in have.
func subset(want, have []string) bool {
	for _, w := range want {
		if !slices.Contains(have, w) {
			return false
		}
	}
	return true
}
