package mask

import (
	"cmp"
	"slices"
	"strconv"
)

// open says whether objects of a branch have members that it does not name. Where
// it says nothing but names some, they have not, as with other engines that hold
// models to schemas: a model that may add anything will.
func (b branch) open() bool {
	said := false
	for _, part := range b {
		if v := part.members["unevaluatedProperties"]; v != nil && v.kind == 'f' {
			return false
		}
		if v := part.members["additionalProperties"]; v != nil {
			said = true
			if v.kind == 'f' {
				return false
			}
		}
	}
	return said || b.find("properties", "patternProperties", "required") == nil
}

// object is an object. Its members come in the order of the schema, and those that
// it does not name behind them.
func (s *schemas) object(b branch) (*expr, error) {
	if v := b.find("unevaluatedProperties"); v != nil && v.kind == '{' && len(v.names) > 0 {
		return nil, fault(v, "answers cannot be held to this keyword")
	}
	low, high, err := b.counts("minProperties", "maxProperties")
	if err != nil {
		return nil, err
	}
	members, err := s.members(b)
	if err != nil {
		return nil, err
	}
	others, err := s.others(b, members)
	if err != nil {
		return nil, err
	}
	return s.written(b, members, others, low, high)
}

// member is a member that a branch names.
type member struct {
	name     string
	required bool
	value    *expr
}

// named is a member that a branch names, and the schemas that it has to keep.
type named struct {
	name              string
	required, allowed bool
	goal              []*value
}

// named lists the members that a branch names, in the order of the schema.
func (s *schemas) named(b branch) ([]named, error) {
	var list []named
	seen := map[string]int{}
	note := func(name string) *named {
		i, ok := seen[name]
		if !ok {
			i = len(list)
			seen[name] = i
			list = append(list, named{name: name})
		}
		return &list[i]
	}
	for _, v := range b.all("properties") {
		for _, name := range v.names {
			note(name)
		}
	}
	for _, v := range b.all("required") {
		for _, name := range v.strings() {
			note(name).required = true
		}
	}
	for i := range list {
		var err error
		if list[i].goal, list[i].allowed, err = s.namedGoal(b, list[i].name); err != nil {
			return nil, err
		}
	}
	return list, nil
}

