//go:build e2e

package e2e_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// What each agent does is recorded as one complete tree: its session with all turns in
// order, also of those when it is taken up again; its sub-agent below it; every tool
// with the turn that asked for it and the one that has what came of it. Recordings of
// this test, which it leaves in the folder that E2E_TRACES names, are test data of
// trace/tree.
func TestAgentsTraced(t *testing.T) {
	for _, h := range []harness{codex, socketCodex(), openCode, claudeCode, pi} {
		t.Run(h.program+h.variant, func(t *testing.T) { testTraced(t, h) })
	}
}

// askLong is answered at length, so that there is time for Ctrl-C.
const askLong = "Tell me about everything."

func testTraced(t *testing.T, h harness) {
	d, repo := dialects[0], scratch(t)
	path := filepath.Join(t.TempDir(), "trace.jsonl")
	task := fixing(h, repo)
	var lead, sub []step
	if h.delegate != nil {
		lead, sub = delegating(h)
	}
	long := rule{
		When: when{"user": askLong, "has_tools": true},
		Emit: d.write(t, saying{text: strings.Repeat("and so on ", 2000)}),
		Pace: map[string]any{"itl": "20ms"},
	}
	a := newAgent(t, h, serveDialect(
		t, h, d, play(t, d, []rule{long}, lead, sub, task),
		"--request-trace", "--request-trace-file-path", path, "--request-trace-file-format", "jsonl", "--kv-cache-block-size", "256",
	), repo)
	say := func(line, prompt, want string) {
		if out := a.say(line, prompt); !strings.Contains(out, want) {
			t.Errorf("it printed no %q:\n%s", want, out)
		}
	}
	say(h.start, ask, answer)
	say(h.resume, askAgain, again)
	if h.delegate != nil {
		say(h.start, askOther, relayed)
	}
	a.interrupt(askLong)
	a.wire.keep(t)
	a.s.signal(t, syscall.SIGTERM)
	if code := a.s.exit(t, 20*time.Second); code != 0 {
		t.Errorf("the server ended with code %d", code)
	}

	rows := readRows(t, path)
	if !h.socket {
		checkAnswers(t, a, rows)
	}
	code, out := command(t, nil, "trace", "show", "--json", path)
	var tree tracedTree
	if err := json.Unmarshal([]byte(out), &tree); err != nil || code != 0 {
		t.Fatalf("dynago trace show: code %d, %v: %s", code, err, out)
	}
	if len(tree.Alone) > 0 || tree.Duplicates > 0 {
		t.Errorf("%d requests of no session, and %d rows twice", len(tree.Alone), tree.Duplicates)
	}
	want := []expected{{turns: len(task) + h.errands}, {turns: 1 + h.errands, cut: true}}
	if h.delegate != nil {
		want = slices.Insert(want, 1, expected{turns: len(lead) + h.errands, agents: []expected{{turns: len(sub)}}})
	}
	checkChains(t, tree.Sessions, want)
	if t.Failed() {
		_, drawn := command(t, nil, "trace", "show", "--alone", path)
		t.Logf("the tree:\n%s", drawn)
	} else if dir := os.Getenv("E2E_TRACES"); dir != "" {
		keepTrace(t, path, filepath.Join(dir, h.program+h.variant+".jsonl"))
	}
}

// readRows reads rows of requests, each of which must be as the schema says, and
// returns their ids.
func readRows(t *testing.T, path string) (ids []string) {
	t.Helper()
	schema, err := jsonschema.NewCompiler().Compile("../trace/schema.json")
	if err != nil {
		t.Fatal(err)
	}
	lines, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(lines) {
		value, err := jsonschema.UnmarshalJSON(bytes.NewReader(line))
		if err == nil {
			err = schema.Validate(value)
		}
		var row struct {
			Event struct {
				Type    string `json:"event_type"`
				Request struct {
					ID string `json:"request_id"`
				}
			}
		}
		if err != nil || json.Unmarshal(line, &row) != nil || row.Event.Type != "request_end" {
			t.Errorf("a row is no request's, or not as the schema says: %v: %s", err, line)
		}
		ids = append(ids, row.Event.Request.ID)
	}
	return ids
}

// checkAnswers checks that there is a row of each request that was answered, and no
// other.
func checkAnswers(t *testing.T, a *agent, rows []string) {
	t.Helper()
	var answered []string
	for _, p := range a.wire.all() {
		if p.path != a.h.api {
			continue
		}
		if p.status != http.StatusOK {
			t.Errorf("%s: status %d: %s", p.path, p.status, p.text())
			continue
		}
		answered = append(answered, p.answer.Get("Request-Id"))
	}
	slices.Sort(answered)
	if rows = slices.Sorted(slices.Values(rows)); !slices.Equal(rows, answered) {
		t.Errorf("%d rows %q\nof %d answers %q", len(rows), rows, len(answered), answered)
	}
}

