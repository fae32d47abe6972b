package kvcache

import (
	"slices"
	"time"

	"github.com/dynago/dynago/kv"
)

// PrefetchID names a prefetch of one registry; it is never used twice.
type PrefetchID uint64

// PrefetchRequest asks for blocks before anyone needs them.
type PrefetchRequest struct {
	Hashes []kv.SeqHash // from the root
	Target kv.Tier      // device or host, which also stands for those below it
	// Deadline is when they will be needed; 0 = soon, and no matter when.
	Deadline time.Duration
	// Lead is how long before the deadline blocks go to the device; 0 = one and
	// a half times as long as it should take.
	Lead time.Duration
}

// PrefetchState is what has become of a prefetch.
type PrefetchState uint8

// States of a prefetch.
const (
	PrefetchRunning PrefetchState = iota
	PrefetchDone
	PrefetchCancelled
	PrefetchExpired // its deadline has passed
)

// String returns the state's name on the wire.
func (s PrefetchState) String() string {
	return [...]string{"running", "done", "cancelled", "expired"}[s]
}

// Prefetch is how far a prefetch has come. Already, Scheduled and Missing sum up
// to Requested and never change; what lies behind a missing block is missing too.
// Loaded and Failed are blocks that have reached the target or will not. Both
// together stay below Scheduled where there was no room for more, and go beyond it
// where blocks that were there already had to be brought back.
type Prefetch struct {
	ID    PrefetchID
	State PrefetchState

	Requested, Already, Scheduled, Missing int
	Loaded, Failed                         int
}

// PrefetchStats counts what prefetches have done. Nothing in it decreases.
type PrefetchStats struct {
	Requests int64
	States   [PrefetchExpired + 1]int64 // how they ended
	Blocks   [tiers]int64               // that arrived, by tier
	Failed   [tiers]int64               // that did not
	Wasted   int64                      // evicted from a tier, and never used
	Unread   int                        // on the device, not used so far
	Reserved int                        // slots of the device that wait for more
}

// prefetch goes up in two steps: at once to the host, as far as what it asks for
// lies below, and shortly before its deadline to the device. It is never more
// than advice: whoever needs a block earlier takes over what is on its way.
type prefetch struct {
	Prefetch
	req     PrefetchRequest
	start   time.Duration // of the second step
	begun   bool
	lifting int   // blocks on their way to the host
	base    []Ref // what was on the device when the second step began
	load    *load // the second step, while it lasts
	size    int   // blocks of it
	open    int   // of these, not yet published
}

// never is later than anything.
const never = time.Duration(1<<63 - 1)

// linger is how long after its deadline a prefetched block stays pinned.
const linger = 10 * time.Second

// How many prefetches there may be at a time, and how many may still be asked for
// after they have ended.
const (
	runningPrefetches = 1024
	endedPrefetches   = 1024
)

// Prefetch begins to bring blocks up. It never fails: what cannot be done is left
// to the load that comes later. While a thousand or so are running, another one takes
// the place of the one that is needed last, if that has not gone to the device yet and
// is needed later, and else is cancelled at once.
func (r *Registry) Prefetch(now time.Duration, req PrefetchRequest) Prefetch {
	r.Advance(now)
	r.nextID++
	p := &prefetch{Prefetch: Prefetch{ID: PrefetchID(r.nextID), Requested: len(req.Hashes)}, req: req}
	if p.req.Target = min(p.req.Target, kv.TierHost); r.cfg.Host == nil {
		p.req.Target = kv.TierDevice
	}
	r.prefetchStats.Requests++
	if len(r.early) >= runningPrefetches {
		last := r.neededLast()
		if last == nil || last.req.Deadline <= max(req.Deadline, r.now) {
			p.Missing = p.Requested
			r.endPrefetch(p, PrefetchCancelled)
			return p.Prefetch
		}
		r.endPrefetch(last, PrefetchCancelled)
	}
	r.early = append(r.early, p)
	r.survey(p)
	p.req.Hashes = slices.Clone(req.Hashes[:p.Already+p.Scheduled]) // of more than that nothing is here
	p.start = r.now
	if req.Deadline > 0 {
		lead := req.Lead
		if lead <= 0 {
			lead = r.lead(p)
		}
		p.start = max(r.now, req.Deadline-lead)
	}
	r.Advance(r.now)
	return p.Prefetch
}

// neededLast returns the prefetch with the latest deadline of those that have not gone
// to the device yet, or nil. It may be a year away.
func (r *Registry) neededLast() (last *prefetch) {
	for _, p := range r.early {
		if !p.begun && (last == nil || p.req.Deadline > last.req.Deadline) {
			last = p
		}
	}
	return last
}

// survey counts what is where and begins the first step.
func (r *Registry) survey(p *prefetch) {
	defer r.holdSources(p.req.Hashes)()
	for i, h := range p.req.Hashes {
		if r.device.Has(h) || p.req.Target == kv.TierHost && r.cfg.Host.Has(h) {
			p.Already++
			continue
		}
		t := r.source(h, kv.TierHost)
		if t == nil {
			p.Missing = p.Requested - i
			break
		}
		p.Scheduled++
		if t.kind == kv.TierHost || r.cfg.Host == nil {
			continue
		}
		m := r.moves[moveKey{kv.TierHost, h}]
		if m == nil {
			m = r.lift(t, h, true)
		}
		if m != nil {
			p.lifting++
			r.join(m, waiter{prefetch: p})
		} else if p.req.Target == kv.TierHost {
			p.Failed++
		}
	}
}

