package main

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/dynago/dynago/pipeline"
)

// foresightMetrics tell what became of prompts that were computed, and of blocks that
// were brought up, ahead of their requests, at the time the page is read.
type foresightMetrics struct {
	pipeline                                    *pipeline.Pipeline
	total, running, tokens, used, blocks, hints *prometheus.Desc
}

func newForesightMetrics(p *pipeline.Pipeline) *foresightMetrics {
	return &foresightMetrics{
		pipeline: p,
		total: prometheus.NewDesc("dynago_speculative_prefill_total",
			"Prompts that clients wanted computed ahead: done, superseded by the next request, not begun because of the limit or a busy worker, unknown if nothing of the next prompt could be told, failed.", []string{"outcome"}, nil),
		running: prometheus.NewDesc("dynago_speculative_prefill_running",
			"Prompts that are computed ahead now.", nil, nil),
		tokens: prometheus.NewDesc("dynago_speculative_prefill_tokens_total",
			"Tokens of prompts that were computed ahead, those that were cached included.", nil, nil),
		used: prometheus.NewDesc("dynago_speculative_prefill_used_tokens_total",
			"Those of them with which the next prompt of the session began.", nil, nil),
		blocks: prometheus.NewDesc("dynago_prefetch_requests_total",
			"Prefetches that clients have asked for: begun, refused, and cancelled after they were begun.", []string{"outcome"}, nil),
		hints: prometheus.NewDesc("dynago_next_request_hints_total",
			"Requests that say when the next one of their session comes: told to a worker that can prefetch, or dropped where none of what has left the device can come back.", []string{"outcome"}, nil),
	}
}

// Describe implements prometheus.Collector.
func (m *foresightMetrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.total, m.running, m.tokens, m.used, m.blocks, m.hints} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (m *foresightMetrics) Collect(ch chan<- prometheus.Metric) {
	c := m.pipeline.Foresights()
	counter := func(d *prometheus.Desc, n int64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
	}
	for end, n := range c.Ends {
		counter(m.total, n, string(end))
	}
	ch <- prometheus.MustNewConstMetric(m.running, prometheus.GaugeValue, float64(c.Running))
	counter(m.tokens, c.Tokens)
	counter(m.used, c.Used)
	f := m.pipeline.Prefetches()
	counter(m.blocks, f.Begun, "begun")
	counter(m.blocks, f.Refused, "refused")
	counter(m.blocks, f.Cancelled, "cancelled")
	counter(m.hints, f.Hinted, "told")
	counter(m.hints, f.Unheard, "dropped")
}
