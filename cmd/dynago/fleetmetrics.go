package main

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/dynago/dynago/fleet"
)

// fleetMetrics tells who is there, and where they come from, at the time the page is
// read.
type fleetMetrics struct {
	fleet  *fleet.Fleet
	roster *fleet.Roster

	workers, refused, restarts, wanted, changes, errors *prometheus.Desc
}

func newFleetMetrics(f *fleet.Fleet, r *fleet.Roster) *fleetMetrics {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("dynago_fleet_"+name, help, labels, nil)
	}
	return &fleetMetrics{
		fleet: f, roster: r,
		workers:  desc("workers", "Workers by their state.", "model", "state"),
		refused:  desc("refused_workers", "Workers that do not agree with those who serve their model, by the field in which they differ.", "model", "field"),
		restarts: desc("worker_restarts_total", "Lives of a worker that began after another one.", "worker_id"),
		wanted:   desc("source_workers", "Workers that a source wants.", "source"),
		changes:  desc("source_changes_total", "How often a source told another set of workers.", "source"),
		errors:   desc("source_errors_total", "How often a source could not be read, or wanted what cannot be.", "source"),
	}
}

// Describe implements prometheus.Collector.
func (m *fleetMetrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.workers, m.refused, m.restarts, m.wanted, m.changes, m.errors} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (m *fleetMetrics) Collect(ch chan<- prometheus.Metric) {
	tell := func(d *prometheus.Desc, kind prometheus.ValueType, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, kind, v, labels...)
	}
	states, refused := map[[2]string]int{}, map[[2]string]int{}
	for _, w := range m.fleet.Snapshot() {
		model := ""
		if card := w.Card(); card != nil {
			model = card.Model
		}
		states[[2]string{model, w.State()}]++
		if r := w.Refusal(); r != nil {
			refused[[2]string{r.Model, r.Field}]++
		}
		tell(m.restarts, prometheus.CounterValue, float64(w.Restarts()), strconv.FormatUint(w.ID(), 10))
	}
	for labels, n := range states {
		tell(m.workers, prometheus.GaugeValue, float64(n), labels[:]...)
	}
	for labels, n := range refused {
		tell(m.refused, prometheus.GaugeValue, float64(n), labels[:]...)
	}
	for _, s := range m.roster.Sources() {
		tell(m.wanted, prometheus.GaugeValue, float64(s.Workers), s.Name)
		tell(m.changes, prometheus.CounterValue, float64(s.Changes), s.Name)
		tell(m.errors, prometheus.CounterValue, float64(s.Errors), s.Name)
	}
}
