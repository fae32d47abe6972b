package main

import (
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/mock"
	"github.com/dynago/dynago/internal/scrape"
	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/kvcache"
)

// kvbmMetrics tell of the tiers of all mock engines together, under the names by which
// boards know managers of blocks, where such an engine has a tier below its device.
// They are read when the page is. By worker, and with more to them, the same is under
// dynago_kv_.
type kvbmMetrics struct {
	engines  engines
	counters []kvbmCounter
	gauges   []kvbmGauge
	rates    map[string]*prometheus.Desc // by pool

	mu   sync.Mutex
	last map[rankOf][]int64 // of each counter
	gone []int64            // what those had counted that have left or begun anew; nil: there was none
	// shared are evictions of tiers that several engines share and each tells of.
	shared [len(kvbmPools)]int64
	recent scrape.Recent
}

// rankOf names one cache.
type rankOf struct {
	worker uint64
	rank   int
}

// kvbmCounter is a sum over all engines.
type kvbmCounter struct {
	desc *prometheus.Desc
	tier kv.Tier
	pool string // the label's value, if there is one
	of   func(s *mock.CacheStats) int64
}

// kvbmGauge is one for each pool.
type kvbmGauge struct {
	desc *prometheus.Desc
	of   func(t *mock.TierStats) int
}

// kvbmPools are the names of tiers there.
var kvbmPools = [...]string{kv.TierDevice: "device", kv.TierHost: "host", kv.TierDisk: "disk", kv.TierShared: "object"}

func newKVBMMetrics(of engines) *kvbmMetrics {
	m := &kvbmMetrics{engines: of, last: map[rankOf][]int64{}, rates: map[string]*prometheus.Desc{}}
	counter := func(name, help string, of func(s *mock.CacheStats) int64) {
		m.counters = append(m.counters, kvbmCounter{desc: prometheus.NewDesc("kvbm_"+name, help, nil, nil), of: of})
	}
	gauge := func(name, help string, of func(t *mock.TierStats) int) {
		m.gauges = append(m.gauges, kvbmGauge{prometheus.NewDesc("kvbm_"+name, help, []string{"pool"}, nil), of})
	}
	moved := func(name, help string, what func(w *kvcache.WayStats) int64, matches func(e kvcache.Edge) bool) {
		counter(name, help, func(s *mock.CacheStats) (n int64) {
			for i := range s.Ways {
				if w := &s.Ways[i]; matches(w.Edge) {
					n += what(w)
				}
			}
			return n
		})
	}
	blocks := func(w *kvcache.WayStats) int64 { return w.Blocks }
	bytes := func(w *kvcache.WayStats) int64 { return w.Bytes }
	failed := func(w *kvcache.WayStats) int64 { return w.Failed }
	way := func(from, to kv.Tier) func(kvcache.Edge) bool {
		return func(e kvcache.Edge) bool { return e == kvcache.Edge{From: from, To: to} }
	}
	into := func(e kvcache.Edge) bool { return e.To == kv.TierShared }
	outOf := func(e kvcache.Edge) bool { return e.From == kv.TierShared }

	counter("matched_tokens", "Tokens of prompts that were found on tiers below the device.", func(s *mock.CacheStats) (n int64) {
		for _, t := range s.Tiers[kv.TierHost:] {
			n += t.HitTokens
		}
		return n
	})
	moved("offload_blocks_d2h", "Blocks that were written from the device to the host.", blocks, way(kv.TierDevice, kv.TierHost))
	moved("offload_blocks_d2d", "Blocks that were written from the device to disk.", blocks, way(kv.TierDevice, kv.TierDisk))
	moved("offload_blocks_h2d", "Blocks that were written from the host to disk.", blocks, way(kv.TierHost, kv.TierDisk))
	moved("offload_blocks_d2o", "Blocks that were written to an object store.", blocks, into)
	moved("offload_bytes_object", "Their bytes.", bytes, into)
	moved("object_write_failures", "Blocks that could not be written there.", failed, into)
	moved("onboard_blocks_h2d", "Blocks that were loaded from the host to the device.", blocks, way(kv.TierHost, kv.TierDevice))
	moved("onboard_blocks_d2d", "Blocks that were loaded from disk to the device.", blocks, way(kv.TierDisk, kv.TierDevice))
	moved("onboard_blocks_o2d", "Blocks that were loaded from an object store.", blocks, outOf)
	moved("onboard_bytes_object", "Their bytes.", bytes, outOf)
	moved("object_read_failures", "Blocks that could not be loaded from there.", failed, outOf)
	evictions := prometheus.NewDesc("kvbm_evictions_total", "Blocks that were evicted.", []string{"pool"}, nil)
	for tier, pool := range kvbmPools {
		m.counters = append(m.counters, kvbmCounter{evictions, kv.Tier(tier), pool, func(s *mock.CacheStats) int64 {
			if s.Tiers[tier].Shared {
				return 0
			}
			return evicted(&s.Tiers[tier])
		}})
	}
	gauge("inflight_mutable", "Blocks that are being written.", func(t *mock.TierStats) int { return t.Writing })
	gauge("inflight_immutable", "Blocks that are complete and in use.", func(t *mock.TierStats) int { return t.Used - t.Writing })
	gauge("reset_pool_size", "Blocks that hold nothing.", func(t *mock.TierStats) int { return t.Blocks - t.Used - t.Idle })
	gauge("inactive_pool_size", "Blocks that can be found and that nobody uses.", func(t *mock.TierStats) int { return t.Idle })
	for _, pool := range kvbmPools[kv.TierHost:] {
		m.rates[pool] = prometheus.NewDesc("kvbm_"+pool+"_cache_hit_rate", "Part of the tokens of the last thousand prompts or so that came from there.", nil, nil)
	}
	return m
}

