// Package meter counts what a router does, for Prometheus.
//
// What happens too often to be asked for later is observed as it happens: a
// [Meter] is a [router.Observer]. All else is read from the router when the page
// is. Names, labels and buckets are those of existing boards; what they do not
// know begins with dynago.
package meter

import (
	"math"
	"math/rand/v2"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/router"
)

// Meter counts for one router. Its methods may be called from any goroutine.
type Meter struct {
	router atomic.Pointer[router.Router]
	id     string

	histograms []prometheus.Histogram
	ttft, itl, transfer, input, output, hitRate,
	lost, sharedRate, beyond,
	hashing, matching, shared, scheduling, total prometheus.Histogram
	nonMax *prometheus.CounterVec
	ended  prometheus.Counter
	gauges gauges
}

// New returns a meter of nothing; see [Meter.Watch].
func New() *Meter {
	m := &Meter{id: strconv.FormatUint(rand.Uint64(), 10)}
	labels := prometheus.Labels{
		"router_id":        m.id,
		"dynamo_namespace": "dynamo", "dynamo_component": "backend", "dynamo_endpoint": "generate",
	}
	histogram := func(name, help string, labels prometheus.Labels, buckets []float64) prometheus.Histogram {
		h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, ConstLabels: labels, Buckets: buckets})
		m.histograms = append(m.histograms, h)
		return h
	}
	component := func(name, help string, buckets []float64) prometheus.Histogram {
		return histogram("dynamo_component_router_"+name, help, labels, buckets)
	}
	compute, awaited := powers(0.001, 2, 15), powers(0.01, 3, 17)
	overhead := func(name, help string, buckets []float64) prometheus.Histogram {
		return histogram("dynamo_router_overhead_"+name+"_ms", help+", in milliseconds.", nil, buckets)
	}
	share := linear(0, 0.05, 21)

	m.ttft = component("time_to_first_token_seconds", "From the request to its first token.", spread(0.001, 2, 13))
	m.itl = component("inter_token_latency_seconds", "Mean time between the tokens of an answer.", spread(0.001, 2, 13))
	m.transfer = component("kv_transfer_estimated_latency_seconds", "From the end of a prompt on one worker to the first token on another, which the transfer between them cannot have exceeded.", spread(0.001, 10, 15))
	m.input = component("input_sequence_tokens", "Tokens of the prompt.", spread(50, 128_000, 12))
	m.output = component("output_sequence_tokens", "Tokens of the answer.", spread(50, 32_000, 10))
	m.hitRate = component("kv_hit_rate", "Part of the prompt's blocks taken to be cached where it goes, by tier weight.", share)
	m.sharedRate = component("shared_cache_hit_rate", "Part of the prompt's blocks that a cache beside the workers has.", share)
	m.beyond = component("shared_cache_beyond_blocks", "Blocks of them that are not cached where the prompt goes.", powers(1, 2, 13))
	m.lost = component("overlap_blocks_lost", "Blocks that are cached elsewhere and not where the prompt goes, where there are any.", powers(1, 2, 13))

	m.hashing = overhead("block_hashing", "Naming the blocks of a prompt and their sequences, which is done in one", compute)
	m.matching = overhead("indexer_find_matches", "Finding out where they are", compute)
	m.shared = overhead("shared_cache_query", "Waiting for the cache beside the workers", awaited)
	m.scheduling = overhead("scheduling", "Load, costs, choice and booking", awaited)
	m.total = overhead("total", "The whole decision", awaited)

	m.nonMax = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name:        "dynamo_component_router_non_max_overlap_selections_total",
		Help:        "Requests that went elsewhere than where most of them was cached.",
		ConstLabels: labels,
	}, []string{"worker_type"})
	m.ended = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "dynamo_component_router_requests_total", Help: "Requests that were placed and have ended.", ConstLabels: labels,
	})
	m.gauges = newGauges(labels)
	return m
}

// RouterID returns what the meter's page calls the router, in this life of it.
func (m *Meter) RouterID() string { return m.id }

// Watch lets the meter read what r tells when it is asked. The router must have
// the meter as its observer.
func (m *Meter) Watch(r *router.Router) { m.router.Store(r) }

// Routed implements [router.Observer].
func (m *Meter) Routed(d *router.Decision, w *router.Work) {
	m.input.Observe(float64(w.PromptTokens))
	if d.Blocks > 0 {
		m.hitRate.Observe(min(1, float64(d.Overlap)/float64(d.Blocks)))
	}
	if w.LostBlocks > 0 {
		m.nonMax.WithLabelValues(workerType(w.Role)).Inc()
		m.lost.Observe(w.LostBlocks)
	}
	if w.SharedAsked {
		if d.Blocks > 0 {
			m.sharedRate.Observe(min(1, float64(w.SharedBlocks)/float64(d.Blocks)))
		}
		m.beyond.Observe(float64(w.BeyondBlocks))
		m.shared.Observe(ms(w.Shared))
	}
	m.hashing.Observe(ms(w.Hashing))
	m.matching.Observe(ms(w.Matching))
	m.scheduling.Observe(ms(w.Scheduling))
	m.total.Observe(ms(d.Routing))
}

// Ended implements [router.Observer].
func (m *Meter) Ended(o *router.Outcome) {
	m.ended.Inc()
	if o.First == 0 {
		return
	}
	m.ttft.Observe((o.Queue + o.First).Seconds())
	m.output.Observe(float64(o.OutputTokens))
	if o.Transfer > 0 {
		m.transfer.Observe(o.Transfer.Seconds())
	}
	if n := o.OutputTokens - 1; n > 0 && o.End == router.Completed {
		m.itl.Observe((o.Total - o.First).Seconds() / float64(n))
	}
}

// Describe implements prometheus.Collector.
func (m *Meter) Describe(ch chan<- *prometheus.Desc) {
	for _, h := range m.histograms {
		h.Describe(ch)
	}
	m.nonMax.Describe(ch)
	m.ended.Describe(ch)
	m.gauges.describe(ch)
}

// Collect implements prometheus.Collector.
func (m *Meter) Collect(ch chan<- prometheus.Metric) {
	for _, h := range m.histograms {
		h.Collect(ch)
	}
	m.nonMax.Collect(ch)
	m.ended.Collect(ch)
	if r := m.router.Load(); r != nil {
		m.gauges.collect(ch, r)
	}
}

// workerType is the label by which boards know the role of a worker.
func workerType(role engine.Role) string {
	if role == engine.Prefill {
		return "prefill"
	}
	return "decode"
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// powers returns first, first·factor, … .
func powers(first, factor float64, n int) []float64 {
	return prometheus.ExponentialBuckets(first, factor, n)
}

func linear(first, step float64, n int) []float64 {
	bounds := make([]float64, n)
	for i := range bounds {
		bounds[i] = math.Round((first+float64(i)*step)*100) / 100 // 0.15, not 0.15000000000000002
	}
	return bounds
}

// spread returns n bounds from first to last, each as much larger than the one
// before.
func spread(first, last float64, n int) []float64 {
	bounds := prometheus.ExponentialBucketsRange(first, last, n)
	bounds[n-1] = last
	return bounds
}
