//go:build unix

package main

import (
	"fmt"
	"testing"
)

// heldBlocks is the size of a cache in which what goes first is looked for.
const heldBlocks = 128

// crowded starts a server whose one worker has a small cache, half of which may be
// pinned.
func crowded(t *testing.T, env []string, flags ...string) *program {
	return serveIn(t, env, append([]string{
		"--workers", "1", "--num-gpu-blocks-override", fmt.Sprint(heldBlocks), "--extra-engine-args", `{"pin_budget_g1":0.5,"speedup_ratio":0}`,
	}, flags...)...)
}

// flood asks for other prompts until they have filled so many blocks.
func (p *program) flood(blocks int) {
	for i := 0; blocks > 0; i++ {
		n, _ := p.asked("completions", prose(fmt.Sprint("other", i), 10), "")
		blocks -= (n + 4) / 16 // with the answer
	}
}

// Where operators hold sessions, what one has cached that its client has open outlives
// any flood, until it is closed. One that is bound to its worker, and no more, is not
// held, and neither is any where operators do not say so.
func TestHoldSessions(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, first, last string
		flags, env        []string
		stays             bool
	}{
		{name: "open", first: "open", flags: []string{"--hold-sessions"}, stays: true},
		{name: "by the environment", first: "open", env: []string{"DYN_HOLD_SESSIONS=true"}, stays: true},
		{name: "closed", first: "open", last: "close", flags: []string{"--hold-sessions"}},
		{name: "bound", first: "bind", flags: []string{"--hold-sessions"}},
		{name: "not held", first: "open"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := crowded(t, tt.env, tt.flags...)
			text := prose("one", 60)
			said := func(action string) string { return `,"nvext":{"session_control":` + control("s", action) + `}` }
			prompt, _ := p.asked("chat", text, said(tt.first))
			if tt.last != "" {
				p.asked("chat", text, said(tt.last))
			}
			p.flood(3 * heldBlocks)
			_, cached := p.asked("chat", text, said(""))
			whole := (prompt - 1) / 16 * 16
			if tt.stays && cached < whole || !tt.stays && cached > whole/2 {
				t.Errorf("%d of %d tokens are cached, want them to stay: %v", cached, prompt, tt.stays)
			}
		})
	}
}

// Where operators say so, what agents leave that others have started goes before all
// else, though it was used last; otherwise the oldest goes.
func TestSubagentEphemeral(t *testing.T) {
	t.Parallel()
	const of = `,"nvext":{"agent_context":{"session_type_id":"coder","session_id":"run","trajectory_id":%q%s}}`
	for _, tt := range []struct {
		name  string
		flags []string
		first bool
	}{
		{"on", []string{"--subagent-ephemeral"}, true},
		{"off", nil, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := crowded(t, nil, tt.flags...)
			parent, child := prose("parent", 60), prose("child", 60)
			n, _ := p.asked("completions", parent, fmt.Sprintf(of, "main", ""))
			m, _ := p.asked("completions", child, fmt.Sprintf(of, "explorer", `,"parent_trajectory_id":"main"`))
			p.flood(heldBlocks - n/16 - m/16/2) // more than there is room for, by less than the child's
			stays, goes := child, parent
			if tt.first {
				stays, goes = parent, child
			}
			prompt, there := p.asked("completions", stays, "")
			if _, gone := p.asked("completions", goes, ""); there < (prompt-1)/16*16 || gone > prompt/2 {
				t.Errorf("%d of %d tokens are cached of what should stay, and %d of what should go", there, prompt, gone)
			}
		})
	}
}
