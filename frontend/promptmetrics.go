package frontend

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/dynago/dynago/chattemplate"
	"github.com/dynago/dynago/pipeline"
	"github.com/dynago/dynago/prompt"
)

// promptMetrics tells what the backend remembers of prompts, answers and tools, at
// the time the page is read. A cache that is off has no metrics.
type promptMetrics struct {
	backend Backend
	// Hits and misses of the tokenizer's cache, over all models, as the reference
	// counts them.
	hits, misses *prometheus.Desc
	byModel      []promptMetric
}

// promptMetric is one metric of one model.
type promptMetric struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	// value returns false for a model that does not have it.
	value func(m *pipeline.ModelInfo) (float64, bool)
}

func newPromptMetrics(b Backend) *promptMetrics {
	texts := func(name, help string, kind prometheus.ValueType, of func(*prompt.CacheStats) float64) promptMetric {
		return promptMetric{prometheus.NewDesc(name, help, []string{"model"}, nil), kind, func(m *pipeline.ModelInfo) (float64, bool) {
			if m.Cache == nil {
				return 0, false
			}
			return of(m.Cache), true
		}}
	}
	turns := func(name, help string, kind prometheus.ValueType, of func(*prompt.TurnStats) float64) promptMetric {
		return promptMetric{prometheus.NewDesc("dynago_turn_cache_"+name, help, []string{"model"}, nil), kind, func(m *pipeline.ModelInfo) (float64, bool) {
			if m.Turns == nil {
				return 0, false
			}
			return of(m.Turns), true
		}}
	}
	tools := func(name, help string, kind prometheus.ValueType, of func(*chattemplate.ToolCache) float64) promptMetric {
		return promptMetric{prometheus.NewDesc("dynago_tool_cache_"+name, help, []string{"model"}, nil), kind, func(m *pipeline.ModelInfo) (float64, bool) {
			if m.Tools == nil {
				return 0, false
			}
			return of(m.Tools), true
		}}
	}
	const counter, gauge = prometheus.CounterValue, prometheus.GaugeValue
	return &promptMetrics{
		backend: b,
		hits:    prometheus.NewDesc(reference+"tokenizer_cache_hits_total", "Prompts of which some ids were known.", nil, nil),
		misses:  prometheus.NewDesc(reference+"tokenizer_cache_misses_total", "Prompts of which no ids were known.", nil, nil),
		byModel: []promptMetric{
			texts(reference+"tokenizer_cache_cached_tokens_total", "Tokens of prompts that were known.", counter, func(s *prompt.CacheStats) float64 { return float64(s.CachedTokens) }),
			texts(reference+"tokenizer_cache_uncached_tokens_total", "Tokens of prompts that had to be made.", counter, func(s *prompt.CacheStats) float64 { return float64(s.UncachedTokens) }),
			texts("dynago_tokenizer_cache_evictions_total", "Texts that made room for others.", counter, func(s *prompt.CacheStats) float64 { return float64(s.Evictions) }),
			texts("dynago_tokenizer_cache_bytes", "Bytes held.", gauge, func(s *prompt.CacheStats) float64 { return float64(s.Bytes) }),
			texts("dynago_tokenizer_cache_texts", "Texts held.", gauge, func(s *prompt.CacheStats) float64 { return float64(s.Texts) }),
			turns("hits_total", "Answers in prompts whose ids were known.", counter, func(s *prompt.TurnStats) float64 { return float64(s.Hits) }),
			turns("misses_total", "Answers in prompts that had to be tokenized.", counter, func(s *prompt.TurnStats) float64 { return float64(s.Misses) }),
			turns("tokens_total", "Tokens of the answers whose ids were known.", counter, func(s *prompt.TurnStats) float64 { return float64(s.Tokens) }),
			turns("evictions_total", "Answers that made room for others.", counter, func(s *prompt.TurnStats) float64 { return float64(s.Evictions) }),
			turns("bytes", "Bytes held.", gauge, func(s *prompt.TurnStats) float64 { return float64(s.Bytes) }),
			turns("turns", "Answers held.", gauge, func(s *prompt.TurnStats) float64 { return float64(s.Turns) }),
			tools("hits_total", "Tools that the chat template knew.", counter, func(s *chattemplate.ToolCache) float64 { return float64(s.Hits) }),
			tools("misses_total", "Tools that had to be read.", counter, func(s *chattemplate.ToolCache) float64 { return float64(s.Misses) }),
			tools("resets_total", "Times that all tools made room for others.", counter, func(s *chattemplate.ToolCache) float64 { return float64(s.Resets) }),
			tools("bytes", "Bytes of the tools held, as clients sent them.", gauge, func(s *chattemplate.ToolCache) float64 { return float64(s.Bytes) }),
			tools("tools", "Tools held.", gauge, func(s *chattemplate.ToolCache) float64 { return float64(s.Tools) }),
		},
	}
}

// Describe implements prometheus.Collector.
func (p *promptMetrics) Describe(ch chan<- *prometheus.Desc) {
	ch <- p.hits
	ch <- p.misses
	for _, m := range p.byModel {
		ch <- m.desc
	}
}

// Collect implements prometheus.Collector.
func (p *promptMetrics) Collect(ch chan<- prometheus.Metric) {
	var (
		hits, misses uint64
		on           bool
	)
	models := p.backend.Models()
	for i := range models {
		if s := models[i].Cache; s != nil {
			on, hits, misses = true, hits+s.Hits, misses+s.Misses
		}
		for _, m := range p.byModel {
			if v, ok := m.value(&models[i]); ok {
				ch <- prometheus.MustNewConstMetric(m.desc, m.kind, v, models[i].ID)
			}
		}
	}
	if on {
		ch <- prometheus.MustNewConstMetric(p.hits, prometheus.CounterValue, float64(hits))
		ch <- prometheus.MustNewConstMetric(p.misses, prometheus.CounterValue, float64(misses))
	}
}