// lead estimates the time of the second step with the bandwidth that prefetches
// have, and half of it again. What is on the device now may have gone by then, and
// more than prefetches may hold does not come.
func (r *Registry) lead(p *prefetch) time.Duration {
	from := kv.TierHost
	for r.way(Edge{from, kv.TierDevice}) == nil {
		if from++; int(from) >= tiers {
			return 0
		}
	}
	w := r.way(Edge{from, kv.TierDevice})
	most := int(r.cfg.PrefetchShare * float64(r.device.pool.Stats().Total))
	blocks := int64(min(p.Already+p.Scheduled, most))
	return NewLink(w.cfg.Link).Estimate(blocks*r.cfg.BlockBytes, true) * 3 / 2
}

// got books that a block has reached the host, or has not.
func (p *prefetch) got(arrived bool) {
	p.lifting--
	if p.req.Target != kv.TierHost {
		return
	}
	if arrived {
		p.Loaded++
	} else {
		p.Failed++
	}
}

// next returns when a prefetch has something to do by itself.
func (p *prefetch) next() time.Duration {
	switch {
	case p.req.Target == kv.TierDevice && !p.begun:
		return p.start
	case p.req.Deadline > 0:
		return p.req.Deadline
	}
	return never
}

// advancePrefetches ends what is done or too late, and begins second steps.
func (r *Registry) advancePrefetches() {
	for _, p := range slices.Clone(r.early) {
		switch {
		case p.State != PrefetchRunning:
		case p.req.Target == kv.TierHost && p.lifting == 0, p.begun && p.load == nil:
			r.endPrefetch(p, PrefetchDone)
		case p.req.Deadline > 0 && r.now >= p.req.Deadline:
			r.endPrefetch(p, PrefetchExpired)
		case p.req.Target == kv.TierDevice && !p.begun && r.now >= p.start:
			r.secondStep(p)
		}
	}
}

// secondStep loads what is in reach and within the budget to the device.
func (r *Registry) secondStep(p *prefetch) {
	p.begun = true
	p.base = r.device.hold(p.req.Hashes)
	rest := p.req.Hashes[len(p.base):]
	budget := int(r.cfg.PrefetchShare*float64(r.device.pool.Stats().Total)) - len(r.device.unread) - r.reserved
	n := min(r.Reach(r.now, rest).Blocks, budget)
	if n <= 0 {
		r.endPrefetch(p, PrefetchDone)
		return
	}
	base := Root
	if len(p.base) > 0 {
		base = p.base[len(p.base)-1]
	}
	p.load, _ = r.begin(rest[:n], base, p)
	p.size = len(p.load.hashes)
	p.open = p.size
	r.reserved += p.size
}

// prefetchLoaded ends the second step. The blocks lie there unused, and may go
// again once the time has passed for which they were fetched.
func (r *Registry) prefetchLoaded(p *prefetch, refs []Ref) {
	p.load = nil
	p.Loaded += len(refs)
	p.Failed += p.size - len(refs)
	r.prefetchStats.Blocks[kv.TierDevice] += int64(len(refs))
	r.prefetchStats.Failed[kv.TierDevice] += int64(p.size - len(refs))
	r.device.keep(refs, max(p.req.Deadline-r.now, 0)+linger)
	r.device.Release(refs)
	r.endPrefetch(p, PrefetchDone)
}

func (r *Registry) endPrefetch(p *prefetch, s PrefetchState) {
	p.State = s
	r.prefetchStats.States[s]++
	if l := p.load; l != nil {
		p.load = nil
		r.abandon(l)
	}
	r.reserved -= p.open
	p.open = 0
	r.device.Release(p.base)
	p.base = nil
	if p.lifting > 0 {
		for _, h := range p.req.Hashes {
			if m := r.moves[moveKey{kv.TierHost, h}]; m != nil {
				m.waiters = slices.DeleteFunc(m.waiters, func(w waiter) bool { return w.prefetch == p })
				r.dropUnwanted(m)
			}
		}
	}
	r.early = slices.DeleteFunc(r.early, func(q *prefetch) bool { return q == p })
	if r.past = append(r.past, p.Prefetch); len(r.past) > endedPrefetches {
		r.past = slices.Delete(r.past, 0, len(r.past)-endedPrefetches)
	}
}

// CancelPrefetch ends a prefetch, and frees what it has reserved. It reports
// whether it was still running.
func (r *Registry) CancelPrefetch(now time.Duration, id PrefetchID) bool {
	r.Advance(now)
	k := slices.IndexFunc(r.early, func(p *prefetch) bool { return p.ID == id })
	if k < 0 {
		return false
	}
	r.endPrefetch(r.early[k], PrefetchCancelled)
	r.settle()
	return true
}

// Prefetched says how far a prefetch has come. The last thousand or so that have
// ended are remembered.
func (r *Registry) Prefetched(id PrefetchID) (Prefetch, bool) {
	for _, p := range r.early {
		if p.ID == id {
			return p.Prefetch, true
		}
	}
	for _, p := range r.past {
		if p.ID == id {
			return p, true
		}
	}
	return Prefetch{}, false
}

// PrefetchStats counts what prefetches have done.
func (r *Registry) PrefetchStats() PrefetchStats {
	s := r.prefetchStats
	for k := range kv.Tier(tiers) {
		if t := r.Tier(k); t != nil {
			s.Wasted += t.wasted
		}
	}
	s.Unread, s.Reserved = len(r.device.unread), r.reserved
	return s
}

// LoadStats counts what loads have done.
func (r *Registry) LoadStats() LoadStats { return r.loadStats }
