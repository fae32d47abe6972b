//go:build unix

package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dynago/dynago/internal/fake/sglang"
)

// talkers are the APIs in which a turn of a session may come, with a body that lacks
// its end.
var talkers = map[string]string{
	"/v1/chat/completions": `{"model":"%s","max_tokens":4,"messages":[{"role":"user","content":"Which rivers cross Paris?"}]`,
	"/v1/completions":      `{"model":"%s","max_tokens":4,"prompt":"Which rivers cross Paris?"`,
	"/v1/responses":        `{"model":"%s","max_output_tokens":16,"input":"Which rivers cross Paris?"`,
	"/v1/messages":         `{"model":"%s","max_tokens":4,"messages":[{"role":"user","content":"Which rivers cross Paris?"}]`,
}

// turn sends one turn of a session and returns its answer.
func (p *program) turn(api, model, control string, stream bool, header ...string) reply {
	p.t.Helper()
	body := fmt.Sprintf(talkers[api], model) + fmt.Sprintf(`,"stream":%t`, stream)
	if control != "" {
		body += `,"nvext":{"session_control":` + control + `}`
	}
	return p.send(api, body+"}", header...)
}

// sessions returns how many sessions were counted as something.
func (p *program) sessions(event string) string {
	p.t.Helper()
	_, page := p.get(p.url + "/metrics")
	_, rest, _ := strings.Cut(page, `dynago_router_session_events_total{event="`+event+`"} `)
	n, _, _ := strings.Cut(rest, "\n")
	return n
}

// control writes what a client says of a session.
func control(id, action string) string {
	if action == "" {
		return fmt.Sprintf(`{"session_id":%q}`, id)
	}
	return fmt.Sprintf(`{"session_id":%q,"action":%q,"timeout":60}`, id, action)
}

// In every API, streamed or not, a session that a client binds stays on its worker
// from its first turn to its last, and is unknown behind that.
func TestSessionControl(t *testing.T) {
	t.Parallel()
	p := serve(t, "--router-mode", "round-robin", "--workers", "3", "--log-level", "debug", "--speedup-ratio", "0")
	n := 0
	for api := range talkers {
		for _, stream := range []bool{false, true} {
			for _, action := range []string{"bind", "open"} {
				n++
				id, home := fmt.Sprint("session ", n), ""
				for i, turn := range []struct{ action, told string }{
					{"", "unknown"},
					{action, ""},
					{"", ""},
					{action, ""},
					{"close", ""},
					{"close", "unknown"},
					{"", "unknown"},
				} {
					before := len(p.workers())
					r := p.turn(api, "dynago/demo", control(id, turn.action), stream)
					if told := r.header.Get("x-dynago-session"); r.status != 200 || told != turn.told {
						t.Fatalf("%s, stream %t, turn %d, %q: %d, told %q, want %q: %s", api, stream, i, turn.action, r.status, told, turn.told, r.body)
					}
					until(t, "a line about the request", func() bool { return len(p.workers()) > before })
					switch worker := p.workers()[before]; {
					case turn.told == "unknown":
					case home == "":
						home = worker
					case worker != home:
						t.Errorf("%s, stream %t, turn %d: on %s, want %s", api, stream, i, worker, home)
					}
				}
			}
		}
	}
	if opened, unknown := p.sessions("opened"), p.sessions("unknown"); opened != "8" || unknown != "48" {
		t.Errorf("%s sessions were opened, and %s turns in none", opened, unknown)
	}
}

