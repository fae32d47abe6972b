//go:build unix

package main

import (
	"fmt"
	"testing"
)

// What is learned of eight answers is expected of the next two, where the client does not
// expect anything itself; the page tells of both kinds that are learned, and of no other.
func TestLearnedMetrics(t *testing.T) {
	t.Parallel()
	const learnt, tokens = 8, 20
	for _, tc := range []struct {
		flags              []string
		lengths, tools     float64 // keys
		compared, expected float64
	}{
		{[]string{"--learn-osl", "--learn-tool-time"}, 4, 0, 3, 3 * tokens},
		{[]string{"--learn-osl"}, 4, -1, 3, 3 * tokens},
		{nil, -1, -1, -1, -1},
	} {
		p := serve(t, append([]string{"--workers", "1", "--speedup-ratio", "0", "--log-level", "off"}, tc.flags...)...)
		for i := range learnt + 3 {
			ext := ""
			if i == learnt {
				ext = `,"nvext":{"agent_hints":{"osl":7}}`
			}
			got := p.send("/v1/chat/completions", fmt.Sprintf(`{"model":"dynago/demo","max_tokens":%d,"ignore_eos":true,"messages":[{"role":"user","content":"%d"}]%s}`, tokens, i, ext))
			if got.status != 200 {
				t.Fatalf("%d %s", got.status, got.body)
			}
		}
		page, offered := scraped(t, p.page("/metrics")), tc.compared
		if offered > 0 {
			offered-- // not where the client has said it
		}
		for _, m := range []struct {
			name   string
			labels []string
			want   float64
		}{
			{"dynago_estimate_keys", []string{"of=output_tokens"}, tc.lengths},
			{"dynago_estimate_keys", []string{"of=tool_time"}, tc.tools},
			{"dynago_estimate_compared_total", []string{"of=output_tokens"}, tc.compared},
			{"dynago_estimate_offered_total", []string{"of=output_tokens"}, offered},
			{"dynago_estimate_over_total", []string{"of=output_tokens"}, min(0, tc.compared)},
			{"dynago_estimate_expected_output_tokens_total", nil, tc.expected},
			{"dynago_estimate_actual_output_tokens_total", nil, tc.expected},
			{"dynago_estimate_error_output_tokens_total", nil, min(0, tc.compared)},
			{"dynago_estimate_actual_tool_seconds_total", nil, tc.tools},
		} {
			if got := shownValue(page, m.name, m.labels...); got != m.want {
				t.Errorf("%v: %s%v is %v, want %v", tc.flags, m.name, m.labels, got, m.want)
			}
		}
	}
}
