package parser

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/dynago/dynago/chat"
)

// kind is what a value that was written as bare text is in JSON.
type kind uint8

const (
	kindString  kind = iota
	kindInteger      // a number without fraction and exponent
	kindNumber
	kindBool
	kindObject
	kindArray
	kindLiteral // of a type that JSON schema does not know
	kindUntyped // of no type at all
	kindJSON    // whatever JSON it is
)

// valueType says what a parameter may be, according to the schema of its tool.
// The zero value is a string that is never null.
type valueType struct {
	kinds []kind // in the order in which they are tried; a string, if empty
	null  bool   // the text null is JSON's null
}

// text says whether every value is a string, but for null.
func (v *valueType) text() bool { return len(v.kinds) == 0 || v.kinds[0] == kindString }

// quirks are the ways of one family to write values.
type quirks struct {
	bools  map[string]string // spellings beside true and false
	commas bool              // an array may be written as a, b
}

// json returns the value that was written as raw. What is of no declared type is
// a string: whether it is what the tool wants is for the harness to say.
func (v *valueType) json(raw string, q *quirks) string {
	text := strings.TrimSpace(raw)
	if v.null && strings.EqualFold(text, "null") {
		return "null"
	}
	for _, k := range v.kinds {
		if k == kindString {
			return quoteJSON(raw)
		}
		if value, ok := k.json(text, q); ok {
			return value
		}
	}
	// An object or an array was declared, and another value was given.
	if slices.ContainsFunc(v.kinds, func(k kind) bool { return k == kindObject || k == kindArray }) && validJSON(text) {
		return text
	}
	return quoteJSON(raw)
}

// json returns text as a value of one kind, if it is one. Numbers and JSON are
// kept as they are written.
func (k kind) json(text string, q *quirks) (value string, ok bool) {
	switch k {
	case kindInteger:
		return text, isJSONNumber(text) && !strings.ContainsAny(text, ".eE")
	case kindNumber:
		return text, isJSONNumber(text)
	case kindBool:
		word := strings.ToLower(text)
		if word == "true" || word == "false" {
			return word, true
		}
		value, ok = q.bools[word]
		return value, ok
	case kindUntyped:
		return container(text)
	case kindJSON:
		if validJSON(text) {
			return text, true
		}
		return container(text)
	case kindLiteral:
		if validJSON(text) {
			return text, true
		}
		return literal(text)
	}
	if value, ok = container(text); ok {
		return value, true
	}
	if value, ok = literal(text); ok && (value[0] == '[' || value[0] == '{') {
		return value, true
	}
	if k == kindArray && q.commas {
		return splitList(text), true
	}
	return "", false
}

// container returns an object or an array. Raw control characters in its strings
// are escaped: text of several lines is often written so.
func container(text string) (value string, ok bool) {
	if text == "" || text[0] != '{' && text[0] != '[' {
		return "", false
	}
	if validJSON(text) {
		return text, true
	}
	value = escapeControls(text)
	return value, validJSON(value)
}

// splitList makes an array of strings of a list with commas.
func splitList(text string) string {
	if text == "" {
		return "[]"
	}
	out := []byte{'['}
	for i, item := range strings.Split(text, ",") {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(appendEscaped(append(out, '"'), strings.TrimSpace(item)), '"')
	}
	return string(append(out, ']'))
}

func validJSON(text string) bool { return json.Valid([]byte(text)) }

func isJSONNumber(text string) bool {
	return text != "" && (text[0] == '-' || '0' <= text[0] && text[0] <= '9') && validJSON(text)
}

// kindOf returns the kind of a declared type. The names are JSON schema's, and
// those of the languages in which tools are declared.
func kindOf(name string) kind {
	name = strings.ToLower(strings.TrimSpace(name))
	has := func(prefixes ...string) bool {
		return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(name, p) })
	}
	switch name {
	case "string", "str", "text", "varchar", "char", "enum":
		return kindString
	case "boolean", "bool", "binary":
		return kindBool
	case "object":
		return kindObject
	case "array", "arr":
		return kindArray
	}
	switch {
	case has("int", "uint", "long", "short", "unsigned"):
		return kindInteger
	case has("num", "float"):
		return kindNumber
	case has("dict"):
		return kindObject
	case has("list"):
		return kindArray
	}
	return kindLiteral
}