// Describe implements prometheus.Collector.
func (m *kvbmMetrics) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range m.counters {
		if c.pool == "" || c.tier == kv.TierDevice {
			ch <- c.desc
		}
	}
	for _, g := range m.gauges {
		ch <- g.desc
	}
	for _, d := range m.rates {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (m *kvbmMetrics) Collect(ch chan<- prometheus.Metric) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := map[rankOf]*mock.CacheStats{}
	for id, of := range m.engines {
		e, ok := engine.As[*mock.Engine](of)
		if !ok {
			continue
		}
		for rank, s := range e.CacheStats() {
			if len(s.Ways) > 0 {
				now[rankOf{id, rank}] = &s
			}
		}
	}
	if len(now) == 0 && m.gone == nil {
		return
	}
	sums, tiers := m.count(now), tiersOf(now)
	for i, c := range m.counters {
		labels := []string{}
		if c.pool != "" {
			if tiers[c.tier].Blocks == 0 && sums[i] == 0 {
				continue
			}
			labels = append(labels, c.pool)
		}
		ch <- prometheus.MustNewConstMetric(c.desc, prometheus.CounterValue, float64(sums[i]), labels...)
	}
	for k := range tiers {
		if tiers[k].Blocks == 0 {
			continue
		}
		for _, g := range m.gauges {
			ch <- prometheus.MustNewConstMetric(g.desc, prometheus.GaugeValue, float64(g.of(&tiers[k])), kvbmPools[k])
		}
	}
	for pool, d := range m.rates {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, m.recent.Rate(pool))
	}
}

// count returns what each counter has come to. What is gone still counts, since a sum
// that falls looks to Prometheus like one that began anew.
func (m *kvbmMetrics) count(now map[rankOf]*mock.CacheStats) []int64 {
	const extra = len(kvbmPools) + 2 // hits by pool, tokens asked for, prompts
	n := len(m.counters)
	if m.gone == nil {
		m.gone = make([]int64, n+extra)
	}
	for of, last := range m.last {
		s := now[of]
		if s == nil || s.AskedTokens < last[n+len(kvbmPools)] {
			for i, v := range last {
				m.gone[i] += v
			}
			delete(m.last, of)
		}
	}
	for of, s := range now {
		told := make([]int64, 0, n+extra)
		for _, c := range m.counters {
			told = append(told, c.of(s))
		}
		for k := range kvbmPools {
			t := &s.Tiers[k]
			told = append(told, t.HitTokens)
			if t.Shared {
				m.shared[k] = max(m.shared[k], evicted(t))
			}
		}
		m.last[of] = append(told, s.AskedTokens, s.Admissions)
	}
	sums := slices.Clone(m.gone)
	for _, told := range m.last {
		for i, v := range told {
			sums[i] += v
		}
	}
	for i, c := range m.counters {
		if c.pool != "" {
			sums[i] += m.shared[c.tier]
		}
	}
	hits := map[string]int64{}
	for k, pool := range kvbmPools {
		hits[pool] = sums[n+k]
	}
	m.recent.See(sums[n+len(kvbmPools)+1], sums[n+len(kvbmPools)], hits)
	return sums
}

// tiersOf adds up what lies on each tier. One that is shared counts once.
func tiersOf(now map[rankOf]*mock.CacheStats) (sum [len(kvbmPools)]mock.TierStats) {
	for _, s := range now {
		for k := range s.Tiers {
			t := &s.Tiers[k]
			if t.Shared {
				sum[k] = *t
				continue
			}
			sum[k].Blocks += t.Blocks
			sum[k].Used += t.Used
			sum[k].Writing += t.Writing
			sum[k].Idle += t.Idle
		}
	}
	return sum
}

// evicted returns how many blocks a tier has evicted, of all classes.
func evicted(t *mock.TierStats) (n int64) {
	for _, class := range t.Evictions {
		n += int64(class)
	}
	return n
}
