package jinja

import (
	"math/big"
	"slices"
	"strings"
	"unicode/utf8"
)

// methods are the methods of one name on the types that have some.
type methods struct{ str, dict, list, tuple *builtin }

func methodsNamed(name string) methods {
	return methods{strMethods[name], dictMethods[name], listMethods[name], tupleMethods[name]}
}

// Methods that change their object, which the sandbox forbids.
var (
	listMutators = set("append clear extend insert pop remove reverse sort")
	dictMutators = set("clear pop popitem setdefault update")
)

func set(words string) map[string]bool {
	m := map[string]bool{}
	for _, w := range strings.Fields(words) {
		m[w] = true
	}
	return m
}

// attribute is v.name: an attribute or method if there is one, else the item.
func attribute(v Value, name string) (Value, error) {
	if a, err := ownAttribute(v, name); a != nil || err != nil {
		return a, err
	}
	if d, ok := v.(*Dict); ok {
		if item, ok := d.get(name); ok {
			return item, nil
		}
	}
	return &undefined{name: name, object: v, kind: UndefinedError}, nil
}

// ownAttribute returns nil if v has no such attribute.
func ownAttribute(v Value, name string) (Value, error) {
	var m *builtin
	var forbidden map[string]bool
	switch v := v.(type) {
	case *undefined:
		return nil, v.error()
	case *Dict:
		m, forbidden = dictMethods[name], dictMutators
	case string, markup:
		m = strMethods[name]
	case *List:
		m, forbidden = listMethods[name], listMutators
	case *tuple:
		if i := slices.Index(v.fields, name); i >= 0 {
			return v.items[i], nil
		}
		m = tupleMethods[name]
	case *namespace:
		if a, ok := v.attrs.get(name); ok {
			return a, nil
		}
	case *loop:
		return v.attribute(name)
	case *cycler:
		return v.attribute(name), nil
	case *macro:
		if name == "name" {
			return v.def.name, nil
		}
	}
	if m != nil {
		return &bound{v, m}, nil
	}
	if forbidden[name] || strings.HasPrefix(name, "__") && strings.HasSuffix(name, "__") {
		return &undefined{
			name: name, object: v, kind: SecurityError,
			why: "access to attribute '" + name + "' of '" + typeName(v) + "' object is unsafe",
		}, nil
	}
	return nil, nil
}

// item is v[key]: an item if there is one, else the attribute.
func item(st *state, v, key Value) (Value, error) {
	switch c := v.(type) {
	case *undefined:
		return nil, c.error()
	case *Dict:
		if item, ok := c.lookup(st, key); ok {
			return item, nil
		}
	case *List:
		if item := index(c.items, key); item != nil {
			return item, nil
		}
	case *tuple:
		if item := index(c.items, key); item != nil {
			return item, nil
		}
	case string, markup:
		s, _ := text(c)
		if n, ok := small(key); ok {
			if err := st.work(min(max(n, -n), len(s))); err != nil {
				return nil, err
			}
			if r, ok := character(s, n); ok {
				return likeText(v, r), nil
			}
		}
	case *span:
		if n, ok := small(key); ok {
			if n < 0 {
				n += c.len()
			}
			if n >= 0 && n < c.len() {
				return c.start + n*c.step, nil
			}
		}
	}
	name, err := str(st, key)
	if err != nil {
		return nil, err
	}
	if _, ok := text(key); !ok {
		err = st.spend(len(name))
	} else if a, err := ownAttribute(v, name); a != nil || err != nil {
		return a, err
	}
	if err != nil {
		return nil, err
	}
	return &undefined{name: name, object: v, kind: UndefinedError}, nil
}

func index(items []Value, key Value) Value {
	n, ok := small(key)
	if !ok {
		return nil
	}
	if n < 0 {
		n += len(items)
	}
	if n < 0 || n >= len(items) {
		return nil
	}
	return items[n]
}

// character returns the n-th code point of s, counted from the end if n is
// negative.
func character(s string, n int) (string, bool) {
	if n < 0 {
		for n < -1 && s != "" {
			_, size := utf8.DecodeLastRuneInString(s)
			s = s[:len(s)-size]
			n++
		}
		_, size := utf8.DecodeLastRuneInString(s)
		return s[len(s)-size:], s != ""
	}
	for n > 0 && s != "" {
		_, size := utf8.DecodeRuneInString(s)
		s = s[size:]
		n--
	}
	_, size := utf8.DecodeRuneInString(s)
	return s[:size], s != ""
}

// sliceOf is v[start:stop:step].
func sliceOf(st *state, v Value, bounds [3]Value) (Value, error) {
	switch c := v.(type) {
	case *undefined:
		return nil, c.error()
	case *List:
		items, err := cut(st, c.items, bounds)
		return &List{items}, err
	case *tuple:
		items, err := cut(st, c.items, bounds)
		return &tuple{items: items}, err
	case string, markup:
		s, _ := text(c)
		part, err := sliceString(st, s, bounds)
		return likeText(v, part), err
	case *span:
		lo, hi, step, err := limits(c.len(), bounds)
		return &span{c.start + lo*c.step, c.start + hi*c.step, c.step * step}, err
	}
	return nil, fail(TypeError, "'%s' object cannot be sliced", typeName(v))
}

func sliceString(st *state, s string, bounds [3]Value) (string, error) {
	if err := st.work(len(s)); err != nil {
		return "", err
	}
	if isASCII(s) {
		lo, hi, step, err := limits(len(s), bounds)
		if err != nil {
			return "", err
		}
		if step == 1 {
			return s[lo:max(lo, hi)], nil
		}
	}
	if err := st.spend(len(s)); err != nil {
		return "", err
	}
	runes, err := cut(st, []rune(s), bounds)
	return string(runes), err
}

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

func cut[T any](st *state, items []T, bounds [3]Value) ([]T, error) {
	lo, hi, step, err := limits(len(items), bounds)
	if err != nil {
		return nil, err
	}
	if step == 1 {
		return items[lo:max(lo, hi):max(lo, hi)], nil
	}
	if err := st.spendItems(len(items)); err != nil {
		return nil, err
	}
	var out []T
	for i := lo; step > 0 && i < hi || step < 0 && i > hi; i += step {
		out = append(out, items[i])
	}
	return out, nil
}

// limits turns the bounds of a slice into indices, as Python does.
func limits(n int, bounds [3]Value) (lo, hi, step int, err error) {
	var given [3]int
	for i, b := range bounds {
		switch b := b.(type) {
		case none:
		case int:
			given[i] = min(max(b, -1<<40), 1<<40) // no slice reaches so far
		case bool:
			given[i], _ = small(b)
		case *big.Int:
			given[i] = b.Sign() << 40
		default:
			return 0, 0, 0, fail(TypeError, "slice indices must be integers or None")
		}
	}
	step = 1
	if bounds[2] != None {
		step = given[2]
	}
	if step == 0 {
		return 0, 0, 0, fail(ValueError, "slice step cannot be zero")
	}
	first, last := 0, n // what an index may be
	lo, hi = 0, n
	if step < 0 {
		first, last = -1, n-1
		lo, hi = n-1, -1
	}
	clamp := func(i int) int {
		if i < 0 {
			i += n
		}
		return min(max(i, first), last)
	}
	if bounds[0] != None {
		lo = clamp(given[0])
	}
	if bounds[1] != None {
		hi = clamp(given[1])
	}
	return lo, hi, step, nil
}
