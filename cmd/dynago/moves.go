package main

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/dynago/dynago/frontend"
	"github.com/dynago/dynago/pipeline"
)

// moveMetrics are what became of requests that lost their workers.
type moveMetrics struct {
	took    *prometheus.HistogramVec
	refused *prometheus.CounterVec
}

// newMoveMetrics returns metrics of moves whose names begin with a prefix.
func newMoveMetrics(prefix string) *moveMetrics {
	prefix = frontend.MetricPrefix(prefix)
	return &moveMetrics{
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    prefix + "_model_migration_duration_seconds",
			Help:    "Time from the failure of a worker until another one has gone on with the request, or none will.",
			Buckets: []float64{.01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 20, 40, 60},
		}, []string{"model", "migration_type", "outcome"}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: prefix + "_model_migration_max_seq_len_exceeded_total",
			Help: "Requests that lost their worker and had grown too long to move.",
		}, []string{"model"}),
	}
}

// moved is told of each move.
func (m *moveMetrics) moved(v pipeline.Move) {
	if v.End == pipeline.MoveRefused {
		m.refused.WithLabelValues(v.Model).Inc()
		return
	}
	kind := "new_request"
	if v.Ongoing {
		kind = "ongoing_request"
	}
	m.took.WithLabelValues(v.Model, kind, string(v.End)).Observe(v.Took.Seconds())
}

// Describe implements prometheus.Collector.
func (m *moveMetrics) Describe(ch chan<- *prometheus.Desc) {
	m.took.Describe(ch)
	m.refused.Describe(ch)
}

// Collect implements prometheus.Collector.
func (m *moveMetrics) Collect(ch chan<- prometheus.Metric) {
	m.took.Collect(ch)
	m.refused.Collect(ch)
}
