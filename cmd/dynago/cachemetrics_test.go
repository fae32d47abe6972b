//go:build unix

package main

import (
	"fmt"
	"testing"
)

// What a tier does of what agents ask is told: pins by kind until they expire, blocks of
// sessions, and how long transfers took.
func TestCacheMetrics(t *testing.T) {
	t.Parallel()
	p := serve(t, "--workers", "1", "--num-gpu-blocks-override", "60", "--g2-blocks", "400", "--pin-budget-g1", "0.5", "--pin-budget-g2", "0.5",
		"--speedup-ratio", "0", "--log-level", "off")
	ask := func(of, more string, header ...string) {
		t.Helper()
		body := fmt.Sprintf(`{"model":"dynago/demo","max_tokens":4,"messages":[{"role":"user","content":%q}]%s}`, prose(of, 60), more)
		if got := p.send("/v1/chat/completions", body, header...); got.status != 200 {
			t.Fatalf("%d %s", got.status, got.body)
		}
	}
	labels := func(more ...string) []string {
		return append([]string{"dp_rank=0"}, append(more, fmt.Sprint("worker_id=", p.staff().Workers[0].ID))...)
	}
	shown := func(name string, more ...string) float64 {
		return shownValue(scraped(t, p.page("/metrics")), name, labels(more...)...)
	}
	ask("pinned", `,"nvext":{"cache_control":{"ttl":"1s"}}`)
	if soft, hard := shown("dynago_kv_pinned_blocks", "kind=soft", "pool=device"), shown("dynago_kv_pinned_blocks", "kind=hard", "pool=device"); soft <= 0 || hard != 0 {
		t.Errorf("%v blocks have soft pins, %v hard ones", soft, hard)
	}
	ask("of a session", `,"nvext":{"session_control":{"session_id":"s","action":"open","timeout":60}}`)
	if n := shown("dynago_kv_session_blocks", "state=idle"); n <= 0 {
		t.Errorf("%v blocks are of a session", n)
	}
	for i := range 6 {
		ask(fmt.Sprint("more ", i), "")
	}
	until(t, "no pin has expired", func() bool {
		ask("again", "")
		return shown("dynago_kv_retention_expired_total") > 0 && shown("dynago_kv_pinned_blocks", "kind=soft", "pool=device") == 0
	})
	for _, m := range scraped(t, p.page("/metrics"))["dynago_kv_transfer_seconds"].GetMetric() {
		h := m.Histogram
		if last := h.Bucket[len(h.Bucket)-1]; len(h.Bucket) < 11 || h.GetSampleCount() > 0 && last.GetCumulativeCount() != h.GetSampleCount() {
			t.Errorf("%v", m)
		}
		if edge := m.Label[1].GetValue(); edge == "device_host" && h.GetSampleCount() == 0 {
			t.Errorf("nothing was written to the host: %v", m)
		}
	}
}
