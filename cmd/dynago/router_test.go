//go:build unix

package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/go-json-experiment/json"
)

// The service registers, chooses and books with the flags of the router, answers
// who waits for room when somebody leaves, and ends when it is told to.
func TestRouterService(t *testing.T) {
	t.Parallel()
	p := startRouter(t, "--no-router-kv-events", "--router-mode", "round-robin", "--log-level", "warn")
	if status, _ := p.get(p.url + "/ready"); status != 503 {
		t.Errorf("ready without workers: %d", status)
	}
	for id := 1; id <= 2; id++ {
		if r := p.send("/workers", fmt.Sprintf(`{"worker_id":%d,"endpoint":"http://w%d","block_size":4}`, id, id)); r.status != 201 {
			t.Fatalf("status %d: %s", r.status, r.body)
		}
	}
	if status, _ := p.get(p.url + "/ready"); status != 200 {
		t.Errorf("ready with workers: %d", status)
	}
	for i := range 4 {
		want := fmt.Sprintf(`"worker_id":%d`, 1+i%2)
		if r := p.send("/select_and_reserve", fmt.Sprintf(`{"selection_id":"%d","token_ids":[1,2,3,4]}`, i)); r.status != 200 || !strings.Contains(r.body, want) {
			t.Errorf("request %d: status %d, want 200 with %s: %s", i, r.status, want, r.body)
		}
	}
	_, page := p.get(p.url + "/metrics")
	for _, line := range []string{
		"\ndynago_router_decisions_total 4\n",
		`dynamo_component_router_requests_started_total{`,
		"\ndynamo_router_overhead_total_ms_count 4\n",
	} {
		if !strings.Contains(page, line) {
			t.Errorf("the metrics page lacks %s", line)
		}
	}
	p.signal(syscall.SIGTERM)
	if code := p.wait(); code != 0 {
		t.Errorf("exit code %d after SIGTERM", code)
	}
}

