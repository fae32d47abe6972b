package kvcache_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/kvcache"
)

// worker is a registry and a carrier, and the times at which its loads ended.
type worker struct {
	*plant
	c     *kvcache.Carrier
	ended []string
	bases map[kvcache.LoadID][]kvcache.Ref
}

func newWorker(fatalf func(string, ...any), slots [4]int, cfg kvcache.Config) *worker {
	p := newPlant(fatalf, slots, cfg)
	return &worker{plant: p, c: kvcache.NewCarrier(p.r), bases: map[kvcache.LoadID][]kvcache.Ref{}}
}

// until runs the time forward. Loads are taken when they end, and no later.
func (w *worker) until(now time.Duration) {
	for {
		at, ok := w.c.Next()
		if !ok || at > now {
			break
		}
		w.c.Advance(at)
		w.take(at)
	}
	w.c.Advance(now)
	w.take(now)
	w.now = now
}

func (w *worker) take(at time.Duration) {
	for _, l := range w.r.Loaded() {
		w.ended = append(w.ended, fmt.Sprintf("%v with %d", at, len(l.Refs)))
		w.device().Release(l.Refs)
		w.device().Release(w.bases[l.ID])
		delete(w.bases, l.ID)
	}
}

func (w *worker) fetch(seq []kv.SeqHash) {
	base := w.device().Match(0, nil, seq)
	under := kvcache.Root
	if len(base) > 0 {
		under = base[len(base)-1]
	}
	id, n, ok := w.r.Load(w.now, seq[len(base):], under)
	if !ok || n == 0 {
		w.device().Release(base)
		return
	}
	w.bases[id] = base
}

func TestCarrierTakesItsTime(t *testing.T) {
	w := newWorker(t.Fatalf, [4]int{8, 8, 8, 0}, kvcache.Config{
		BlockBytes: 100,
		Ways: map[kvcache.Edge]kvcache.WayConfig{
			hostDevice: {Link: kvcache.LinkConfig{Bandwidth: 1000, Latency: 50 * time.Millisecond}},
			diskHost:   {Link: kvcache.LinkConfig{Bandwidth: 500}},
		},
	})
	w.put(kv.TierDisk, chain[:4]...)
	w.now = time.Second
	w.fetch(chain[:4])
	w.until(time.Minute)
	// 400 bytes at 500/s from the disk, then 50 ms, then 400 bytes at 1000/s.
	if len(w.ended) != 1 || w.ended[0] != "2.25s with 4" {
		t.Errorf("ended %q", w.ended)
	}
	for e, want := range map[kvcache.Edge]time.Duration{diskHost: 800 * time.Millisecond, hostDevice: 450 * time.Millisecond} {
		if got := w.stats(e); got.Time != want || got.Transfers != 1 {
			t.Errorf("%s: %d transfers took %v, want one of %v", e, got.Transfers, got.Time, want)
		}
	}
}

// TestPrefetchLeavesBandwidth: a prefetch takes a quarter of the way, and nothing
// while someone waits for it; who waits for what it brings has all of the way.
func TestPrefetchLeavesBandwidth(t *testing.T) {
	for _, tt := range []struct {
		name string
		load []kv.SeqHash // half a second after the prefetch began
		want time.Duration
	}{
		{"alone", nil, 1600 * time.Millisecond},
		{"and another load", []kv.SeqHash{3, 6}, 1800 * time.Millisecond},
		{"and a load of the same", chain[:4], 775 * time.Millisecond},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorker(t.Fatalf, [4]int{16, 8, 0, 0}, kvcache.Config{
				BlockBytes: 100, PrefetchShare: 1,
				Ways: map[kvcache.Edge]kvcache.WayConfig{hostDevice: {Link: kvcache.LinkConfig{Bandwidth: 1000}}},
			})
			w.put(kv.TierHost, chain[:4]...)
			w.put(kv.TierHost, 3, 6)
			s := w.r.Prefetch(0, kvcache.PrefetchRequest{Hashes: chain[:4], Target: kv.TierDevice})
			w.until(500 * time.Millisecond)
			if tt.load != nil {
				w.fetch(tt.load)
			}
			for w.state(s.ID).State == kvcache.PrefetchRunning {
				at, ok := w.c.Next()
				if !ok {
					t.Fatal("it never ends")
				}
				w.until(at)
			}
			if w.now != tt.want {
				t.Errorf("the prefetch ended at %v, want %v", w.now, tt.want)
			}
		})
	}
}

