//go:build unix

package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
)

// What a policy learns is there when the server has ended.
func TestPolicyState(t *testing.T) {
	t.Parallel()
	state := filepath.Join(t.TempDir(), "state")
	for n := range 2 {
		p := serve(t, "--speedup-ratio", "0", "--router-policy", "thompson", "--router-policy-state", state)
		if !strings.Contains(p.banner, "router   kv, policy thompson") {
			t.Errorf("the banner does not name the policy:\n%s", p.banner)
		}
		for range 4 {
			io.Copy(io.Discard, p.ask(3).Body)
		}
		p.signal(syscall.SIGTERM)
		if code := p.wait(); code != 0 {
			t.Fatalf("exit code %d", code)
		}
		if text, err := os.ReadFile(state); err != nil || !strings.HasPrefix(string(text), "dynago thompson ") || !strings.Contains(string(text), `"worker":"mock-`) {
			t.Errorf("the state is %.80q, %v", text, err)
		}
		if goes := strings.Contains(p.log.String(), "the policy goes on from what it has learned"); goes != (n == 1) {
			t.Errorf("start %d: goes on is %v", n, goes)
		}
	}
}

// A server elsewhere decides; when it is gone, requests are answered all the same.
func TestPolicyAddress(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		io.WriteString(w, `{"choice":3}`)
	}))
	p := serve(t, "--speedup-ratio", "0", "--router-policy", s.URL, "--router-policy-timeout", "10s")
	for range 3 {
		io.Copy(io.Discard, p.ask(3).Body)
	}
	if n := asked.Load(); n != 3 {
		t.Errorf("the server was asked %d times, want 3", n)
	}
	s.Close()
	for range 10 {
		resp := p.ask(3)
		if text, err := io.ReadAll(resp.Body); resp.StatusCode != 200 || err != nil || !strings.Contains(string(text), "[DONE]") {
			t.Fatalf("status %d, %v: %s", resp.StatusCode, err, text)
		}
	}
	if log := p.log.String(); strings.Count(log, "the policy server is of no use") != 1 || !strings.Contains(log, "left alone") {
		t.Errorf("want one line that it is of no use, and one that it is left alone")
	}
}
