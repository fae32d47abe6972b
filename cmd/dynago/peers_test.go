//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/dynago/dynago/router/peers"
)

// vacant returns ports that were free a moment ago.
func vacant(t *testing.T, n int) (ports []string) {
	t.Helper()
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		_, port, _ := net.SplitHostPort(l.Addr().String())
		ports = append(ports, port)
	}
	return ports
}

// pair is two frontends over the same workers, each a peer of the other.
type pair struct {
	ports []string
	args  []string
}

func newPair(t *testing.T, args ...string) *pair {
	p := &pair{ports: vacant(t, 2), args: args}
	for range 3 {
		_, spec := attachable(t, "worker", "--engine", "mock", "--listen", "127.0.0.1:0")
		p.args = append(p.args, "--engine", spec)
	}
	return p
}

func (p *pair) start(t *testing.T, i int) *program {
	t.Helper()
	all := "http://127.0.0.1:" + p.ports[0] + ",http://127.0.0.1:" + p.ports[1]
	f := start(t, "curl ", append([]string{"serve", "--http-port", p.ports[i], "--router-mode", "round-robin", "--router-peers", all, "--log-level", "debug"}, p.args...)...)
	f.ready("dynago/demo")
	until(t, "three workers", func() bool { return strings.Count(f.page("/admin/workers"), `"ready"`) == 3 })
	return f
}

// bindings returns the workers of sessions, by id, and by whom they were bound.
func (p *program) bindings() (workers map[string]uint64, from map[string]string) {
	p.t.Helper()
	var list struct {
		Sessions []struct {
			ID     string `json:"session_id"`
			Worker uint64 `json:"worker_id"`
			From   string `json:"from"`
		} `json:"sessions"`
	}
	if err := json.Unmarshal([]byte(p.page("/v1/kv/sessions")), &list); err != nil {
		p.t.Fatal(err)
	}
	workers, from = map[string]uint64{}, map[string]string{}
	for _, s := range list.Sessions {
		workers[s.ID], from[s.ID] = s.Worker, s.From
	}
	return workers, from
}

var longPrompt = strings.Repeat("Which rivers cross Paris, and which bridges cross them? ", 12)

// turn sends a turn of a session and returns how much of it was cached.
func (p *program) turnOf(session string) (cached int) {
	p.t.Helper()
	body := fmt.Sprintf(`{"model":"dynago/demo","max_tokens":2,"messages":[{"role":"user","content":"%s: %s"}]}`, session, longPrompt)
	r := p.send("/v1/chat/completions", body, "x-dynamo-session-id", session)
	if r.status != 200 {
		p.t.Fatalf("%d %s", r.status, r.body)
	}
	c := crossing{api: "chat", reply: r}
	_, cached = c.usage(p.t)
	return cached
}

// A session that was begun at one frontend goes on at its worker when its next turn
// comes to another one, also to one that was started since, and ends for both.
func TestSessionsOfTwoFrontends(t *testing.T) {
	p := newPair(t, "--router-session-affinity-ttl-secs", "60")
	a, b := p.start(t, 0), p.start(t, 1)
	ids := []string{"s1", "s2", "s3", "s4", "s5", "s6"}
	for _, id := range ids {
		if cached := a.turnOf(id); cached != 0 {
			t.Fatalf("%s: %d tokens of the first turn are cached", id, cached)
		}
	}
	home, _ := a.bindings()
	learned := func(f *program) func() bool {
		return func() bool {
			workers, from := f.bindings()
			for _, id := range ids {
				if workers[id] != home[id] || from[id] == "" {
					return false
				}
			}
			return true
		}
	}
	until(t, "the other frontend knows all sessions", learned(b))
	for _, id := range ids {
		if cached := b.turnOf(id); cached < 32 {
			t.Errorf("%s: %d tokens are cached at the other frontend", id, cached)
		}
	}
	// A frontend that was restarted learns them from the one that was not.
	a.signal(syscall.SIGTERM)
	a.wait()
	a = p.start(t, 0)
	until(t, "the new frontend knows all sessions", func() bool {
		workers, _ := a.bindings()
		return len(workers) == len(ids) && workers["s1"] == home["s1"]
	})
	for _, id := range ids {
		if cached := a.turnOf(id); cached < 32 {
			t.Errorf("%s: %d tokens are cached at the new frontend", id, cached)
		}
	}
	a.send("/v1/chat/completions", `{"model":"dynago/demo","max_tokens":1,"messages":[{"role":"user","content":"Bye"}]}`,
		"x-dynamo-session-id", "s1", "x-dynamo-session-final", "true")
	for name, f := range map[string]*program{"first": a, "second": b} {
		until(t, "the session has ended at the "+name, func() bool {
			workers, _ := f.bindings()
			return len(workers) == len(ids)-1 && workers["s1"] == 0
		})
	}
	if up := a.counter(`dynago_router_peer_up{peer="http://127.0.0.1:` + p.ports[1] + `"}`); up != 1 {
		t.Errorf("the peer is up: %v", up)
	}
	if !strings.Contains(a.log.String(), "this frontend itself") {
		t.Error("it has not found out which of the peers it is")
	}
}

// What changes the bindings of all needs a key that is no tenant's.
func TestPeersNeedAKey(t *testing.T) {
	keys := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(keys, []byte("house\nguest team\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := newPair(t, "--api-keys-file", keys, "--router-peers-key", "house", "--router-session-affinity-ttl-secs", "60")
	f := start(t, "curl ", append([]string{"serve", "--http-port", p.ports[0], "--router-peers", "http://127.0.0.1:" + p.ports[1]}, p.args...)...)
	for key, want := range map[string]int{"": 401, "guest": 403, "house": 200} {
		r := f.send(peers.Path, `{"router_id":"x","bindings":[]}`, "Authorization", "Bearer "+key)
		if r.status != want {
			t.Errorf("key %q: %d %s, want %d", key, r.status, r.body, want)
		}
	}
	for body, want := range map[string]int{"{": 400, `{"bindings":[]}`: 400, strings.Repeat(" ", peers.MaxMessage+1): 413} {
		if r := f.send(peers.Path, body, "Authorization", "Bearer house"); r.status != want {
			t.Errorf("%.20q: %d %s, want %d", body, r.status, r.body, want)
		}
	}
	until(t, "the log says that nobody answers", func() bool { return strings.Contains(f.log.String(), "does not hear where sessions are bound") })
}

func TestOverNetwork(t *testing.T) {
	for address, want := range map[string]bool{
		"http://10.0.0.2:8000": true, "http://b:8000": true, "https://b:8000": false,
		"http://127.0.0.1:8000": false, "http://[::1]:8000": false, "http://localhost:8000": false,
	} {
		if got := overNetwork(address); got != want {
			t.Errorf("%s: %v", address, got)
		}
	}
}
