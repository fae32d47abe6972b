//go:build e2e

package e2e_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"
)

// Agents as they are, each in front of models of several families: a task of
// several turns, which is taken up again; a picture; a sub-agent; and somebody who
// presses Ctrl-C. They are programs of a gigabyte, which make e2e-agents installs.
func TestAgents(t *testing.T) {
	report := &table{}
	defer report.write(t)
	for _, h := range harnesses {
		for _, d := range dialects {
			if h.thinks && d.silent {
				continue
			}
			t.Run(h.program+h.variant+"/"+d.name, func(t *testing.T) {
				line := report.line(h.version(t), d.name)
				line.note("task", t.Run("task", func(t *testing.T) { line.reuses = testTask(t, h, d) }))
				if h.variant != "" {
					return
				}
				if h.delegate != nil {
					line.note("sub-agent", t.Run("sub-agent", func(t *testing.T) { testDelegate(t, h, d) }))
				}
				line.note("picture", t.Run("picture", func(t *testing.T) { testLook(t, h, d) }))
				line.note("ctrl-c", t.Run("interrupt", func(t *testing.T) { testInterrupt(t, h, d) }))
				if d.replays {
					line := report.line(h.version(t), d.name+" --replay-raw")
					line.note("task", t.Run("replayed", func(t *testing.T) {
						line.reuses = testTask(t, h, d, "--replay-raw")
						checkReuse(t, line.reuses, true)
					}))
				}
			})
		}
	}
}

// Codex speaks over a WebSocket, where it is told that it may, and asks for answers
// in a form.
func TestAgentsOfResponses(t *testing.T) {
	d := dialects[0]
	t.Run("websocket", func(t *testing.T) {
		h := socketCodex()
		a := runTask(t, h, d)
		sockets := 0
		for _, p := range a.wire.all() {
			switch {
			case p.path != h.api:
			case p.status == http.StatusSwitchingProtocols:
				sockets++
			default:
				t.Errorf("a request that is none for a WebSocket: status %d: %s", p.status, p.text())
			}
		}
		if sockets == 0 {
			t.Error("no WebSocket was asked for")
		}
	})
	t.Run("form", func(t *testing.T) {
		repo := scratch(t)
		schema := `{"type":"object","properties":{"files":{"type":"integer"},"note":{"type":"string"}},"required":["files","note"],"additionalProperties":false}`
		if err := os.WriteFile(filepath.Join(repo, "form.json"), []byte(schema), 0o600); err != nil {
			t.Fatal(err)
		}
		h := codex
		h.start = strings.Replace(h.start, "exec", "exec --output-schema form.json", 1)
		// No rule fits: the engine answers by itself, and is held to the form.
		script := writeScript(t, []rule{{When: when{"user": "something else"}, Emit: lost}}, nil)
		a := newAgent(t, h, serveDialect(t, h, d, script), repo)
		out := a.say(h.start, "How many files are here?")
		var answer struct {
			Files *int
			Note  *string
		}
		if err := json.Unmarshal([]byte(out), &answer); err != nil || answer.Files == nil || answer.Note == nil {
			t.Errorf("the answer has not the form: %v: %s", err, out)
		}
	})
}

// serveDialect starts a server with one worker that speaks the dialect.
func serveDialect(t testing.TB, h harness, d dialect, script string, flags ...string) *server {
	t.Helper()
	for _, flag := range h.flags {
		flags = append(flags, strings.ReplaceAll(flag, "MODEL", d.model))
	}
	args := []string{
		"--model-path", filepath.Join(setting(t, "E2E_MODELS"), d.model), "--mock-script", script, "--speedup-ratio", "0",
		"--workers", "1",
	}
	return serve(t, append(append(args, d.flags...), flags...)...)
}

// conversation returns the trips of the conversation that began with a request with
// tools and these words.
func (a *agent) conversation(words string) (talk []*trip) {
	id := ""
	for _, p := range a.wire.all() {
		if p.path != a.h.api || !strings.Contains(string(p.request), `"tools":[{`) {
			continue
		}
		if id == "" && !strings.Contains(string(p.request), words) {
			continue
		}
		if id == "" {
			id = p.header.Get(a.h.session)
		}
		if p.header.Get(a.h.session) == id {
			talk = append(talk, p)
		}
	}
	return talk
}

// sound checks what every run must keep: each request was answered, and never was
// the model lost.
func (a *agent) sound() {
	a.t.Helper()
	a.wire.keep(a.t)
	if n := len(a.wire.all()); n == 0 {
		a.t.Error("nothing was asked of the server")
	}
	for i, p := range a.wire.all() {
		if p.status != 200 {
			a.t.Errorf("request %d, %s: status %d: %s", i, p.path, p.status, p.text())
		}
		if strings.Contains(p.text(), lost) {
			a.t.Errorf("request %d, %s: the model is lost: %s\n…%s", i, p.path, p.text(), tail(string(p.request), 3000))
		}
	}
}

func tail(s string, n int) string { return s[max(0, len(s)-n):] }

