//go:build unix

package main

import (
	"net/http"
	"regexp"
	"strings"
	"testing"
)

var routedTo = regexp.MustCompile(`routed .*target=(\d+)/`)

// workers returns where requests have gone so far, by the log.
func (p *program) workers() (ids []string) {
	for _, m := range routedTo.FindAllStringSubmatch(p.log.String(), -1) {
		ids = append(ids, m[1])
	}
	return ids
}

// say sends one short request and returns the worker that it went to, and the
// answer's header.
func (p *program) say(header ...string) (worker string, answer http.Header) {
	p.t.Helper()
	before := len(p.workers())
	body := `{"model":"dynago/demo","max_tokens":1,"messages":[{"role":"user","content":"Which rivers cross Paris?"}]}`
	r := p.send("/v1/chat/completions", body, header...)
	if r.status != 200 {
		p.t.Fatalf("%d %s", r.status, r.body)
	}
	until(p.t, "a line about the request", func() bool { return len(p.workers()) > before })
	return p.workers()[before], r.header
}

// Requests of a session go to one worker, also where all others go round.
func TestSessionsStay(t *testing.T) {
	t.Parallel()
	p := serve(t, "--router-mode", "round-robin", "--router-session-affinity-ttl-secs", "60", "--workers", "4", "--log-level", "debug", "--speedup-ratio", "0")
	seen := map[string]bool{}
	for range 4 {
		worker, _ := p.say()
		seen[worker] = true
	}
	if len(seen) != 4 {
		t.Errorf("without a session: %d workers", len(seen))
	}
	for _, session := range [][]string{
		{"x-dynamo-session-id", "a"},
		{"x-claude-code-session-id", "root", "x-claude-code-agent-id", "b"},
		{"thread-id", "c"},
	} {
		home, _ := p.say(session...)
		for range 3 {
			if worker, h := p.say(session...); worker != home || h.Get("x-dynago-session") != "" {
				t.Errorf("%v: on %s, not on %s; told %q", session, worker, home, h.Get("x-dynago-session"))
			}
		}
	}
	// A pin wins, the session follows it, and the client is told.
	var elsewhere string
	home, _ := p.say("x-dynamo-session-id", "a")
	for worker := range seen {
		if worker != home {
			elsewhere = worker
		}
	}
	worker, h := p.say("x-dynamo-session-id", "a", "x-worker-instance-id", elsewhere)
	if worker != elsewhere || h.Get("x-dynago-session") != "pinned" {
		t.Errorf("pinned to %s: on %s, told %q", elsewhere, worker, h.Get("x-dynago-session"))
	}
	if worker, _ := p.say("x-dynamo-session-id", "a"); worker != elsewhere {
		t.Errorf("after the pin: on %s, not on %s", worker, elsewhere)
	}
	// The same id of another tenant is another session.
	other := map[string]bool{}
	for _, tenant := range []string{"t1", "t2", "t3", "t4", "t5"} {
		worker, _ := p.say("x-dynamo-session-id", "a", "x-tenant-id", tenant)
		other[worker] = true
	}
	if len(other) < 2 {
		t.Error("sessions of five tenants are one")
	}
}

// Thresholds may be read and set while the server runs.
func TestBusyThresholds(t *testing.T) {
	t.Parallel()
	p := serve(t, "--active-decode-blocks-threshold", "0.9")
	if status, body := p.get(p.url + "/busy_threshold"); status != 200 || !strings.Contains(body, `{"model":"dynago/demo","active_decode_blocks_threshold":0.9,`) {
		t.Errorf("%d %s", status, body)
	}
}
