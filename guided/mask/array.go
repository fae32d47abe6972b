package mask

import "slices"

// array is an array. Where a branch has items at its beginning and says nothing of
// others, there are none, unless it asks for more.
func (s *schemas) array(b branch) (*expr, error) {
	low, high, err := b.counts("minItems", "maxItems")
	if err != nil {
		return nil, err
	}
	first, goal, open := 0, []*value(nil), true
	for _, part := range b {
		front, rest := itemsOf(part)
		first = max(first, len(front))
		switch {
		case rest != nil:
			goal = append(goal, rest)
		case len(front) > 0:
			open = false
		}
	}
	if v := b.find("unevaluatedItems"); v != nil {
		if v.kind != 'f' {
			return nil, fault(v, "answers cannot be held to this keyword")
		}
		open = open && len(goal) > 0
	}
	most := high
	if !open && len(goal) == 0 && (most == noLimit || most > max(first, low)) {
		most = max(first, low)
	}
	for i := range first {
		if ok := !slices.ContainsFunc(b, func(part *value) bool { return forbids(part, i) }); !ok && (most == noLimit || i < most) {
			most = i
		}
	}
	if slices.ContainsFunc(b, func(part *value) bool { return forbids(part, first) }) && (most == noLimit || most > first) {
		most = first
	}
	for _, v := range b.all("uniqueItems") {
		if v.kind == 't' && (most == noLimit || most > 1) {
			return nil, fault(v, "answers cannot be held to this keyword: what has come before is not compared")
		}
	}
	return s.items(b, goal, first, low, most)
}

// itemsOf returns the schemas of the first items, and that of all others, or nil.
func itemsOf(part *value) (front []*value, rest *value) {
	rest = part.members["items"]
	if v := part.members["prefixItems"]; v != nil {
		return v.items, rest
	}
	if rest != nil && rest.kind == '[' { // as schemas were written before 2020
		return rest.items, part.members["additionalItems"]
	}
	return nil, rest
}

// forbids says whether there may be no item at a place.
func forbids(part *value, i int) bool {
	front, rest := itemsOf(part)
	return i >= len(front) && rest != nil && rest.kind == 'f'
}

// items is an array of items by place, and others behind the first ones.
func (s *schemas) items(b branch, others []*value, first, low, high int) (*expr, error) {
	if high != noLimit && low > high {
		return void, nil
	}
	if high != noLimit {
		first = min(first, high)
	}
	other := void
	if high == noLimit || high > first {
		var err error
		if other, err = s.goal(others); err != nil {
			return nil, err
		}
	}
	rest := several(other, first, low, high, "]")
	for i := first - 1; i >= 0; i-- {
		var goal []*value
		for _, part := range b {
			front, all := itemsOf(part)
			switch {
			case i < len(front):
				goal = append(goal, front[i])
			case all != nil:
				goal = append(goal, all)
			}
		}
		item, err := s.goal(goal)
		if err != nil {
			return nil, err
		}
		rest = seq(separator(i), item, rest)
		if i >= low {
			rest = alt(several(void, i, 0, i, "]"), rest)
		}
	}
	return frame(seq(lit("["), blank, rest)), nil
}