// TestTimeInPieces runs the same requests with time cut into other pieces: every
// load ends at the same moment with the same blocks, and the tiers end the same.
func TestTimeInPieces(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type request struct {
			at   time.Duration
			what int
			seq  []kv.SeqHash
		}
		requests := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) request {
			r := request{at: time.Duration(rapid.IntRange(0, 4000).Draw(t, "ms")) * time.Millisecond, what: rapid.IntRange(0, 2).Draw(t, "what")}
			h := kv.SeqHash(1)
			for range rapid.IntRange(1, 6).Draw(t, "depth") {
				r.seq = append(r.seq, h)
				h = h*2 + kv.SeqHash(rapid.IntRange(0, 1).Draw(t, "branch"))
			}
			return r
		}), 1, 20).Draw(t, "requests")
		slices.SortStableFunc(requests, func(a, b request) int { return int(a.at - b.at) })
		looks := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) time.Duration {
			return time.Duration(rapid.IntRange(0, 6_000_000_000).Draw(t, "ns"))
		}), 0, 20).Draw(t, "looks")
		slots := [4]int{rapid.IntRange(3, 10).Draw(t, "device"), rapid.IntRange(1, 6).Draw(t, "host"), rapid.IntRange(0, 12).Draw(t, "disk"), 0}
		play := func(looks []time.Duration) (ended []string, held [4][]kv.SeqHash, ways []kvcache.WayStats) {
			cfg := kvcache.Config{BlockBytes: 100, PrefetchShare: 0.5, Ways: map[kvcache.Edge]kvcache.WayConfig{
				deviceHost: {Link: kvcache.LinkConfig{Bandwidth: 700}, Transfers: 1, Batch: 2},
				hostDevice: {Link: kvcache.LinkConfig{Bandwidth: 300, Latency: time.Millisecond}, Transfers: 2, Batch: 2},
			}}
			if slots[2] > 0 {
				cfg.Ways[diskHost] = kvcache.WayConfig{Link: kvcache.LinkConfig{Bandwidth: 333}}
				cfg.Ways[hostDisk] = kvcache.WayConfig{Link: kvcache.LinkConfig{Bandwidth: 1000}}
			}
			w := newWorker(t.Fatalf, slots, cfg)
			w.c.Faults = func(x *kvcache.Transfer) []kvcache.Fault {
				if x.ID%7 != 0 || x.Edge.From == kv.TierDevice {
					return nil
				}
				f := make([]kvcache.Fault, len(x.Copies))
				f[0] = kvcache.Fault(1 + x.ID%2)
				return f
			}
			looks = slices.Clone(looks)
			slices.Sort(looks)
			for _, q := range requests {
				for len(looks) > 0 && looks[0] <= q.at {
					w.until(looks[0])
					looks = looks[1:]
				}
				w.until(q.at)
				switch q.what {
				case 0:
					w.fetch(q.seq)
				case 1:
					if refs := w.compute(q.seq); refs != nil {
						w.device().Release(refs)
					}
				case 2:
					w.r.Prefetch(w.now, kvcache.PrefetchRequest{Hashes: q.seq, Target: kv.TierDevice, Deadline: w.now + time.Second})
				}
			}
			for _, at := range looks {
				w.until(max(at, w.now))
			}
			w.until(time.Hour)
			for k, tier := range w.tiers {
				if tier == nil {
					continue
				}
				for run := range tier.Pool().Chains() {
					for _, ref := range run {
						held[k] = append(held[k], tier.Pool().Hash(ref))
					}
				}
				if s := tier.Pool().Stats(); s.Used() > 0 {
					t.Fatalf("the %s tier ends as %+v", kv.Tier(k), s)
				}
			}
			return w.ended, held, w.r.Ways()
		}
		ended, held, ways := play(nil)
		ended2, held2, ways2 := play(looks)
		if !slices.Equal(ended, ended2) || fmt.Sprint(held) != fmt.Sprint(held2) || !slices.Equal(ways, ways2) {
			t.Fatalf("loads %q\n and %q\nblocks %v\n and %v\nways %+v\n and %+v", ended, ended2, held, held2, ways, ways2)
		}
	})
}
