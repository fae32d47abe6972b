//go:build realengine

package engines_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

const (
	vllmBlock = 32 // the smallest that vLLM has on processors
	vllmSeqs  = 4  // at a time
	startUp   = 5 * time.Minute
)

// vllm is one vLLM, and where it is found after it was started anew, too.
type vllm struct {
	*process
	t              testing.TB // that it ends with
	url            string
	events, replay int
}

func newVLLM(t testing.TB) *vllm {
	p := freePorts(t, 3)
	return &vllm{t: t, url: local(p[0]), events: p[1], replay: p[2]}
}

// start starts the server, and does not wait for it.
func (v *vllm) start() {
	t := v.t
	t.Helper()
	v.process = start(t, "vLLM at "+v.url, []string{
		"PYTHONHASHSEED=0", "VLLM_CPU_KVCACHE_SPACE=1", "VLLM_CPU_OMP_THREADS_BIND=nobind", "OMP_NUM_THREADS=1",
		"VLLM_SERVER_DEV_MODE=1", "VLLM_NO_USAGE_STATS=1", "DO_NOT_TRACK=1", "HF_HUB_OFFLINE=1", "VLLM_LOGGING_COLOR=0",
	},
		setting(t, "E2E_VLLM"), "serve", filepath.Join(setting(t, "E2E_TINY"), "tiny"), "--served-model-name", "tiny",
		"--host", "127.0.0.1", "--port", v.url[strings.LastIndexByte(v.url, ':')+1:],
		"--dtype", "float32", "--enforce-eager", "--max-model-len", "4096", "--max-num-seqs", strconv.Itoa(vllmSeqs),
		"--block-size", strconv.Itoa(vllmBlock), "--num-gpu-blocks-override", "512",
		"--enable-prompt-tokens-details", "--scheduling-policy", "priority", "--disable-uvicorn-access-log",
		"--kv-events-config", fmt.Sprintf(`{"enable_kv_cache_events":true,"publisher":"zmq","endpoint":"tcp://*:%d","replay_endpoint":"tcp://*:%d"}`, v.events, v.replay))
}

func (v *vllm) waiting(t testing.TB) float64 { return metric(t, v.url, "vllm:num_requests_waiting") }

func (v *vllm) busy(t testing.TB) float64 { return metric(t, v.url, "vllm:num_requests_running") }

func (v *vllm) idle(t testing.TB) {
	t.Helper()
	eventually(t, time.Minute, v.url+" has nothing to do", func() bool { return v.busy(t)+v.waiting(t) == 0 })
}

// TestVLLM is one story of two servers: they are slow to start.
func TestVLLM(t *testing.T) {
	a, b := newVLLM(t), newVLLM(t)
	wire := newRelay(t, fmt.Sprintf("127.0.0.1:%d", a.events))
	// What b publishes is found out. What a does comes by a line that can be cut.
	d := serve(t, fmt.Sprintf("vllm=%s,events=tcp://*:%d,replay=tcp://*:%d", a.url, wire.port, a.replay), "vllm="+b.url)

	ok := t.Run("attached while it starts", func(t *testing.T) {
		if status, _ := ask("GET", d.url+"/ready", ""); status != http.StatusServiceUnavailable {
			t.Errorf("ready before any engine: status %d", status)
		}
	})
	a.start()
	b.start()
	ok = ok && t.Run("joins when it is up", func(t *testing.T) {
		d.awaits(t, a.url, "ready", startUp)
		d.awaits(t, b.url, "ready", startUp)
		if status, text := ask("GET", d.url+"/v1/models", ""); status != http.StatusOK || !strings.Contains(text, `"context_window":4096`) {
			t.Errorf("models: status %d %s", status, text)
		}
		_, version := ask("GET", a.url+"/version", "")
		t.Logf("vLLM %s", version)
	})
	if !ok {
		t.FailNow()
	}
	// An engine shows by its first answer whether it tells what was cached.
	for _, v := range []*vllm{a, b} {
		chat(t, d.url, question{text: "hello", header: d.at(t, v.url)})
		eventually(t, 10*time.Second, "cached tokens are told", func() bool {
			return chat(t, d.url, question{text: "hello", header: d.at(t, v.url)}).cached() >= 0
		})
	}

	t.Run("chat", func(t *testing.T) { vllmChat(t, d, a) })
	t.Run("streaming", func(t *testing.T) { sameStreamed(t, d) })
	t.Run("forms of answers", func(t *testing.T) { forms(t, d) })
	t.Run("refusals", func(t *testing.T) { refusals(t, d) })
	t.Run("predicted hits are reported hits", func(t *testing.T) { vllmHits(t, d, a, b) })
	t.Run("priority", func(t *testing.T) { vllmPriority(t, d, b) })
	t.Run("cancellation frees the engine", func(t *testing.T) { vllmCancel(t, d, b) })
	t.Run("event gap", func(t *testing.T) { vllmGap(t, d, a, wire) })
	t.Run("cache reset", func(t *testing.T) { vllmReset(t, d, a) })
	t.Run("kill -9 during a stream, and restart in place", func(t *testing.T) { vllmKill(t, d, a) })
	t.Run("the engine core dies during a stream", func(t *testing.T) { vllmCore(t, d, b) })
}

