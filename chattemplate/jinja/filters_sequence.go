package jinja

import (
	"slices"
	"strings"
)

func sequenceFilters() []*builtin {
	return []*builtin{
		fn("length value", func(st *state, a []Value) (Value, error) { return boxed(size(st, a[0])) }),
		fn("first value", func(st *state, a []Value) (Value, error) { return end(st, a[0], false) }),
		fn("last value", func(st *state, a []Value) (Value, error) { return end(st, a[0], true) }),
		fn("random value", func(st *state, a []Value) (Value, error) { return end(st, a[0], false) }),
		fn("list value", func(st *state, a []Value) (Value, error) {
			items, err := st.elements(a[0])
			return NewList(items...), spent(st, err, len(items))
		}),
		fn("items value", filterItems),
		fn("join value d? attribute?", filterJoin),
		fn("reverse value", filterReverse),
		fn("sort value reverse? case_sensitive? attribute?", filterSort),
		fn("dictsort value case_sensitive? by? reverse?", filterDictSort),
		fn("unique value case_sensitive? attribute?", filterUnique),
		fn("min value case_sensitive? attribute?", extreme(-1)),
		fn("max value case_sensitive? attribute?", extreme(1)),
		fn("sum value attribute? start?", filterSum),
		fn("batch value linecount fill_with?", filterBatch),
		fn("slice value slices fill_with?", filterSlice),
		fn("groupby value attribute default? case_sensitive?", filterGroupBy),
		fn("map value *", filterMap),
		fn("select value *", choose(true, false)),
		fn("reject value *", choose(false, false)),
		fn("selectattr value *", choose(true, true)),
		fn("rejectattr value *", choose(false, true)),
	}
}

func spent(st *state, err error, items int) error {
	if err != nil {
		return err
	}
	return st.spendItems(items)
}

func spentText(st *state, err error, s string) error {
	if err != nil {
		return err
	}
	return st.spend(len(s))
}

func end(st *state, v Value, last bool) (Value, error) {
	if _, ok := v.(*generator); ok && last {
		return nil, fail(TypeError, "'generator' object is not reversible")
	}
	if s, ok := text(v); ok && s != "" {
		n := 0
		if last {
			n = -1
		}
		c, _ := character(s, n)
		return likeText(v, c), nil
	}
	items, err := st.elements(v)
	if err != nil {
		return nil, err
	}
	switch {
	case len(items) == 0:
		return &undefined{kind: UndefinedError, why: "the sequence was empty"}, nil
	case last:
		return items[len(items)-1], nil
	}
	return items[0], nil
}

func filterItems(st *state, a []Value) (Value, error) {
	switch d := a[0].(type) {
	case *undefined:
		return &generator{}, nil
	case *Dict:
		return &generator{d.pairs()}, st.spendItems(3 * d.Len())
	}
	return nil, fail(TypeError, "can only get item pairs from a mapping")
}

func filterJoin(st *state, a []Value) (Value, error) {
	items, err := st.elements(a[0])
	if err != nil {
		return nil, err
	}
	key, err := attributeGetter(st, a[2], nil)
	if err != nil {
		return nil, err
	}
	sep, err := str(st, optional(a[1], ""))
	if err != nil {
		return nil, err
	}
	parts := make([]string, len(items))
	for i, v := range items {
		if v, err = key(v); err != nil {
			return nil, err
		}
		if parts[i], err = str(st, v); err != nil {
			return nil, err
		}
		if err := st.spend(len(sep) + len(parts[i])); err != nil {
			return nil, err
		}
	}
	return strings.Join(parts, sep), nil
}

func filterReverse(st *state, a []Value) (Value, error) {
	if s, ok := text(a[0]); ok {
		if err := st.spend(4 * len(s)); err != nil {
			return nil, err
		}
		runes := []rune(s)
		slices.Reverse(runes)
		return string(runes), nil
	}
	items, err := st.elements(a[0])
	if err != nil {
		return nil, err
	}
	items = slices.Clone(items)
	slices.Reverse(items)
	return &generator{items}, st.spendItems(len(items))
}

