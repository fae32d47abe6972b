package anthropic

import (
	"slices"
	"strings"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/internal/wire"
)

const (
	maxTools        = 1536
	maxToolNameSize = 256 // bytes
)

// readTools reads the tools and keeps each as it came.
func readTools(r *wire.Reader, b *body) error {
	b.tools, b.toolMarks = nil, nil
	if null, err := r.Null(); null {
		return err
	}
	return r.Array("an array of tools", func(i int) error {
		if i == maxTools {
			return wire.Invalid("tools", "tools: at most %d are supported", maxTools)
		}
		tool, marked, err := b.readTool(r, i)
		b.tools = append(b.tools, tool)
		b.toolMarks = append(b.toolMarks, marked)
		return err
	})
}

// unmarked is a tool's mark if it has none.
var unmarked = mark{ttl: -1}

func (b *body) readTool(r *wire.Reader, i int) (chat.Tool, mark, error) {
	t, marked, kind := chat.Tool{Kind: chat.ToolFunction}, unmarked, ""
	var screen screen
	path := index("tools", i)
	raw, err := r.ObjectRaw("a tool object", func(name []byte) error {
		switch string(name) {
		case "type":
			return wire.Nullable(r, &kind, wire.Text)
		case "name":
			return wire.Nullable(r, &t.Name, wire.Text)
		case "description":
			return wire.Nullable(r, &t.Description, wire.Text)
		case "input_schema":
			return wire.Nullable(r, (*[]byte)(&t.Schema), wire.Clean)
		case "strict":
			return wire.Optional(r, &t.Strict, (*wire.Reader).Boolean)
		case "defer_loading":
			return wire.Nullable(r, &t.Deferred, (*wire.Reader).Boolean)
		case "display_width_px":
			return lenient(r, &screen.width, '0', integer)
		case "display_height_px":
			return lenient(r, &screen.height, '0', integer)
		case "cache_control":
			m, err := readMark(r)
			if marked = unmarked; m != nil {
				marked = *m
				b.warn(m, path+".cache_control")
			}
			return err
		}
		return r.Skip()
	})
	if err != nil {
		return t, marked, err
	}
	t.Wire = wire.CleanRaw(raw)
	// A tool of a type that nobody here knows is the provider's, unless it says what
	// it takes: then it is the client's own.
	if kind != "" && kind != "custom" && !builtIn(&t, kind, screen) && t.Schema == nil {
		b.passOver(path + ".type=" + wire.Clip(kind))
		t.Kind = chat.ToolServer
		return t, marked, nil
	}
	return t, marked, checkTool(&t, path)
}

func checkTool(t *chat.Tool, path string) error {
	switch {
	case t.Name == "":
		return missing(path + ".name")
	case len(t.Name) > maxToolNameSize:
		return wire.Invalid(path+".name", "%s.name: must have at most %d bytes, got %d", path, maxToolNameSize, len(t.Name))
	case strings.ContainsFunc(t.Name, wire.NotInToolName):
		return wire.Invalid(path+".name", "%s.name: must have no control characters, blanks, quotes, < or >, got %q", path, t.Name)
	case t.Schema == nil:
		return missing(path + ".input_schema")
	case t.Schema[0] != '{':
		return wire.Invalid(path+".input_schema", "%s.input_schema: must be a JSON Schema object", path)
	}
	return nil
}

// choice is the member tool_choice.
type choice struct {
	kind, name      string
	disableParallel *bool
}

func readChoice(r *wire.Reader, b *body) error {
	b.choice = choice{}
	if null, err := r.Null(); null {
		return err
	}
	return r.Object("an object", func(name []byte) error {
		switch string(name) {
		case "type":
			return wire.Nullable(r, &b.choice.kind, wire.Text)
		case "name":
			return wire.Nullable(r, &b.choice.name, wire.Text)
		case "disable_parallel_tool_use":
			return wire.Optional(r, &b.choice.disableParallel, (*wire.Reader).Boolean)
		}
		return r.Skip()
	})
}

func (b *body) toolChoice() (chat.ToolChoice, error) {
	var out chat.ToolChoice
	if one := b.choice.disableParallel; one != nil {
		out.Parallel = new(!*one)
	}
	switch b.choice.kind {
	case "", "auto":
	case "none":
		out.Mode = chat.ToolNone
	case "any":
		out.Mode = chat.ToolRequired
		if !slices.ContainsFunc(b.tools, func(t chat.Tool) bool { return t.Callable() }) {
			return out, wire.Invalid("tool_choice", "tool_choice: any needs tools that the model may call")
		}
	case "tool":
		out.Mode, out.Names = chat.ToolNamed, []string{b.choice.name}
		if b.choice.name == "" {
			return out, missing("tool_choice.name")
		}
		if !slices.ContainsFunc(b.tools, func(t chat.Tool) bool { return t.Callable() && t.Name == b.choice.name }) {
			return out, wire.Invalid("tool_choice.name", "tool_choice.name: there is no tool %q in tools", wire.Clip(b.choice.name))
		}
	default:
		return out, wire.Invalid("tool_choice.type", "tool_choice.type: must be auto, any, tool or none, got %q", wire.Clip(b.choice.kind))
	}
	return out, nil
}
