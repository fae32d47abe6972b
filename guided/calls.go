package guided

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/dynago/dynago/chat"
)

// noParameters is the schema of a tool that names none.
const noParameters = `{"type":"object","properties":{}}`

// Arguments returns the format of an answer that is nothing but the arguments of
// one tool.
func Arguments(tool *chat.Tool) chat.OutputFormat {
	schema := tool.Schema
	if schema == nil {
		schema = []byte(noParameters)
	}
	return chat.OutputFormat{Kind: chat.FormatJSONSchema, Schema: schema}
}

// Calls returns the format of an answer that is an array of calls of the form
// {"name": …, "parameters": …}, one at least and with single one at most. The
// definitions of all tools move to the root, where references look for them; two
// that share a name and differ are an error.
func Calls(tools []chat.Tool, single bool) (chat.OutputFormat, error) {
	var items bytes.Buffer
	var defs definitions
	for i := range tools {
		schema := []byte(tools[i].Schema)
		if schema == nil {
			schema = []byte(noParameters)
		}
		rest, err := defs.lift(schema)
		if err != nil {
			return chat.OutputFormat{}, fmt.Errorf("tool %q: %w", tools[i].Name, err)
		}
		if i > 0 {
			items.WriteByte(',')
		}
		fmt.Fprintf(&items, `{"properties":{"name":{"type":"string","enum":[%s]},"parameters":%s},"required":["name","parameters"]}`,
			quoted(tools[i].Name), rest)
	}
	most := ""
	if single {
		most = `"maxItems":1,`
	}
	schema := fmt.Appendf(nil, `{"type":"array","minItems":1,%s"items":{"type":"object","anyOf":[%s]}%s}`, most, items.Bytes(), defs.members())
	return chat.OutputFormat{Kind: chat.FormatJSONSchema, Schema: schema}, nil
}

// definitions are what schemas keep under $defs or definitions, in the order in
// which they were met.
type definitions []definition

type definition struct{ group, name, schema string }

// lift returns a schema without its definitions, which it takes over.
func (d *definitions) lift(schema []byte) ([]byte, error) {
	if !bytes.Contains(schema, []byte(`"$defs"`)) && !bytes.Contains(schema, []byte(`"definitions"`)) {
		return schema, nil
	}
	rest := []byte{'{'}
	err := members(schema, func(name string, value []byte) error {
		if name == "$defs" || name == "definitions" {
			return members(value, func(def string, value []byte) error {
				return d.add(definition{name, def, string(value)})
			})
		}
		if len(rest) > 1 {
			rest = append(rest, ',')
		}
		rest = append(append(rest, quoted(name)...), ':')
		rest = append(rest, value...)
		return nil
	})
	return append(rest, '}'), err
}

func (d *definitions) add(def definition) error {
	for _, known := range *d {
		switch {
		case known.group != def.group || known.name != def.name:
		case known.schema != def.schema:
			return fmt.Errorf("%q stands under %s in two versions", def.name, def.group)
		default:
			return nil
		}
	}
	*d = append(*d, def)
	return nil
}

// members writes all definitions as members behind others.
func (d definitions) members() []byte {
	var out []byte
	for _, group := range []string{"$defs", "definitions"} {
		n := 0
		for _, def := range d {
			if def.group != group {
				continue
			}
			if n++; n == 1 {
				out = fmt.Appendf(out, `,%q:{`, group)
			} else {
				out = append(out, ',')
			}
			out = fmt.Appendf(out, `%s:%s`, quoted(def.name), def.schema)
		}
		if n > 0 {
			out = append(out, '}')
		}
	}
	return out
}

// members calls each for the members of an object, in order.
func members(object []byte, each func(name string, value []byte) error) error {
	d := jsontext.NewDecoder(bytes.NewBuffer(object), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	if d.PeekKind() != '{' {
		return errors.New("want an object")
	}
	if _, err := d.ReadToken(); err != nil {
		return err
	}
	for d.PeekKind() != '}' {
		name, err := d.ReadToken()
		if err != nil {
			return err
		}
		key := name.String()
		value, err := d.ReadValue()
		if err != nil {
			return err
		}
		if err := each(key, bytes.Clone(value)); err != nil {
			return err
		}
	}
	return nil
}

// quoted returns a text as a JSON string.
func quoted(s string) []byte {
	b, err := jsontext.AppendQuote(nil, s)
	if err != nil { // bad UTF-8 was replaced at the edge
		return []byte(`""`)
	}
	return b
}
