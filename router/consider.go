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
	crew    *crew    // that rows and sides are those of, or nil
	pools   []pool   // that the workers are in
	prompts []prompt // one for each pool
	most    float64  // tokens cached where most are, by tier weight
	work    Work     // of which an observer wants to know
}

type side struct {
	card   *engine.Card
	life   context.Context // of the worker, when it was considered
	prompt int             // which of the prompts
}

// recycle keeps the memory of a decision for the next one, and the rows of a crew
// as well, which may be needed again. Others would keep workers alive.
func (r *Router) recycle(s *scratch) {
	if s.crew == nil {
		clear(s.rows)
		clear(s.sides)
		s.rows, s.sides = s.rows[:0], s.sides[:0]
	}
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
	watch := r.stopwatch()
	for _, of := range s.pools {
		r.cut(ctx, q, s, of)
	}
	s.work.Hashing = watch.lap()
	for i := range s.prompts {
		r.look(&s.prompts[i])
	}
	s.work.Matching = watch.lap()
	for i := range s.prompts {
		s.prompts[i].hear()
	}
	s.work.Shared = watch.lap()
	r.credit(s)
	return nil
}

// credit fills in what is cached where each row stands for.
func (r *Router) credit(s *scratch) {
	doubts, most := r.watch.doubted.Load() > 0, 0.0
	for i := range s.rows {
		c, p := &s.rows[i], &s.prompts[0]
		if len(s.prompts) > 1 {
			p = &s.prompts[s.sides[i].prompt]
		}
		c.Device, c.Host, c.Disk, c.Shared = 0, 0, 0, 0
		counts := true
		if doubts {
			_, counts = r.watch.believes(c.Target)
		}
		if held := p.found.of(c.Target); held != nil && counts {
			c.Device = int(held[kv.TierDevice])
			c.Host = int(held[kv.TierHost])
			c.Disk = int(held[kv.TierDisk]) + int(held[kv.TierShared])
		}
		if held := p.ahead.of(c.Target); held != nil && counts {
			c.expect(int(held[kv.TierDevice]))
		}
		if held := p.instead.of(c.Target); held != nil {
			c.expect(int(held[kv.TierDevice]))
		}
		if len(p.shared) > 0 {
			c.Shared = beyond(p.shared, c.Device)
		}
		most = max(most, s.tuning.overlap(c)*float64(c.BlockSize))
	}
	s.most = most
}

// evidence is why a row is taken to have what it has.
type evidence struct {
	// What the worker's own events say to be cached, in blocks: on the device, and
	// with lower tiers.
	device, told int
	doubted      bool // they are not believed
	shown        int  // what answers, and what was routed there, say of the device
}

// evidence returns what the credit of a target rests on.
func (r *Router) evidence(t kv.Target, p *prompt) evidence {
	believed, _ := r.watch.believes(t)
	e := evidence{doubted: !believed}
	if held := p.found.find(t); held != nil {
		e.device = int(held[kv.TierDevice])
		e.told = e.device + int(held[kv.TierHost]) + int(held[kv.TierDisk]) + int(held[kv.TierShared])
	}
	if held := p.instead.find(t); held != nil {
		e.shown = int(held[kv.TierDevice])
	}
	return e
}

// weigh fills in what is booked on each row, and what the request would cost
// there. The lock must be held.
func (r *Router) weigh(q *Query, s *scratch, now time.Time) {
	for i := range s.prompts {
		r.load(s, i, now)
	}
	s.tuning.price(s.ask(q), s.rows)
}

// load fills in what is booked on the rows of one pool, where the prompt is as it
// is cut there.
func (r *Router) load(s *scratch, pool int, now time.Time) {
	tracked, walk, asked := 0, r.books.walk(), uint64(0)
	if s.tuning.TrackActiveBlocks {
		tracked = len(s.prompts[pool].tracked)
		if s.tuning.AssumeKVReuse {
			asked = r.books.depths(s.prompts[pool].tracked)
		}
	}
	for i := range s.rows {
		c, side := &s.rows[i], &s.sides[i]
		if side.prompt != pool {
			continue
		}
		c.PrefillTokens, c.ActiveBlocks, c.Requests, c.LastPick, c.DecodeBlocks = 0, 0, 0, 0, tracked
		l := walk.load(c.Target, side.life)
		if l == nil {
			continue
		}
		c.PrefillTokens, c.ActiveBlocks, c.Requests, c.LastPick = l.prefillTokens, l.activeBlocks(), l.requests, l.lastPick
		if r.prefillModel != nil {
			c.PrefillTokens = l.activePrefill(now)
		}
		c.DecodeBlocks += c.ActiveBlocks
		if l.asked == asked && asked > 0 {
			c.DecodeBlocks -= l.depth
		}
	}
}

// ask returns what the costs of all rows depend on.
func (s *scratch) ask(q *Query) ask {
	a := ask{tokens: q.Length(), prefillPool: q.Role == engine.Prefill}
	if !s.tuning.decays() {
		return a
	}
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
	// Of a prompt that is cached to its end the last block is computed again: the
	// first token of the answer comes from it.
	cached := min(t.cachedTokens(c), max(0, q.Length()-1)/c.BlockSize*c.BlockSize)
	if q.Uncached != nil {
		cached = max(0, q.Length()-max(0, *q.Uncached))
	}
	return Decision{
		Target:       c.Target,
		Model:        side.card.Model,
		Overlap:      int(math.Round(t.overlap(c))),
		Blocks:       s.prompts[side.prompt].blocks(q.Length()),
		CachedTokens: cached,
		Device:       c.Device, Host: c.Host, Disk: c.Disk,
		DecodeBlocks: c.DecodeBlocks,
	}
}
