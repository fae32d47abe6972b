package scrape

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	// every is how often the delay is measured.
	every = 10 * time.Millisecond
	// stall is the delay from which on it counts as one.
	stall = 5 * time.Millisecond
)

// Delay measures by how much a timer is late: what any goroutine that becomes ready
// has to wait for a processor at the time, whatever keeps them busy.
type Delay struct {
	late   prometheus.Histogram
	stalls prometheus.Counter
}

// NewDelay returns a Delay that measures nothing yet.
func NewDelay() *Delay {
	return &Delay{
		late: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "dynamo_frontend_event_loop_delay_seconds", Help: "By how much a timer of 10 ms was late.",
			Buckets: []float64{0, .001, .005, .01, .025, .05, .1, .25, .5, 1},
		}),
		stalls: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "dynamo_frontend_event_loop_stall_total", Help: "How often it was late by more than 5 ms.",
		}),
	}
}

// Run measures until ctx ends.
func (d *Delay) Run(ctx context.Context) {
	timer := time.NewTimer(every)
	defer timer.Stop()
	for {
		began := time.Now()
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		d.woke(time.Since(began) - every)
		timer.Reset(every)
	}
}

func (d *Delay) woke(late time.Duration) {
	late = max(late, 0)
	d.late.Observe(late.Seconds())
	if late > stall {
		d.stalls.Inc()
	}
}

// Describe implements prometheus.Collector.
func (d *Delay) Describe(ch chan<- *prometheus.Desc) {
	d.late.Describe(ch)
	d.stalls.Describe(ch)
}

// Collect implements prometheus.Collector.
func (d *Delay) Collect(ch chan<- prometheus.Metric) {
	d.late.Collect(ch)
	d.stalls.Collect(ch)
}
