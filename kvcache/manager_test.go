package kvcache_test

import (
	"maps"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/kvcache"
)

// everything is all blocks that there are, parents before children.
var everything = func() (all []kv.SeqHash) {
	for h := range kv.SeqHash(127) {
		all = append(all, h+1)
	}
	return all
}()

// sequence draws one of a small tree's.
func sequence(t *rapid.T) []kv.SeqHash { return append([]kv.SeqHash{1}, path(t)...) }

// TestAnyHistoryOfManagers runs random histories of everything that happens to a
// worker's cache, one transfer of one block at a time on each way: turns of
// sessions, loads, prefetches, pins, retention, tiers that fail, and time. It
// demands that exactly what the model foretells is written, in its order, and the
// rest is left for the reason that it gives; that retention goes with a block, and
// nothing is pushed out by what is worth less; and that the events fold to what
// the tiers hold.
func TestAnyHistoryOfManagers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		slots := [4]int{
			rapid.IntRange(2, 12).Draw(t, "device"), rapid.IntRange(0, 8).Draw(t, "host"),
			rapid.IntRange(0, 8).Draw(t, "disk"), rapid.IntRange(0, 8).Draw(t, "shared"),
		}
		if slots[1] == 0 && slots[2] == 0 {
			slots[3] = 0
		}
		cfg := kvcache.Config{
			BlockBytes: 100, Zero: time.Unix(1e9, 0),
			NoReadThrough: rapid.Bool().Draw(t, "no read-through"), Contiguous: rapid.Bool().Draw(t, "contiguous"),
			MinPriority:   rapid.SampledFrom([]uint8{0, 0, 30}).Draw(t, "least priority"),
			PrefetchShare: rapid.SampledFrom([]float64{0.3, 0.5, 1}).Draw(t, "share"),
			Ways:          map[kvcache.Edge]kvcache.WayConfig{},
		}
		if rapid.Bool().Draw(t, "filter") {
			cfg.DiskFilter = kvcache.NewFrequencyFilter(0)
		}
		var pools [4]*kvcache.Pool
		for k, n := range slots {
			if n > 0 {
				pools[k] = kvcache.NewPool(kvcache.PoolConfig{Blocks: n, Reject: k >= 2, PinBudget: int64(rapid.IntRange(0, n).Draw(t, "budget"))})
			}
		}
		for from := range slots {
			for to := range slots {
				if e := (kvcache.Edge{From: kv.Tier(from), To: kv.Tier(to)}); allowed(e, slots) {
					cfg.Ways[e] = kvcache.WayConfig{Transfers: 1, Batch: 1, Queue: rapid.IntRange(1, 6).Draw(t, "queue")}
				}
			}
		}
		m := newManager(newPlantOver(t.Fatalf, pools, cfg), cfg)
		m.pins = true // the model says what is ephemeral
		for _, h := range rapid.SliceOfDistinct(rapid.IntRange(1, 15), rapid.ID).Draw(t, "blocks below") {
			k := rapid.IntRange(1, 3).Draw(t, "on tier")
			if tier := m.tiers[k]; tier != nil && tier.Pool().Stats().Free > 0 {
				m.put(kv.Tier(k), kv.SeqHash(h))
			}
		}
		calm := rapid.Bool().Draw(t, "nothing fails")
		someTier := func(t *rapid.T) (kv.Tier, bool) {
			k := kv.Tier(rapid.IntRange(0, 3).Draw(t, "tier"))
			return k, m.tiers[k] != nil
		}
		turn := func(t *rapid.T) {
			id, o := session(t)
			m.begin(id, o, sequence(t), rapid.SliceOfN(rapid.SampledFrom([]int{35, 35, 10, 80, 80, secret}), 1, 3).Draw(t, "wishes"))
		}
		finish := func(t *rapid.T) {
			if len(m.under) == 0 {
				return
			}
			x := rapid.SampledFrom(m.under).Draw(t, "which")
			var faults []kvcache.Fault
			if !calm && rapid.IntRange(0, 3).Draw(t, "well") == 0 {
				faults = []kvcache.Fault{kvcache.Unreachable}
				if x.Edge.From != kv.TierDevice && rapid.Bool().Draw(t, "lost") {
					faults = []kvcache.Fault{kvcache.Lost}
				}
			}
			m.finish(x, faults)
		}
		letAllEnd := func() {
			for m.start(); len(m.under) > 0; m.start() {
				m.finish(m.under[0], nil)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"turn": turn, "turn2": turn, "turn3": turn,
			"end a turn": func(t *rapid.T) {
				if len(m.turns) > 0 {
					m.end(rapid.IntRange(0, len(m.turns)-1).Draw(t, "which"))
				}
			},
			"end all turns": func(*rapid.T) {
				for len(m.turns) > 0 {
					m.end(0)
				}
			},
			"close a session": func(t *rapid.T) {
				id, _ := session(t)
				m.device().Pool().CloseSession(id)
			},
			"load": func(t *rapid.T) { m.fetch(sequence(t)) }, "load2": func(t *rapid.T) { m.fetch(sequence(t)) },
			"start": func(*rapid.T) { m.start() }, "start2": func(*rapid.T) { m.start() },
			"finish": finish, "finish2": finish,
			"let all end": func(*rapid.T) { letAllEnd() },
			"prefetch": func(t *rapid.T) {
				req := kvcache.PrefetchRequest{Hashes: sequence(t), Target: kv.Tier(rapid.IntRange(0, 1).Draw(t, "target"))}
				if rapid.Bool().Draw(t, "later") {
					req.Deadline, req.Lead = m.now+3*time.Second, time.Second
				}
				m.prefetch(req)
			},
			"prefetch at once": func(t *rapid.T) {
				if letAllEnd(); len(m.loads) > 0 {
					return // waits for a way to open
				}
				before, seq := m.classes(), sequence(t)
				m.prefetch(kvcache.PrefetchRequest{Hashes: seq, Target: kv.TierDevice})
				letAllEnd()
				for _, h := range seq {
					_, there := before[0][h]
					if ref, ok := m.device().Pool().Find(h); ok && !there && m.device().Pool().State(ref) == kvcache.Inactive && m.device().Pool().Class(ref) != kvcache.SoftPinned {
						t.Fatalf("block %d was prefetched, and is %s", h, m.device().Pool().Class(ref))
					}
				}
			},
			"cancel a prefetch": func(t *rapid.T) {
				if len(m.ahead) > 0 {
					m.r.CancelPrefetch(m.now, rapid.SampledFrom(m.ahead).Draw(t, "which"))
					m.settled()
				}
			},
			"retain": func(t *rapid.T) {
				if k, ok := someTier(t); ok {
					seq := sequence(t)
					m.tiers[k].Pool().SetRetention(seq, kvcache.Retention{Priority: uint8(rapid.IntRange(0, 100).Draw(t, "priority"))})
					clear(m.wanted)
				}
			},
			"ephemeral below": func(t *rapid.T) {
				seq := sequence(t)
				k, ok := someTier(t)
				if !ok || k == kv.TierDevice {
					return
				}
				if ref, ok := m.tiers[k].Pool().Find(seq[len(seq)-1]); ok {
					m.tiers[k].Pool().SetEphemeral(ref)
					clear(m.lifted)
				}
			},
			"keep failing": func(t *rapid.T) {
				for range rapid.IntRange(2, 4).Draw(t, "times") {
					if m.start(); calm || len(m.under) == 0 {
						return
					}
					x := m.under[0]
					m.finish(x, []kvcache.Fault{kvcache.Unreachable})
					opens := m.fetching[x.Edge.From].until
					if x.Edge.From < x.Edge.To {
						opens = m.closing[x.Edge].until
					}
					m.wait(opens - 1)
					m.fetch(sequence(t))
					m.start()
					m.wait(opens)
				}
			},
			"pin": func(t *rapid.T) {
				seq, pin := sequence(t), kvcache.Pin{Owner: kvcache.SessionID(rapid.IntRange(1, 2).Draw(t, "owner")), TTL: time.Duration(rapid.IntRange(0, 3).Draw(t, "ttl")) * time.Minute}
				got := m.r.Pin(m.now, seq, pin)
				for i, h := range seq {
					if m.wishes[h] == nil {
						m.wishes[h] = map[kvcache.SessionID]time.Duration{}
					}
					if pin.TTL == 0 {
						delete(m.wishes[h], pin.Owner)
					} else if _, ok := m.device().Pool().Find(h); ok && i >= got[kv.TierHost].Pinned {
						m.wishes[h][pin.Owner] = max(m.wishes[h][pin.Owner], m.now+pin.TTL)
						m.offer(kv.TierDevice, h, worth{priority: kvcache.MaxPriority, pinned: true}, false)
					}
				}
				m.counted()
			},
			"a tier fails or comes back": func(t *rapid.T) {
				if k, ok := someTier(t); ok && k > 0 && !calm {
					m.down[k] = !m.down[k]
					m.tiers[k].SetDown(m.down[k])
					m.clean = false
					m.forgetPlans()
				}
			},
			"wait": func(t *rapid.T) {
				m.wait(m.now + time.Duration(rapid.SampledFrom([]int{1, 100, 1000, 30_000, 700_000}).Draw(t, "ms"))*time.Millisecond)
			},
			"": func(t *rapid.T) {
				m.loaded()
				m.events.Flush()
				batches, _ := m.events.Read(m.folded.at)
				m.folded.take(t, batches, nil)
				m.changed()
				if s := m.r.PrefetchStats(); s.Unread+s.Reserved > int(cfg.PrefetchShare*float64(slots[0])) {
					t.Fatalf("prefetches hold %+v of %d blocks", s, slots[0])
				}
				for k, want := range m.contents() {
					if !maps.Equal(m.folded.tiers[k], want) {
						t.Fatalf("events say that the %s tier holds %v, it holds %v", kv.Tier(k), m.folded.tiers[k], want)
					}
				}
				for k, tier := range m.tiers {
					if tier != nil { // looking at what it holds counts
						m.generation[k] = tier.Generation()
					}
				}
			},
		})
	})
}

// allowed says which ways there are between tiers of so many slots.
func allowed(e kvcache.Edge, slots [4]int) bool {
	if slots[e.From] == 0 || slots[e.To] == 0 || e.From == e.To {
		return false
	}
	switch e {
	case deviceDisk, kvcache.Edge{From: kv.TierDisk, To: kv.TierShared}:
		return slots[1] == 0
	case kvcache.Edge{From: kv.TierDevice, To: kv.TierShared}, kvcache.Edge{From: kv.TierShared, To: kv.TierDisk}:
		return false
	}
	return true
}
