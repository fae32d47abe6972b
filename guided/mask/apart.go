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
	kinds := make([][]branch, len(choice.items))
	for i, part := range choice.items {
		var bs []branch
		if err := s.expand([]pending{{part, at}}, nil, &bs); err != nil {
			return err
		}
		for _, b := range bs {
			kinds[i] = append(kinds[i], append(b, v))
		}
	}
	for i := range kinds {
		for j := range i {
			for _, a := range kinds[i] {
				for _, b := range kinds[j] {
					apart, err := s.apart(a, b)
					if err != nil {
						return err
					}
					if !apart {
						return fault(choice, "a value may keep alternatives %d and %d at once, and one that keeps exactly one cannot be told while it is written: anyOf can be used, or a required member whose const differs", j, i)
					}
				}
			}
		}
	}
	return nil
}

// apart says that no value which is written for one of two branches keeps the
// other.
func (s *schemas) apart(a, b branch) (bool, error) {
	av, aListed, err := s.values(a)
	if err != nil {
		return false, err
	}
	bv, bListed, err := s.values(b)
	if err != nil {
		return false, err
	}
	if aListed && bListed {
		return !slices.ContainsFunc(av, func(v string) bool { return slices.Contains(bv, v) }), nil
	}
	if a.shapes()&b.shapes() == 0 {
		return true, nil
	}
	if a.shapes()&b.shapes() != objectType {
		return false, nil
	}
	return s.apartByMember(a, b)
}

// values returns the values that a branch lists, equal ones as equal texts.
func (s *schemas) values(b branch) (written []string, listed bool, err error) {
	if b.find("const", "enum") == nil {
		return nil, false, nil
	}
	list, err := s.listed(b)
	for _, v := range list {
		written = append(written, v.canonical())
	}
	return written, true, err
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
	var all [2][]branch
	for i, side := range []branch{a, b} {
		var todo []pending
		for _, props := range side.all("properties") {
			if at := props.members[name]; at != nil {
				todo = append(todo, pending{schema: at})
			}
		}
		if err := s.expand(todo, nil, &all[i]); err != nil {
			return false, err
		}
	}
	for _, x := range all[0] {
		for _, y := range all[1] {
			xs, xListed, err := s.values(x)
			if err != nil {
				return false, err
			}
			ys, yListed, err := s.values(y)
			if err != nil {
				return false, err
			}
			if xListed && yListed && !slices.ContainsFunc(xs, func(v string) bool { return slices.Contains(ys, v) }) {
				continue
			}
			if x.types()&y.types() != 0 && x.shapes()&y.shapes() != 0 {
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