func (s *schemas) members(b branch) ([]member, error) {
	all, err := s.named(b)
	if err != nil {
		return nil, err
	}
	list := make([]member, len(all))
	for i, n := range all {
		list[i] = member{name: n.name, required: n.required, value: void}
		if !n.allowed {
			continue
		}
		if list[i].value, err = s.goal(n.goal); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// namedGoal lists the schemas that a member of this name has to keep; it is false
// if there may be none.
func (s *schemas) namedGoal(b branch, name string) (goal []*value, ok bool, err error) {
	for _, v := range b.all("propertyNames") {
		form, err := s.form(v)
		if err != nil {
			return nil, false, err
		}
		if form.Check(string((&value{kind: '"', text: name}).write(nil))) != nil {
			return nil, false, nil
		}
	}
	for _, part := range b {
		known := false
		if v := part.members["properties"]; v != nil && v.members[name] != nil {
			goal, known = append(goal, v.members[name]), true
		}
		if v := part.members["patternProperties"]; v != nil {
			for _, pattern := range v.names {
				match, err := s.matches(v.members[pattern], pattern, name)
				if err != nil {
					return nil, false, err
				}
				if match {
					goal, known = append(goal, v.members[pattern]), true
				}
			}
		}
		if v := part.members["additionalProperties"]; v != nil && !known {
			if v.kind == 'f' {
				return nil, false, nil
			}
			goal = append(goal, v)
		}
	}
	return goal, true, nil
}

// maxPatterns bounds patternProperties: each combination of them is looked at.
const maxPatterns = 4

// others is one member that a branch does not name, or void.
func (s *schemas) others(b branch, members []member) (*expr, error) {
	type pattern struct {
		part *value
		name *expr
		goal *value
	}
	var patterns []pattern
	for _, part := range b {
		v := part.members["patternProperties"]
		if v == nil {
			continue
		}
		for _, text := range v.names {
			e, err := quoted.ecma(text)
			if err != nil {
				return nil, fault(v.members[text], "%v", err)
			}
			if patterns = append(patterns, pattern{part, e, v.members[text]}); len(patterns) > maxPatterns {
				return nil, fault(v, "answers are held to at most %d patterns of names", maxPatterns)
			}
		}
	}
	names, err := s.names(b, members)
	if err != nil {
		return nil, err
	}
	var parts []*expr
	for chosen := range 1 << len(patterns) {
		name, goal, ok := slices.Clone(names), []*value(nil), true
		for _, part := range b {
			known := false
			for i, p := range patterns {
				if p.part == part && chosen>>i&1 == 1 {
					known = true
				}
			}
			if v := part.members["additionalProperties"]; v != nil && !known {
				ok = ok && v.kind != 'f'
				goal = append(goal, v)
			}
		}
		for i, p := range patterns {
			if chosen>>i&1 == 1 {
				name, goal = append(name, p.name), append(goal, p.goal)
			} else {
				name = append(name, not(p.name))
			}
		}
		if !ok || chosen == 0 && !b.open() {
			continue
		}
		value, err := s.goal(goal)
		if err != nil {
			return nil, err
		}
		text := anyString
		if len(name) > 0 {
			text = stringOf(and(append(name, star(quoted.any()))...))
		}
		parts = append(parts, seq(text, lit(":"), space, value))
	}
	return alt(parts...), nil
}

// names lists what holds for the name of a member that a branch does not name.
func (s *schemas) names(b branch, members []member) ([]*expr, error) {
	var list []*expr
	if len(members) > 0 {
		known := make([]string, len(members))
		for i, m := range members {
			known[i] = quoted.spelled(m.name)
		}
		slices.Sort(known)
		list = append(list, not(texts(known)))
	}
	if goal := b.all("propertyNames"); len(goal) > 0 {
		branches, err := s.branches(goal)
		if err != nil {
			return nil, err
		}
		var parts []*expr
		for _, name := range branches {
			e, err := s.name(name)
			if err != nil {
				return nil, err
			}
			parts = append(parts, e)
		}
		list = append(list, alt(parts...))
	}
	return list, nil
}

// name is the inside of a string that keeps a branch.
func (s *schemas) name(b branch) (*expr, error) {
	if b.find("const", "enum") == nil {
		if b.types()&stringType == 0 {
			return void, nil
		}
		return s.inside(b, quoted)
	}
	list, err := s.listed(b)
	var names []string
	for _, v := range list {
		if v.kind == '"' {
			names = append(names, quoted.spelled(v.text))
		}
	}
	slices.Sort(names)
	return texts(slices.Compact(names)), err
}

// written is an object with these members, and others behind them.
func (s *schemas) written(b branch, members []member, others *expr, low, high int) (*expr, error) {
	required := 0
	for _, m := range members {
		if m.required {
			required++
		}
	}
	if others != void && low > required+1 {
		// Two others may have one name, which makes them one member.
		return nil, fault(b.find("minProperties"), "answers are held to at most one member beyond those that are required, since names may come twice")
	}
	if high >= len(members) && others == void {
		high = noLimit
	}
	// The count of members matters up to the larger limit; but for limits, whether
	// there are any at all.
	most := max(1, min(max(low, high), len(members)))
	if low <= required && high == noLimit {
		most, low = 1, 0
	}
	if most*len(members) > maxCounted {
		return nil, fault(cmp.Or(b.find("minProperties"), b.find("maxProperties")), "answers are held to it if it, times the members that are named, is at most %d", maxCounted)
	}
	rest := make([]*expr, most+1) // what comes behind so many members
	for n := range rest {
		rest[n] = several(others, n, low, high, "}")
	}
	for _, m := range slices.Backward(members) {
		text := string((&value{kind: '"', text: m.name}).write(nil))
		one := seq(lit(text+":"), space, m.value)
		before := make([]*expr, most+1)
		for n := range before {
			before[n] = void
			if high == noLimit || n < high {
				before[n] = seq(separator(n), one, rest[min(n+1, most)])
			}
			if !m.required {
				before[n] = alt(before[n], rest[n])
			}
		}
		rest = before
	}
	return frame(seq(lit("{"), blank, rest[0])), nil
}

// maxCounted bounds the states of objects whose members are counted.
const maxCounted = 1 << 14

// counts reads the two keywords of a count. The second is noLimit if there is none.
func (b branch) counts(least, most string) (low, high int, err error) {
	high = noLimit
	for _, v := range b.all(least) {
		n, err := count(v)
		if err != nil {
			return 0, 0, err
		}
		low = max(low, n)
	}
	for _, v := range b.all(most) {
		n, err := count(v)
		if err != nil {
			return 0, 0, err
		}
		if high == noLimit || n < high {
			high = n
		}
	}
	return low, high, nil
}

// maxCount bounds what is counted.
const maxCount = 1 << 24

func count(v *value) (int, error) {
	d, ok := parseDecimal(string(v.raw))
	if v.kind == '0' && ok && d.whole() && !d.negative {
		if n, err := strconv.Atoi(d.left); err == nil && n <= maxCount {
			return n, nil
		}
	}
	return 0, fault(v, "it is no count from 0 to %d", maxCount)
}