func filterUnique(st *state, a []Value) (Value, error) {
	items, err := st.elements(a[0])
	if err != nil {
		return nil, err
	}
	key, err := sortKey(st, a[2], flag(a[1]))
	if err != nil {
		return nil, err
	}
	seen := NewDict(len(items))
	for _, v := range items {
		if err := st.step(); err != nil {
			return nil, err
		}
		k, err := key(v)
		if err != nil {
			return nil, err
		}
		if err := hashable(st, k); err != nil {
			return nil, err
		}
		if _, ok := seen.lookup(st, k); !ok {
			seen.put(st, k, v)
		}
	}
	return &generator{seen.vals}, nil
}

func extreme(sign int) func(*state, []Value) (Value, error) {
	return func(st *state, a []Value) (Value, error) {
		items, err := st.elements(a[0])
		if err != nil {
			return nil, err
		}
		if len(items) == 0 {
			return &undefined{kind: UndefinedError, why: "no aggregated item, sequence was empty"}, nil
		}
		key, err := sortKey(st, a[2], flag(a[1]))
		if err != nil {
			return nil, err
		}
		best := items[0]
		bestKey, err := key(best)
		if err != nil {
			return nil, err
		}
		for _, v := range items[1:] {
			k, err := key(v)
			if err != nil {
				return nil, err
			}
			c, err := compare(st, k, bestKey)
			if err != nil {
				return nil, err
			}
			if c*sign > 0 {
				best, bestKey = v, k
			}
		}
		return best, nil
	}
}

func filterSum(st *state, a []Value) (Value, error) {
	items, err := st.elements(a[0])
	if err != nil {
		return nil, err
	}
	key, err := attributeGetter(st, a[1], nil)
	if err != nil {
		return nil, err
	}
	total := optional(a[2], 0)
	if _, ok := text(total); ok {
		return nil, fail(TypeError, "sum() can't sum strings")
	}
	for _, v := range items {
		if v, err = key(v); err != nil {
			return nil, err
		}
		if total, err = add(st, total, v); err != nil {
			return nil, err
		}
	}
	return total, nil
}

func filterBatch(st *state, a []Value) (Value, error) {
	items, err := st.elements(a[0])
	if err != nil {
		return nil, err
	}
	n, err := needInt(a[1], 0)
	if err != nil {
		return nil, err
	}
	if n <= 0 {
		return nil, fail(ValueError, "batch: the size must be positive")
	}
	var rows []Value
	for row := range slices.Chunk(items, n) {
		row = slices.Clone(row)
		if a[2] != nil && a[2] != None && len(row) < n {
			if err := st.spendTimes(16, n-len(row)); err != nil {
				return nil, err
			}
			row = append(row, slices.Repeat([]Value{a[2]}, n-len(row))...)
		}
		rows = append(rows, &List{row})
	}
	return &generator{rows}, st.spendItems(len(items))
}

func filterSlice(st *state, a []Value) (Value, error) {
	items, err := st.elements(a[0])
	if err != nil {
		return nil, err
	}
	n, err := needInt(a[1], 0)
	if err != nil {
		return nil, err
	}
	if n <= 0 {
		return nil, fail(ValueError, "slice: the number of slices must be positive")
	}
	if err := st.spendTimes(48, n); err != nil {
		return nil, err
	}
	size, extra := len(items)/n, len(items)%n
	rows := make([]Value, n)
	for i := range rows {
		take := size
		if i < extra {
			take++
		}
		row := slices.Clone(items[:take])
		items = items[take:]
		if a[2] != nil && a[2] != None && i >= extra {
			row = append(row, a[2])
		}
		rows[i] = &List{row}
	}
	return &generator{rows}, nil
}

