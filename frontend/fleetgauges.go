package frontend

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/dynago/dynago/engine"
)

// fleetGauges tells what the backend knows of its models and workers at the
// time the page is read; nothing of it is stored here.
type fleetGauges struct {
	server *Server
	// Of models.
	totalBlocks, maxSeqs, maxTokens, context, blockSize, migration *prometheus.Desc
	// Of workers.
	decodeBlocks, prefillTokens, ttft, input, itl, requests, cached *prometheus.Desc
}

func newFleetGauges(s *Server, prefix string) *fleetGauges {
	model := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc(prefix+"model_"+name, help, []string{"model"}, nil)
	}
	worker := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, []string{"worker_id", "dp_rank", "worker_type"}, nil)
	}
	return &fleetGauges{
		server:      s,
		totalBlocks: model("total_kv_blocks", "KV blocks of one rank."),
		maxSeqs:     model("max_num_seqs", "Sequences that one rank runs at once."),
		maxTokens:   model("max_num_batched_tokens", "Tokens that one rank computes in one pass."),
		context:     model("context_length", "Tokens of prompt and answer together."),
		blockSize:   model("kv_cache_block_size", "Tokens of one KV block."),
		migration:   model("migration_limit", "How often a request may move to another worker."),

		decodeBlocks:  worker(reference+"worker_active_decode_blocks", "KV blocks in use by running requests."),
		prefillTokens: worker(reference+"worker_active_prefill_tokens", "Prompt tokens that are still to be computed."),
		ttft:          worker(reference+"worker_last_time_to_first_token_seconds", "Of the newest request."),
		input:         worker(reference+"worker_last_input_sequence_tokens", "Of the newest request."),
		itl:           worker(reference+"worker_last_inter_token_latency_seconds", "Of the newest token."),
		requests:      worker("dynago_worker_active_requests", "Requests that the router has placed and that have not ended."),
		cached:        worker("dynago_worker_cached_blocks", "KV blocks that the index knows to be cached."),
	}
}

// Describe implements prometheus.Collector.
func (g *fleetGauges) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		g.totalBlocks, g.maxSeqs, g.maxTokens, g.context, g.blockSize, g.migration,
		g.decodeBlocks, g.prefillTokens, g.ttft, g.input, g.itl, g.requests, g.cached,
	} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (g *fleetGauges) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	for _, m := range g.server.Backend.Models() {
		gauge(g.totalBlocks, float64(m.TotalBlocks), m.ID)
		gauge(g.maxSeqs, float64(m.MaxSeqs), m.ID)
		gauge(g.maxTokens, float64(m.MaxBatchedTokens), m.ID)
		gauge(g.context, float64(m.ContextLength), m.ID)
		gauge(g.blockSize, float64(m.BlockSize), m.ID)
		gauge(g.migration, float64(g.server.MigrationLimit), m.ID)
	}
	for _, w := range g.server.Backend.Workers() {
		id, kind := strconv.FormatUint(w.ID, 10), "decode" // as boards have it, also of workers that do it all
		if w.Role == engine.Prefill {
			kind = "prefill"
		}
		for _, r := range w.Ranks {
			labels := []string{id, strconv.FormatUint(uint64(r.Rank), 10), kind}
			gauge(g.decodeBlocks, float64(r.DecodeBlocks), labels...)
			gauge(g.prefillTokens, float64(r.PrefillTokens), labels...)
			gauge(g.ttft, r.LastTTFT, labels...)
			gauge(g.input, float64(r.LastInputTokens), labels...)
			gauge(g.itl, r.LastITL, labels...)
			gauge(g.requests, float64(r.Requests), labels...)
			gauge(g.cached, float64(r.CachedBlocks), labels...)
		}
	}
}
