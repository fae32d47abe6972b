package mask

import (
	"slices"
)

// checkApart makes sure that no answer keeps two alternatives of a oneOf. Answers
// are held to one of them as to an anyOf, which is the same if the alternatives
// have no value in common that is written here: their types differ, or the values
// of a member that both ask for, or one asks for a member that the other does not
// write.
func (s *schemas) checkApart(v, choice *value) error {
	kinds := make([][]branch, len(choice.items))
	for i, part := range choice.items {
		var bs []branch
		if err := s.expand([]pending{{schema: part}}, nil, &bs); err != nil {
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

// values returns the values that a branch lists, as they are written.
func (s *schemas) values(b branch) (written []string, listed bool, err error) {
	if b.find("const", "enum") == nil {
		return nil, false, nil
	}
	list, err := s.listed(b)
	for _, v := range list {
		written = append(written, string(v.write(nil)))
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
	required := func(b branch, name string) bool {
		return slices.ContainsFunc(b.all("required"), func(v *value) bool { return slices.Contains(v.strings(), name) })
	}
	// Only what a validator of the other branch sees counts: its own constraints, and
	// what this one never writes.
	lacks := func(writes, asks branch) bool {
		for _, v := range asks.all("required") {
			for _, name := range v.strings() {
				if !writes.mayHave(name) {
					return true
				}
			}
		}
		return false
	}
	if lacks(a, b) && lacks(b, a) {
		return true, nil
	}
	for _, props := range a.all("properties") {
		for _, name := range props.names {
			if !required(a, name) || !required(b, name) {
				continue
			}
			apart, err := s.membersApart(a, b, name)
			if apart || err != nil {
				return apart, err
			}
		}
	}
	// One that never has what the other asks for, and always has what the other
	// does not allow.
	return lacks(a, b) && excess(b, a, required) || lacks(b, a) && excess(a, b, required), nil
}

// excess says that one branch asks for a member that the other forbids.
func excess(asks, forbids branch, required func(branch, string) bool) bool {
	for _, part := range forbids {
		extra := part.members["additionalProperties"]
		if extra == nil || extra.kind != 'f' || part.members["patternProperties"] != nil {
			continue
		}
		for _, v := range asks.all("required") {
			for _, name := range v.strings() {
				if required(asks, name) && (part.members["properties"] == nil || part.members["properties"].members[name] == nil) {
					return true
				}
			}
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
