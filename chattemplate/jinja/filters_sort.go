package jinja

import (
	"slices"
	"strconv"
	"strings"
)

// getter reads what a filter's attribute argument names.
type getter func(Value) (Value, error)

// attributeGetter reads a dotted path of attributes, or the value itself. What
// is undefined becomes the fallback, unless that is nil.
func attributeGetter(st *state, attr, fallback Value) (getter, error) {
	if attr == nil || attr == None {
		return func(v Value) (Value, error) { return v, nil }, nil
	}
	path, err := attributePath(attr)
	if err != nil {
		return nil, err
	}
	return func(v Value) (Value, error) {
		for _, part := range path {
			var err error
			if v, err = item(st, v, part); err != nil {
				return nil, err
			}
			if _, undef := v.(*undefined); undef && fallback != nil {
				v = fallback
			}
		}
		return v, nil
	}, nil
}

func attributePath(attr Value) ([]Value, error) {
	if n, ok := small(attr); ok {
		return []Value{n}, nil
	}
	s, err := needText(attr)
	if err != nil {
		return nil, err
	}
	var path []Value
	for part := range strings.SplitSeq(s, ".") {
		if n, err := strconv.Atoi(part); err == nil && n >= 0 {
			path = append(path, n)
			continue
		}
		path = append(path, part)
	}
	return path, nil
}

func foldCase(v Value) Value {
	if s, ok := text(v); ok {
		return lower(s)
	}
	return v
}

// sortBy sorts items by their keys, stably, and in descending order too keeps
// equal ones in the order in which they came.
func sortBy(st *state, items []Value, key getter, reverse bool) ([]Value, error) {
	type keyed struct{ key, item Value }
	list := make([]keyed, len(items))
	for i, v := range items {
		k, err := key(v)
		if err != nil {
			return nil, err
		}
		list[i] = keyed{k, v}
	}
	var failed error
	slices.SortStableFunc(list, func(a, b keyed) int {
		c, err := compare(st, a.key, b.key)
		if err != nil && failed == nil {
			failed = err
		}
		if reverse {
			return -c
		}
		return c
	})
	sorted := make([]Value, len(list))
	for i, k := range list {
		sorted[i] = k.item
	}
	return sorted, failed
}

// sortKey makes the key of one attribute, or of several separated by commas.
func sortKey(st *state, attr Value, caseSensitive bool) (getter, error) {
	fold := foldCase
	if caseSensitive {
		fold = func(v Value) Value { return v }
	}
	if s, ok := text(optional(attr, None)); ok && strings.Contains(s, ",") {
		var keys []getter
		for part := range strings.SplitSeq(s, ",") {
			key, err := attributeGetter(st, part, nil)
			if err != nil {
				return nil, err
			}
			keys = append(keys, key)
		}
		return func(v Value) (Value, error) {
			list := NewList()
			for _, key := range keys {
				k, err := key(v)
				if err != nil {
					return nil, err
				}
				list.items = append(list.items, fold(k))
			}
			return list, nil
		}, nil
	}
	key, err := attributeGetter(st, attr, nil)
	return func(v Value) (Value, error) {
		k, err := key(v)
		if err != nil {
			return nil, err
		}
		return fold(k), nil
	}, err
}

func filterSort(st *state, a []Value) (Value, error) {
	items, err := st.elements(a[0])
	if err != nil {
		return nil, err
	}
	key, err := sortKey(st, a[3], flag(a[2]))
	if err != nil {
		return nil, err
	}
	sorted, err := sortBy(st, items, key, flag(a[1]))
	return &List{sorted}, spent(st, err, len(items))
}

func filterDictSort(st *state, a []Value) (Value, error) {
	d, ok := a[0].(*Dict)
	if !ok {
		return nil, fail(TypeError, "dictsort needs a mapping, not %s", typeName(a[0]))
	}
	part := 0
	switch by, _ := text(optional(a[2], "key")); by {
	case "key":
	case "value":
		part = 1
	default:
		return nil, fail(ValueError, `you can only sort by either "key" or "value"`)
	}
	key := func(v Value) (Value, error) {
		k := v.(*tuple).items[part]
		if flag(a[1]) {
			return k, nil
		}
		return foldCase(k), nil
	}
	sorted, err := sortBy(st, d.pairs(), key, flag(a[3]))
	return &List{sorted}, spent(st, err, d.Len())
}