// Whoever still waits for room when the patience of the drain is over is told so.
func TestRouterServiceCutsWhoWaits(t *testing.T) {
	t.Parallel()
	p := startRouter(t, "--no-router-kv-events", "--router-queue-threshold", "0", "--drain-timeout", "50ms", "--log-level", "warn")
	if r := p.send("/workers", `{"worker_id":1,"endpoint":"http://w1","block_size":4,"max_num_batched_tokens":100}`); r.status != 201 {
		t.Fatalf("status %d: %s", r.status, r.body)
	}
	if r := p.send("/select_and_reserve", `{"token_ids":[1,2,3,4]}`); r.status != 200 {
		t.Fatalf("status %d: %s", r.status, r.body)
	}
	late := later(p.request(t.Context(), "POST", p.url+"/select_and_reserve", `{"token_ids":[5,6,7,8]}`))
	until(t, "it waits", func() bool {
		_, text := p.get(p.url + "/loads")
		return strings.Contains(text, `"pending_count":1`)
	})
	p.signal(syscall.SIGTERM)
	if r := <-late; r.status != 503 || !strings.Contains(r.body, "shutting down") {
		t.Errorf("status %d: %s, %v; want 503 that the server shuts down", r.status, r.body, r.err)
	}
	if code := p.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// With KV events a worker needs an address for them.
func TestRouterServiceEvents(t *testing.T) {
	t.Parallel()
	p := startRouter(t, "--log-level", "warn")
	if text := p.send("/workers", `{"worker_id":1,"endpoint":"http://w1","block_size":4}`).body; !strings.Contains(text, "kv_events endpoint is required") {
		t.Errorf("answer %s", text)
	}
	p.signal(syscall.SIGINT)
	if code := p.wait(); code != 0 {
		t.Errorf("exit code %d after SIGINT", code)
	}
}

// A framework that routes by itself asks a server's router where a prompt should
// go, decides, and lets the server generate there.
func TestChosenWorker(t *testing.T) {
	t.Parallel()
	p := serve(t, "--workers", "3", "--speedup-ratio", "0", "--log-level", "warn", "--router-mode", "direct")
	_, text := p.get(p.url + "/admin/router/select/workers?model_name=dynago/demo")
	var workers []struct {
		ID uint64 `json:"worker_id"`
	}
	if err := json.Unmarshal([]byte(text), &workers); err != nil || len(workers) != 3 {
		t.Fatalf("workers %s: %v", text, err)
	}
	chosen := workers[1].ID
	chat := func(nvext string) reply {
		return p.send("/v1/chat/completions", `{"model":"dynago/demo","max_tokens":4,"messages":[{"role":"user","content":"hello"}],"nvext":`+nvext+`}`)
	}
	for range 3 {
		if r := chat(fmt.Sprintf(`{"backend_instance_id":%d}`, chosen)); r.status != 200 {
			t.Fatalf("status %d: %s", r.status, r.body)
		}
	}
	_, page := p.get(p.url + "/metrics")
	for _, w := range workers {
		_, line, _ := strings.Cut(page, fmt.Sprintf(`dynamo_frontend_worker_last_input_sequence_tokens{dp_rank="0",worker_id="%d",worker_type="decode"} `, w.ID))
		tokens, _, _ := strings.Cut(line, "\n")
		if (tokens != "0") != (w.ID == chosen) {
			t.Errorf("worker %d has seen a prompt of %s tokens; %d was chosen", w.ID, tokens, chosen)
		}
	}
	if r := chat(`{"backend_instance_id":4711}`); r.status != 503 {
		t.Errorf("a worker that is not there: status %d: %s", r.status, r.body)
	}
	if r := chat(`{}`); r.status != 400 {
		t.Errorf("no worker in mode direct: status %d: %s", r.status, r.body)
	}
}

// A running server is asked where it would send a prompt, which it has seen before.
func TestExplainServer(t *testing.T) {
	t.Parallel()
	keys := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(keys, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := serve(t, "--workers", "3", "--speedup-ratio", "0", "--log-level", "warn", "--api-keys-file", keys, "--kv-cache-block-size", "4", "--router-seed", "1")
	explain := func(args ...string) (int, string, string) {
		var out, problems bytes.Buffer
		code := run(append([]string{"route", "--explain", "--server", p.url, "--api-key", "secret"}, args...), outlet{&out, &problems})
		return code, out.String(), problems.String()
	}
	const text = "Which rivers cross Paris, and which of them cross another capital?"
	code, out, problems := explain(text)
	if code != 0 || strings.Count(out, "mock-") < 3 || !strings.Contains(out, "by a draw: 3 cost the same") {
		t.Fatalf("code %d:\n%s%s", code, out, problems)
	}
	p.send("/v1/chat/completions", `{"model":"dynago/demo","max_tokens":1,"messages":[{"role":"user","content":"`+text+`"}]}`, "Authorization", "Bearer secret")
	until(t, "the prompt decides by its cache", func() bool {
		_, out, _ = explain(text)
		return strings.Contains(out, "is taken for its cache") && strings.Contains(out, "100.0%  ← taken")
	})
	if _, out, _ := explain("--json", "--overlap-score-credit", "0", text); !strings.Contains(out, `"reason": "tie"`) {
		t.Errorf("without credit all are the same: %s", out)
	}
	if _, out, _ := explain("--allow", "mock-1", text); !strings.Contains(out, "mock-0 is out: it is not among those allowed") || !strings.Contains(out, "mock-1 is taken because no other") {
		t.Errorf("one is allowed: %s", out)
	}
	for want, args := range map[string][]string{
		"no such worker":         {"--allow", "mock-9", text},
		"one prompt":             {text, text},
		"connection refused":     {"--server", "http://127.0.0.1:1", text},
		"status 401":             {"--api-key", "wrong", text},
		"such as http://":        {"--server", "127.0.0.1:1", text},
		"the model `x` does not": {"--model-name", "x", text},
	} {
		if code, _, problems := explain(args...); code == 0 || !strings.Contains(strings.ToLower(problems), want) {
			t.Errorf("%q: code %d, want an error with %q: %s", args, code, want, problems)
		}
	}
}