func filterGroupBy(st *state, a []Value) (Value, error) {
	items, err := st.elements(a[0])
	if err != nil {
		return nil, err
	}
	plain, err := attributeGetter(st, a[1], noneAsNil(a[2]))
	if err != nil {
		return nil, err
	}
	key := func(v Value) (Value, error) {
		k, err := plain(v)
		if err != nil || flag(a[3]) {
			return k, err
		}
		return foldCase(k), nil
	}
	sorted, err := sortBy(st, items, key, false)
	if err != nil {
		return nil, err
	}
	var groups []Value
	var members *List
	var last Value
	for _, v := range sorted {
		k, err := key(v)
		if err != nil {
			return nil, err
		}
		if members == nil || !equal(st, k, last) {
			grouper, err := plain(v)
			if err != nil {
				return nil, err
			}
			members, last = NewList(), k
			groups = append(groups, &tuple{items: []Value{grouper, members}, fields: []string{"grouper", "list"}})
		}
		members.items = append(members.items, v)
	}
	return &List{groups}, st.spendItems(2 * len(items))
}

// some returns the elements of a sequence for filters that take anything empty
// for an empty one.
func some(st *state, v Value) ([]Value, error) {
	if !truth(v) {
		return nil, nil
	}
	return st.elements(v)
}

// filterMap reads an attribute of each item, or runs a filter over it.
func filterMap(st *state, a []Value) (Value, error) {
	items, err := some(st, a[0])
	if err != nil {
		return nil, err
	}
	pos, kw := a[1].(*tuple).items, a[2].(*Dict)
	var apply getter
	if len(pos) == 0 {
		attr, ok := kw.get("attribute")
		if !ok {
			return nil, fail(ValueError, "map requires a filter argument")
		}
		fallback, _ := kw.get("default")
		apply, err = attributeGetter(st, attr, fallback)
	} else {
		apply, err = applied(st, filters, "filter", pos, kw)
	}
	if err != nil {
		return nil, err
	}
	out := make([]Value, len(items))
	for i, v := range items {
		if err := st.step(); err != nil {
			return nil, err
		}
		if out[i], err = apply(v); err != nil {
			return nil, err
		}
	}
	return &generator{out}, st.spendItems(len(out))
}

// applied makes a function of the filter or test that the first argument
// names, which gets the other arguments.
func applied(st *state, table map[string]*builtin, what string, pos []Value, kw *Dict) (getter, error) {
	name, err := needText(pos[0])
	if err != nil {
		return nil, err
	}
	b, ok := table[name]
	if !ok {
		return nil, fail(SyntaxError, "no %s named '%s'", what, name)
	}
	// The arguments may lie on the stack that other calls will use.
	more := slices.Clone(pos[1:])
	return func(v Value) (Value, error) {
		call := args{pos: append([]Value{v}, more...), vals: kw.vals}
		for _, k := range kw.keys {
			s, _ := text(k)
			call.keys = append(call.keys, s)
		}
		return b.call(st, call)
	}, nil
}

// choose keeps the items that pass (or fail) a test, or whose attribute does.
func choose(keep, byAttribute bool) func(*state, []Value) (Value, error) {
	return func(st *state, a []Value) (Value, error) {
		items, err := some(st, a[0])
		if err != nil {
			return nil, err
		}
		pos, kw := a[1].(*tuple).items, a[2].(*Dict)
		var attr Value
		if byAttribute {
			if len(pos) == 0 {
				return nil, fail(ValueError, "missing parameter for attribute name")
			}
			attr, pos = pos[0], pos[1:]
		}
		get, err := attributeGetter(st, attr, nil)
		if err != nil {
			return nil, err
		}
		test := getter(func(v Value) (Value, error) { return v, nil })
		if len(pos) > 0 {
			if test, err = applied(st, tests, "test", pos, kw); err != nil {
				return nil, err
			}
		}
		var out []Value
		for _, v := range items {
			if err := st.step(); err != nil {
				return nil, err
			}
			tested, err := get(v)
			if err != nil {
				return nil, err
			}
			if tested, err = test(tested); err != nil {
				return nil, err
			}
			if truth(tested) == keep {
				out = append(out, v)
			}
		}
		return &generator{out}, st.spendItems(len(out))
	}
}
