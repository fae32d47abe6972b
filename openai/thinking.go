package openai

import (
	"slices"
	"strconv"
	"strings"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/internal/wire"
)

// thinking is the member of that name at the root.
type thinking struct {
	enabled  *bool
	adaptive bool
	budget   *int64
}

func readThinking(r *wire.Reader, b *body) error {
	b.thinking = thinking{}
	switch r.Kind() {
	case 'n':
		return r.Skip()
	case 't', 'f':
		on, err := r.Boolean()
		b.thinking.enabled = &on
		return err
	}
	return r.Object("a boolean or an object", func(name []byte) error {
		switch string(name) {
		case "type":
			kind, err := r.Text("a string")
			if err != nil {
				return err
			}
			switch kind {
			case "enabled", "disabled":
				on := kind == "enabled"
				b.thinking.enabled = &on
			case "adaptive":
				b.thinking.enabled, b.thinking.adaptive = nil, true
			default:
				return wire.Invalid("thinking.type", "thinking.type must be enabled, disabled or adaptive, got %q", wire.Clip(kind))
			}
			return nil
		case "budget_tokens":
			return integer(0, func(b *body) **int64 { return &b.thinking.budget })(r, b)
		}
		return r.Skip()
	})
}

// normaliseThinking merges all ways to say how much to think, and writes the
// result back into the template arguments so that any template finds the
// spelling it knows. What says on or off wins over what an effort implies, and
// the root of the body over the template arguments.
func (b *body) normaliseThinking() (chat.Thinking, []byte, error) {
	var out chat.Thinking
	args, err := b.readArgs()
	if err != nil {
		return out, nil, err
	}
	effort := b.reasoningEffort
	if effort != nil && !slices.Contains(efforts, *effort) {
		return out, nil, wire.Invalid("reasoning_effort", "reasoning_effort must be one of %s, got %q", strings.Join(efforts, ", "), wire.Clip(*effort))
	}
	if effort == nil {
		if v := lookup(args, "reasoning_effort"); v != nil && v[0] == '"' {
			s := wire.Unquote(v)
			effort = &s
		}
	}
	if args, err = b.setRootArgs(args); err != nil {
		return out, nil, err
	}
	out.Enabled, out.Adaptive = b.thinking.enabled, b.thinking.adaptive
	if out.Adaptive {
		args = slices.DeleteFunc(args, func(a arg) bool { return slices.Contains(switches, a.name) })
	}
	for _, alias := range switches {
		if out.Enabled != nil {
			break
		}
		out.Enabled = truth(lookup(args, alias), alias == "thinking_mode")
	}
	if effort != nil {
		out.Effort = *effort
		if out.Enabled == nil && !out.Adaptive {
			on := *effort != "none"
			out.Enabled = &on
		}
	}
	if b.thinking.budget != nil {
		out.Budget = intPointer(*b.thinking.budget)
	}
	return out, b.writeArgs(args, out), nil
}

// switches are the template arguments that switch thinking on and off.
var switches = []string{"thinking", "enable_thinking", "thinking_mode"}

var efforts = []string{"none", "minimal", "low", "medium", "high", "xhigh", "max"}

func (b *body) writeArgs(args []arg, t chat.Thinking) []byte {
	if t.Enabled != nil {
		on := strconv.AppendBool(nil, *t.Enabled)
		args = setArg(setArg(args, "thinking", on), "enable_thinking", on)
		if mode := lookup(args, "thinking_mode"); truth(mode, true) != nil {
			word := `"disabled"`
			if *t.Enabled {
				word = `"enabled"`
			}
			args = setArg(args, "thinking_mode", []byte(word))
		}
	}
	if b.reasoningEffort != nil {
		args = setArg(args, "reasoning_effort", wire.AppendString(nil, t.Effort))
	}
	if args == nil {
		return nil
	}
	out := []byte{'{'}
	for i, a := range args {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(wire.AppendString(out, a.name), ':')
		out = append(out, a.value...)
	}
	return append(out, '}')
}

// truth reads a switch in any of the spellings in use, or returns nil. mode
// admits the words of thinking_mode.
func truth(v []byte, mode bool) *bool {
	on, off := true, false
	if len(v) == 0 {
		return nil
	}
	switch v[0] {
	case 't':
		return &on
	case 'f':
		return &off
	case '"':
		switch s := strings.ToLower(wire.Unquote(v)); {
		case s == "true" || s == "1" || s == "yes" || s == "on" || mode && s == "enabled":
			return &on
		case s == "false" || s == "0" || s == "no" || s == "off" || mode && s == "disabled":
			return &off
		}
		return nil
	case '{', '[', 'n':
		return nil
	}
	if f, err := strconv.ParseFloat(string(v), 64); err == nil && f == 0 {
		return &off
	}
	return &on
}

// Thinking reads how much to think from the template arguments of a request of
// another API, and from the effort that it names, or nil. It returns the
// arguments as a template shall see them, nil for none. The error is a
// *wire.Error.
func Thinking(args []byte, effort *string) (chat.Thinking, []byte, error) {
	b := body{templateArgs: args, reasoningEffort: effort}
	return b.normaliseThinking()
}
