package mask

import (
	"slices"
	"strings"

	"github.com/dynago/dynago/guided"
)

// branch is a list of objects of a schema that hold together, for what they say
// themselves: what they refer to and what they are composed of stands in the list,
// with one alternative of each choice.
type branch []*value

// annotations are keywords that hold nothing.
var annotations = set("title", "description", "default", "examples", "example", "deprecated", "readOnly", "writeOnly",
	"$schema", "$comment", "$anchor", "$defs", "definitions", "$vocabulary",
	"contentEncoding", "contentMediaType", "contentSchema", "discriminator", "externalDocs")

// assertions are keywords that answers are held to. More of them are looked at
// where they stand.
var assertions = set("type", "enum", "const", "$ref", "allOf", "anyOf", "oneOf", "not",
	"properties", "required", "additionalProperties", "patternProperties", "propertyNames", "minProperties", "maxProperties", "unevaluatedProperties",
	"items", "prefixItems", "additionalItems", "minItems", "maxItems", "uniqueItems", "unevaluatedItems",
	"pattern", "format", "minLength", "maxLength",
	"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")

func set(names ...string) map[string]bool {
	m := map[string]bool{}
	for _, n := range names {
		m[n] = true
	}
	return m
}

// check returns an error for an object of a schema with a keyword that answers
// cannot be held to.
func (s *schemas) check(v *value) error {
	if v.kind != '{' && v.kind != 't' && v.kind != 'f' {
		return fault(v, "it is no schema")
	}
	if s.checked[v] {
		return nil
	}
	s.checked[v] = true
	for _, name := range v.names {
		switch {
		case assertions[name] || annotations[name] || strings.HasPrefix(name, "x-"):
		case name == "$id" && v == s.root:
		default:
			return fault(v.members[name], "answers cannot be held to this keyword")
		}
	}
	return nil
}

// form checks values against a part of the schema.
func (s *schemas) form(part *value) (*guided.Form, error) {
	if form := s.forms[part]; form != nil {
		return form, nil
	}
	form, err := guided.CompilePart(s.source, part.path)
	if err != nil {
		return nil, fault(part, "%v", err)
	}
	s.forms[part] = form
	return form, nil
}

// pending is a schema that has to be put into a branch, with those that it came
// from.
type pending struct {
	schema *value
	from   *pending
}

// branches lists the alternatives that a value has if all of these schemas hold.
func (s *schemas) branches(all []*value) ([]branch, error) {
	todo := make([]pending, len(all))
	for i, v := range all {
		todo[i].schema = v
	}
	var out []branch
	return out, s.expand(todo, nil, &out)
}

func (s *schemas) expand(todo []pending, b branch, out *[]branch) error {
	for len(todo) > 0 {
		next := &todo[0]
		v := next.schema
		todo = todo[1:]
		if err := s.spend(1, v); err != nil {
			return err
		}
		for from := next.from; from != nil; from = from.from {
			if from.schema == v {
				return fault(v, "it refers to itself before any text")
			}
		}
		if err := s.check(v); err != nil {
			return err
		}
		switch {
		case v.kind == 'f':
			return nil
		case v.kind == 't' || slices.Contains(b, v):
			continue
		}
		b = append(slices.Clip(b), v)
		if no := v.members["not"]; no != nil {
			if no.kind != 't' && len(no.names) > 0 || no.kind == 'f' {
				return fault(no, "answers cannot be held to this keyword")
			}
			return nil
		}
		if ref := v.members["$ref"]; ref != nil {
			target, err := s.root.find(ref.text)
			if err != nil {
				return fault(ref, "%v", err)
			}
			todo = append(slices.Clip(todo), pending{target, next})
		}
		if all := v.members["allOf"]; all != nil {
			todo = slices.Clip(todo)
			for _, part := range all.items {
				todo = append(todo, pending{part, next})
			}
		}
		for _, keyword := range []string{"anyOf", "oneOf"} {
			choice := v.members[keyword]
			if choice == nil {
				continue
			}
			if keyword == "oneOf" {
				if err := s.checkApart(next, choice); err != nil {
					return err
				}
			}
			if keyword == "anyOf" && v.members["oneOf"] != nil {
				return fault(choice, "answers cannot be held to anyOf and oneOf of one schema: put one of them into allOf")
			}
			for _, part := range choice.items {
				if err := s.expand(append(slices.Clone(todo), pending{part, next}), b, out); err != nil {
					return err
				}
			}
			return nil
		}
	}
	if len(*out) == maxBranch {
		return fault(b[0], "it has more than %d alternatives when it is written out", maxBranch)
	}
	*out = append(*out, b)
	return nil
}

// find returns the first of these keywords that a part has.
func (b branch) find(names ...string) *value {
	for _, name := range names {
		for _, part := range b {
			if v := part.members[name]; v != nil {
				return v
			}
		}
	}
	return nil
}

// all lists what the parts say by a keyword.
func (b branch) all(name string) []*value {
	var list []*value
	for _, part := range b {
		if v := part.members[name]; v != nil {
			list = append(list, v)
		}
	}
	return list
}

// types is a set of JSON types. Numbers are whole or not.
type types uint8

const (
	nullType types = 1 << iota
	booleanType
	objectType
	arrayType
	stringType
	integerType
	fractionType
	numberType = integerType | fractionType
	anyType    = 1<<7 - 1
)

var typeNames = map[string]types{
	"null": nullType, "boolean": booleanType, "object": objectType, "array": arrayType,
	"string": stringType, "integer": integerType, "number": numberType,
}

// types returns the types that all parts let a value have.
func (b branch) types() types {
	all := types(anyType)
	for _, t := range b.all("type") {
		some := typeNames[t.text]
		for _, name := range t.strings() {
			some |= typeNames[name]
		}
		all &= some
	}
	return all
}

// types returns the type of a value, as a set.
func (v *value) types() types {
	switch v.kind {
	case 'n':
		return nullType
	case 't', 'f':
		return booleanType
	case '{':
		return objectType
	case '[':
		return arrayType
	case '"':
		return stringType
	}
	if n, ok := parseDecimal(string(v.raw)); ok && n.whole() {
		return integerType
	}
	return fractionType
}

// implied returns the types that the keywords of a branch are about. A schema
// without a type takes values of all others, too, but who writes properties means
// an object.
func (b branch) implied() types {
	var t types
	for keyword, about := range keywordTypes {
		if b.find(keyword) != nil {
			t |= about
		}
	}
	return t
}

var keywordTypes = map[string]types{
	"properties": objectType, "required": objectType, "additionalProperties": objectType, "patternProperties": objectType,
	"propertyNames": objectType, "minProperties": objectType, "maxProperties": objectType, "unevaluatedProperties": objectType,
	"items": arrayType, "prefixItems": arrayType, "minItems": arrayType, "maxItems": arrayType, "uniqueItems": arrayType, "unevaluatedItems": arrayType,
	"pattern": stringType, "format": stringType, "minLength": stringType, "maxLength": stringType,
	"minimum": numberType, "maximum": numberType, "exclusiveMinimum": numberType, "exclusiveMaximum": numberType, "multipleOf": numberType,
}
