//go:build unix

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// mute is a script by which a worker that is asked to hold says nothing at all,
// and to anything else answers at once.
const mute = `
rules:
  - when: {user: hold}
    pace: {ttft: 1h}
    emit: never
default:
  emit: Here you are.
`

func fileOf(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// begin asks in the background, and returns what will come of it and how to leave.
func (p *program) begin(text, hints string) (<-chan reply, context.CancelFunc) {
	p.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	p.t.Cleanup(cancel)
	body := fmt.Sprintf(`{"model":"dynago/demo","messages":[{"role":"user","content":%q}],"nvext":{"agent_hints":{%s}}}`, text, hints)
	return later(p.request(ctx, "POST", p.url+"/v1/chat/completions", body)), cancel
}

// shows says whether the metrics page has a line.
func (p *program) shows(line string) bool {
	_, page := p.get(p.url + "/metrics")
	return strings.Contains(page, "\n"+line+"\n")
}

// waiting waits until so many requests are parked.
func (p *program) waiting(class string, n int) {
	p.t.Helper()
	until(p.t, fmt.Sprint(n, " requests wait"), func() bool {
		return p.shows(fmt.Sprintf(`dynamo_frontend_router_queue_pending_requests{model="dynago/demo",policy_class=%q,worker_type="decode"} %d`, class, n))
	})
}

// hold keeps the only worker busy until the client leaves.
func (p *program) hold() context.CancelFunc {
	p.t.Helper()
	_, leave := p.begin("hold the line", "")
	until(p.t, "it is in the books", func() bool {
		_, text := p.get(p.url + "/admin/decisions")
		return strings.Contains(text, `"request_id"`)
	})
	return leave
}

// Requests wait while the worker is busy; the more important one goes first, one
// too many is refused, and one whose client leaves is gone.
func TestQueueOverHTTP(t *testing.T) {
	t.Parallel()
	p := serve(t, "--workers", "1", "--mock-script", fileOf(t, "script.yaml", mute), "--router-policy-config", fileOf(t, "policy.yaml", `
default_policy_family: chat
uncached_isl_buckets: [{min_tokens: 0, bucket: all}]
policy_classes:
  - {name: chat-all, policy_family: chat, cache_bucket: all, quantum: 1, prefill_busy_threshold: 0, request_queue_limit_per_worker: 3}
`))
	free := p.hold()
	low, _ := p.begin("low", "")
	p.waiting("chat-all", 1)
	gone, leave := p.begin("gone", `"priority":100`)
	p.waiting("chat-all", 2)
	high, _ := p.begin("high", `"strict_priority":1`)
	p.waiting("chat-all", 3)

	one, _ := p.begin("one too many", `"strict_priority":9`)
	if r := <-one; r.status != 529 || r.header.Get("Retry-After") < "1" || !strings.Contains(r.body, `"overloaded"`) {
		t.Errorf("one too many: %d, %q, %s, %v", r.status, r.header, r.body, r.err)
	}
	if line := `dynamo_frontend_router_queue_backpressure_total{model="dynago/demo",policy_class="chat-all",reason="request_limit",worker_type="decode"} 1`; !p.shows(line) {
		t.Errorf("the page does not show %s", line)
	}
	leave()
	if r := <-gone; r.err == nil {
		t.Errorf("who left was answered: %d %s", r.status, r.body)
	}
	p.waiting("chat-all", 2)

	free()
	for _, c := range []<-chan reply{high, low} {
		if r := <-c; r.status != 200 || !strings.Contains(r.body, "Here you are.") {
			t.Errorf("%d %s, %v", r.status, r.body, r.err)
		}
	}
	var told struct {
		Decisions []struct {
			RequestID   string  `json:"request_id"`
			Reason      string  `json:"reason"`
			PolicyClass string  `json:"policy_class"`
			QueueMS     float64 `json:"queue_ms"`
		} `json:"decisions"`
	}
	status, text := p.get(p.url + "/admin/decisions?n=5&model=dynago/demo")
	if err := json.Unmarshal([]byte(text), &told); err != nil || status != 200 || len(told.Decisions) != 3 {
		t.Fatalf("%d %s, %v", status, text, err)
	}
	// The newest first: low, which had waited longer than high. The first did not
	// wait, and has its class all the same.
	if d := told.Decisions; d[0].PolicyClass != "chat-all" || d[1].PolicyClass != "chat-all" || d[2].PolicyClass != "chat-all" ||
		d[1].QueueMS <= 0 || d[0].QueueMS <= d[1].QueueMS || d[2].QueueMS != 0 || d[0].Reason != "necessity" {
		t.Errorf("decisions: %s", text)
	}
	p.waiting("chat-all", 0)
	until(t, "empty books", func() bool { return p.nothingBooked() })
	if status, text := p.get(p.url + "/admin/decisions?n=x"); status != 400 || !strings.Contains(text, "want a number from 1 on") {
		t.Errorf("%d %s", status, text)
	}
}

// nothingBooked says whether no request is in the router's books.
func (p *program) nothingBooked() bool {
	_, page := p.get(p.url + "/metrics")
	for line := range strings.Lines(page) {
		if strings.HasPrefix(line, "dynago_worker_active_requests{") && !strings.HasSuffix(line, " 0\n") {
			return false
		}
	}
	return true
}

// Who waits too long is told to come again.
func TestQueueTimeoutOverHTTP(t *testing.T) {
	t.Parallel()
	p := serve(t, "--workers", "1", "--mock-script", fileOf(t, "script.yaml", mute), "--router-queue-threshold", "0", "--router-queue-timeout", "100ms")
	free := p.hold()
	late, _ := p.begin("late", "")
	if r := <-late; r.status != 529 || r.header.Get("Retry-After") < "1" || !strings.Contains(r.body, `"overloaded"`) {
		t.Errorf("%d, %q, %s, %v", r.status, r.header, r.body, r.err)
	}
	if !p.shows("dynago_router_queue_timeouts_total 1") {
		t.Error("it is not counted")
	}
	free()
	until(t, "empty books", func() bool { return p.nothingBooked() })
}
