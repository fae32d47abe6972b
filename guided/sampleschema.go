package guided

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
)

// deep is how far a sample nests before it takes the shortest way out, and
// deepest where it gives up: a schema may refer to itself.
const (
	deep    = 5
	deepest = 64
	largest = 1 << 16 // bytes of a sample
	longest = 1 << 14 // schemas that it looks at
)

// sampler makes instances of one schema, with members in the schema's order.
type sampler struct {
	root []byte
	r    *rand.Rand
	out  []byte
	seen int // schemas looked at so far
}

func sampleSchema(schema []byte, r *rand.Rand) (string, error) {
	s := &sampler{root: schema, r: r}
	if err := s.value(schema, 0); err != nil {
		return "", err
	}
	return string(s.out), nil
}

// rules are the keywords of a schema that its samples heed, with what it refers
// to and what it is composed of joined in.
type rules struct {
	types                []string
	fixed                []json.RawMessage // enum, or const
	properties           []property
	required             []string
	items                json.RawMessage
	prefix               []json.RawMessage
	minItems, maxItems   *float64
	minimum, maximum     *float64
	above, below         *float64
	multiple             *float64
	minLength, maxLength *float64
	pattern, format      string
}

type property struct {
	name   string
	schema []byte
}

func (s *sampler) value(schema []byte, depth int) error {
	if depth > deepest || len(s.out) > largest {
		return errors.New("the schema has no small instance")
	}
	var k rules
	if err := s.join(&k, schema, depth, 0); err != nil {
		return err
	}
	if len(k.fixed) > 0 {
		s.out = append(s.out, k.fixed[s.r.IntN(len(k.fixed))]...)
		return nil
	}
	switch s.kind(&k, depth) {
	case "object":
		return s.object(&k, depth)
	case "array":
		return s.array(&k, depth)
	case "integer", "number":
		s.number(&k)
	case "boolean":
		s.out = strconv.AppendBool(s.out, s.r.IntN(2) == 0)
	case "null":
		s.out = append(s.out, "null"...)
	default:
		text, err := s.text(&k)
		s.out = append(s.out, quoted(text)...)
		return err
	}
	return nil
}

// kind picks a type; deep down null, which ends what refers to itself.
func (s *sampler) kind(k *rules, depth int) string {
	switch {
	case len(k.types) > 0 && depth >= deep && slices.Contains(k.types, "null"):
		return "null"
	case len(k.types) > 0:
		return k.types[s.r.IntN(len(k.types))]
	case k.properties != nil || k.required != nil:
		return "object"
	case k.items != nil || k.prefix != nil:
		return "array"
	case k.minimum != nil || k.maximum != nil || k.multiple != nil || k.above != nil || k.below != nil:
		return "number"
	}
	return "string"
}

// join adds the keywords of a schema to k.
func (s *sampler) join(k *rules, schema []byte, depth, hops int) error {
	if hops > deepest {
		return errors.New("the schema refers to itself without end")
	}
	if s.seen++; s.seen > longest {
		return errors.New("the schema asks for too much")
	}
	switch schema[0] {
	case 't':
		return nil
	case 'f':
		return errors.New("a schema of false has no instance")
	}
	return members(schema, func(name string, v []byte) error {
		switch name {
		case "$ref":
			target, err := s.resolve(v)
			if err != nil {
				return err
			}
			return s.join(k, target, depth, hops+1)
		case "allOf", "anyOf", "oneOf":
			var list []json.RawMessage
			if err := json.Unmarshal(v, &list); err != nil || len(list) == 0 {
				return err
			}
			if name != "allOf" {
				list = s.one(list, depth)
			}
			for _, part := range list {
				if err := s.join(k, part, depth, hops+1); err != nil {
					return err
				}
			}
			return nil
		}
		return k.read(name, v)
	})
}

// one picks an alternative: deep down, the shortest one.
func (s *sampler) one(list []json.RawMessage, depth int) []json.RawMessage {
	if depth < deep {
		return list[s.r.IntN(len(list)):][:1]
	}
	short := slices.MinFunc(list, func(a, b json.RawMessage) int { return cmp.Compare(len(a), len(b)) })
	return []json.RawMessage{short}
}

// read takes one keyword that stands for itself.
func (k *rules) read(name string, v []byte) (err error) {
	number := func(at **float64) error { return json.Unmarshal(v, at) }
	switch name {
	case "type":
		k.types = nil
		if v[0] == '"' {
			k.types = make([]string, 1)
			return json.Unmarshal(v, &k.types[0])
		}
		return json.Unmarshal(v, &k.types)
	case "const":
		k.fixed = []json.RawMessage{v}
	case "enum":
		return json.Unmarshal(v, &k.fixed)
	case "properties":
		return members(v, func(name string, schema []byte) error {
			k.properties = append(k.properties, property{name, schema})
			return nil
		})
	case "required":
		var names []string
		err = json.Unmarshal(v, &names)
		k.required = append(k.required, names...)
	case "items":
		k.items = v
	case "prefixItems":
		return json.Unmarshal(v, &k.prefix)
	case "minItems":
		return number(&k.minItems)
	case "maxItems":
		return number(&k.maxItems)
	case "minimum":
		return number(&k.minimum)
	case "maximum":
		return number(&k.maximum)
	case "exclusiveMinimum":
		return number(&k.above)
	case "exclusiveMaximum":
		return number(&k.below)
	case "multipleOf":
		return number(&k.multiple)
	case "minLength":
		return number(&k.minLength)
	case "maxLength":
		return number(&k.maxLength)
	case "pattern":
		return json.Unmarshal(v, &k.pattern)
	case "format":
		return json.Unmarshal(v, &k.format)
	}
	return err
}

