package kvindex

import "github.com/dynago/dynago/kv"

// TargetStats counts what one target holds.
type TargetStats struct {
	Keys     int        // engine keys
	Blocks   [tiers]int // distinct blocks on each tier
	Distinct int        // distinct blocks on any tier
	Shared   int        // of those, blocks that another target holds too
}

// StatsOf counts what t holds. It looks at every key of the target, some at a
// time, while events of the target wait; others do not.
func (x *Index) StatsOf(t kv.Target) TargetStats {
	var s TargetStats
	h := x.known(t)
	if h == nil {
		return s
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	seen := make(map[place]held, h.keys.count)
	shared := make(map[place]bool)
	h.survey(&x.tree, func(_ kv.EngineHash, v held, n *node, r run) {
		s.Keys++
		p := v.place()
		seen[p] |= v
		if x.tree.shared(n, h.slot, int(p-r.start)) {
			shared[p] = true
		}
	})
	for _, v := range seen {
		s.Distinct++
		for tier := range s.Blocks {
			if v.on(kv.Tier(tier)) {
				s.Blocks[tier]++
			}
		}
	}
	s.Shared = len(shared)
	return s
}

// survey calls yield for each key of a target, under the lock of the tree, but
// not for all under one. The holder must be locked.
func (h *holder) survey(t *tree, yield func(kv.EngineHash, held, *node, run)) {
	for buckets := h.keys.buckets; len(buckets) > 0; {
		n := min(len(buckets), slice/2)
		t.mu.Lock()
		for i := range buckets[:n] {
			b := &buckets[i]
			for j, v := range b.held {
				if v != 0 {
					_, n, r := t.resolve(v.place())
					yield(b.key[j], v, n, r)
				}
			}
		}
		t.mu.Unlock()
		buckets = buckets[n:]
	}
}

// shared says whether somebody else than slot holds block i of n.
func (t *tree) shared(n *node, slot uint32, i int) bool {
	others := false
	t.eachCover(n, func(_ int, c *cover) {
		full, p := set(c.full.Load()), spans(c.part.Load())
		others = others || full != 0 && (full.count() > 1 || !t.has(full, slot))
		for k := range t.count(p) {
			s := t.span(p, k)
			others = others || s.slot() != slot && s.from() <= i && i < s.to()
		}
	})
	return others
}
