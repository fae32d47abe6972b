package frontend

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
)

// cacheGauges tells what the router knows of the fleet's KV caches, and how well,
// at the time the page is read.
type cacheGauges struct {
	server *Server
	// Of the index.
	applied, conflicts, warnings, targets, prefixes, blocks, refused, shared *prometheus.Desc
	// Of workers and their events.
	batches, streams *prometheus.Desc
	// Of answers.
	answers, predicted, reported, witnesses, wrong, drift, doubted, doubts, resyncs, silent *prometheus.Desc
}

func newCacheGauges(s *Server) *cacheGauges {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	worker := func(name, help string, labels ...string) *prometheus.Desc {
		return desc("dynago_cache_prediction_"+name, help, append([]string{"worker_id", "dp_rank"}, labels...)...)
	}
	return &cacheGauges{
		server:    s,
		applied:   desc("dynamo_component_kv_cache_events_applied", "Events of workers' caches that reached the index, by what became of them.", "event_type", "status"),
		warnings:  desc("dynamo_component_kv_cache_event_warnings", "What was odd about events that were applied: blocks that were told of again.", "warning_kind"),
		conflicts: desc("dynago_index_conflicts_total", "Blocks whose key was known with another content or parent."),
		targets:   desc("dynago_index_targets", "Ranks that hold something."),
		prefixes:  desc("dynago_index_prefixes", "Distinct blocks, with everything before them."),
		blocks:    desc("dynago_index_blocks", "Blocks, over all ranks."),
		refused:   desc("dynago_index_refused_batches_total", "Batches of KV events that did not reach the index, or not wholly.", "reason"),
		shared:    desc("dynamo_router_shared_cache_errors_total", "Prompts for which the shared cache had no answer."),

		batches: desc("dynago_worker_kv_event_batches_total", "Batches of KV events, by what came of them; voided ones replaced what was told before.", "worker_id", "status"),
		streams: desc("dynago_worker_kv_event_streams_total", "How often a worker's KV events were read from the beginning or went on after a break.", "worker_id"),

		answers:   worker("answers_total", "Answers that told how much of their prompt was cached."),
		predicted: worker("predicted_tokens_total", "Tokens that the router expected those to find cached."),
		reported:  worker("reported_tokens_total", "Tokens that those did find cached."),
		witnesses: worker("witnesses_total", "Answers by which the index was judged."),
		wrong:     worker("wrong_blocks_total", "Blocks about which the index and its witnesses disagreed: missing ones should have been cached, surprising ones not.", "kind"),
		drift:     worker("drift", "Share of blocks about which they disagree of late, 0 to 1."),
		doubted:   worker("doubted", "1 while the index is not believed, and what is routed to the worker counts instead."),
		doubts:    worker("doubts_total", "How often belief ended."),
		silent:    desc("dynago_worker_kv_events_silent", "1 while a rank serves prompts, has done so for a minute, and tells of no KV event.", "worker_id", "dp_rank"),
		resyncs:   worker("resyncs_total", "How often a worker's events were read anew because of that."),
	}
}

// Describe implements prometheus.Collector.
func (g *cacheGauges) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		g.applied, g.conflicts, g.warnings, g.targets, g.prefixes, g.blocks, g.refused, g.shared, g.batches, g.streams,
		g.answers, g.predicted, g.reported, g.witnesses, g.wrong, g.drift, g.doubted, g.doubts, g.resyncs, g.silent,
	} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (g *cacheGauges) Collect(ch chan<- prometheus.Metric) {
	tell := func(kind prometheus.ValueType, d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, kind, v, labels...)
	}
	counter := func(d *prometheus.Desc, v uint64, labels ...string) {
		tell(prometheus.CounterValue, d, float64(v), labels...)
	}
	caches := g.server.Backend.Caches()
	index := caches.Index
	for _, e := range []struct {
		kind, status string
		n            uint64
	}{
		{"stored", "ok", index.Stored - index.ParentNotFound - index.InvalidSequence - index.Full},
		{"stored", "parent_block_not_found", index.ParentNotFound},
		{"stored", "invalid_block", index.InvalidSequence},
		{"stored", "capacity_exhausted", index.Full},
		{"removed", "ok", index.Removed - index.BlockNotFound},
		{"removed", "block_not_found", index.BlockNotFound},
		{"cleared", "ok", index.Cleared},
		{"unknown", "unsupported", index.Unsupported},
	} {
		counter(g.applied, e.n, e.kind, e.status)
	}
	counter(g.conflicts, index.Conflicts)
	counter(g.warnings, index.Duplicates, "duplicate_store")
	tell(prometheus.GaugeValue, g.targets, float64(index.Targets))
	tell(prometheus.GaugeValue, g.prefixes, float64(index.Prefixes))
	tell(prometheus.GaugeValue, g.blocks, float64(index.Blocks))
	for _, e := range []struct {
		reason string
		n      uint64
	}{
		{"unknown_worker", caches.Intake.Unknown},
		{"not_listened_to", caches.Intake.Unheard},
		{"too_many_blocks", caches.Intake.Overfull},
		{"muted", caches.Intake.Muted},
	} {
		counter(g.refused, e.n, e.reason)
	}
	counter(g.shared, caches.SharedErrors)
	for _, w := range g.server.Backend.Workers() {
		id := strconv.FormatUint(w.ID, 10)
		for _, e := range []struct {
			status string
			n      uint64
		}{
			{"applied", w.Events.Applied},
			{"voided", w.Events.Voided},
			{"ignored", w.Events.Ignored},
			{"torn", w.Events.Torn},
			{"foreign_rank", w.Events.Foreign},
		} {
			counter(g.batches, e.n, id, e.status)
		}
		counter(g.streams, w.Events.Opened, id)
	}
	for _, v := range caches.Views {
		labels := []string{strconv.FormatUint(v.Target.Worker, 10), strconv.FormatUint(uint64(v.Target.Rank), 10)}
		counter(g.answers, v.Answers, labels...)
		counter(g.predicted, v.Predicted, labels...)
		counter(g.reported, v.Reported, labels...)
		counter(g.witnesses, v.Witnesses, labels...)
		counter(g.wrong, v.Missing, append(labels, "missing")...)
		counter(g.wrong, v.Surprising, append(labels, "surprising")...)
		tell(prometheus.GaugeValue, g.drift, v.Drift, labels...)
		doubted := 0.0
		if v.Doubted {
			doubted = 1
		}
		tell(prometheus.GaugeValue, g.doubted, doubted, labels...)
		counter(g.doubts, v.Doubts, labels...)
		counter(g.resyncs, v.Resyncs, labels...)
		silent := 0.0
		if v.Silent {
			silent = 1
		}
		tell(prometheus.GaugeValue, g.silent, silent, labels...)
	}
}
