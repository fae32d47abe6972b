package talk

import (
	"strings"

	"github.com/dynago/dynago/chat"
)

// tool is a function that a conversation may call.
type tool struct {
	name, desc string
	args       []arg
	topic      *topic  // what it tells, or nil
	action     *action // what it does, or nil
}

// arg is an argument of a tool.
type arg struct {
	name, desc string
	kind       kind
	choices    []string // of an enum
	optional   bool
}

type kind uint8

const (
	aString kind = iota
	anInteger
	aNumber
	aBool
	anEnum
)

var kindNames = []string{"string", "integer", "number", "boolean", "string"}

// json is a value of the argument.
func (a *arg) json(v string) string {
	if a.kind == aString || a.kind == anEnum {
		return quote(v)
	}
	return v
}

// dialect is how one client writes tools down. The clients that the world uses
// differ in the order of members and in what they add.
type dialect struct {
	api      chat.API
	pydantic bool // titles, and the type last
	draft    string
	closed   bool // no additional properties
	strict   int  // 1 says so behind, 2 in front
	bare     bool // no description of arguments
}

func (c *script) dialect() dialect {
	d := dialect{api: pick(c.source, []chat.API{chat.APIChat, chat.APIChat, chat.APIResponses, chat.APIMessages})}
	switch c.below(6) {
	case 0, 1: // written by hand
		d.closed = c.chance(25)
		d.strict = c.below(5)
	case 2: // the SDK of OpenAI or Anthropic, from types
		d.pydantic = true
		d.closed = c.chance(70)
		d.strict = pick(c.source, []int{0, 2, 2})
	case 3, 4: // zod
		d.draft = pick(c.source, []string{"http://json-schema.org/draft-07/schema#", "http://json-schema.org/draft-07/schema#", "https://json-schema.org/draft/2020-12/schema"})
		d.closed = true
		d.strict = pick(c.source, []int{0, 0, 1})
	}
	d.bare = c.chance(50)
	return d
}

// member is a name and a JSON text.
type member struct{ name, text string }

func object(members ...member) string {
	var b strings.Builder
	b.WriteByte('{')
	for i, m := range members {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(quote(m.name) + ":" + m.text)
	}
	b.WriteByte('}')
	return b.String()
}

func array(items []string) string { return "[" + strings.Join(items, ",") + "]" }

func (d *dialect) schema(t *tool) string {
	var props []member
	var required []string
	for i := range t.args {
		a := &t.args[i]
		props = append(props, member{a.name, d.property(a)})
		if !a.optional {
			required = append(required, quote(a.name))
		}
	}
	var out []member
	typ := member{"type", `"object"`}
	properties := member{"properties", object(props...)}
	closed := member{"additionalProperties", "false"}
	need := member{"required", array(required)}
	if d.pydantic {
		if d.closed && d.strict == 0 {
			out = append(out, closed)
		}
		out = append(out, properties)
		if len(required) > 0 {
			out = append(out, need)
		}
		if d.strict != 0 {
			out = append(out, member{"title", quote(t.name)})
		}
		out = append(out, typ)
		if d.closed && d.strict != 0 {
			out = append(out, closed)
		}
		return object(out...)
	}
	if d.draft != "" {
		out = append(out, member{"$schema", quote(d.draft)})
	}
	out = append(out, typ, properties)
	if len(required) > 0 {
		out = append(out, need)
	}
	if d.closed {
		out = append(out, closed)
	}
	return object(out...)
}

func (d *dialect) property(a *arg) string {
	var out []member
	typ := member{"type", quote(kindNames[a.kind])}
	desc := member{"description", quote(a.desc)}
	var choices []string
	for _, v := range a.choices {
		choices = append(choices, quote(v))
	}
	enum := member{"enum", array(choices)}
	described := !d.bare && a.desc != ""
	if d.pydantic {
		if described {
			out = append(out, desc)
		}
		if a.optional && a.kind == aString {
			out = append(out, member{"default", `""`})
		}
		if len(choices) > 0 {
			out = append(out, enum)
		}
		return object(append(out, member{"title", quote(capital(strings.ReplaceAll(a.name, "_", " ")))}, typ)...)
	}
	out = append(out, typ)
	if len(choices) > 0 && d.draft != "" {
		out = append(out, enum)
	}
	if described {
		out = append(out, desc)
	}
	if len(choices) > 0 && d.draft == "" {
		out = append(out, enum)
	}
	return object(out...)
}

// write makes the tool what the core keeps of it when a client of the dialect's
// API has sent it.
func (d *dialect) write(t *tool) chat.Tool {
	schema := d.schema(t)
	out := chat.Tool{Kind: chat.ToolFunction, Name: t.name, Description: t.desc, Schema: []byte(schema)}
	if d.api != chat.APIChat {
		return out // the others' own forms are not those of templates
	}
	name, desc, params := member{"name", quote(t.name)}, member{"description", quote(t.desc)}, member{"parameters", schema}
	var members []member
	switch {
	case d.pydantic && d.strict == 2:
		members = []member{name, {"strict", "true"}, params}
		if t.desc != "" {
			members = append(members, desc)
		}
	case t.desc == "":
		members = []member{name, params}
	default:
		members = []member{name, desc, params}
	}
	if d.strict == 1 {
		members = append(members, member{"strict", "true"})
	}
	out.Wire = []byte(object(member{"type", `"function"`}, member{"function", object(members...)}))
	return out
}
