package chattemplate

import (
	"math"
	"strconv"
	"strings"

	"github.com/dynago/dynago/chattemplate/jinja"
)

// maxTypes is how long the declarations of all tools may be, in bytes. Comments
// and blanks can make much of a small schema that is deeply nested.
const maxTypes = 4 << 20

// typeWriter spells JSON schemas as openai-harmony does, quirks included:
// descriptions of properties are one comment each, however many lines they have,
// and what it has no form for (anyOf, $ref) is any.
type typeWriter struct {
	b    strings.Builder
	full bool // something was left out
}

func (w *typeWriter) put(parts ...string) {
	for _, s := range parts {
		if w.full = w.full || w.b.Len()+len(s) > maxTypes; w.full {
			return
		}
		w.b.WriteString(s)
	}
}

// value writes the type of a schema.
func (w *typeWriter) value(schema jinja.Value, indent string) {
	d, ok := schema.(*jinja.Dict)
	if !ok || w.full {
		w.put("any")
		return
	}
	if variants, ok := listOf(d, "oneOf"); ok {
		for v := range variants.All() {
			w.put("\n", indent, " | ")
			w.nullable(v, indent+"   ")
			var notes []string
			if s, ok := textOf(v, "description"); ok {
				notes = append(notes, s)
			}
			w.notes(notes, v, false)
		}
		return
	}
	if types, ok := listOf(d, "type"); ok {
		var names []string
		for t := range types.All() {
			switch name, ok := t.(string); {
			case name == "integer":
				names = append(names, "number")
			case ok:
				names = append(names, name)
			}
		}
		if len(names) > 0 {
			w.put(strings.Join(names, " | "))
			return
		}
	}
	switch t, _ := textOf(d, "type"); t {
	case "object":
		w.object(d, indent)
	case "string":
		if enum := quoted(d); len(enum) > 0 {
			w.put(strings.Join(enum, " | "))
			return
		}
		w.put("string")
	case "number", "integer":
		w.put("number")
	case "boolean":
		w.put("boolean")
	case "array":
		items, ok := d.Get("items")
		if !ok {
			w.put("Array<any>")
			return
		}
		w.value(items, indent)
		w.put("[]")
	default:
		w.put("any")
	}
}

// quoted returns the alternatives of a string.
func quoted(d *jinja.Dict) []string {
	var enum []string
	if values, ok := listOf(d, "enum"); ok {
		for v := range values.All() {
			if s, ok := v.(string); ok {
				enum = append(enum, `"`+s+`"`)
			}
		}
	}
	return enum
}

func (w *typeWriter) object(d *jinja.Dict, indent string) {
	if s, ok := textOf(d, "description"); ok {
		w.put(indent, "// ", s, "\n")
	}
	w.put("{\n")
	required := map[string]bool{}
	if names, ok := listOf(d, "required"); ok {
		for v := range names.All() {
			if s, ok := v.(string); ok {
				required[s] = true
			}
		}
	}
	member, _ := d.Get("properties")
	if properties, ok := member.(*jinja.Dict); ok {
		for key, v := range properties.All() {
			name, _ := key.(string)
			if !required[name] {
				name += "?"
			}
			w.property(name, v, indent)
		}
	}
	w.put(indent, "}")
}

// property writes a member of an object with its comments.
func (w *typeWriter) property(name string, v jinja.Value, indent string) {
	if s, ok := textOf(v, "title"); ok {
		w.put(indent, "// ", s, "\n", indent, "//\n")
	}
	_, hasOneOf := memberOf(v, "oneOf")
	if s, ok := textOf(v, "description"); ok && !hasOneOf {
		w.put(indent, "// ", s, "\n")
	}
	if examples, ok := listOf(v, "examples"); ok && lengthOf(examples) > 0 {
		w.put(indent, "// Examples:\n")
		for e := range examples.All() {
			if s, ok := e.(string); ok {
				w.put(indent, `// - "`, s, "\"\n")
			}
		}
	}
	if variants, ok := listOf(v, "oneOf"); ok {
		w.union(name, v, variants, indent)
		return
	}
	w.put(indent, name, ": ")
	w.nullable(v, indent+"    ")
	w.put(",")
	if s, ok := defaultOf(v, true); ok && !hasOneOf {
		w.put(" // ", s)
	}
	w.put("\n")
}

