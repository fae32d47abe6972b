//go:build realengine

package engines_test

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
	"time"
)

// newVLLM returns a vLLM that publishes its events on a port, and replays them on
// the next.
func newVLLM(t testing.TB) (s *server, events, replay int) {
	p := freePorts(t, 3)
	s = &server{t: t, kind: "vLLM", url: local(p[0]), startUp: 5 * time.Minute, block: 32, seqs: 4} // blocks are no smaller on processors
	s.command = func(port string) (env, args []string) {
		env = []string{
			"PYTHONHASHSEED=0", "VLLM_CPU_KVCACHE_SPACE=1", "VLLM_CPU_OMP_THREADS_BIND=nobind", "OMP_NUM_THREADS=1",
			"VLLM_SERVER_DEV_MODE=1", "VLLM_NO_USAGE_STATS=1", "DO_NOT_TRACK=1", "HF_HUB_OFFLINE=1", "VLLM_LOGGING_COLOR=0",
		}
		args = []string{
			setting(t, "E2E_VLLM"), "serve", filepath.Join(setting(t, "E2E_TINY"), "tiny"), "--served-model-name", "tiny",
			"--host", "127.0.0.1", "--port", port, "--dtype", "float32", "--enforce-eager", "--max-model-len", "4096",
			"--max-num-seqs", itoa(s.seqs), "--block-size", itoa(s.block), "--num-gpu-blocks-override", "256",
			"--enable-prompt-tokens-details", "--scheduling-policy", "priority", "--disable-uvicorn-access-log",
			"--kv-events-config", fmt.Sprintf(`{"enable_kv_cache_events":true,"publisher":"zmq","endpoint":"tcp://*:%d","replay_endpoint":"tcp://*:%d"}`, p[1], p[2]),
		}
		return env, args
	}
	s.running, s.waiting = s.gauge("vllm:num_requests_running"), s.gauge("vllm:num_requests_waiting")
	s.hits = s.gauge("vllm:prefix_cache_hits_total")
	return s, p[1], p[2]
}

// TestVLLM is one story of two servers: they are slow to start.
func TestVLLM(t *testing.T) {
	a, events, replay := newVLLM(t)
	b, _, _ := newVLLM(t)
	wire := newRelay(t, fmt.Sprintf("127.0.0.1:%d", events))
	// What b publishes is found out. What a does comes by a line that can be cut.
	d := serve(t, fmt.Sprintf("vllm=%s,events=tcp://*:%d,replay=tcp://*:%d", a.url, wire.port, replay), "vllm="+b.url)
	if !t.Run("attached before they are up", func(t *testing.T) {
		attached(t, d, a, b)
		_, version := ask("GET", a.url+"/version", "")
		t.Logf("vLLM %s", version)
	}) {
		t.FailNow()
	}
	t.Run("chat", func(t *testing.T) { vllmChat(t, d, a) })
	t.Run("doctor", func(t *testing.T) { examined(t, "vllm="+b.url, 0) })
	t.Run("streaming", func(t *testing.T) { sameStreamed(t, d) })
	t.Run("forms of answers", func(t *testing.T) { forms(t, d, true) })
	t.Run("refusals", func(t *testing.T) { refusals(t, d) })
	t.Run("predicted hits are reported hits", func(t *testing.T) { foreseen(t, d, a, b) })
	t.Run("priority", func(t *testing.T) { urgent(t, d, b) })
	t.Run("cancellation frees the engine", func(t *testing.T) { cancelled(t, d, b) })
	t.Run("event gap", func(t *testing.T) { unheard(t, d, a, wire) })
	t.Run("cache reset", func(t *testing.T) { emptied(t, d, a, "/reset_prefix_cache") })
	t.Run("kill -9 during a stream, and restart in place", func(t *testing.T) { killed(t, d, a) })
	t.Run("the engine core dies during a stream", func(t *testing.T) { vllmCore(t, d, b) })
}

// vllmChat holds dynago's template, tokens and text against the engine's own.
func vllmChat(t *testing.T, d *dynago, s *server) {
	q := question{text: "hello world, what is it that you tell us?\nüñí 漢字 <b>&amp;</b>", header: d.at(t, s.url)}
	through := sameAsItself(t, d, s, q, nil)
	body, err := json.Marshal(map[string]any{"model": "tiny", "messages": []any{map[string]any{"role": "user", "content": q.text}}})
	if err != nil {
		t.Fatal(err)
	}
	_, text := ask("POST", s.url+"/tokenize", string(body))
	var tokens struct{ Count int }
	if err := json.Unmarshal([]byte(text), &tokens); err != nil || tokens.Count != through.Usage.Prompt {
		t.Errorf("%d tokens in the prompt; the engine counts %s", through.Usage.Prompt, text)
	}
}

var corePID = regexp.MustCompile(`\(EngineCore pid=(\d+)\)`)

// vllmCore kills the process that computes and leaves the one that listens, which
// is what running out of memory looks like.
func vllmCore(t *testing.T, d *dynago, s *server) {
	found := corePID.FindStringSubmatch(s.printed())
	if found == nil {
		t.Fatalf("no engine core in what vLLM printed:\n%s", s.last(40))
	}
	interrupted(t, d, s.url, story(700, 300), func() {
		pid, err := strconv.Atoi(found[1])
		if err != nil {
			t.Fatal(err)
		}
		slay(t, pid)
	})
	eventually(t, time.Minute, "its death is seen", func() bool { return d.worker(t, s.url).State != "ready" })
	w := d.worker(t, s.url)
	t.Logf("the worker is %s: %s", w.State, w.Reason)
	chat(t, d.url, question{text: "hello again"})
}
