package openai

import (
	"strings"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/internal/wire"
)

// outputFormat makes the one constraint on the output, from the guided options
// or from response_format. A forced tool call constrains the output itself: it
// cannot stand beside guided options and drops response_format.
func (b *body) outputFormat(choice chat.ToolChoice) (chat.OutputFormat, error) {
	format, name, err := b.guided()
	if err != nil {
		return format, err
	}
	forced := choice.Mode == chat.ToolRequired || choice.Mode == chat.ToolNamed
	switch {
	case name != "" && forced:
		return format, wire.Invalid(name, "%s cannot be used together with a tool_choice that forces a tool call", name)
	case name != "":
		return format, nil
	}
	format, err = b.responseFormatOf()
	if forced {
		format = chat.OutputFormat{}
	}
	return format, err
}

// guided reads the guided options and returns the name of the one that was
// given.
func (b *body) guided() (chat.OutputFormat, string, error) {
	var format chat.OutputFormat
	given := make([]string, 0, 5)
	if b.guidedJSON != nil {
		given = append(given, "guided_json")
		schema := b.guidedJSON
		if schema[0] == '"' {
			schema = []byte(wire.Unquote(schema))
		}
		r := wire.NewReader(schema, "guided_json")
		if r.Kind() != '{' && r.Kind() != 't' && r.Kind() != 'f' {
			return format, "", wire.Invalid("guided_json", "guided_json must be a JSON Schema object, or a string that holds one")
		}
		value, err := r.Raw()
		if err == nil {
			err = r.End()
		}
		if err != nil {
			return format, "", wire.Invalid("guided_json", "guided_json does not hold valid JSON")
		}
		format.Kind, format.Schema = chat.FormatJSONSchema, wire.CleanRaw(value)
	}
	if b.guidedRegex != nil {
		given = append(given, "guided_regex")
		format.Kind, format.Pattern = chat.FormatRegex, *b.guidedRegex
	}
	if b.hasGuidedChoice {
		given = append(given, "guided_choice")
		format.Kind, format.Choices = chat.FormatChoice, b.guidedChoice
		if len(b.guidedChoice) == 0 {
			return format, "", wire.Invalid("guided_choice", "guided_choice cannot be empty")
		}
	}
	if b.guidedGrammar != nil {
		given = append(given, "guided_grammar")
		format.Kind, format.Pattern = chat.FormatGrammar, *b.guidedGrammar
		if nesting(*b.guidedGrammar) > maxGrammarNesting {
			return format, "", wire.Invalid("guided_grammar", "guided_grammar is nested deeper than %d", maxGrammarNesting)
		}
	}
	if b.guidedWhitespace != nil {
		given = append(given, "guided_whitespace_pattern")
	}
	switch {
	case len(given) > 1:
		return format, "", wire.Invalid(given[1], "Only one of the guided options can be used, got %s", strings.Join(given, ", "))
	case len(given) == 0 || format.Kind == chat.FormatText:
		return format, "", nil
	}
	return format, given[0], nil
}

const maxGrammarNesting = 500

// nesting returns how deep brackets stand in one another, quoted ones aside.
func nesting(grammar string) int {
	depth, deepest := 0, 0
	var quote byte
	for i := 0; i < len(grammar); i++ {
		c := grammar[i]
		switch {
		case c == '\\':
			i++
		case quote != 0:
			if c == quote || c == '\n' {
				quote = 0
			}
		case c == '"' || c == '\'':
			quote = c
		case c == '(' || c == '[' || c == '{':
			depth++
			deepest = max(deepest, depth)
		case c == ')' || c == ']' || c == '}':
			depth = max(0, depth-1)
		}
	}
	return deepest
}

func (b *body) responseFormatOf() (chat.OutputFormat, error) {
	var format chat.OutputFormat
	if b.responseFormat == nil {
		return format, nil
	}
	r := wire.NewReader(b.responseFormat, "response_format")
	kind, hasSchema := "", false
	err := r.Object("an object", func(key []byte) (err error) {
		switch string(key) {
		case "type":
			kind, err = r.Text("a string")
		case "json_schema":
			if null, err := r.Null(); null {
				return err
			}
			hasSchema = true
			err = r.Object("an object", func(key []byte) error { return readSchema(r, string(key), &format) })
		default:
			err = r.Skip()
		}
		return err
	})
	const path = "response_format.json_schema"
	switch {
	case err != nil:
		return format, err
	case kind == "text":
		return chat.OutputFormat{}, nil
	case kind == "json_object":
		return chat.OutputFormat{Kind: chat.FormatJSONObject}, nil
	case kind == "":
		return format, wire.Missing("response_format.type", "response_format.type is required")
	case kind != "json_schema":
		return format, wire.Invalid("response_format.type", "response_format.type must be text, json_object or json_schema, got %q", wire.Clip(kind))
	case !hasSchema || format.Schema == nil:
		return format, wire.Missing(path+".schema", "`%s.schema` is required when `response_format.type` is `json_schema`", path)
	case format.Name == "":
		return format, wire.Missing(path+".name", "`%s.name` cannot be empty", path)
	}
	schema := wire.NewReader(format.Schema, path)
	if k := schema.Kind(); k != '{' {
		_, what, _ := strings.Cut(wire.Describe(k), " ")
		return format, wire.Invalid(path+".schema", "`%s.schema` must be a JSON object, got %s", path, what)
	}
	format.Kind = chat.FormatJSONSchema
	return format, nil
}

func readSchema(r *wire.Reader, key string, format *chat.OutputFormat) (err error) {
	switch key {
	case "name":
		err = wire.Nullable(r, &format.Name, wire.Text)
	case "schema":
		err = wire.Nullable(r, (*[]byte)(&format.Schema), wire.Clean)
	case "strict":
		err = wire.Optional(r, &format.Strict, (*wire.Reader).Boolean)
	default:
		err = r.Skip()
	}
	return err
}
