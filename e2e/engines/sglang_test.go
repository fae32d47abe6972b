//go:build realengine

package engines_test

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"testing"
	"time"
)

// newSGLang returns an SGLang that publishes its events on a port, and replays
// them on the next.
func newSGLang(t testing.TB) (s *server, events, replay int) {
	p := freePorts(t, 3)
	s = &server{t: t, kind: "SGLang", url: local(p[0]), startUp: 5 * time.Minute, block: 16, seqs: 4}
	s.command = func(port string) (env, args []string) {
		return []string{"CUDA_VISIBLE_DEVICES=", "OMP_NUM_THREADS=1", "HF_HUB_OFFLINE=1"}, []string{
			setting(t, "E2E_SGLANG"), "-m", "sglang.launch_server", "--model-path", filepath.Join(setting(t, "E2E_TINY"), "tiny"),
			"--served-model-name", "tiny", "--host", "127.0.0.1", "--port", port, "--device", "cpu", "--dtype", "float32",
			"--context-length", "4096", "--max-total-tokens", "8192", "--max-running-requests", itoa(s.seqs), "--page-size", itoa(s.block),
			"--sleep-on-idle", "--skip-server-warmup", "--enable-metrics", "--enable-cache-report", "--enable-priority-scheduling",
			"--kv-events-config", fmt.Sprintf(`{"publisher":"zmq","endpoint":"tcp://*:%d","replay_endpoint":"tcp://*:%d"}`, p[1], p[2]),
		}
	}
	load := func(name string) func(t testing.TB) float64 {
		return func(t testing.TB) float64 {
			_, text := ask("GET", s.url+"/v1/loads?include=core", "")
			var all struct{ Loads []map[string]json.RawMessage }
			var n float64
			if err := json.Unmarshal([]byte(text), &all); err != nil || len(all.Loads) != 1 || json.Unmarshal(all.Loads[0][name], &n) != nil {
				t.Fatalf("/v1/loads: %v: %s", err, text)
			}
			return n
		}
	}
	s.running, s.waiting = load("num_running_reqs"), load("num_waiting_reqs")
	s.hits = s.gauge("sglang:cached_tokens_total")
	return s, p[1], p[2]
}

// TestSGLang is one story of two servers: they are slow to start.
func TestSGLang(t *testing.T) {
	a, events, replay := newSGLang(t)
	b, _, _ := newSGLang(t)
	wire := newRelay(t, fmt.Sprintf("127.0.0.1:%d", events))
	// What b publishes is found out. What a does comes by a line that can be cut.
	d := serve(t, fmt.Sprintf("sglang=%s,events=tcp://*:%d,replay=tcp://*:%d", a.url, wire.port, replay), "auto="+b.url)
	if !t.Run("attached before they are up", func(t *testing.T) {
		attached(t, d, a, b)
		_, info := ask("GET", a.url+"/server_info", "")
		var told struct{ Version string }
		if err := json.Unmarshal([]byte(info), &told); err != nil {
			t.Error(err)
		}
		t.Logf("SGLang %s", told.Version)
	}) {
		t.FailNow()
	}
	t.Run("chat", func(t *testing.T) {
		q := question{text: "hello world, what is it that you tell us?\nüñí 漢字 <b>&amp;</b>", header: d.at(t, a.url)}
		sameAsItself(t, d, a, q, nil)
	})
	t.Run("doctor", func(t *testing.T) { examined(t, "sglang="+b.url, 0) })
	t.Run("streaming", func(t *testing.T) { sameStreamed(t, d) })
	t.Run("forms of answers", func(t *testing.T) { forms(t, d, false) })
	t.Run("refusals", func(t *testing.T) { refusals(t, d) })
	t.Run("predicted hits are reported hits", func(t *testing.T) { foreseen(t, d, a, b) })
	t.Run("priority", func(t *testing.T) { urgent(t, d, b) })
	t.Run("cancellation frees the engine", func(t *testing.T) { cancelled(t, d, b) })
	t.Run("event gap", func(t *testing.T) { unheard(t, d, a, wire) })
	t.Run("cache reset", func(t *testing.T) { emptied(t, d, a, "/flush_cache") })
	t.Run("kill -9 during a stream, and restart in place", func(t *testing.T) { killed(t, d, a) })
}
