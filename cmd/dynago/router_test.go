//go:build unix

package main

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/go-json-experiment/json"
)

// startRouter starts "dynago router" on a free port and waits for its address.
func startRouter(t *testing.T, args ...string) *program {
	t.Helper()
	p := &program{t: t, log: &syncBuffer{}}
	p.cmd = exec.Command(os.Args[0], append([]string{"router", "--port", "0"}, args...)...)
	p.cmd.Env = append(os.Environ(), asProgram+"=1")
	p.cmd.Stderr = p.log
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if p.cmd.ProcessState == nil {
			p.cmd.Process.Kill()
			p.cmd.Wait()
		}
		if t.Failed() {
			t.Logf("log:\n%s", p.log)
		}
	})
	if p.banner, err = bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatalf("it printed %q and ended; log:\n%s", p.banner, p.log)
	}
	if _, p.url, _ = strings.Cut(strings.TrimSpace(p.banner), " on "); p.url == "" {
		t.Fatalf("no address in %q", p.banner)
	}
	return p
}

// send posts a JSON body.
func (p *program) send(path, body string) (int, string) {
	p.t.Helper()
	resp, err := http.Post(p.url+path, "application/json", strings.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text)
}

// The service registers, chooses and books with the flags of the router, answers
// who waits for room when somebody leaves, and ends when it is told to.
func TestRouterService(t *testing.T) {
	p := startRouter(t, "--no-router-kv-events", "--router-mode", "round-robin", "--log-level", "warn")
	if status, _ := p.get(p.url + "/ready"); status != 503 {
		t.Errorf("ready without workers: %d", status)
	}
	for id := 1; id <= 2; id++ {
		if status, text := p.send("/workers", fmt.Sprintf(`{"worker_id":%d,"endpoint":"http://w%d","block_size":4}`, id, id)); status != 201 {
			t.Fatalf("status %d: %s", status, text)
		}
	}
	if status, _ := p.get(p.url + "/ready"); status != 200 {
		t.Errorf("ready with workers: %d", status)
	}
	for i := range 4 {
		want := fmt.Sprintf(`"worker_id":%d`, 1+i%2)
		if status, text := p.send("/select_and_reserve", fmt.Sprintf(`{"selection_id":"%d","token_ids":[1,2,3,4]}`, i)); status != 200 || !strings.Contains(text, want) {
			t.Errorf("request %d: status %d, want 200 with %s: %s", i, status, want, text)
		}
	}
	if _, page := p.get(p.url + "/metrics"); !strings.Contains(page, "dynago_router_decisions_total 4\n") {
		t.Error("the metrics page does not tell of four decisions")
	}
	p.signal(syscall.SIGTERM)
	if code := p.wait(); code != 0 {
		t.Errorf("exit code %d after SIGTERM", code)
	}
}

// With KV events a worker needs an address for them.
func TestRouterServiceEvents(t *testing.T) {
	p := startRouter(t, "--log-level", "warn")
	if _, text := p.send("/workers", `{"worker_id":1,"endpoint":"http://w1","block_size":4}`); !strings.Contains(text, "kv_events endpoint is required") {
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
	p := serve(t, "--workers", "3", "--speedup-ratio", "0", "--log-level", "warn", "--router-mode", "direct")
	_, text := p.get(p.url + "/admin/router/select/workers?model_name=dynago/demo")
	var workers []struct {
		ID uint64 `json:"worker_id"`
	}
	if err := json.Unmarshal([]byte(text), &workers); err != nil || len(workers) != 3 {
		t.Fatalf("workers %s: %v", text, err)
	}
	chosen := workers[1].ID
	chat := func(nvext string) (int, string) {
		return p.send("/v1/chat/completions", `{"model":"dynago/demo","max_tokens":4,"messages":[{"role":"user","content":"hello"}],"nvext":`+nvext+`}`)
	}
	for range 3 {
		if status, text := chat(fmt.Sprintf(`{"backend_instance_id":%d}`, chosen)); status != 200 {
			t.Fatalf("status %d: %s", status, text)
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
	if status, text := chat(`{"backend_instance_id":4711}`); status != 503 {
		t.Errorf("a worker that is not there: status %d: %s", status, text)
	}
	if status, text := chat(`{}`); status != 400 {
		t.Errorf("no worker in mode direct: status %d: %s", status, text)
	}
}
