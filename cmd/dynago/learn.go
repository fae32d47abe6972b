package main

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/dynago/dynago/pipeline"
)

// learnSettings say what is expected of requests whose clients do not say it.
type learnSettings struct {
	OSL      bool `name:"learn-osl" env:"DYN_LEARN_OSL" negatable:"" help:"Expect answers to be as long as those before, by model, agent and tool, where clients give no nvext.agent_hints.osl."`
	ToolTime bool `name:"learn-tool-time" env:"DYN_LEARN_TOOL_TIME" negatable:"" help:"Expect tools to return as soon as before, where clients give no next_request_in, and let engines with tiers of cache have by then what the next turn begins with."`
}

func (s learnSettings) config() pipeline.Learn {
	return pipeline.Learn{OutputTokens: s.OSL, ToolTime: s.ToolTime}
}

// estimateMetrics tell how well was expected what has been learned, at the time the page
// is read.
type estimateMetrics struct {
	pipeline                                     *pipeline.Pipeline
	keys, offered, compared, over, above         *prometheus.Desc
	expectedTokens, actualTokens, wrongTokens    *prometheus.Desc
	expectedSeconds, actualSeconds, wrongSeconds *prometheus.Desc
}

func newEstimateMetrics(p *pipeline.Pipeline) *estimateMetrics {
	of := []string{"of"}
	return &estimateMetrics{
		pipeline: p,
		keys: prometheus.NewDesc("dynago_estimate_keys",
			"Models, agents, tools and their triggers of which something is learned: of output_tokens, or of tool_time.", of, nil),
		offered: prometheus.NewDesc("dynago_estimate_offered_total",
			"Estimates that stood in for what a client did not say.", of, nil),
		compared: prometheus.NewDesc("dynago_estimate_compared_total",
			"Estimates that were held against what came.", of, nil),
		over: prometheus.NewDesc("dynago_estimate_over_total",
			"Those of them that said more than came.", of, nil),
		above: prometheus.NewDesc("dynago_estimate_above_high_total",
			"Those of them where more came than nine in ten should come to.", of, nil),
		expectedTokens: prometheus.NewDesc("dynago_estimate_expected_output_tokens_total",
			"Tokens that answers were expected to have, of those that were compared.", nil, nil),
		actualTokens: prometheus.NewDesc("dynago_estimate_actual_output_tokens_total",
			"Tokens that these answers had.", nil, nil),
		wrongTokens: prometheus.NewDesc("dynago_estimate_error_output_tokens_total",
			"Tokens by which the two differed, whichever way.", nil, nil),
		expectedSeconds: prometheus.NewDesc("dynago_estimate_expected_tool_seconds_total",
			"Time that tools were expected to take, of those that were compared.", nil, nil),
		actualSeconds: prometheus.NewDesc("dynago_estimate_actual_tool_seconds_total",
			"Time that these tools took, from the end of the answer to the next request.", nil, nil),
		wrongSeconds: prometheus.NewDesc("dynago_estimate_error_tool_seconds_total",
			"Time by which the two differed, whichever way.", nil, nil),
	}
}

// Describe implements prometheus.Collector.
func (m *estimateMetrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		m.keys, m.offered, m.compared, m.over, m.above, m.expectedTokens, m.actualTokens, m.wrongTokens,
		m.expectedSeconds, m.actualSeconds, m.wrongSeconds,
	} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (m *estimateMetrics) Collect(ch chan<- prometheus.Metric) {
	counter := func(d *prometheus.Desc, n float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, n, labels...)
	}
	one := func(of string, o pipeline.Outlook) {
		ch <- prometheus.MustNewConstMetric(m.keys, prometheus.GaugeValue, float64(o.Keys), of)
		counter(m.offered, float64(o.Offered), of)
		counter(m.compared, float64(o.Count), of)
		counter(m.over, float64(o.Over), of)
		counter(m.above, float64(o.Above), of)
	}
	if o := m.pipeline.OutputOutlook(); m.pipeline.Learn.OutputTokens {
		one("output_tokens", o)
		counter(m.expectedTokens, o.Told)
		counter(m.actualTokens, o.Came)
		counter(m.wrongTokens, o.Off)
	}
	if o := m.pipeline.ToolOutlook(); m.pipeline.Learn.ToolTime {
		const ms = 1e-3
		one("tool_time", o)
		counter(m.expectedSeconds, o.Told*ms)
		counter(m.actualSeconds, o.Came*ms)
		counter(m.wrongSeconds, o.Off*ms)
	}
}
