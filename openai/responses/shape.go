package responses

import (
	"slices"
	"strings"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/internal/wire"
)

// reasoning is the member of that name.
type reasoning struct{ effort, summary, context *string }

func readReasoning(r *wire.Reader, b *body) error {
	b.reasoning = reasoning{}
	if null, err := r.Null(); null {
		return err
	}
	return r.Object("an object", func(name []byte) error {
		var at **string
		switch string(name) {
		case "effort":
			at = &b.reasoning.effort
		case "summary", "generate_summary":
			at = &b.reasoning.summary
		case "context":
			at = &b.reasoning.context
		default:
			return r.Skip()
		}
		if null, err := r.Null(); null {
			return err
		}
		s, err := r.Text("a string")
		*at = &s
		return err
	})
}

var (
	efforts     = []string{"none", "minimal", "low", "medium", "high", "xhigh", "max"}
	summaries   = []string{"auto", "concise", "detailed", "none"}
	verbosities = []string{"low", "medium", "high"}
	contexts    = []string{"auto", "current_turn", "all_turns"}
)

// check says which of the three is none of the words that it may be.
func (g *reasoning) check() error {
	for _, m := range []struct {
		name  string
		value *string
		words []string
	}{{"effort", g.effort, efforts}, {"summary", g.summary, summaries}, {"context", g.context, contexts}} {
		if err := oneOf("reasoning."+m.name, m.value, m.words); err != nil {
			return err
		}
	}
	return nil
}

// oneOf refuses a word that is none of those that it may be.
func oneOf(path string, word *string, words []string) error {
	if word == nil || slices.Contains(words, *word) {
		return nil
	}
	return wire.Invalid(path, "%s must be one of %s, got %q", path, strings.Join(words, ", "), wire.Clip(*word))
}

// summarised says whether thoughts are to be shown as summaries.
func (g *reasoning) summarised() bool { return g.summary != nil && *g.summary != "none" }

// keep says of how many answers the thoughts stay in the prompt.
func (g *reasoning) keep() *int {
	one, all := 1, chat.KeepAll
	switch {
	case g.context == nil:
		return nil
	case *g.context == "current_turn":
		return &one
	case *g.context == "all_turns":
		return &all
	}
	return nil
}

func readText(r *wire.Reader, b *body) error {
	b.format, b.verbosity = nil, nil
	if null, err := r.Null(); null {
		return err
	}
	return r.Object("an object", func(name []byte) (err error) {
		switch string(name) {
		case "format":
			err = wire.Nullable(r, &b.format, wire.Clean)
		case "verbosity":
			err = optionalText(func(b *body) **string { return &b.verbosity })(r, b)
		default:
			err = r.Skip()
		}
		return err
	})
}

// outputFormat reads text.format.
func (b *body) outputFormat() (chat.OutputFormat, error) {
	var f chat.OutputFormat
	if b.format == nil {
		return f, nil
	}
	const path = "text.format"
	kind := ""
	r := wire.NewReader(b.format, path)
	err := r.Object("an object", func(name []byte) (err error) {
		switch string(name) {
		case "type":
			kind, err = r.Text("a string")
		case "name":
			f.Name, err = wire.Loose(r)
		case "schema":
			err = wire.Nullable(r, (*[]byte)(&f.Schema), wire.Clean)
		case "strict":
			f.Strict, err = looseBoolean(r)
		default:
			err = r.Skip()
		}
		return err
	})
	switch {
	case err != nil:
		return f, err
	case kind == "text":
		return chat.OutputFormat{}, nil
	case kind == "json_object":
		return chat.OutputFormat{Kind: chat.FormatJSONObject, Member: path}, nil
	case kind == "":
		return f, wire.Missing(path+".type", "%s.type is required", path)
	case kind != "json_schema":
		return f, wire.Invalid(path+".type", "%s.type must be text, json_object or json_schema, got %q", path, wire.Clip(kind))
	case f.Name == "":
		return f, wire.Missing(path+".name", "%s.name is required", path)
	case f.Schema == nil:
		return f, wire.Missing(path+".schema", "%s.schema is required", path)
	case f.Schema[0] != '{':
		return f, wire.Invalid(path+".schema", "%s.schema must be a JSON object", path)
	}
	f.Kind, f.Member = chat.FormatJSONSchema, path
	return f, nil
}
