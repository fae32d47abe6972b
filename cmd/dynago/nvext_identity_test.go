//go:build unix

package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dynago/dynago/kv"
)

// identityRows are what is promised about who asks: each place where a request may
// say it, alone and against the next one.
var identityRows = []row{
	named("x-dynamo-session-id", row{header: []string{"x-dynamo-session-id", " {here} ", "x-dynamo-parent-session-id", "up"}, nvext: agentContext}, "up"),
	named("x-dynamo-trajectory-id", row{header: []string{"x-dynamo-trajectory-id", "{here}"}, nvext: agentContext}, ""),
	named("agent_context", row{nvext: strings.ReplaceAll(agentContext, "other", "{here}"), header: []string{"x-claude-code-session-id", "c", "thread-id", "t"}}, "up"),
	named("session_control", row{nvext: `{"session_control":{"session_id":"{here}","action":"bind"}}`, header: []string{"thread-id", "t"}}, ""),
	named("x-claude-code-session-id", row{header: []string{"x-claude-code-session-id", "{here}", "thread-id", "t"}}, ""),
	named("x-claude-code-agent-id", row{header: []string{"x-claude-code-session-id", "up", "x-claude-code-agent-id", "{here}", "thread-id", "t"}}, "up"),
	named("thread-id", row{header: []string{"thread-id", "{here}", "x-codex-parent-thread-id", "up", "x-session-id", "o"}}, "up"),
	named("x-session-id", row{header: []string{"x-session-id", "{here}", "x-parent-session-id", "up", "session-id", "s"}}, "up"),
	named("session-id", row{header: []string{"session-id", "{here}", "x-session-affinity", "a"}}, ""),
	named("x-session-affinity", row{header: []string{"x-session-affinity", "{here}"}}, ""),
	named("metadata.user_id", row{more: `"metadata":{"user_id":"{\"session_id\":\"{here}\"}"}`, apis: []string{"messages"}}, ""),
	named("prompt_cache_key", row{more: `"prompt_cache_key":"{here}"`, apis: []string{"chat", "completions", "responses"}}, ""),
	named("an id of 257 bytes is none", row{header: []string{"x-dynamo-session-id", strings.Repeat("x", 257), "x-session-affinity", "{here}"}}, ""),
	{
		field: "what is passed over is in the log", header: []string{"x-dynamo-session-id", strings.Repeat("x", 257)},
		check: func(t *testing.T, c *crossing) {
			if s := c.only(t).KV.Session; s.ID != "" {
				t.Errorf("session %q at the worker", s.ID)
			}
			id := c.reply.header.Get("request-id")
			until(t, "a line about it", func() bool {
				return strings.Contains(c.log.String(), `msg="ids of sessions cannot be used and are passed over" target=frontend request_id=`+id+` where=[x-dynamo-session-id]`)
			})
		},
	},
	{
		field: "an id of 256 bytes", header: []string{"x-dynamo-session-id", strings.Repeat("x", 256)},
		check: func(t *testing.T, c *crossing) {
			if got := c.only(t).KV.Session.ID; len(got) != 256 {
				t.Errorf("session %q at the worker", got)
			}
		},
	},
	{
		field: "next_request_in", nvext: `{"agent_hints":{"next_request_in":"8s"}}`, header: []string{"x-dynamo-session-id", "{here}"},
		before: func(_ *testing.T, c *crossing) {
			c.dropped = c.counter(`dynago_next_request_hints_total{outcome="dropped"}`)
		},
		check: func(t *testing.T, c *crossing) {
			if got := c.only(t).KV.NextIn; got != 8*time.Second {
				t.Errorf("the worker is told %v", got)
			}
			if n := c.counter(`dynago_next_request_hints_total{outcome="dropped"}`) - c.dropped; n != 1 {
				t.Errorf("%v hints were dropped, want one: the workers have nothing below their devices", n)
			}
		},
	},
	{field: "next_request_in that cannot be read", nvext: `{"agent_hints":{"next_request_in":"soon"}}`, status: 400, says: `nvext\.agent_hints\.next_request_in: must be`},
	{
		field: "x-dynamo-session-final", header: []string{"x-dynamo-session-id", "{here}", "x-dynamo-session-final", "true"},
		check: func(t *testing.T, c *crossing) {
			if !c.only(t).KV.EvictSession {
				t.Error("the worker is not told that the session ends")
			}
		},
	},
	{
		field: "trajectory_final", nvext: `{"agent_context":{"session_type_id":"t","session_id":"r","trajectory_id":"{here}","trajectory_final":true}}`,
		check: func(t *testing.T, c *crossing) {
			if !c.only(t).KV.EvictSession {
				t.Error("the worker is not told that the session ends")
			}
		},
	},
	held("a session that is open is held", "open", kv.Pin{UpTo: kv.WholeSequence, TTL: time.Minute}),
	held("a session that is bound is not", "bind"),
	held("nor one that closes", "close"),
	subagents("--subagent-ephemeral", "up", true, "--subagent-ephemeral"),
	subagents("--subagent-ephemeral, no parent", "", false, "--subagent-ephemeral"),
	subagents("no --subagent-ephemeral", "up", false),
}

// held is a turn of a session where operators hold those that are open.
func held(field, action string, want ...kv.Pin) row {
	return row{
		field: field, nvext: `{"session_control":{"session_id":"{here}","action":"` + action + `","timeout":60}}`, flags: []string{"--hold-sessions"},
		check: func(t *testing.T, c *crossing) {
			if got := c.only(t).KV.Pins; !slices.Equal(got, want) {
				t.Errorf("pins %+v at the worker, want %+v", got, want)
			}
		},
	}
}

// subagents is a turn of an agent with a parent, or without one.
func subagents(field, parent string, ephemeral bool, flags ...string) row {
	return row{
		field: field, header: []string{"x-dynamo-session-id", "{here}", "x-dynamo-parent-session-id", parent}, flags: flags,
		check: func(t *testing.T, c *crossing) {
			if s := c.only(t).KV.Session; s.Ephemeral != ephemeral || s.Parent != parent {
				t.Errorf("the worker is told of session %+v", s)
			}
		},
	}
}

const agentContext = `{"agent_context":{"session_type_id":"coder","session_id":"run","trajectory_id":"other","parent_trajectory_id":"up"}}`

// named is a row whose session is {here}, of this parent.
func named(field string, r row, parent string) row {
	r.field = field
	r.check = func(t *testing.T, c *crossing) {
		t.Helper()
		if s := c.only(t).KV.Session; s.ID != c.fill("{here}") || s.Parent != parent {
			t.Errorf("session %q of %q at the worker, want %q of %q", s.ID, s.Parent, c.fill("{here}"), parent)
		}
	}
	return r
}