// keepTrace copies a recording.
func keepTrace(t *testing.T, from, to string) {
	t.Helper()
	data, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, data, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// What "dynago trace show --json" prints.
type (
	tracedTree struct {
		Sessions   []tracedChain `json:"sessions"`
		Alone      []tracedTurn  `json:"alone"`
		Duplicates int           `json:"duplicates"`
	}
	tracedChain struct {
		ID       string        `json:"session_id"`
		Parent   string        `json:"parent_session_id"`
		Missing  bool          `json:"missing"`
		Disputed bool          `json:"disputed"`
		Turns    []tracedTurn  `json:"turns"`
		Tools    []tracedTool  `json:"tools"`  // of no turn
		Agents   []tracedChain `json:"agents"` // of no turn
	}
	tracedTurn struct {
		Start   time.Time     `json:"start"`
		Trigger string        `json:"input_trigger"`
		Ending  string        `json:"ending"`
		Cached  *float64      `json:"cached_share"`
		Tools   []tracedTool  `json:"tools"`
		Agents  []tracedChain `json:"agents"`
		Unasked []string      `json:"unasked_results"`
		Request struct {
			ID     string   `json:"request_id"`
			Output int      `json:"output_tokens"`
			TTFT   *float64 `json:"ttft_ms"`
			Worker *struct {
				ID uint64 `json:"decode_worker_id"`
			} `json:"worker"`
			Dynago struct {
				Error   string   `json:"error"`
				Results []string `json:"tool_results"`
			} `json:"dynago"`
		} `json:"request"`
	}
	tracedTool struct {
		ID       string   `json:"tool_call_id"`
		Class    string   `json:"tool_class"`
		Duration *float64 `json:"duration_ms"`
		Answered string   `json:"answered_by"`
	}
)

// expected is what a chain has to be like.
type expected struct {
	turns  int
	agents []expected // that it has opened
	cut    bool       // its last answer was interrupted
}

// checkChains checks that chains are those that are expected, and are complete: nothing
// is missing of them, and each turn tells all that there is to tell.
func checkChains(t *testing.T, chains []tracedChain, want []expected) {
	t.Helper()
	if len(chains) != len(want) {
		t.Errorf("%d chains, want %d", len(chains), len(want))
		return
	}
	for i, c := range chains {
		if c.Missing || c.Disputed || len(c.Tools) > 0 || len(c.Agents) > 0 {
			t.Errorf("chain %s is missing (%v) or disputed (%v), or has tools %v or agents %v of no turn", c.ID, c.Missing, c.Disputed, c.Tools, c.Agents)
		}
		if len(c.Turns) != want[i].turns {
			t.Errorf("chain %s has %d turns, want %d", c.ID, len(c.Turns), want[i].turns)
		}
		var agents []tracedChain
		for k, turn := range c.Turns {
			if k > 0 && turn.Start.Before(c.Turns[k-1].Start) {
				t.Errorf("chain %s: turn %d is out of order", c.ID, k+1)
			}
			cut := want[i].cut && k == len(c.Turns)-1
			checkTurn(t, turn, cut)
			agents = append(agents, turn.Agents...)
		}
		for _, kid := range agents {
			if kid.Parent != c.ID {
				t.Errorf("chain %s stands below %s, and names %s as its parent", kid.ID, c.ID, kid.Parent)
			}
		}
		checkChains(t, agents, want[i].agents)
	}
}

func checkTurn(t *testing.T, turn tracedTurn, cut bool) {
	t.Helper()
	id := turn.Request.ID
	if turn.Cached == nil || turn.Request.TTFT == nil || turn.Request.Worker == nil || turn.Request.Output == 0 {
		t.Errorf("turn %s does not tell what was cached, when it began, where it ran, or how long it was: %+v", id, turn)
	}
	if cut {
		if turn.Ending != "error" || turn.Request.Dynago.Error != "cancelled" {
			t.Errorf("turn %s was interrupted, and ended as %q by %q", id, turn.Ending, turn.Request.Dynago.Error)
		}
		return
	}
	want := map[bool]string{true: "tool_calls", false: "stop"}[len(turn.Tools) > 0]
	if turn.Ending != want || turn.Request.Dynago.Error != "" {
		t.Errorf("turn %s ended as %q by %q, want %q", id, turn.Ending, turn.Request.Dynago.Error, want)
	}
	switch {
	case len(turn.Unasked) > 0:
		t.Errorf("turn %s has results of %q, for which nobody has asked", id, turn.Unasked)
	case turn.Trigger == "other", turn.Trigger == "tool_result" && len(turn.Request.Dynago.Results) == 0:
		t.Errorf("turn %s is there for %q, and has the results of %q", id, turn.Trigger, turn.Request.Dynago.Results)
	}
	for _, u := range turn.Tools {
		if u.ID == "" || u.Class == "" || u.Answered == "" || u.Duration == nil {
			t.Errorf("turn %s: a tool has no id, name, result or time: %+v", id, u)
		}
	}
}