// schemas finds the types of parameters in the schemas of the tools. Each schema
// is read once, when its tool is called for the first time.
type schemas struct {
	tools []chat.Tool
	read  map[string]*schema
}

// of returns the schema of a tool, or nil if it has none.
func (s *schemas) of(tool string) *schema {
	if sc, ok := s.read[tool]; ok {
		return sc
	}
	var sc *schema
	for i := range s.tools {
		if t := &s.tools[i]; t.Name == tool && sc == nil {
			sc = readSchema(t.Schema)
		}
	}
	if s.read == nil {
		s.read = map[string]*schema{}
	}
	s.read[tool] = sc
	return sc
}

// schema is the schema of the arguments of one tool.
type schema struct {
	root   map[string]any
	params map[string]any
}

func readSchema(text json.RawMessage) *schema {
	sc := new(schema)
	if json.Unmarshal(text, &sc.root) != nil || sc.root == nil {
		return nil
	}
	sc.params = sc.root
	if _, ok := sc.root["properties"]; ok {
		sc.params, _ = sc.root["properties"].(map[string]any)
	}
	return sc
}

// param returns the declaration of a parameter, or nil if it has none.
func (sc *schema) param(key string) map[string]any {
	if sc == nil {
		return nil
	}
	switch node := sc.params[key].(type) {
	case map[string]any:
		return node
	case bool: // any value, or none
		return map[string]any{}
	}
	return nil
}

// maxDepth bounds how deeply declarations and values are looked into.
const maxDepth = 64

// resolved follows the references of a declaration inside its schema.
func (sc *schema) resolved(node map[string]any) map[string]any {
	for range maxDepth {
		ref, ok := node["$ref"].(string)
		if !ok {
			break
		}
		path, ok := strings.CutPrefix(ref, "#")
		if !ok {
			break
		}
		var at any = sc.root
		for step := range strings.SplitSeq(strings.TrimPrefix(path, "/"), "/") {
			if step == "" {
				continue
			}
			m, _ := at.(map[string]any)
			at = m[strings.NewReplacer("~1", "/", "~0", "~").Replace(step)]
		}
		target, ok := at.(map[string]any)
		if !ok {
			break
		}
		node = target
	}
	return node
}

// typeOf returns what a declaration allows. No declaration is a string.
func (sc *schema) typeOf(node map[string]any) valueType {
	if node == nil {
		return valueType{}
	}
	var v valueType
	sc.collect(&v, node, 0)
	if !slices.Contains(v.kinds, kindString) {
		v.null = true
	}
	if len(v.kinds) == 0 {
		v.kinds = []kind{kindUntyped}
	}
	return v
}

// alternatives are the keys under which a declaration may list others.
var alternatives = []string{"anyOf", "oneOf", "allOf"}

// collect adds the kinds that a declaration allows. Of a list of types a string
// is tried last, because every text is one; of alternatives each is tried in its
// place.
func (sc *schema) collect(v *valueType, node map[string]any, depth int) {
	node = sc.resolved(node)
	if nullable, _ := node["nullable"].(bool); nullable {
		v.null = true
	}
	switch t := node["type"].(type) {
	case string:
		v.add(t)
		return
	case []any:
		var text bool
		for _, name := range t {
			switch name, _ := name.(string); {
			case name != "null" && kindOf(name) == kindString:
				text = true
			case name != "":
				v.add(name)
			}
		}
		if text {
			v.add("string")
		}
		return
	}
	found := false
	for _, key := range alternatives {
		members, _ := node[key].([]any)
		for _, m := range members {
			if m, ok := m.(map[string]any); ok && depth < maxDepth {
				sc.collect(v, m, depth+1)
				found = true
			}
		}
	}
	if !found {
		v.kinds = append(v.kinds, kindUntyped)
	}
}

func (v *valueType) add(name string) {
	if name == "null" {
		v.null = true
		return
	}
	if k := kindOf(name); !slices.Contains(v.kinds, k) {
		v.kinds = append(v.kinds, k)
	}
}
