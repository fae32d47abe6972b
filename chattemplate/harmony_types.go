package chattemplate

import (
	"math"
	"strconv"
	"strings"

	"github.com/dynago/dynago/chattemplate/jinja"
)

// typeScript spells a JSON schema as openai-harmony does, quirks included:
// descriptions of properties are one comment each, however many lines they have,
// and what it has no form for (anyOf, $ref) is any.
func typeScript(schema jinja.Value, indent string) string {
	d, ok := schema.(*jinja.Dict)
	if !ok {
		return "any"
	}
	if variants, ok := listOf(d, "oneOf"); ok {
		var b strings.Builder
		for v := range variants.All() {
			b.WriteString("\n" + indent + " | " + nullable(v, typeScript(v, indent+"   ")))
			var notes []string
			if s, ok := textOf(v, "description"); ok {
				notes = append(notes, s)
			}
			if s, ok := defaultOf(v, false); ok {
				notes = append(notes, s)
			}
			if len(notes) > 0 {
				b.WriteString(" // " + strings.Join(notes, " "))
			}
		}
		return b.String()
	}
	if types, ok := listOf(d, "type"); ok {
		var names []string
		for t := range types.All() {
			switch t := t.(type) {
			case string:
				if t == "integer" {
					t = "number"
				}
				names = append(names, t)
			}
		}
		if len(names) > 0 {
			return strings.Join(names, " | ")
		}
	}
	switch t, _ := textOf(d, "type"); t {
	case "object":
		return objectType(d, indent)
	case "string":
		if enum := quoted(d); len(enum) > 0 {
			return strings.Join(enum, " | ")
		}
		return "string"
	case "number", "integer":
		return "number"
	case "boolean":
		return "boolean"
	case "array":
		if items, ok := d.Get("items"); ok {
			return typeScript(items, indent) + "[]"
		}
		return "Array<any>"
	}
	return "any"
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

func objectType(d *jinja.Dict, indent string) string {
	var b strings.Builder
	if s, ok := textOf(d, "description"); ok {
		b.WriteString(indent + "// " + s + "\n")
	}
	b.WriteString("{\n")
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
			property(&b, name, v, indent)
		}
	}
	b.WriteString(indent + "}")
	return b.String()
}

// property writes a member of an object with its comments.
func property(b *strings.Builder, name string, v jinja.Value, indent string) {
	if s, ok := textOf(v, "title"); ok {
		b.WriteString(indent + "// " + s + "\n" + indent + "//\n")
	}
	description, described := textOf(v, "description")
	hasOneOf := has(v, "oneOf")
	if described && !hasOneOf {
		b.WriteString(indent + "// " + description + "\n")
	}
	if examples, ok := listOf(v, "examples"); ok && lengthOf(examples) > 0 {
		b.WriteString(indent + "// Examples:\n")
		for e := range examples.All() {
			if s, ok := e.(string); ok {
				b.WriteString(indent + `// - "` + s + "\"\n")
			}
		}
	}
	if variants, ok := listOf(v, "oneOf"); ok {
		union(b, name, v, variants, indent)
		return
	}
	b.WriteString(indent + name + ": " + nullable(v, typeScript(v, indent+"    ")) + ",")
	if s, ok := defaultOf(v, true); ok && !hasOneOf {
		b.WriteString(" // " + s)
	}
	b.WriteString("\n")
}

// union writes a member that is one of several things, each on a line.
func union(b *strings.Builder, name string, v jinja.Value, variants *jinja.List, indent string) {
	description, described := textOf(v, "description")
	above := false // the description stands there
	for first := range variants.All() {
		s, ok := textOf(first, "description")
		above = described && !(ok && s == description)
		break
	}
	if lengthOf(variants) == 0 {
		above = described
	}
	if above {
		b.WriteString(indent + "// " + description + "\n")
	}
	if s, ok := defaultOf(v, true); ok {
		b.WriteString(indent + "// " + s + "\n")
	}
	b.WriteString(indent + name + ":\n")
	first := true
	for variant := range variants.All() {
		b.WriteString(indent + " | " + nullable(variant, typeScript(variant, indent+"   ")))
		var notes []string
		if s, ok := textOf(variant, "description"); ok && !(first && above) && !(described && s == description) {
			notes = append(notes, s)
		}
		if s, ok := defaultOf(variant, true); ok {
			notes = append(notes, s)
		}
		if len(notes) > 0 {
			b.WriteString(" // " + strings.Join(notes, " "))
		}
		b.WriteString("\n")
		first = false
	}
	b.WriteString(indent + ",\n")
}

// nullable adds null to a type that may be it and does not say so.
func nullable(schema jinja.Value, spelled string) string {
	if d, ok := schema.(*jinja.Dict); ok {
		if v, _ := d.Get("nullable"); v == true && !strings.Contains(spelled, "null") {
			return spelled + " | null"
		}
	}
	return spelled
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
	return "default: " + compact(v), true
}

// compact spells a value as JSON without blanks, and numbers as serde_json does.
func compact(v jinja.Value) string {
	switch v := v.(type) {
	case *jinja.List:
		var items []string
		for item := range v.All() {
			items = append(items, compact(item))
		}
		return "[" + strings.Join(items, ",") + "]"
	case *jinja.Dict:
		var items []string
		for key, item := range v.All() {
			items = append(items, compact(key)+":"+compact(item))
		}
		return "{" + strings.Join(items, ",") + "}"
	case float64:
		return rustFloat(v)
	}
	s, _ := jinja.ToJSON(v) // it came from JSON
	return s
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

func has(schema jinja.Value, key string) bool { _, ok := memberOf(schema, key); return ok }

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
