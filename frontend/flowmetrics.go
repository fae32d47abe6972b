package frontend

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/dynago/dynago/pipeline"
)

// flowMetrics tell where requests are between handler and worker, at the time the page is
// read, and how long they wait there.
type flowMetrics struct {
	flow *pipeline.Flow

	stages, inflight      *prometheus.Desc
	dispatch              prometheus.Observer
	detokenize            prometheus.Observer // an answer, in milliseconds
	trips                 prometheus.Histogram
	microseconds, spelled prometheus.Counter
}

func newFlowMetrics(b Backend, stages, tokenizer *prometheus.HistogramVec) *flowMetrics {
	trips := prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "dynamo_request_plane_roundtrip_ttft_seconds", Help: "Time from sending a request to a worker until its first item.",
		Buckets: []float64{.001, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5},
	})
	m := &flowMetrics{
		flow:     b.Flow(),
		stages:   prometheus.NewDesc(reference+"stage_requests", "Requests in one stage of the pipeline.", []string{"stage", "phase"}, nil),
		inflight: prometheus.NewDesc("dynamo_request_plane_inflight_requests", "Requests, and legs of them, that are with workers.", nil, nil),
		trips:    trips,
		dispatch: stages.WithLabelValues("dispatch"), detokenize: tokenizer.WithLabelValues("detokenize"),
		microseconds: prometheus.NewCounter(prometheus.CounterOpts{Name: reference + "detokenize_total_us", Help: "Time in which tokens became text, in microseconds, by one token in sixteen."}),
		spelled:      prometheus.NewCounter(prometheus.CounterOpts{Name: reference + "detokenize_token_count", Help: "Tokens that became text."}),
	}
	m.flow.Observe(m)
	return m
}

// Dispatched implements [pipeline.Gauge].
func (m *flowMetrics) Dispatched(took time.Duration) {
	m.trips.Observe(took.Seconds())
	m.dispatch.Observe(took.Seconds())
}

// Detokenized implements [pipeline.Gauge].
func (m *flowMetrics) Detokenized(tokens int, took time.Duration) {
	m.microseconds.Add(float64(took) / float64(time.Microsecond))
	m.spelled.Add(float64(tokens))
	m.detokenize.Observe(float64(took) / float64(time.Millisecond))
}

// Describe implements prometheus.Collector.
func (m *flowMetrics) Describe(ch chan<- *prometheus.Desc) {
	ch <- m.stages
	ch <- m.inflight
	for _, c := range []prometheus.Collector{m.trips, m.microseconds, m.spelled} {
		c.Describe(ch)
	}
}

// Collect implements prometheus.Collector.
func (m *flowMetrics) Collect(ch chan<- prometheus.Metric) {
	m.flow.Stages(func(stage, phase string, requests int) {
		ch <- prometheus.MustNewConstMetric(m.stages, prometheus.GaugeValue, float64(requests), stage, phase)
	})
	ch <- prometheus.MustNewConstMetric(m.inflight, prometheus.GaugeValue, float64(m.flow.Inflight()))
	for _, c := range []prometheus.Collector{m.trips, m.microseconds, m.spelled} {
		c.Collect(ch)
	}
}
