package sim

import (
	"slices"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/dynago/dynago/engine/mock"
	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/kvcache"
)

const tiers = int(kv.TierShared) + 1

// CacheReport is what the caches of all workers have done, over all their lives.
type CacheReport struct {
	Tiers [tiers]TierReport
	// Ways are those on which blocks have gone from one tier to another.
	Ways []WayReport
	// Parked is how often a request waited for blocks of a lower tier, and LoadWait
	// for how long, all together.
	Parked   int64
	LoadWait time.Duration
	// Recomputed tokens had been computed for the same request before it was
	// preempted.
	Recomputed int64
	// Pins counts what was asked to be pinned, by how much of it was.
	Pins struct{ Granted, Partial, Denied int64 }
	// Prefetched blocks have arrived on some tier, and Wasted ones of them went again
	// before anyone had used them.
	Prefetched, Wasted int64
	// Sessions is the share of its prompts that each session found cached.
	Sessions Distribution
}

// TierReport is what one tier has done, on all workers together.
type TierReport struct {
	Blocks, Stored int // its size, and how much of that could be found in the end
	// HitTokens are those of prompts that were found there, each where it was found
	// first, when their request was admitted first.
	HitTokens     int
	Evictions     [kvcache.HardPinned + 1]uint64 // blocks, by [kvcache.Class]
	Pinned        int64                          // blocks, in the end
	PinnedSeconds float64                        // blocks, over time
}

// WayReport is what has gone from one tier to another.
type WayReport struct {
	Edge           kvcache.Edge
	Blocks, Bytes  int64
	Failed         int64         // blocks lost on the way
	Time           time.Duration // of all transfers
	Skipped        [kvcache.Skips]int64
	Moving, Queued int // blocks, in the end
}

// caches sums up what cores have said.
type caches struct{ mock.CacheStats }

// add takes in what one core says. Of a tier that several share all say the same, but
// for what each of them has found there.
func (c *caches) add(s mock.CacheStats, shared [tiers]bool) {
	for i, t := range s.Tiers {
		sum := &c.Tiers[i]
		if shared[i] {
			t.HitTokens += sum.HitTokens
			if t.PinnedSeconds = max(t.PinnedSeconds, sum.PinnedSeconds); t.Blocks == 0 {
				t.Blocks, t.Stored, t.Evictions, t.Pinned = sum.Blocks, sum.Stored, sum.Evictions, sum.Pinned
			}
			*sum = t
			continue
		}
		sum.Blocks += t.Blocks
		sum.Stored += t.Stored
		sum.HitTokens += t.HitTokens
		for class, n := range t.Evictions {
			sum.Evictions[class] += n
		}
		sum.Pinned += t.Pinned
		sum.PinnedSeconds += t.PinnedSeconds
	}
	c.LoadWait += s.LoadWait
	c.Parked += s.Parked
	c.Recomputed += s.Recomputed
	c.PinsGranted += s.PinsGranted
	c.PinsPartial += s.PinsPartial
	c.PinsDenied += s.PinsDenied
	for i, n := range s.Prefetch.Blocks {
		c.Prefetch.Blocks[i] += n
	}
	c.Prefetch.Wasted += s.Prefetch.Wasted
	for _, w := range s.Ways {
		c.way(w)
	}
}

func (c *caches) way(w kvcache.WayStats) {
	i := slices.IndexFunc(c.Ways, func(o kvcache.WayStats) bool { return o.Edge == w.Edge })
	if i < 0 {
		c.Ways = append(c.Ways, w)
		return
	}
	sum := &c.Ways[i]
	sum.Blocks += w.Blocks
	sum.Bytes += w.Bytes
	sum.Failed += w.Failed
	sum.Time += w.Time
	sum.Moving += w.Moving
	sum.Waiting += w.Waiting
	for reason, n := range w.Skipped {
		sum.Skipped[reason] += n
	}
}

// sharedTiers says which tiers of the workers are the same one.
func (s *Simulation) sharedTiers() (shared [tiers]bool) {
	shared[kv.TierDisk] = s.shared != nil && s.cfg.Engine.DiskShared
	shared[kv.TierShared] = s.shared != nil
	return shared
}

// end takes in what a rank has done in a life that ends: what it holds is gone with it.
func (s *Simulation) end(r *rank) {
	shared := s.sharedTiers()
	stats := r.core.CacheStats()
	for i := range stats.Tiers {
		if t := &stats.Tiers[i]; !shared[i] {
			t.Blocks, t.Stored, t.Pinned = 0, 0, 0
		}
	}
	for i := range stats.Ways {
		stats.Ways[i].Moving, stats.Ways[i].Waiting = 0, 0
	}
	s.past.add(stats, shared)
}

