package mask

import (
	"slices"
)

// checkApart makes sure that no answer keeps two alternatives of a oneOf. Answers
// are held to one of them as to an anyOf, which is the same if the alternatives
// have no value in common that is written here: their types differ, or the values
// of a member that both ask for, or one asks for a member that the other does not
// write.
func (s *schemas) checkApart(at *pending, choice *value) error {
	v := at.schema
	if s.compared[v] {
		return nil
	}
	s.compared[v] = true
	kinds := make([][]alternative, len(choice.items))
	for i, part := range choice.items {
		var bs []branch
		if err := s.expand([]pending{{part, at}}, nil, &bs); err != nil {
			return err
		}
		var err error
		if kinds[i], err = s.alternatives(bs, v); err != nil {
			return err
		}
	}
	for i := range kinds {
		for j := range i {
			apart, err := s.allApart(kinds[i], kinds[j])
			if err != nil {
				return err
			}
			if !apart {
				return fault(choice, "a value may keep alternatives %d and %d at once, and one that keeps exactly one cannot be told while it is written: anyOf can be used, or a required member whose const differs", j, i)
			}
		}
	}
	return nil
}

// alternative is a branch with the values that it lists, if it lists some, equal ones
// as equal texts.
type alternative struct {
	branch
	lists  bool
	values []string
}

// alternatives looks at branches with what else holds for them all.
func (s *schemas) alternatives(bs []branch, beside ...*value) ([]alternative, error) {
	list := make([]alternative, len(bs))
	for i, b := range bs {
		list[i].branch = append(b, beside...)
		if b.find("const", "enum") == nil {
			continue
		}
		list[i].lists = true
		values, err := s.listed(list[i].branch)
		if err != nil {
			return nil, err
		}
		for _, v := range values {
			list[i].values = append(list[i].values, v.canonical())
		}
	}
	return list, nil
}

func (s *schemas) allApart(as, bs []alternative) (bool, error) {
	for _, a := range as {
		for _, b := range bs {
			apart := a.apart(b)
			if !apart && a.shapes()&b.shapes() == objectType {
				var err error
				if apart, err = s.apartByMember(a.branch, b.branch); err != nil {
					return false, err
				}
			}
			if !apart {
				return false, nil
			}
		}
	}
	return true, nil
}

// apart says that two alternatives have no value in common, as far as their values or
// types tell.
func (a alternative) apart(b alternative) bool {
	if a.lists && b.lists {
		return !slices.ContainsFunc(a.values, func(v string) bool { return slices.Contains(b.values, v) })
	}
	return a.shapes()&b.shapes() == 0
}

// shapes returns the types of the values that are written for a branch.
func (b branch) shapes() types {
	t := b.types()
	if listed := b.find("const"); listed != nil {
		return t & listed.types()
	}
	if listed := b.find("enum"); listed != nil {
		var some types
		for _, v := range listed.items {
			some |= v.types()
		}
		return t & some
	}
	if implied := b.implied(); t == anyType && implied != 0 {
		return implied
	}
	return t
}

func (s *schemas) apartByMember(a, b branch) (bool, error) {
	if a.lacks(b) && (b.lacks(a) || b.exceeds(a)) || b.lacks(a) && a.exceeds(b) {
		return true, nil
	}
	for _, name := range a.required() {
		if !slices.Contains(b.required(), name) {
			continue
		}
		apart, err := s.membersApart(a, b, name)
		if apart || err != nil {
			return apart, err
		}
	}
	return false, nil
}

func (b branch) required() (names []string) {
	for _, v := range b.all("required") {
		names = append(names, v.strings()...)
	}
	return names
}

// lacks says that another branch asks for a member that is never written for this
// one.
func (b branch) lacks(asks branch) bool {
	return slices.ContainsFunc(asks.required(), func(name string) bool { return !b.mayHave(name) })
}

// exceeds says that this branch asks for a member that another forbids.
func (b branch) exceeds(forbids branch) bool {
	for _, part := range forbids {
		extra, named := part.members["additionalProperties"], part.members["properties"]
		if extra == nil || extra.kind != 'f' || part.members["patternProperties"] != nil {
			continue
		}
		if slices.ContainsFunc(b.required(), func(name string) bool { return named == nil || named.members[name] == nil }) {
			return true
		}
	}
	return false
}

// membersApart says whether a member has no value that both branches let it have.
func (s *schemas) membersApart(a, b branch, name string) (bool, error) {
	var sides [2][]alternative
	for i, side := range []branch{a, b} {
		var todo []pending
		for _, props := range side.all("properties") {
			if at := props.members[name]; at != nil {
				todo = append(todo, pending{schema: at})
			}
		}
		var bs []branch
		if err := s.expand(todo, nil, &bs); err != nil {
			return false, err
		}
		var err error
		if sides[i], err = s.alternatives(bs); err != nil {
			return false, err
		}
	}
	for _, x := range sides[0] {
		for _, y := range sides[1] {
			if !x.apart(y) {
				return false, nil
			}
		}
	}
	return true, nil
}

// mayHave says whether an object of a branch may be written with a member of this
// name.
func (b branch) mayHave(name string) bool {
	for _, props := range b.all("properties") {
		if props.members[name] != nil {
			return true
		}
	}
	for _, v := range b.all("required") {
		if slices.Contains(v.strings(), name) {
			return true
		}
	}
	return b.find("patternProperties") != nil || b.open()
}
