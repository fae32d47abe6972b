package main

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/dynago/dynago/engine/mock"
	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/kvcache"
)

// tiered is what an engine tells that has loaded so many blocks from its host.
func tiered(loaded int64) *mock.CacheStats {
	s := &mock.CacheStats{
		AskedTokens: 100 * loaded, Admissions: loaded,
		Ways: []kvcache.WayStats{{Edge: kvcache.Edge{From: kv.TierHost, To: kv.TierDevice}, Blocks: loaded}},
	}
	s.Tiers[kv.TierHost] = mock.TierStats{Blocks: 10, Used: 3, Writing: 1, Idle: 4, HitTokens: 16 * loaded}
	s.Tiers[kv.TierShared] = mock.TierStats{Blocks: 50, Idle: 7, Shared: true, Evictions: [kvcache.HardPinned + 1]uint64{5, 1}}
	return s
}

// sum returns what a counter has come to, whose name ends so.
func (m *kvbmMetrics) sum(t *testing.T, sums []int64, name, pool string) int64 {
	t.Helper()
	for i, c := range m.counters {
		if strings.Contains(c.desc.String(), `"kvbm_`+name+`"`) && c.pool == pool {
			return sums[i]
		}
	}
	t.Fatalf("no %s", name)
	return 0
}

// What engines have done is added up, what they share counts once, and who is gone, or
// has begun anew, has done it all the same.
func TestKVBMSums(t *testing.T) {
	m := newKVBMMetrics(nil)
	for _, step := range []struct {
		now  map[rankOf]*mock.CacheStats
		want int64
	}{
		{map[rankOf]*mock.CacheStats{{1, 0}: tiered(5)}, 5},
		{map[rankOf]*mock.CacheStats{{1, 0}: tiered(6), {2, 0}: tiered(10), {2, 1}: tiered(20)}, 36},
		{map[rankOf]*mock.CacheStats{{2, 0}: tiered(11), {2, 1}: tiered(20)}, 37},
		{map[rankOf]*mock.CacheStats{{2, 0}: tiered(1), {2, 1}: tiered(20)}, 38},
		{map[rankOf]*mock.CacheStats{}, 38},
	} {
		sums := m.count(step.now)
		if got := m.sum(t, sums, "onboard_blocks_h2d", ""); got != step.want {
			t.Errorf("%d blocks were loaded, want %d", got, step.want)
		}
		if got := m.sum(t, sums, "matched_tokens", ""); got != 16*step.want {
			t.Errorf("%d tokens were found, want %d", got, 16*step.want)
		}
		if got := m.sum(t, sums, "evictions_total", "object"); got != 6 {
			t.Errorf("%d blocks of the shared tier were evicted, want 6", got)
		}
		if len(m.last) != len(step.now) {
			t.Errorf("%d caches are remembered, want the %d that are there", len(m.last), len(step.now))
		}
	}
	if rate := m.recent.Rate("host"); rate != 0.16 {
		t.Errorf("%v of the tokens came from the host, want 0.16", rate)
	}
	tiers := tiersOf(map[rankOf]*mock.CacheStats{{1, 0}: tiered(1), {2, 0}: tiered(1)})
	if h, s := tiers[kv.TierHost], tiers[kv.TierShared]; h.Blocks != 20 || h.Used != 6 || h.Writing != 2 || h.Idle != 8 || s.Blocks != 50 || s.Idle != 7 {
		t.Errorf("host %+v, shared %+v", h, s)
	}
}

// However engines come, work, begin anew and go, no sum ever falls.
func TestKVBMSumsNeverFall(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m, now, before := newKVBMMetrics(nil), map[rankOf]*mock.CacheStats{}, make([]int64, 100)
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			of := rankOf{rapid.Uint64Range(1, 4).Draw(t, "worker"), 0}
			switch loaded := rapid.Int64Range(-1, 50).Draw(t, "loaded"); {
			case loaded < 0:
				delete(now, of)
			default:
				now[of] = tiered(loaded)
			}
			for i, n := range m.count(now) {
				if n < before[i] {
					t.Fatalf("counter %d fell from %d to %d", i, before[i], n)
				}
				before[i] = n
			}
		}
	})
}
