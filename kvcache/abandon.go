package kvcache

import (
	"maps"
	"slices"
	"time"
)

// Abandon ends a registry whose tiers live on in others, as a crash of its worker
// does: nothing is loaded, prefetched or written any more, what was under way is
// lost, and no slot of any tier is held for it. Loads that had ended before are the
// caller's as ever. The registry is not to be used after that, nor its carrier.
func (r *Registry) Abandon(now time.Duration) {
	r.tick(now)
	for len(r.early) > 0 {
		r.endPrefetch(r.early[0], PrefetchCancelled)
	}
	for len(r.loads) > 0 {
		r.abandon(r.loads[0])
	}
	for _, w := range r.ways {
		w.writes = nil
		clear(w.queued)
	}
	for _, id := range slices.Sorted(maps.Keys(r.underway)) {
		faults := make([]Fault, len(r.underway[id].Copies))
		for i := range faults {
			faults[i] = Unreachable
		}
		r.Finish(now, id, faults)
	}
}

// Ignore ends what Listen began; what c knows of the tier stays as it is.
func (t *Tier) Ignore(c *Consolidator) {
	t.listeners = slices.DeleteFunc(t.listeners, func(o *Consolidator) bool { return o == c })
}