// resolve returns what a reference inside the schema points at.
func (s *sampler) resolve(ref []byte) ([]byte, error) {
	var text string
	if err := json.Unmarshal(ref, &text); err != nil {
		return nil, err
	}
	at := s.root
	for part := range strings.SplitSeq(strings.TrimPrefix(strings.TrimPrefix(text, "#"), "/"), "/") {
		if part == "" {
			continue
		}
		part = strings.NewReplacer("~1", "/", "~0", "~").Replace(part)
		var next []byte
		if err := members(at, func(name string, v []byte) error {
			if name == part {
				next = v
			}
			return nil
		}); err != nil || next == nil {
			return nil, fmt.Errorf("nothing stands at %s", text)
		}
		at = next
	}
	return at, nil
}

func (s *sampler) object(k *rules, depth int) error {
	s.out = append(s.out, '{')
	n := 0
	add := func(name string, schema []byte) error {
		if n++; n > 1 {
			s.out = append(s.out, ',')
		}
		s.out = append(append(s.out, quoted(name)...), ':')
		return s.value(schema, depth+1)
	}
	done := map[string]bool{}
	for _, p := range k.properties {
		wanted := slices.Contains(k.required, p.name)
		if done[p.name] || !wanted && (depth >= deep || s.r.IntN(2) == 0) {
			continue
		}
		done[p.name] = true
		if err := add(p.name, p.schema); err != nil {
			return err
		}
	}
	for _, name := range k.required {
		if !done[name] {
			done[name] = true
			if err := add(name, []byte("true")); err != nil {
				return err
			}
		}
	}
	s.out = append(s.out, '}')
	return nil
}

func (s *sampler) array(k *rules, depth int) error {
	least := int(min(or(k.minItems, 0), largest))
	most := int(min(or(k.maxItems, float64(least+2)), float64(least+2)))
	n := least
	if most > least && depth < deep {
		n += s.r.IntN(most - least + 1)
	}
	if k.items == nil && k.prefix != nil {
		n = max(least, min(n, len(k.prefix)))
	}
	s.out = append(s.out, '[')
	for i := range n {
		if i > 0 {
			s.out = append(s.out, ',')
		}
		item := []byte("true")
		switch {
		case i < len(k.prefix):
			item = k.prefix[i]
		case k.items != nil:
			item = k.items
		}
		if err := s.value(item, depth+1); err != nil {
			return err
		}
	}
	s.out = append(s.out, ']')
	return nil
}

// number takes a whole number where there is one: it is an integer, too.
func (s *sampler) number(k *rules) {
	step := or(k.multiple, 1)
	low, high := math.Inf(-1), math.Inf(1)
	if k.minimum != nil {
		low = *k.minimum
	}
	if k.above != nil {
		low = max(low, math.Nextafter(*k.above, math.Inf(1)))
	}
	if k.maximum != nil {
		high = *k.maximum
	}
	if k.below != nil {
		high = min(high, math.Nextafter(*k.below, math.Inf(-1)))
	}
	switch {
	case math.IsInf(low, -1) && math.IsInf(high, 1):
		low, high = 0, 100*step
	case math.IsInf(low, -1):
		low = high - 100*step
	case math.IsInf(high, 1):
		high = low + 100*step
	}
	first, last := math.Ceil(low/step), math.Floor(high/step)
	v := low + (high-low)/2
	if first <= last {
		v = (first + float64(s.r.IntN(int(min(last-first, 1000))+1))) * step
	}
	s.out = strconv.AppendFloat(s.out, v, 'f', -1, 64)
}

func (s *sampler) text(k *rules) (string, error) {
	if k.pattern != "" {
		return samplePattern(k.pattern, s.r)
	}
	switch k.format {
	case "date-time":
		return "2026-01-0" + strconv.Itoa(1+s.r.IntN(9)) + "T12:00:00Z", nil
	case "date":
		return "2026-01-0" + strconv.Itoa(1+s.r.IntN(9)), nil
	case "time":
		return "12:0" + strconv.Itoa(s.r.IntN(10)) + ":00Z", nil
	case "email":
		return words[s.r.IntN(len(words))] + "@example.com", nil
	case "uri", "uri-reference", "iri":
		return "https://example.com/" + words[s.r.IntN(len(words))], nil
	case "uuid":
		return fmt.Sprintf("%08x-0000-4000-8000-%012x", s.r.Uint32(), s.r.Uint32()), nil
	}
	text, least := phrase(s.r), or(k.minLength, 0)
	if least > largest {
		return "", errors.New("the schema has no small instance")
	}
	for float64(len(text)) < least { // by halves: nobody reads so much
		text += " " + text
	}
	if k.maxLength != nil && float64(len(text)) > *k.maxLength {
		text = text[:int(max(0, *k.maxLength))]
	}
	return text, nil
}

func or(v *float64, other float64) float64 {
	if v == nil {
		return other
	}
	return *v
}