// vllmChat holds dynago's template, tokens and text against the engine's own.
func vllmChat(t *testing.T, d *dynago, v *vllm) {
	q := question{text: "hello world, what is it that you tell us?\nüñí 漢字 <b>&amp;</b>"}
	q.header = d.at(t, v.url)
	through, direct := chat(t, d.url, q), chat(t, v.url, question{text: q.text})
	if through.Text == "" || through.Text != direct.Text {
		t.Errorf("through dynago %q, from the engine itself %q", through.Text, direct.Text)
	}
	if through.Usage.Prompt != direct.Usage.Prompt || through.Usage.Output != 16 || through.Finish != "length" {
		t.Errorf("through dynago %+v, from the engine itself %+v", through, direct)
	}
	body, err := json.Marshal(map[string]any{"model": "tiny", "messages": []any{map[string]any{"role": "user", "content": q.text}}})
	if err != nil {
		t.Fatal(err)
	}
	_, text := ask("POST", v.url+"/tokenize", string(body))
	var tokens struct{ Count int }
	if err := json.Unmarshal([]byte(text), &tokens); err != nil || tokens.Count != through.Usage.Prompt {
		t.Errorf("%d tokens in the prompt; the engine counts %s", through.Usage.Prompt, text)
	}
}

// vllmHits grows conversations on both servers until blocks are evicted, and wants
// every hit to be one that was foreseen.
func vllmHits(t *testing.T, d *dynago, servers ...*vllm) {
	engines := func() (sum float64) {
		for _, v := range servers {
			sum += metric(t, v.url, "vllm:prefix_cache_hits_total")
		}
		return sum
	}
	d.settled(t)
	before, hits := d.prediction(t), engines()
	for turn := range 5 {
		for n := range 6 {
			chat(t, d.url, question{text: story(n, 150+200*turn)})
			d.settled(t)
		}
	}
	// Blocks that are asked for again are all there but that of the last token.
	again := chat(t, d.url, question{text: story(5, 950)})
	if want := (again.Usage.Prompt - 1) / vllmBlock * vllmBlock; again.cached() != want {
		t.Errorf("%d of %d tokens are cached at the second time, want %d", again.cached(), again.Usage.Prompt, want)
	}
	for n := range 14 { // 512 blocks are 16,384 tokens, of each server
		chat(t, d.url, question{text: story(100+n, 3500)})
		d.settled(t)
	}
	for n := range 6 {
		chat(t, d.url, question{text: story(n, 950)})
		d.settled(t)
	}
	got := d.prediction(t).since(before)
	t.Logf("predicted %.0f tokens, reported %.0f, wrong blocks %.0f", got.predicted, got.reported, got.wrong)
	if got.predicted != got.reported || got.reported == 0 || got.wrong != 0 {
		t.Errorf("%+v", got)
	}
	if now := engines() - hits; now != got.reported {
		t.Errorf("the engines count %.0f cached tokens, dynago %.0f", now, got.reported)
	}
	removed := metric(t, d.url, "dynamo_component_kv_cache_events_applied", `event_type="removed"`, `status="ok"`)
	if removed == 0 {
		t.Error("no block was evicted: the prompts are too short for this test")
	}
}

// vllmPriority fills a server, lets two requests wait, and wants the more urgent
// one first though it came last.
func vllmPriority(t *testing.T, d *dynago, v *vllm) {
	v.idle(t)
	at := func(priority string) http.Header {
		h := d.at(t, v.url)
		h.Set("X-Dynamo-Request-Priority", priority)
		return h
	}
	var fill []*stream
	for n := range vllmSeqs {
		s := open(t, d.url, question{text: story(200+n, 60), tokens: 3000, header: at("5")})
		s.hears(t, 1)
		fill = append(fill, s)
	}
	late := open(t, d.url, question{text: story(210, 60), tokens: 500, header: at("1")})
	eventually(t, 10*time.Second, "one waits", func() bool { return v.waiting(t) == 1 })
	urgent := open(t, d.url, question{text: story(211, 60), tokens: 500, header: at("9")})
	eventually(t, 10*time.Second, "two wait", func() bool { return v.waiting(t) == 2 })
	fill[0].cancel()
	urgent.hears(t, 1)
	select {
	case <-late.first:
		t.Error("the less urgent request was not overtaken")
	default:
	}
	for _, s := range append(fill, late, urgent) {
		s.cancel()
	}
	v.idle(t)
}

