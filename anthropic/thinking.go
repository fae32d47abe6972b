package anthropic

import (
	"math"
	"slices"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/internal/wire"
)

// thinking is the member of that name.
type thinking struct {
	kind    string
	budget  *int64
	omitted bool
}

func readThinking(r *wire.Reader, b *body) error {
	b.thinking = thinking{}
	if null, err := r.Null(); null {
		return err
	}
	t := &b.thinking
	err := r.Object("an object", func(name []byte) error {
		switch string(name) {
		case "type":
			return wire.Nullable(r, &t.kind, wire.Text)
		case "budget_tokens":
			return wire.Optional(r, &t.budget, func(r *wire.Reader) (int64, error) { return r.Integer(0, math.MaxInt32) })
		case "display":
			display := ""
			err := lenient(r, &display, '"', wire.Text)
			t.omitted = display == "omitted"
			return err
		}
		return r.Skip()
	})
	if err == nil && t.kind == "" {
		err = missing("thinking.type")
	}
	return err
}

// thoughts puts together what the client says of thinking, in the modes enabled,
// adaptive, between_tools, whatever may come, and disabled. Unless it says
// otherwise the thoughts of earlier answers stay in the prompt, so that a new
// user turn does not change how the prompt begins.
func (b *body) thoughts() chat.Thinking {
	out := chat.Thinking{Effort: b.effort, Keep: b.keep}
	if b.thinking.kind != "" {
		out.Enabled = new(b.thinking.kind != "disabled")
		out.Adaptive = b.thinking.kind == "adaptive"
	}
	if b.thinking.budget != nil && *out.Enabled {
		out.Budget = new(int(*b.thinking.budget))
	}
	if out.Keep == nil && b.thinking.kind != "disabled" {
		out.Keep = new(chat.KeepAll)
	}
	return out
}

// readContextManagement reads how many thoughts stay. Other edits are the
// client's own affair: what it sends is shown.
func readContextManagement(r *wire.Reader, b *body) error {
	b.keep = nil
	if r.Kind() != '{' {
		return r.Skip()
	}
	return r.Object("an object", func(name []byte) error {
		if string(name) != "edits" || r.Kind() != '[' {
			return r.Skip()
		}
		return r.Array("an array", func(int) error {
			kind, keep := "", 1 // what the API keeps if nobody says
			if r.Kind() != '{' {
				return r.Skip()
			}
			err := r.Object("an object", func(name []byte) (err error) {
				switch string(name) {
				case "type":
					return lenient(r, &kind, '"', wire.Text)
				case "keep":
					keep, err = readKeep(r)
					return err
				}
				return r.Skip()
			})
			if kind == "clear_thinking_20251015" {
				b.keep = &keep
			}
			return err
		})
	})
}

// readKeep reads "all", {"type":"all"} or {"type":"thinking_turns","value":N}.
func readKeep(r *wire.Reader) (int, error) {
	kind, value := "", int64(1)
	var err error
	switch r.Kind() {
	case '"':
		kind, err = wire.Text(r)
	case '{':
		err = r.Object("an object", func(name []byte) error {
			switch string(name) {
			case "type":
				return lenient(r, &kind, '"', wire.Text)
			case "value":
				return lenient(r, &value, '0', func(r *wire.Reader) (int64, error) { return r.Integer(0, math.MaxInt32) })
			}
			return r.Skip()
		})
	default:
		err = r.Skip()
	}
	if kind == "all" {
		return chat.KeepAll, err
	}
	return int(value), err
}

var efforts = []string{"none", "minimal", "low", "medium", "high", "xhigh", "max"}

func readOutputConfig(r *wire.Reader, b *body) error {
	b.effort = ""
	if null, err := r.Null(); null {
		return err
	}
	return r.Object("an object", func(name []byte) error {
		switch string(name) {
		case "effort":
			if err := lenient(r, &b.effort, '"', wire.Text); err != nil {
				return err
			}
			if b.effort != "" && !slices.Contains(efforts, b.effort) {
				b.passOver("output_config.effort=" + wire.Clip(b.effort))
				b.effort = ""
			}
			return nil
		case "format":
			return b.format.read(r)
		}
		return r.Skip()
	})
}

// format is output_config.format, or output_format, its older name.
type format struct {
	path   string
	kind   string
	schema []byte
}

func (f *format) read(r *wire.Reader) error {
	if null, err := r.Null(); null {
		return err
	}
	*f = format{}
	err := r.Object("an object", func(name []byte) error {
		switch string(name) {
		case "type":
			return wire.Nullable(r, &f.kind, wire.Text)
		case "schema":
			return wire.Nullable(r, &f.schema, wire.Clean)
		}
		return r.Skip()
	})
	f.path = r.Path()
	return err
}

// output makes the constraint on the output. A forced tool call is one itself,
// and takes its place.
func (b *body) output(choice chat.ToolChoice) (chat.OutputFormat, error) {
	f := &b.format
	switch {
	case f.path == "":
		return chat.OutputFormat{}, nil
	case f.kind != "json_schema":
		return chat.OutputFormat{}, wire.Invalid(f.path+".type", "%s.type: must be json_schema, got %q", f.path, wire.Clip(f.kind))
	case f.schema == nil:
		return chat.OutputFormat{}, missing(f.path + ".schema")
	case f.schema[0] != '{':
		return chat.OutputFormat{}, wire.Invalid(f.path+".schema", "%s.schema: must be a JSON Schema object", f.path)
	case choice.Mode == chat.ToolRequired || choice.Mode == chat.ToolNamed:
		return chat.OutputFormat{}, nil
	}
	return chat.OutputFormat{Kind: chat.FormatJSONSchema, Schema: f.schema, Member: f.path}, nil
}