// union writes a member that is one of several things, each on a line.
func (w *typeWriter) union(name string, v jinja.Value, variants *jinja.List, indent string) {
	description, described := textOf(v, "description")
	above := described // the description stands there
	for first := range variants.All() {
		s, ok := textOf(first, "description")
		above = described && !(ok && s == description)
		break
	}
	if above {
		w.put(indent, "// ", description, "\n")
	}
	if s, ok := defaultOf(v, true); ok {
		w.put(indent, "// ", s, "\n")
	}
	w.put(indent, name, ":\n")
	first := true
	for variant := range variants.All() {
		w.put(indent, " | ")
		w.nullable(variant, indent+"   ")
		var notes []string
		if s, ok := textOf(variant, "description"); ok && !(first && above) && !(described && s == description) {
			notes = append(notes, s)
		}
		w.notes(notes, variant, true)
		w.put("\n")
		first = false
	}
	w.put(indent, ",\n")
}

// notes writes the comment behind a variant.
func (w *typeWriter) notes(notes []string, variant jinja.Value, bareEnum bool) {
	if s, ok := defaultOf(variant, bareEnum); ok {
		notes = append(notes, s)
	}
	if len(notes) > 0 {
		w.put(" // ", strings.Join(notes, " "))
	}
}

// nullable writes a type, and null if it may be that and does not say so.
func (w *typeWriter) nullable(schema jinja.Value, indent string) {
	start := w.b.Len()
	w.value(schema, indent)
	if v, _ := memberOf(schema, "nullable"); v == true && !strings.Contains(w.b.String()[start:], "null") {
		w.put(" | null")
	}
}

// defaultOf returns the comment for a default. One of an enumeration may go
// without quotes.
func defaultOf(schema jinja.Value, bareEnum bool) (string, bool) {
	d, ok := schema.(*jinja.Dict)
	if !ok {
		return "", false
	}
	v, ok := d.Get("default")
	if !ok {
		return "", false
	}
	s, isText := v.(string)
	enum, _ := listOf(d, "enum")
	isEnum := enum != nil && lengthOf(enum) > 0
	switch {
	case isText && !isEnum:
		return `default: "` + s + `"`, true
	case isText && bareEnum:
		return "default: " + s, true
	}
	return "default: " + string(appendCompact(nil, v)), true
}

// appendCompact spells a value as JSON without blanks, and numbers as serde_json
// does.
func appendCompact(dst []byte, v jinja.Value) []byte {
	switch v := v.(type) {
	case *jinja.List:
		open := byte('[')
		for item := range v.All() {
			dst = appendCompact(append(dst, open), item)
			open = ','
		}
		if open == '[' {
			dst = append(dst, open)
		}
		return append(dst, ']')
	case *jinja.Dict:
		open := byte('{')
		for key, item := range v.All() {
			dst = append(appendCompact(append(dst, open), key), ':')
			dst = appendCompact(dst, item)
			open = ','
		}
		if open == '{' {
			dst = append(dst, open)
		}
		return append(dst, '}')
	case float64:
		return append(dst, rustFloat(v)...)
	}
	s, _ := jinja.ToJSON(v) // it came from JSON
	return append(dst, s...)
}

// rustFloat spells a number as the Rust library ryu does.
func rustFloat(f float64) string {
	if a := math.Abs(f); a != 0 && (a < 1e-5 || a >= 1e16) {
		s := strconv.FormatFloat(f, 'e', -1, 64)
		mantissa, exponent, _ := strings.Cut(s, "e")
		n, _ := strconv.Atoi(exponent)
		return mantissa + "e" + strconv.Itoa(n)
	}
	s := strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}

func memberOf(schema jinja.Value, key string) (jinja.Value, bool) {
	d, ok := schema.(*jinja.Dict)
	if !ok {
		return nil, false
	}
	return d.Get(key)
}

func textOf(schema jinja.Value, key string) (string, bool) {
	v, _ := memberOf(schema, key)
	s, ok := v.(string)
	return s, ok
}

func listOf(schema jinja.Value, key string) (*jinja.List, bool) {
	v, _ := memberOf(schema, key)
	l, ok := v.(*jinja.List)
	return l, ok
}

func lengthOf(l *jinja.List) int {
	n := 0
	for range l.All() {
		n++
	}
	return n
}