// vllmCancel leaves a stream, and wants the engine to stop.
func vllmCancel(t *testing.T, d *dynago, v *vllm) {
	v.idle(t)
	before := metric(t, v.url, "vllm:generation_tokens_total")
	s := open(t, d.url, question{text: story(300, 100), tokens: 3500, header: d.at(t, v.url)})
	s.hears(t, 20)
	if v.busy(t) != 1 {
		t.Errorf("%.0f requests run, want 1", v.busy(t))
	}
	s.cancel()
	began := time.Now()
	eventually(t, 10*time.Second, "the engine is free", func() bool { return v.busy(t) == 0 })
	t.Logf("free after %v", time.Since(began).Round(time.Millisecond))
	if made := metric(t, v.url, "vllm:generation_tokens_total") - before; made >= 3500 {
		t.Errorf("the engine has made all %.0f tokens", made)
	}
}

// vllmGap lets a server do what nobody hears of, and wants it learned by replay.
func vllmGap(t *testing.T, d *dynago, v *vllm, wire *relay) {
	d.settled(t)
	q := question{text: story(400, 900), header: d.at(t, v.url)}
	wire.cut()
	direct := chat(t, v.url, question{text: q.text}) // and not through dynago
	blocks := metric(t, d.url, "dynago_index_blocks")
	wire.mend()
	eventually(t, 30*time.Second, "the missed blocks are known", func() bool { return metric(t, d.url, "dynago_index_blocks") != blocks })
	d.settled(t)
	before := d.prediction(t)
	a := chat(t, d.url, q)
	got := d.prediction(t).since(before)
	if want := float64((direct.Usage.Prompt - 1) / vllmBlock * vllmBlock); got.predicted != want || got.reported != want || got.wrong != 0 || float64(a.cached()) != want {
		t.Errorf("after the gap %+v, cached %d, want %v", got, a.cached(), want)
	}
}

// vllmReset empties a server's cache behind dynago's back. The server tells of it
// when it computes next.
func vllmReset(t *testing.T, d *dynago, v *vllm) {
	q := question{text: story(500, 900), header: d.at(t, v.url)}
	chat(t, d.url, q)
	d.settled(t)
	v.idle(t)
	if status, text := ask("POST", v.url+"/reset_prefix_cache", ""); status != http.StatusOK {
		t.Fatalf("reset: status %d %s", status, text)
	}
	chat(t, d.url, question{text: "hello", header: q.header})
	d.settled(t)
	before := d.prediction(t)
	if a := chat(t, d.url, q); a.cached() != 0 {
		t.Errorf("%d tokens are cached after a reset", a.cached())
	}
	if got := d.prediction(t).since(before); got != (prediction{}) {
		t.Errorf("after a reset %+v", got)
	}
}

// vllmKill lets a server die with a stream, and come back.
func vllmKill(t *testing.T, d *dynago, v *vllm) {
	old := question{text: story(600, 900), header: d.at(t, v.url)}
	chat(t, d.url, old)
	d.settled(t)
	interrupted(t, d, v.url, story(601, 300), v.kill)

	eventually(t, time.Minute, "its death is seen", func() bool { return d.worker(t, v.url).State != "ready" })
	chat(t, d.url, question{text: "hello again"}) // the other one serves
	v.start()
	d.awaits(t, v.url, "ready", startUp)
	eventually(t, 20*time.Second, "cached tokens are told", func() bool {
		return chat(t, d.url, question{text: "hello", header: d.at(t, v.url)}).cached() >= 0
	})
	d.settled(t)
	before := d.prediction(t)
	if a := chat(t, d.url, old); a.cached() != 0 {
		t.Errorf("%d tokens are cached in a new process", a.cached())
	}
	d.settled(t)
	if got := d.prediction(t).since(before); got != (prediction{}) {
		t.Errorf("credit for a cache that is gone: %+v", got)
	}
	chat(t, d.url, old)
	if got := d.prediction(t).since(before); got.predicted == 0 || got.predicted != got.reported || got.wrong != 0 {
		t.Errorf("events of the new process: %+v", got)
	}
}

var corePID = regexp.MustCompile(`\(EngineCore pid=(\d+)\)`)

// vllmCore kills the process that computes and leaves the one that listens, which
// is what running out of memory looks like.
func vllmCore(t *testing.T, d *dynago, v *vllm) {
	found := corePID.FindStringSubmatch(v.printed())
	if found == nil {
		t.Fatalf("no engine core in what vLLM printed:\n%s", v.last(40))
	}
	interrupted(t, d, v.url, story(700, 300), func() {
		pid, err := strconv.Atoi(found[1])
		if err != nil {
			t.Fatal(err)
		}
		slay(t, pid)
	})
	eventually(t, time.Minute, "its death is seen", func() bool { return d.worker(t, v.url).State != "ready" })
	t.Logf("the worker is %s: %s", d.worker(t, v.url).State, d.worker(t, v.url).Reason)
	chat(t, d.url, question{text: "hello again"})
}
