//go:build unix

package main

import (
	"fmt"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
)

// shownValue returns what a page says of a metric with these labels, and of a histogram how
// much was observed.
func shownValue(families map[string]*dto.MetricFamily, name string, labels ...string) float64 {
	for _, m := range families[name].GetMetric() {
		var has []string
		for _, l := range m.Label {
			has = append(has, l.GetName()+"="+l.GetValue())
		}
		if strings.Join(has, " ") != strings.Join(labels, " ") {
			continue
		}
		if m.Histogram != nil {
			return float64(m.Histogram.GetSampleCount())
		}
		return m.GetCounter().GetValue() + m.GetGauge().GetValue()
	}
	return -1
}

// Requests that were answered by way of two workers have made two trips, have left all
// stages, and became text.
func TestFlowMetrics(t *testing.T) {
	p := serve(t, "--workers", "1", "--num-prefill-workers", "1", "--speedup-ratio", "0", "--log-level", "off")
	const requests, tokens = 4, 20
	for i := range requests {
		got := p.send("/v1/chat/completions", fmt.Sprintf(`{"model":"dynago/demo","max_tokens":%d,"ignore_eos":true,"messages":[{"role":"user","content":%q}]}`, tokens, prose(fmt.Sprint(i), 100)))
		if got.status != 200 {
			t.Fatalf("%d %s", got.status, got.body)
		}
	}
	page := scraped(t, p.page("/metrics"))
	for _, tc := range []struct {
		name   string
		labels []string
		want   float64
	}{
		{"dynamo_request_plane_roundtrip_ttft_seconds", nil, 2 * requests},
		{"dynamo_request_plane_inflight_requests", nil, 0},
		{"dynamo_frontend_stage_duration_seconds", []string{"stage=dispatch"}, 2 * requests},
		{"dynamo_frontend_stage_requests", []string{"phase=", "stage=preprocess"}, 0},
		{"dynamo_frontend_stage_requests", []string{"phase=prefill", "stage=dispatch"}, 0},
		{"dynamo_frontend_stage_requests", []string{"phase=decode", "stage=dispatch"}, 0},
		{"dynamo_frontend_detokenize_token_count", nil, requests * tokens},
		{"dynamo_frontend_tokenizer_latency_ms", []string{"operation=detokenize"}, requests},
	} {
		if got := shownValue(page, tc.name, tc.labels...); got != tc.want {
			t.Errorf("%s%v is %v, want %v", tc.name, tc.labels, got, tc.want)
		}
	}
	if got := shownValue(page, "dynamo_frontend_detokenize_total_us"); got <= 0 {
		t.Errorf("to make text took %v µs", got)
	}
}
