package frontend

import (
	"math"
	"sort"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// batchedHistogram is a histogram of things that happen too often to be
// observed one by one: each stream collects in a [batch] of its own, without
// any synchronisation, and adds it now and then.
type batchedHistogram struct {
	desc   *prometheus.Desc
	bounds []float64

	mu     sync.Mutex
	series map[string]*batchedSeries
}

// batchedSeries holds what all streams with one label value have added.
type batchedSeries struct {
	label  string
	bounds []float64
	counts []atomic.Uint64 // one for each bound, and one for what is above all
	sum    atomic.Uint64   // bits of a float64
}

func newBatchedHistogram(name, help string, bounds []float64, label string) *batchedHistogram {
	return &batchedHistogram{
		desc:   prometheus.NewDesc(name, help, []string{label}, nil),
		bounds: bounds,
		series: map[string]*batchedSeries{},
	}
}

// with returns the series of a label value.
func (h *batchedHistogram) with(label string) *batchedSeries {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.series[label]
	if s == nil {
		s = &batchedSeries{label: label, bounds: h.bounds, counts: make([]atomic.Uint64, len(h.bounds)+1)}
		h.series[label] = s
	}
	return s
}

// Describe implements prometheus.Collector.
func (h *batchedHistogram) Describe(ch chan<- *prometheus.Desc) { ch <- h.desc }

// Collect implements prometheus.Collector.
func (h *batchedHistogram) Collect(ch chan<- prometheus.Metric) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range h.series {
		buckets := make(map[float64]uint64, len(h.bounds))
		var total uint64
		for i, bound := range h.bounds {
			total += s.counts[i].Load()
			buckets[bound] = total
		}
		total += s.counts[len(h.bounds)].Load()
		ch <- prometheus.MustNewConstHistogram(h.desc, total, math.Float64frombits(s.sum.Load()), buckets, s.label)
	}
}

// batch is one stream's share, for one goroutine.
type batch struct {
	series *batchedSeries
	// counts is nil until the first observation, and small enough to be
	// allocated once for each stream.
	counts []uint32
	sum    float64
	n      int
}

// batchSize is how many observations a stream keeps to itself at most.
const batchSize = 64

// observe counts n values of x.
func (b *batch) observe(x float64, n int) {
	if b.counts == nil {
		b.counts = make([]uint32, len(b.series.counts))
	}
	b.counts[sort.SearchFloat64s(b.series.bounds, x)] += uint32(n)
	b.sum += x * float64(n)
	if b.n += n; b.n >= batchSize {
		b.flush()
	}
}

// flush adds the batch to its series.
func (b *batch) flush() {
	if b.n == 0 {
		return
	}
	for i, n := range b.counts {
		if n > 0 {
			b.series.counts[i].Add(uint64(n))
			b.counts[i] = 0
		}
	}
	for {
		old := b.series.sum.Load()
		if b.series.sum.CompareAndSwap(old, math.Float64bits(math.Float64frombits(old)+b.sum)) {
			break
		}
	}
	b.sum, b.n = 0, 0
}
