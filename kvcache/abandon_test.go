package kvcache_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/kvcache"
)

// A registry that is abandoned in the middle of anything holds no slot any more, and
// another one goes on with its tiers.
func TestAbandon(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := kvcache.Config{BlockBytes: 100, PrefetchShare: 0.5, Ways: map[kvcache.Edge]kvcache.WayConfig{
			deviceHost: {Link: kvcache.LinkConfig{Bandwidth: 700}, Batch: 2},
			hostDevice: {Link: kvcache.LinkConfig{Bandwidth: 300}, Batch: 2},
		}}
		w := newWorker(t.Fatalf, [4]int{8, 6, 12, 0}, cfg)
		sequence := func() (seq []kv.SeqHash) {
			h := kv.SeqHash(1)
			for range rapid.IntRange(1, 5).Draw(t, "depth") {
				seq = append(seq, h)
				h = h*2 + kv.SeqHash(rapid.IntRange(0, 1).Draw(t, "branch"))
			}
			return seq
		}
		for range rapid.IntRange(1, 20).Draw(t, "things") {
			w.until(w.now + time.Duration(rapid.IntRange(0, 900).Draw(t, "ms"))*time.Millisecond)
			switch seq := sequence(); rapid.IntRange(0, 2).Draw(t, "what") {
			case 0:
				w.fetch(seq)
			case 1:
				if refs := w.compute(seq); refs != nil {
					w.device().Release(refs)
				}
			case 2:
				w.r.Prefetch(w.now, kvcache.PrefetchRequest{Hashes: seq, Target: kv.Tier(rapid.IntRange(0, 1).Draw(t, "tier")), Deadline: w.now + time.Second})
			}
		}
		w.take(w.now) // what has ended
		w.r.Abandon(w.now)
		for _, base := range w.bases {
			w.device().Release(base)
		}
		for k, tier := range w.tiers {
			if tier != nil && tier.Pool().Stats().Used() > 0 {
				t.Fatalf("%d blocks of %s are held", tier.Pool().Stats().Used(), kv.Tier(k))
			}
		}
		cfg.Device, cfg.Host, cfg.Disk = w.tiers[0], w.tiers[1], w.tiers[2]
		next, err := kvcache.NewRegistry(cfg)
		if err != nil {
			t.Fatal(err)
		}
		c := kvcache.NewCarrier(next)
		id, n, ok := next.Load(w.now, sequence(), kvcache.Root)
		if !ok {
			t.Fatal("the tiers have no room for a load")
		}
		c.Advance(w.now + time.Hour)
		if loaded := next.Loaded(); n > 0 && (len(loaded) != 1 || loaded[0].ID != id || len(loaded[0].Refs) != n) {
			t.Fatalf("of %d blocks there came %+v", n, loaded)
		}
	})
}

// Who ignores a tier is told of nothing any more, and keeps what it knew.
func TestIgnore(t *testing.T) {
	tier := kvcache.NewTier(kv.TierDevice, kvcache.New(4))
	store := func(h kv.SeqHash) {
		refs, _ := tier.Allocate(nil, 1)
		tier.Register(refs[0], kvcache.Block{Hash: h}, kvcache.Root)
		tier.Release(refs)
	}
	leaves, stays := kvcache.NewConsolidator(kvcache.ConsolidatorConfig{}), kvcache.NewConsolidator(kvcache.ConsolidatorConfig{})
	tier.Listen(leaves)
	tier.Listen(stays)
	store(1)
	tier.Ignore(leaves)
	store(2)
	if leaves.Len() != 1 || stays.Len() != 2 {
		t.Errorf("one that left knows of %d blocks and one that stayed of %d, want 1 and 2", leaves.Len(), stays.Len())
	}
}
