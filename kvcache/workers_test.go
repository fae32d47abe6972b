package kvcache_test

import (
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/kvcache"
)

// TestAnyHistoryOfWorkers runs random histories of two workers on one small shared
// tier: both write and read the same blocks at once, find them lost, and drop them,
// each in a time of its own. No slot is read that holds something else, both tell
// the same of what they share, and when one of them dies and the other has done its
// work, nothing of the shared tier is held.
func TestAnyHistoryOfWorkers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		reject := rapid.Bool().Draw(t, "reject")
		n := rapid.IntRange(1, 6).Draw(t, "shared")
		pools := func(shared *kvcache.Pool) [4]*kvcache.Pool {
			return [4]*kvcache.Pool{kvcache.New(rapid.IntRange(2, 8).Draw(t, "device")), kvcache.New(rapid.IntRange(1, 4).Draw(t, "host")), nil, shared}
		}
		cfg := kvcache.Config{BlockBytes: 100, PrefetchShare: 0.5}
		a := newPlantOver(t.Fatalf, pools(kvcache.NewPool(kvcache.PoolConfig{Blocks: n, Reject: reject, PinBudget: 2})), cfg)
		workers := []*plant{a, newPlantBeside(a, t.Fatalf, pools(nil), cfg)}
		shared := a.tiers[3]
		running := map[*plant][][]kvcache.Ref{}
		some := func(t *rapid.T) *plant { return workers[rapid.IntRange(0, 1).Draw(t, "worker")] }
		finish := func(t *rapid.T) {
			p := some(t)
			if len(p.under) == 0 {
				return
			}
			x := rapid.SampledFrom(p.under).Draw(t, "which")
			faults := make([]kvcache.Fault, len(x.Copies))
			if x.Edge.From != kv.TierDevice && rapid.IntRange(0, 4).Draw(t, "well") == 0 {
				for i := range faults {
					faults[i] = kvcache.Fault(rapid.IntRange(0, 2).Draw(t, "fault"))
				}
				workers[0].clean, workers[1].clean = false, false
			}
			p.finish(x, faults)
		}
		t.Repeat(map[string]func(*rapid.T){
			"compute": func(t *rapid.T) {
				p := some(t)
				if refs := p.compute(sequence(t)); refs != nil {
					running[p] = append(running[p], refs)
				}
			},
			"end requests": func(t *rapid.T) {
				p := some(t)
				for _, refs := range running[p] {
					p.device().Release(refs)
				}
				running[p] = nil
			},
			"load":  func(t *rapid.T) { some(t).load(sequence(t)) },
			"load2": func(t *rapid.T) { some(t).load(sequence(t)) },
			"prefetch": func(t *rapid.T) {
				p := some(t)
				p.r.Prefetch(p.now, kvcache.PrefetchRequest{Hashes: sequence(t), Target: kv.Tier(rapid.IntRange(0, 1).Draw(t, "target"))})
				p.settled()
			},
			"pin": func(t *rapid.T) {
				p := some(t)
				p.r.Pin(p.now, sequence(t), kvcache.Pin{TTL: time.Minute})
			},
			"clear the device": func(t *rapid.T) { some(t).device().Clear() },
			"clear":            func(*rapid.T) { shared.Clear() },
			"start":            func(t *rapid.T) { some(t).start() }, "start2": func(t *rapid.T) { some(t).start() },
			"finish": finish, "finish2": finish, "finish3": finish,
			"wait": func(t *rapid.T) {
				p := some(t)
				p.now += time.Duration(rapid.IntRange(0, 60_000).Draw(t, "ms")) * time.Millisecond
				p.r.Advance(p.now)
				p.settled()
			},
			"": func(t *rapid.T) {
				for _, p := range workers {
					p.events.Flush()
					batches, _ := p.events.Read(p.folded.at)
					p.folded.take(t, batches, nil)
					for k, want := range p.contents() {
						if !maps.Equal(p.folded.tiers[k], want) {
							t.Fatalf("events say that the %s tier holds %v, it holds %v", kv.Tier(k), p.folded.tiers[k], want)
						}
					}
				}
				for _, x := range slices.Concat(workers[0].under, workers[1].under) {
					for _, c := range x.Copies {
						if x.Edge.To == kv.TierShared && shared.Pool().State(c.To) != kvcache.Mutable {
							t.Fatalf("transfer %d fills shared slot %d, which is %s", x.ID, c.To, shared.Pool().State(c.To))
						}
					}
				}
			},
		})
		dies, stays := workers[0], workers[1]
		dies.r.Close()
		shared.Unlisten(dies.events)
		for _, refs := range running[stays] {
			stays.device().Release(refs)
		}
		stays.drain()
		if s := shared.Pool().Stats(); s.Used() > 0 {
			t.Fatalf("the shared tier ends as %+v", s)
		}
	})
}
