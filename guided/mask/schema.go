package mask

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/guided"
)

// schemas writes the parts of one schema as expressions.
type schemas struct {
	source   json.RawMessage
	root     *value
	rules    *rules
	anything *expr
	known    map[string]*expr // by what holds, see goal
	checked  map[*value]bool
	compared map[*value]bool // see checkApart
	forms    map[*value]*guided.Form
	patterns map[string]*arena
	steps    int
}

// Limits of a schema beside those of guided.Compile.
const (
	maxGoals  = 1 << 13 // combinations of parts that a value is held to
	maxBranch = 1 << 9  // alternatives of one value
	maxSteps  = 1 << 17 // looks at a part

	stepsPerCheck = 32 // of a listed value
)

// newSchemas reads a schema.
func newSchemas(source json.RawMessage, r *rules) (*schemas, error) {
	if _, err := guided.Compile(&chat.OutputFormat{Kind: chat.FormatJSONSchema, Schema: source}); err != nil {
		return nil, err
	}
	root, err := decode(source)
	if err != nil {
		return nil, fmt.Errorf("it is no JSON: %w", err)
	}
	return &schemas{
		source: source, root: root, rules: r,
		known: map[string]*expr{}, checked: map[*value]bool{}, compared: map[*value]bool{},
		forms: map[*value]*guided.Form{}, patterns: map[string]*arena{},
	}, nil
}

// schema writes a schema.
func schema(source json.RawMessage, r *rules) (*expr, error) {
	s, err := newSchemas(source, r)
	if err != nil {
		return nil, err
	}
	return s.goal([]*value{s.root})
}

// fault is an error at a place in the schema.
func fault(at *value, format string, args ...any) error {
	return fmt.Errorf("%s: %s", cmp.Or(at.path, "/"), fmt.Sprintf(format, args...))
}

// spend counts steps.
func (s *schemas) spend(n int, at *value) error {
	if s.steps += n; s.steps > maxSteps {
		return fault(at, "to write out the alternatives of the schema takes more than %d looks at a part", maxSteps)
	}
	return nil
}

// goal is a value that all of these schemas hold for. Each combination is a rule,
// made once, so that schemas may refer to themselves.
func (s *schemas) goal(all []*value) (*expr, error) {
	all = slices.Clone(all)
	slices.SortFunc(all, func(a, b *value) int { return cmp.Compare(a.number, b.number) })
	all = slices.Compact(all)
	var key strings.Builder
	for _, v := range all {
		key.WriteString(strconv.Itoa(v.number))
		key.WriteByte(' ')
	}
	if e, ok := s.known[key.String()]; ok {
		return e, nil
	}
	if len(s.known) == maxGoals {
		return nil, fmt.Errorf("its parts are combined in more than %d ways", maxGoals)
	}
	rule := s.rules.reserve()
	s.known[key.String()] = call(rule)
	branches, err := s.branches(all)
	if err != nil {
		return nil, err
	}
	var parts []*expr
	for _, b := range branches {
		e, err := s.branch(b)
		if err != nil {
			return nil, err
		}
		parts = append(parts, e)
	}
	(*s.rules)[rule] = alt(parts...)
	return call(rule), nil
}

// any is any value.
func (s *schemas) any() *expr {
	if s.anything == nil {
		s.anything = anything(s.rules)
	}
	return s.anything
}

// branch is a value that all parts of one branch hold for.
func (s *schemas) branch(b branch) (*expr, error) {
	if listed := b.find("const", "enum"); listed != nil {
		return s.finite(b)
	}
	kinds := b.types()
	if kinds == anyType {
		if kinds = b.implied(); kinds == 0 {
			return s.any(), nil
		}
	}
	return s.ofTypes(b, kinds)
}

// ofTypes is a value of these types that all parts of a branch hold for.
func (s *schemas) ofTypes(b branch, kinds types) (*expr, error) {
	var parts []*expr
	for _, t := range []struct {
		types types
		write func(branch) (*expr, error)
	}{
		{nullType, func(branch) (*expr, error) { return lit("null"), nil }},
		{booleanType, func(branch) (*expr, error) { return alt(lit("true"), lit("false")), nil }},
		{objectType, s.object},
		{arrayType, s.array},
		{stringType, s.string},
		{numberType, s.number},
	} {
		if kinds&t.types == 0 {
			continue
		}
		e, err := t.write(b)
		if err != nil {
			return nil, err
		}
		parts = append(parts, e)
	}
	return alt(parts...), nil
}

// finite is one of the values that are listed, as far as all else holds for them.
func (s *schemas) finite(b branch) (*expr, error) {
	list, err := s.listed(b)
	if err != nil {
		return nil, err
	}
	return oneOf(list), nil
}

func oneOf(list []*value) *expr {
	written := make([]string, len(list))
	for i, v := range list {
		written[i] = string(v.write(nil))
	}
	slices.Sort(written)
	return frame(texts(slices.Compact(written)))
}

// listed lists the values that hold in a branch with an enum or a const.
func (s *schemas) listed(b branch) ([]*value, error) {
	var list []*value
	at := b.find("const")
	if at != nil {
		list = []*value{at}
	} else {
		at = b.find("enum")
		list = at.items
	}
	kinds := b.types()
	list = slices.DeleteFunc(slices.Clone(list), func(v *value) bool { return kinds&v.types() == 0 })
	for _, part := range b {
		plain := true
		for _, name := range part.names {
			plain = plain && (part.members[name] == at || name == "type" || annotations[name])
		}
		if plain || len(list) == 0 {
			continue
		}
		if err := s.spend(stepsPerCheck*len(list), part); err != nil {
			return nil, err
		}
		form, err := s.form(part)
		if err != nil {
			return nil, err
		}
		list = slices.DeleteFunc(list, func(v *value) bool { return form.Check(string(v.write(nil))) != nil })
	}
	return list, nil
}