// What is always wrong is refused in the words of each API, and what is only odd
// where operators want to know.
func TestSessionControlRefused(t *testing.T) {
	t.Parallel()
	for _, strict := range []bool{false, true} {
		p := serve(t, "--workers", "2", "--speedup-ratio", "0", fmt.Sprintf("--strict-sessions=%t", strict))
		for api := range talkers {
			for name, c := range map[string]struct {
				control, says string
				always        bool
			}{
				"no time":        {`{"session_id":"a","action":"bind","timeout":0}`, "session timeout must be greater than zero", true},
				"no id":          {`{"session_id":" ","action":"bind"}`, "session_id", true},
				"too long an id": {`{"session_id":"` + strings.Repeat("x", 257) + `","action":"bind"}`, "256", true},
				"unknown action": {`{"session_id":"a","action":"stop"}`, "action", true},
				"in the middle":  {control("nobody", ""), "session nobody must be opened or bound before continuation or close", false},
				"at the end":     {control("nobody", "close"), "session nobody must be opened or bound before continuation or close", false},
			} {
				r := p.turn(api, "dynago/demo", c.control, false)
				switch refused := c.always || strict; {
				case !refused && r.status != 200:
					t.Errorf("%s, %s: %d %s", api, name, r.status, r.body)
				case refused && (r.status != 400 || !strings.Contains(r.body, c.says)):
					t.Errorf("%s, %s, strict %t: %d %s", api, name, strict, r.status, r.body)
				}
			}
			r := p.turn(api, "dynago/demo", `{"session_id":"`+strings.Repeat("x", 256)+`","action":"bind"}`, false)
			if r.status != 200 || r.header.Get("x-dynago-session") != "" {
				t.Errorf("%s: an id of 256 bytes: %d %s", api, r.status, r.body)
			}
		}
	}
	p := serve(t, "--workers", "2", "--router-mode", "direct", "--speedup-ratio", "0")
	if r := p.turn("/v1/messages", "dynago/demo", control("a", "bind"), false); r.status != 400 || !strings.Contains(r.body, "worker ID is required for every session request") {
		t.Errorf("direct: %d %s", r.status, r.body)
	}
}

// Engines that keep sessions hear of their begin and end, and turns of one that has
// none are served and told so.
func TestSessionsOfSGLang(t *testing.T) {
	t.Parallel()
	for _, keeps := range []bool{true, false} {
		s, err := sglang.New(sglang.Config{Mock: mockOf(t, "of-sglang", false), Sessions: keeps})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		p := serve(t, "--engine", "sglang="+host(t, s).URL+",model_path="+demoFolder(t)+",load.interval=20ms,context_length=4096")
		p.ready("of-sglang")
		for api := range talkers {
			for _, stream := range []bool{false, true} {
				for _, end := range []string{"close", "header", "body"} {
					id := fmt.Sprint(api, stream, end)
					r := p.turn(api, "of-sglang", control(id, "open"), stream)
					told := map[bool]string{true: "", false: "degraded"}[keeps]
					if got := r.header.Get("x-dynago-session"); r.status != 200 || got != told {
						t.Fatalf("%s, stream %t: %d, told %q, want %q: %s", api, stream, r.status, got, told, r.body)
					}
					if !keeps {
						continue
					}
					if open := s.Sessions(); !slices.Equal(open, []string{id}) {
						t.Errorf("%s, stream %t: %q are open", api, stream, open)
					}
					p.turn(api, "of-sglang", control(id, ""), stream)
					switch end {
					case "close":
						p.turn(api, "of-sglang", control(id, "close"), stream)
					case "header":
						p.turn(api, "of-sglang", "", stream, "x-dynamo-session-id", id, "x-dynamo-session-final", "true")
					case "body":
						body := fmt.Sprintf(talkers[api], "of-sglang") + fmt.Sprintf(`,"stream":%t,"nvext":{"agent_context":{"session_type_id":"a","session_id":"b","trajectory_id":%q,"trajectory_final":true}}}`, stream, id)
						p.send(api, body)
					}
					until(t, "the end of "+id, func() bool { return len(s.Sessions()) == 0 })
				}
			}
		}
		if n := s.Refused(); n > 0 {
			t.Errorf("%d turns were refused", n)
		}
	}
}

// An idle session ends by its own timeout, in the engine as well.
func TestSessionTimeout(t *testing.T) {
	t.Parallel()
	s, err := sglang.New(sglang.Config{Mock: mockOf(t, "of-sglang", false), Sessions: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	p := serve(t, "--engine", "sglang="+host(t, s).URL+",model_path="+demoFolder(t)+",load.interval=20ms,context_length=4096")
	p.ready("of-sglang")
	begin := time.Now()
	r := p.turn("/v1/chat/completions", "of-sglang", `{"session_id":"short","action":"open","timeout":1}`, false)
	if r.status != 200 || !slices.Equal(s.Sessions(), []string{"short"}) {
		t.Fatalf("%d, %q are open", r.status, s.Sessions())
	}
	until(t, "the end of the session", func() bool { return len(s.Sessions()) == 0 })
	if took := time.Since(begin); took < time.Second {
		t.Errorf("it ended after %v", took)
	}
}
