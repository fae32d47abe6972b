package nvext_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/dynago/dynago/nvext"
)

func header(pairs ...string) http.Header {
	h := http.Header{}
	for i := 0; i < len(pairs); i += 2 {
		h.Add(pairs[i], pairs[i+1])
	}
	return h
}

func TestIdentity(t *testing.T) {
	agent := &nvext.Ext{AgentContext: &nvext.AgentContext{
		SessionTypeID: "coder", SessionID: "run", TrajectoryID: "body", ParentTrajectoryID: "body-parent",
	}}
	control := &nvext.Ext{SessionControl: &nvext.SessionControl{SessionID: "control"}}
	both := &nvext.Ext{AgentContext: agent.AgentContext, SessionControl: control.SessionControl}
	last := func(final bool) *nvext.Ext {
		c := *agent.AgentContext
		c.TrajectoryFinal = &final
		return &nvext.Ext{AgentContext: &c}
	}
	const long = 257
	chain := func(id string) nvext.Identity { return nvext.Identity{Chain: id, Key: id} }
	child := func(id, parent string) nvext.Identity { return nvext.Identity{Chain: id, Key: id, Parent: parent} }
	body := nvext.Identity{Run: "run", Type: "coder", Chain: "body", Parent: "body-parent", Key: "body"}

	for name, c := range map[string]struct {
		sources nvext.Sources
		header  http.Header
		want    nvext.Identity
	}{
		"nothing":              {want: nvext.Identity{}},
		"session":              {header: header("x-dynamo-session-id", " s "), want: chain("s")},
		"session and parent":   {header: header("x-dynamo-session-id", "s", "x-dynamo-parent-session-id", "p"), want: child("s", "p")},
		"its own parent":       {header: header("x-dynamo-session-id", "s", "x-dynamo-parent-session-id", " s"), want: chain("s")},
		"older names":          {header: header("x-dynamo-trajectory-id", "s", "x-dynamo-parent-trajectory-id", "p"), want: child("s", "p")},
		"newer name wins":      {header: header("x-dynamo-trajectory-id", "t", "x-dynamo-session-id", "s"), want: chain("s")},
		"blank gives way":      {header: header("x-dynamo-session-id", "  ", "thread-id", "t"), want: chain("t")},
		"too long gives way":   {header: header("x-dynamo-session-id", strings.Repeat("x", long), "thread-id", "t"), want: chain("t")},
		"long enough":          {header: header("x-dynamo-session-id", strings.Repeat("x", long-1)), want: chain(strings.Repeat("x", long-1))},
		"trimmed, long enough": {header: header("x-dynamo-session-id", "  "+strings.Repeat("x", long-1)), want: chain(strings.Repeat("x", long-1))},
		"no text gives way":    {header: header("x-dynamo-session-id", "\xff", "thread-id", "t"), want: chain("t")},

		"body":                          {sources: nvext.Sources{Ext: agent}, want: body},
		"header before body":            {sources: nvext.Sources{Ext: agent}, header: header("x-dynamo-session-id", "s"), want: nvext.Identity{Run: "run", Type: "coder", Chain: "s", Key: "s"}},
		"body before native":            {sources: nvext.Sources{Ext: agent}, header: header("thread-id", "t", "x-claude-code-session-id", "c"), want: body},
		"session control":               {sources: nvext.Sources{Ext: control}, want: chain("control")},
		"session control before native": {sources: nvext.Sources{Ext: control}, header: header("x-session-id", "o"), want: chain("control")},
		"session control is the key":    {sources: nvext.Sources{Ext: both}, want: nvext.Identity{Run: "run", Type: "coder", Chain: "body", Parent: "body-parent", Key: "control"}},
		"and beside a header":           {sources: nvext.Sources{Ext: control}, header: header("x-dynamo-session-id", "s"), want: nvext.Identity{Chain: "s", Key: "control"}},

		"Claude Code":                      {header: header("x-claude-code-session-id", "root"), want: chain("root")},
		"its agent":                        {header: header("x-claude-code-session-id", "root", "x-claude-code-agent-id", "a"), want: child("a", "root")},
		"its agent's agent":                {header: header("x-claude-code-session-id", "root", "x-claude-code-agent-id", "a", "x-claude-code-parent-agent-id", "b"), want: child("a", "b")},
		"an agent that is its own":         {header: header("x-claude-code-session-id", "root", "x-claude-code-agent-id", "a", "x-claude-code-parent-agent-id", "a"), want: child("a", "root")},
		"the root is no child":             {header: header("x-claude-code-session-id", "root", "x-claude-code-agent-id", "root", "x-claude-code-parent-agent-id", "b"), want: chain("root")},
		"a root has no parent":             {header: header("x-claude-code-session-id", "root", "x-claude-code-parent-agent-id", "b"), want: chain("root")},
		"an agent without root":            {header: header("x-claude-code-agent-id", "a", "x-session-id", "o"), want: chain("o")},
		"Codex":                            {header: header("thread-id", "t", "x-codex-parent-thread-id", "p"), want: child("t", "p")},
		"Claude Code before Codex":         {header: header("thread-id", "t", "x-claude-code-session-id", "c"), want: chain("c")},
		"OpenCode":                         {header: header("x-session-id", "o", "x-parent-session-id", "p", "x-session-affinity", "f"), want: child("o", "p")},
		"sources are not mixed":            {header: header("thread-id", "t", "x-parent-session-id", "p"), want: chain("t")},
		"Codex before OpenCode":            {header: header("thread-id", "t", "x-session-id", "o"), want: chain("t")},
		"session-id":                       {header: header("session-id", "i", "x-session-affinity", "f"), want: chain("i")},
		"x-session-affinity":               {sources: nvext.Sources{PromptCacheKey: "k"}, header: header("x-session-affinity", "f"), want: chain("f")},
		"user id":                          {sources: nvext.Sources{UserID: `{"session_id":" u ","x":1}`, PromptCacheKey: "k"}, want: chain("u")},
		"user id without session":          {sources: nvext.Sources{UserID: `{"x":1}`, PromptCacheKey: "k"}, want: chain("k")},
		"user id with another session":     {sources: nvext.Sources{UserID: `{"session_id":7}`, PromptCacheKey: "k"}, want: chain("k")},
		"user id that is none of JSON":     {sources: nvext.Sources{UserID: `user_1_session_2`, SequenceID: "q"}, want: chain("q")},
		"prompt cache key":                 {sources: nvext.Sources{PromptCacheKey: " k ", SequenceID: "q"}, want: chain("k")},
		"prompt cache key, too long":       {sources: nvext.Sources{PromptCacheKey: strings.Repeat("k", long), SequenceID: "q"}, want: chain("q")},
		"sequence":                         {sources: nvext.Sources{SequenceID: "q"}, want: chain("q")},
		"end of a sequence":                {sources: nvext.Sources{SequenceID: "q", SequenceEnd: true}, want: nvext.Identity{Chain: "q", Key: "q", Final: true}},
		"not by header":                    {sources: nvext.Sources{SequenceID: "q", SequenceEnd: true}, header: header("x-dynamo-session-final", "0"), want: chain("q")},
		"end of no sequence":               {sources: nvext.Sources{SequenceEnd: true}, want: nvext.Identity{}},
		"end of another sequence":          {sources: nvext.Sources{SequenceID: "q", SequenceEnd: true}, header: header("x-dynamo-session-id", "s"), want: chain("s")},
		"parent of nobody":                 {header: header("x-dynamo-parent-session-id", "p"), want: nvext.Identity{}},
		"final of nobody":                  {header: header("x-dynamo-session-final", "true"), want: nvext.Identity{}},
		"final":                            {header: header("thread-id", "t", "x-dynamo-session-final", " True "), want: nvext.Identity{Chain: "t", Key: "t", Final: true}},
		"final by its older name":          {header: header("thread-id", "t", "x-dynamo-trajectory-final", "1"), want: nvext.Identity{Chain: "t", Key: "t", Final: true}},
		"not final":                        {header: header("thread-id", "t", "x-dynamo-session-final", "off"), want: chain("t")},
		"neither":                          {header: header("thread-id", "t", "x-dynamo-session-final", "maybe"), want: chain("t")},
		"final in the body":                {sources: nvext.Sources{Ext: last(true)}, want: nvext.Identity{Run: "run", Type: "coder", Chain: "body", Parent: "body-parent", Key: "body", Final: true}},
		"final in the body, not by header": {sources: nvext.Sources{Ext: last(true)}, header: header("x-dynamo-session-final", "no"), want: body},
		"final by header, not in the body": {sources: nvext.Sources{Ext: last(false)}, header: header("x-dynamo-session-final", "yes"), want: nvext.Identity{Run: "run", Type: "coder", Chain: "body", Parent: "body-parent", Key: "body", Final: true}},
	} {
		if c.header != nil {
			c.sources.Header = c.header.Get
		}
		if got := c.sources.Identity(); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

func FuzzIdentity(f *testing.F) {
	f.Add("s", "p", `{"session_id":"u"}`, "k")
	f.Add(" ", "\xff", `{"session_id":{}}`, "")
	f.Fuzz(func(t *testing.T, session, parent, user, key string) {
		h := map[string]string{"X-Claude-Code-Session-Id": session, "X-Claude-Code-Agent-Id": parent, "Thread-Id": parent}
		id := nvext.Sources{Header: func(n string) string { return h[n] }, UserID: user, PromptCacheKey: key}.Identity()
		for _, s := range []string{id.Chain, id.Parent, id.Key} {
			if len(s) > 256 || s != strings.TrimSpace(s) || strings.ToValidUTF8(s, "") != s {
				t.Fatalf("%+v", id)
			}
		}
		if id.Chain == "" && id != (nvext.Identity{}) || id.Parent == id.Chain && id.Chain != "" {
			t.Fatalf("%+v", id)
		}
	})
}

// What is passed over is named, so that people can find out why an agent has no session.
func TestUnusable(t *testing.T) {
	long, most := strings.Repeat("x", 257), strings.Repeat("x", 256)
	h := http.Header{}
	for name, id := range map[string]string{
		"X-Dynamo-Session-Id": long, "Thread-Id": most, "X-Session-Id": "a\xffb", "Session-Id": "  ", "X-Codex-Parent-Thread-Id": long, "X-Other": long,
	} {
		h.Set(name, id)
	}
	s := nvext.Sources{Header: h.Get, UserID: `{"session_id":"` + long + `"}`, PromptCacheKey: long + " ", SequenceID: "  " + most}
	want := []string{"x-dynamo-session-id", "x-codex-parent-thread-id", "x-session-id", "metadata.user_id", "prompt_cache_key"}
	if got := s.Unusable(); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if got := (nvext.Sources{UserID: "someone"}).Unusable(); got != nil {
		t.Errorf("of nothing %q", got)
	}
}
