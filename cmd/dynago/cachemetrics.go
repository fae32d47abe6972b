package main

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/mock"
	"github.com/dynago/dynago/fleet"
	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/kvcache"
)

// cacheMetrics tell what lies on the tiers of engines in this process and what they have
// done, at the time the page is read.
type cacheMetrics struct {
	engines engines
	all     []*prometheus.Desc

	blocks, hits, evictions, pinned, pins *prometheus.Desc
	expired, sessions                     *prometheus.Desc
	parked, wait, recomputed              *prometheus.Desc
	moved, bytes, seconds, skipped        *prometheus.Desc
	prefetched, wasted                    *prometheus.Desc
	corrupt, failed, pulled, pulls        *prometheus.Desc
}

// engines are those that metrics are about, by the ids of their workers.
type engines func(yield func(id uint64, e engine.Engine) bool)

// enginesOf returns those of a fleet.
func enginesOf(f *fleet.Fleet) engines {
	return func(yield func(uint64, engine.Engine) bool) {
		for _, w := range f.Snapshot() {
			if !yield(w.ID(), w.Engine()) {
				return
			}
		}
	}
}

func newCacheMetrics(of engines) *cacheMetrics {
	m := &cacheMetrics{engines: of}
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		d := prometheus.NewDesc("dynago_kv_"+name, help, append([]string{"worker_id", "dp_rank"}, labels...), nil)
		m.all = append(m.all, d)
		return d
	}
	m.blocks = desc("blocks", "KV blocks of a tier: all, those in use, and those that can be found.", "pool", "state")
	m.hits = desc("hit_tokens_total", "Tokens that requests did not have to compute, by the tier that they came from.", "pool")
	m.evictions = desc("evictions_total", "Blocks that were evicted.", "pool", "class")
	m.pinned = desc("pinned_blocks", "Blocks that are pinned, by the kind of their pins.", "pool", "kind")
	m.expired = desc("retention_expired_total", "How often priorities and pins of blocks came to the end of their time.")
	m.sessions = desc("session_blocks", "Blocks that are tagged with sessions, by the state of the session.", "state")
	m.pins = desc("pin_requests_total", "Requests for pins.", "outcome")
	m.parked = desc("parked_requests_total", "Requests that waited for blocks of a lower tier.")
	m.wait = desc("load_wait_seconds_total", "How long they waited, together.")
	m.recomputed = desc("recomputed_tokens_total", "Tokens that were computed again after a preemption.")
	m.moved = desc("transfer_blocks_total", "Blocks that went from tier to tier.", "edge")
	m.bytes = desc("transfer_bytes_total", "Bytes that went from tier to tier.", "edge")
	m.seconds = desc("transfer_seconds", "Transfers between tiers.", "edge")
	m.skipped = desc("offload_skipped_total", "Blocks that were not written to a lower tier.", "edge", "reason")
	m.prefetched = desc("prefetch_blocks_total", "Blocks that were brought before they were needed.", "tier", "outcome")
	m.wasted = desc("prefetch_wasted_blocks_total", "Blocks that were brought and evicted unread.")
	m.corrupt = desc("checksum_failures_total", "Blocks that were not what had been stored, and were dropped.")
	m.failed = desc("transfer_failed_blocks_total", "Blocks that could not be moved between tiers: missing where they should be, or unreachable at the time.", "reason")
	m.pulled = desc("pulled_blocks_total", "Blocks that came from workers that compute prompts for others.")
	m.pulls = desc("pulls_total", "Hand-offs whose blocks were fetched from a worker that computes prompts for others: done, no_room for a part of them, failed, where the rest was computed.", "outcome")
	return m
}

// Describe implements prometheus.Collector.
func (m *cacheMetrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range m.all {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (m *cacheMetrics) Collect(ch chan<- prometheus.Metric) {
	for id, of := range m.engines {
		e, ok := engine.As[*mock.Engine](of)
		if !ok {
			continue
		}
		for rank, s := range e.CacheStats() {
			m.tell(ch, &s, strconv.FormatUint(id, 10), strconv.Itoa(rank))
		}
	}
}

func (m *cacheMetrics) tell(ch chan<- prometheus.Metric, s *mock.CacheStats, of ...string) {
	say := func(d *prometheus.Desc, kind prometheus.ValueType, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, kind, v, append(of[:2:2], labels...)...)
	}
	const gauge, counter = prometheus.GaugeValue, prometheus.CounterValue
	for k := range s.Tiers {
		t, pool := &s.Tiers[k], kv.Tier(k).String()
		if t.Blocks == 0 {
			continue
		}
		say(m.blocks, gauge, float64(t.Blocks), pool, "all")
		say(m.blocks, gauge, float64(t.Used), pool, "used")
		say(m.blocks, gauge, float64(t.Stored), pool, "stored")
		say(m.hits, counter, float64(t.HitTokens), pool)
		say(m.pinned, gauge, float64(t.SoftPins), pool, "soft")
		say(m.pinned, gauge, float64(t.HardPins), pool, "hard")
		for class, n := range t.Evictions {
			say(m.evictions, counter, float64(n), pool, kvcache.Class(class).String())
		}
		say(m.prefetched, counter, float64(s.Prefetch.Blocks[k]), pool, "loaded")
		say(m.prefetched, counter, float64(s.Prefetch.Failed[k]), pool, "failed")
	}
	say(m.pins, counter, float64(s.PinsGranted), "full")
	say(m.pins, counter, float64(s.PinsPartial), "partial")
	say(m.pins, counter, float64(s.PinsDenied), "denied")
	say(m.expired, counter, float64(s.RetentionExpired))
	for state := kvcache.SessionActive; state <= kvcache.SessionClosing; state++ {
		say(m.sessions, gauge, float64(s.SessionBlocks[state]), state.String())
	}
	say(m.recomputed, counter, float64(s.Recomputed))
	say(m.pulled, counter, float64(s.Pulled))
	say(m.pulls, counter, float64(s.Pulls.Done), "done")
	say(m.pulls, counter, float64(s.Pulls.NoRoom), "no_room")
	say(m.pulls, counter, float64(s.Pulls.Failed), "failed")
	say(m.corrupt, counter, float64(s.Carried.Corrupt))
	say(m.failed, counter, float64(s.Carried.Missing), "missing")
	say(m.failed, counter, float64(s.Carried.Failed), "unreachable")
	if len(s.Ways) == 0 {
		return
	}
	say(m.parked, counter, float64(s.Parked))
	say(m.wait, counter, s.LoadWait.Seconds())
	say(m.wasted, counter, float64(s.Prefetch.Wasted))
	for i := range s.Ways {
		w := &s.Ways[i]
		edge := w.Edge.String()
		say(m.moved, counter, float64(w.Blocks), edge)
		say(m.bytes, counter, float64(w.Bytes), edge)
		within, sum := map[float64]uint64{}, uint64(0)
		for i, bound := range kvcache.TransferBounds() {
			sum += uint64(w.Within[i])
			within[bound] = sum
		}
		ch <- prometheus.MustNewConstHistogram(m.seconds, uint64(w.Transfers), w.Time.Seconds(), within, append(of[:2:2], edge)...)
		if w.Edge.From > w.Edge.To {
			continue
		}
		for reason, n := range w.Skipped {
			say(m.skipped, counter, float64(n), edge, kvcache.Skip(reason).String())
		}
	}
}