func testTask(t *testing.T, h harness, d dialect, flags ...string) []reuse {
	a := runTask(t, h, d, flags...)
	a.sound()
	steps, talk := fixing(h, a.repo), a.conversation(ask)
	if len(talk) != len(steps) {
		t.Errorf("%d turns, want %d", len(talk), len(steps))
	}
	all := reuses(t, talk, steps)
	checkReuse(t, all, false)
	return all
}

// runTask lets an agent do the task, and takes it up again.
func runTask(t *testing.T, h harness, d dialect, flags ...string) *agent {
	t.Helper()
	repo := scratch(t)
	a := newAgent(t, h, serveDialect(t, h, d, play(t, d, nil, fixing(h, repo)), flags...), repo)
	for _, run := range []struct{ line, prompt, want string }{{h.start, ask, answer}, {h.resume, askAgain, again}} {
		if out := a.say(run.line, run.prompt); !strings.Contains(out, run.want) {
			t.Errorf("it printed no %q:\n%s", run.want, out)
		}
	}
	text, err := os.ReadFile(filepath.Join(repo, "greet.py"))
	if err != nil || string(text) != strings.Replace(greeting, typo, cure, 1) {
		t.Errorf("the edit was not made (%v):\n%s", err, text)
	}
	return a
}

func testDelegate(t *testing.T, h harness, d dialect) {
	repo := scratch(t)
	lead, sub := delegating(h)
	a := newAgent(t, h, serveDialect(t, h, d, play(t, d, nil, lead, sub)), repo)
	if out := a.say(h.start, askOther); !strings.Contains(out, relayed) {
		t.Errorf("it printed no %q:\n%s", relayed, out)
	}
	a.sound()
	sessions := map[string]bool{}
	for _, p := range a.wire.all() {
		if p.path == h.api && strings.Contains(string(p.request), `"tools":[{`) {
			sessions[p.header.Get(h.session)+" "+p.header.Get("X-Claude-Code-Agent-Id")] = true
		}
	}
	if len(sessions) != 2 {
		t.Errorf("%d conversations, want that of the agent and that of its sub-agent: %v", len(sessions), sessions)
	}
}

func testLook(t *testing.T, h harness, d dialect) {
	repo := scratch(t)
	// Some harnesses send what a tool has found as if it were from the user.
	a := newAgent(t, h, serveDialect(t, h, d, play(t, d, nil, looking(h, repo)), "--image-placeholder"), repo)
	if h.pictures != nil {
		h.pictures(a)
	}
	if out := a.say(h.start, askLook); !strings.Contains(out, seen) {
		t.Errorf("it printed no %q:\n%s", seen, out)
	}
	a.sound()
	if !slices.ContainsFunc(a.wire.all(), func(p *trip) bool { return strings.Contains(string(p.request), "iVBORw0KGgo") }) {
		t.Error("no picture was sent")
	}
}

// An agent that is interrupted leaves nothing running behind.
func testInterrupt(t *testing.T, h harness, d dialect) {
	script := writeScript(t, []rule{{
		When: when{"has_tools": true},
		Emit: d.write(t, saying{text: strings.Repeat("and so on ", 2000)}),
		Pace: map[string]any{"itl": "20ms"},
	}}, &rule{Emit: d.write(t, saying{text: "A title"})})
	a := newAgent(t, h, serveDialect(t, h, d, script, "--http-sse-keep-alive-interval-ms", "5000"), scratch(t))
	a.interrupt(ask)
}

// until waits for a condition.
func until(t testing.TB, patience time.Duration, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !holds(); <-time.After(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("after %v it does not hold that %s", patience, what)
		}
	}
}

// result is a line of the table that closes the suite.
type result struct {
	harness, dialect string
	notes            []string
	reuses           []reuse
}

func (r *result) note(what string, ok bool) {
	if !ok {
		what += " FAILED"
	}
	r.notes = append(r.notes, what)
}

type table struct{ lines []*result }

func (r *table) line(harness, dialect string) *result {
	l := &result{harness: harness, dialect: dialect}
	r.lines = append(r.lines, l)
	return l
}

// write writes the table to the file that E2E_REPORT names.
func (r *table) write(t *testing.T) {
	f, err := os.Create(setting(t, "E2E_REPORT"))
	if err != nil {
		t.Error(err)
		return
	}
	defer f.Close()
	w := tabwriter.NewWriter(f, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\t\t\tOF THE TURN BEFORE\tTAKEN UP AGAIN\t")
	fmt.Fprintln(w, "AGENT\tFAMILY\tTURNS\tPROMPT + ANSWER\tPROMPT + ANSWER\tDID")
	for _, l := range r.lines {
		if len(l.reuses) == 0 {
			fmt.Fprintf(w, "%s\t%s\t\t\t\t%s\n", l.harness, l.dialect, strings.Join(l.notes, ", "))
			continue
		}
		prompt, output := worst(l.reuses, false)
		promptAgain, outputAgain := worst(l.reuses, true)
		fmt.Fprintf(w, "%s\t%s\t%d\t%.1f%% + %.1f%%\t%.1f%% + %.1f%%\t%s\n",
			l.harness, l.dialect, len(l.reuses)+1, 100*prompt, 100*output, 100*promptAgain, 100*outputAgain, strings.Join(l.notes, ", "))
	}
	if err := w.Flush(); err != nil {
		t.Error(err)
	}
}