func (s *Simulation) reportCaches(r *Report) {
	all, shared := s.past, s.sharedTiers()
	all.Ways = slices.Clone(all.Ways)
	for _, w := range s.workers {
		for _, k := range w.ranks {
			if k.core != nil {
				all.add(k.core.CacheStats(), shared)
			}
		}
	}
	c := &r.Caches
	for i, t := range all.Tiers {
		c.Tiers[i] = TierReport{Blocks: t.Blocks, Stored: t.Stored, Evictions: t.Evictions, Pinned: t.Pinned, PinnedSeconds: t.PinnedSeconds}
	}
	for _, w := range all.Ways {
		c.Ways = append(c.Ways, WayReport{Edge: w.Edge, Blocks: w.Blocks, Bytes: w.Bytes, Failed: w.Failed, Time: w.Time, Skipped: w.Skipped, Moving: w.Moving, Queued: w.Waiting})
	}
	c.Parked, c.LoadWait, c.Recomputed = all.Parked, all.LoadWait, all.Recomputed
	c.Pins.Granted, c.Pins.Partial, c.Pins.Denied = all.PinsGranted, all.PinsPartial, all.PinsDenied
	for _, n := range all.Prefetch.Blocks {
		c.Prefetched += n
	}
	c.Wasted = all.Prefetch.Wasted
	type use struct{ input, cached int }
	sessions := map[string]*use{}
	for _, j := range s.intake.jobs {
		if !j.completed() {
			continue
		}
		for i, n := range j.from {
			c.Tiers[i].HitTokens += n
		}
		if j.Session == "" {
			continue
		}
		u := sessions[j.Session]
		if u == nil {
			u = &use{}
			sessions[j.Session] = u
		}
		u.input += j.Prompt.Len()
		u.cached += j.cached
	}
	shares := make([]float64, 0, len(sessions))
	for _, u := range sessions {
		shares = append(shares, share(u.cached, u.input))
	}
	slices.Sort(shares)
	c.Sessions = distribute(shares, func(share float64) float64 { return share })
}

// MarshalJSONTo writes the report; tiers that nobody has are left out.
func (c *CacheReport) MarshalJSONTo(to *jsontext.Encoder) error {
	o := object{to: to}
	o.begin()
	byTier := map[string]*TierReport{}
	for i := range c.Tiers {
		if t := &c.Tiers[i]; t.Blocks > 0 || t.HitTokens > 0 {
			byTier[kv.Tier(i).String()] = t
		}
	}
	o.add("tiers", byTier)
	byWay := map[string]*WayReport{}
	for i := range c.Ways {
		byWay[c.Ways[i].Edge.String()] = &c.Ways[i]
	}
	o.add("ways", byWay)
	o.add("parked", c.Parked)
	o.add("load_wait_ms", milliseconds(c.LoadWait))
	o.add("recomputed_after_preemption_tokens", c.Recomputed)
	o.add("pins", map[string]int64{"granted": c.Pins.Granted, "partial": c.Pins.Partial, "denied": c.Pins.Denied})
	o.add("prefetched_blocks", c.Prefetched)
	o.add("prefetch_wasted_blocks", c.Wasted)
	for _, stat := range c.Sessions.stats() {
		o.add(stat.name+"_session_reused_ratio", stat.value)
	}
	return o.end()
}

// MarshalJSONTo writes the tier; classes of which nothing went are left out.
func (t *TierReport) MarshalJSONTo(to *jsontext.Encoder) error {
	o := object{to: to}
	o.begin()
	o.add("blocks", t.Blocks)
	o.add("stored_blocks", t.Stored)
	o.add("hit_tokens", t.HitTokens)
	evictions := map[string]uint64{}
	for class, n := range t.Evictions {
		if n > 0 {
			evictions[kvcache.Class(class).String()] = n
		}
	}
	o.add("evictions", evictions)
	o.add("pinned_blocks", t.Pinned)
	o.add("pinned_block_seconds", t.PinnedSeconds)
	return o.end()
}

// MarshalJSONTo writes the way; reasons for which nothing was skipped are left out.
func (w *WayReport) MarshalJSONTo(to *jsontext.Encoder) error {
	o := object{to: to}
	o.begin()
	o.add("blocks", w.Blocks)
	o.add("bytes", w.Bytes)
	o.add("failed_blocks", w.Failed)
	o.add("transfer_ms", milliseconds(w.Time))
	skipped := map[string]int64{}
	for reason, n := range w.Skipped {
		if n > 0 {
			skipped[kvcache.Skip(reason).String()] = n
		}
	}
	o.add("skipped", skipped)
	return o.end()
}
