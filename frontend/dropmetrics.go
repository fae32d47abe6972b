package frontend

import "github.com/prometheus/client_golang/prometheus"

// dropMetrics tells what parsers had to drop, at the time the page is read.
type dropMetrics struct {
	backend Backend
	total   *prometheus.Desc
}

func newDropMetrics(b Backend) *dropMetrics {
	return &dropMetrics{b, prometheus.NewDesc("dynago_parser_dropped_total",
		"Pieces of generated text that belonged to no block, as broken calls.", []string{"family", "reason"}, nil)}
}

// Describe implements prometheus.Collector.
func (d *dropMetrics) Describe(ch chan<- *prometheus.Desc) { ch <- d.total }

// Collect implements prometheus.Collector.
func (d *dropMetrics) Collect(ch chan<- prometheus.Metric) {
	for _, c := range d.backend.Dropped() {
		ch <- prometheus.MustNewConstMetric(d.total, prometheus.CounterValue, float64(c.Count), c.Family, c.Reason)
	}
}
