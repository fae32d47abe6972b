package router

import (
	"context"
	"math"
	"time"

	"github.com/dynago/dynago/engine"
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
	if err := q.check(); err != nil {
		return err
	}
	s.tuning = r.tuning
	if err := q.Overrides.apply(&s.tuning); err != nil {
		return err
	}
	if q.Role == engine.Prefill { // only prompts wait there
		s.tuning.TrackActiveBlocks, s.tuning.TrackOutputBlocks = false, false
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
func (r *Router) weigh(q *Query, s *scratch, now time.Time) {
	t := &s.tuning
	walk := r.books.walk()
	for _, l := range r.books.loads {
		l.depth = 0
	}
	share := t.TrackActiveBlocks && t.AssumeKVReuse
	if share {
		for i := range s.prompts {
			r.books.blocks.depths(s.prompts[i].tracked)
		}
	}
	for i := range s.rows {
		c := &s.rows[i]
		depth := 0
		if l := walk.load(c.Target, c.Worker.Lost()); l != nil {
			c.PrefillTokens, c.ActiveBlocks, c.Requests, c.LastPick = l.activePrefill(now), l.activeBlocks(), l.requests, l.lastPick
			depth = l.depth
		}
		c.DecodeBlocks = c.ActiveBlocks
		if t.TrackActiveBlocks {
			c.DecodeBlocks += len(s.prompts[s.sides[i].prompt].tracked) - depth
		}
	}
	a := s.ask(q)
	for i := range s.rows {
		s.rows[i].Cost = t.cost(a, &s.rows[i])
	}
}

// ask returns what the costs of all rows depend on.
func (s *scratch) ask(q *Query) ask {
	a := ask{tokens: q.length(), prefillPool: q.Role == engine.Prefill}
	for i := range s.rows {
		if p := s.rows[i].PrefillTokens; i == 0 || p < a.minPrefill {
			a.minPrefill = p
		}
	}
	return a
}

// decision says what comes of picking a row.
func (s *scratch) decision(q *Query, choice int) Decision {
	t, c, side := &s.tuning, &s.rows[choice], &s.sides[choice]
	return Decision{
		Target:       c.Target,
		Model:        side.card.Model,
		Overlap:      int(math.Round(t.overlap(c))),
		Blocks:       s.prompts[side.prompt].blocks(q.length()),
		CachedTokens: min(t.cachedTokens(c), q.length()),
		Device:       c.Device, Host: c.Host, Disk: c.Disk,
		DecodeBlocks: c.DecodeBlocks,
	}
}
