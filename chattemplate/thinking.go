package chattemplate

import (
	"regexp"
	"slices"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/chattemplate/jinja"
)

// keeping are the variables by which the templates of different makers are told to
// show the thoughts of earlier answers. Those that know none of them decide for
// themselves.
var keeping = []struct {
	name  string
	value bool
}{
	{"truncate_history_thinking", false}, // Nemotron 3
	{"clear_thinking", false},            // GLM 4.7 and 5
	{"preserve_thinking", true},          // Qwen 3.6, LFM 2.5, Laguna
	{"keep_past_thinking", true},         // LFM 2.5
	{"drop_thinking", false},             // DeepSeek V4
}

// setThinking spells what a request says of thinking in every way that templates
// know.
func (t *traits) setThinking(vars *jinja.Dict, r *chat.Request, g *guard) {
	think := &r.Thinking
	switch {
	case think.Adaptive && t.adaptive:
		vars.Set("thinking_mode", "adaptive")
	case think.Enabled != nil:
		on := *think.Enabled
		vars.Set("thinking", on)
		vars.Set("enable_thinking", on)
		if t.thinkingMode {
			mode := "disabled"
			if on {
				mode = "enabled"
			}
			vars.Set("thinking_mode", mode)
		}
	}
	if think.Effort != "" {
		vars.Set("reasoning_effort", g.text(think.Effort))
	}
	if keepsSome(r) {
		keepAll(vars)
	}
}

func keepAll(vars *jinja.Dict) {
	for _, s := range keeping {
		vars.Set(s.name, s.value)
	}
}

// keepsSome tells that the client wants the thoughts of earlier answers shown.
func keepsSome(r *chat.Request) bool { return r.Thinking.Keep != nil && *r.Thinking.Keep != 0 }

// keptFrom returns the number of the first turn whose thoughts the client wants
// shown. An answer is all that the model does to one question, with all calls and
// their results.
func keptFrom(r *chat.Request) int {
	if r.Thinking.Keep == nil || *r.Thinking.Keep < 0 {
		return 0
	}
	left, within := *r.Thinking.Keep, false
	for i := len(r.Turns) - 1; i >= 0; i-- {
		turn := &r.Turns[i]
		switch {
		case asks(turn):
			within = false
		case turn.Role == chat.RoleAssistant && !within:
			if left == 0 {
				return i + 1
			}
			left--
			within = true
		}
	}
	return 0
}

// asks tells that a turn is a question, and not just what came of calls.
func asks(turn *chat.Turn) bool {
	return turn.Role == chat.RoleUser && !(len(turn.Blocks) > 0 && !slices.ContainsFunc(turn.Blocks, func(b chat.Block) bool { return !isResult(b) }))
}

var adaptiveMode = regexp.MustCompile(`thinking_mode\s*==\s*["']adaptive["']`)

// segments are the thoughts of a turn for templates that show each before the call
// that it led to: one before each call, and one behind all of them.
func (m *message) segments() jinja.Value {
	texts := make([]string, len(m.calls)+1)
	for i, thought := range m.thoughts {
		at := min(m.thoughtAt[i], len(m.calls))
		if texts[at] != "" {
			texts[at] += "\n"
		}
		texts[at] += thought
	}
	items := make([]jinja.Value, len(texts))
	for i, s := range texts {
		items[i] = s
	}
	return jinja.NewList(items...)
}
