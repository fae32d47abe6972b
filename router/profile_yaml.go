package router

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"
)

// entry is a place of a YAML file. What is wrong there is noted once for the
// whole file, and reading goes on with zero values.
type entry struct {
	node  *yaml.Node
	path  string // empty: the file itself
	key   string // the last part of it, of a mapping
	fault *error
}

// wrong notes what is wrong.
func (e entry) wrong(format string, args ...any) {
	if *e.fault != nil {
		return
	}
	err := fmt.Errorf(format, args...)
	if e.path != "" {
		err = fmt.Errorf("%s: %w", e.path, err)
	}
	*e.fault = fmt.Errorf("line %d: %w", e.node.Line, err)
}

// got tells what stands there, for who wants something else.
func (e entry) got() string {
	switch e.node.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	}
	const most = 40
	if len(e.node.Value) > most {
		return fmt.Sprintf("%.*q…", most, e.node.Value)
	}
	return strconv.Quote(e.node.Value)
}

// below returns a place under this one. An alias stands for what it names.
func (e entry) below(path, key string, node *yaml.Node) entry {
	if node.Kind == yaml.AliasNode {
		node = node.Alias
	}
	return entry{node: node, path: path, key: key, fault: e.fault}
}

// pairs returns the values of a mapping, in order. Keys without a value are left
// out, as if they were not there.
func (e entry) pairs() []entry {
	if e.node.Tag == "!!null" && e.path == "" {
		return nil // a file of comments
	}
	if e.node.Kind != yaml.MappingNode {
		e.wrong("got %s, want a mapping", e.got())
		return nil
	}
	var pairs []entry
	seen := make(map[string]int)
	for i := 0; i+1 < len(e.node.Content); i += 2 {
		key := e.node.Content[i]
		path := key.Value
		if e.path != "" {
			path = e.path + "." + path
		}
		of := e.below(path, key.Value, e.node.Content[i+1])
		if key.Kind != yaml.ScalarNode {
			e.below(e.path, "", key).wrong("a key is no text")
			return nil
		}
		if line, ok := seen[key.Value]; ok {
			e.below(path, "", key).wrong("it stands in line %d already", line)
			return nil
		}
		seen[key.Value] = key.Line
		if of.node.Tag != "!!null" {
			pairs = append(pairs, of)
		}
	}
	return pairs
}

// mostListed bounds each list of a policy file: every class is looked at for each
// request that waits, and has metrics of its own.
const mostListed = 1024

// list returns the values of a list, at least one.
func (e entry) list() []entry {
	if e.node.Kind != yaml.SequenceNode || len(e.node.Content) == 0 {
		e.wrong("got %s, want a list with something in it", e.got())
		return nil
	}
	if n := len(e.node.Content); n > mostListed {
		e.wrong("got a list of %d, want at most %d", n, mostListed)
		return nil
	}
	list := make([]entry, len(e.node.Content))
	for i, n := range e.node.Content {
		list[i] = e.below(fmt.Sprintf("%s[%d]", e.path, i), "", n)
	}
	return list
}

// text returns a scalar as it is written.
func (e entry) text() string {
	if e.node.Kind != yaml.ScalarNode || e.node.Tag == "!!null" {
		e.wrong("got %s, want a text", e.got())
		return ""
	}
	return e.node.Value
}

// name returns an identifier.
func (e entry) name() string {
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-"
	s := e.text()
	if s == "" || strings.Trim(s, letters) != "" {
		e.wrong("got %s, want a name of letters, digits, _, . and -", e.got())
	}
	return s
}

// mostTokens is the largest number of a policy file: what JSON keeps exactly.
const mostTokens = 1 << 53

// whole returns a whole number that is not less than least.
func (e entry) whole(least int) int {
	n, err := strconv.Atoi(e.node.Value)
	if e.node.Tag != "!!int" || err != nil || n < least || n > mostTokens {
		e.wrong("got %s, want a whole number from %d to 2^53", e.got(), least)
		return least
	}
	return n
}

// anything returns a mapping of whatever it is.
func (e entry) anything() map[string]any {
	var m map[string]any
	if e.node.Kind != yaml.MappingNode {
		e.wrong("got %s, want a mapping", e.got())
	} else if err := e.node.Load(&m); err != nil {
		e.wrong("%w", err)
	}
	return m
}

// mapping is a mapping with known keys.
type mapping struct {
	of     entry
	fields map[string]entry
}

// mapping returns the values of a mapping, which has no other keys than these.
func (e entry) mapping(keys ...string) mapping {
	m := mapping{e, make(map[string]entry)}
	for _, of := range e.pairs() {
		m.fields[of.key] = of
		if !slices.Contains(keys, of.key) {
			of.wrong("it is unknown, want one of %s", strings.Join(keys, ", "))
		}
	}
	return m
}

func (m mapping) has(key string) bool { _, ok := m.fields[key]; return ok }

func (m mapping) get(key string) entry { return m.fields[key] }

// need returns the value of a key that must be there.
func (m mapping) need(key string) entry {
	if !m.has(key) {
		m.of.wrong("%s is missing", key)
		return entry{node: &yaml.Node{}, fault: m.of.fault}
	}
	return m.get(key)
}

// count returns a whole number, or nil if the key is not there.
func (m mapping) count(key string) *int {
	if !m.has(key) {
		return nil
	}
	return new(m.get(key).whole(0))
}

// fraction returns a finite number that is not negative, or nil if the key is
// not there.
func (m mapping) fraction(key string) *float64 {
	if !m.has(key) {
		return nil
	}
	e := m.get(key)
	n, err := strconv.ParseFloat(e.node.Value, 64)
	if e.node.Tag != "!!int" && e.node.Tag != "!!float" || err != nil || !(n >= 0) || math.IsInf(n, 0) {
		e.wrong("got %s, want a finite number, 0 or more", e.got())
	}
	return &n
}
