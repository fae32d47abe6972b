package jinja

import (
	"iter"
	"math/big"
	"reflect"
	"slices"
	"strings"
)

// Value is anything that a template can hold: [None], bool, int, *[big.Int],
// float64, string, *[List], *[Dict], or one of this package's own kinds of text,
// numbers, callables and iterables. Values never change once a
// template sees them, except for namespaces, which live within one render.
type Value any

type none struct{}

// None is Python's None. A nil Value counts as None where it comes in.
var None Value = none{}

// markup is text that autoescape and the escape filter leave alone.
type markup string

// List is a Python list.
type List struct{ items []Value }

// NewList returns a list of items, which it takes over.
func NewList(items ...Value) *List { return &List{items} }

// All goes through the items in order.
func (l *List) All() iter.Seq[Value] { return slices.Values(l.items) }

// tuple is a Python tuple.
type tuple struct {
	items []Value
	// fields name the items, if it is one of those that groupby returns.
	fields []string
}

func newTuple(items ...Value) *tuple { return &tuple{items: items} }

// decimal is a JSON number that float64 cannot hold: it computes as the
// nearest float and prints as it was spelled.
type decimal struct {
	Text  string
	Float float64
}

// undefined is the value of a name, attribute or item that is not there.
type undefined struct {
	name   string
	object Value // what name was looked up in; nil for a variable
	kind   Kind  // of the error on use
	why    string
}

func (u *undefined) error() error {
	switch {
	case u.why != "":
		return fail(u.kind, "%s", u.why)
	case u.object == nil:
		return fail(UndefinedError, "'%s' is undefined", u.name)
	case u.object == None:
		return fail(UndefinedError, "'None' has no attribute '%s'", u.name)
	default:
		return fail(UndefinedError, "'%s object' has no attribute '%s'", typeName(u.object), u.name)
	}
}

// span is what range() returns.
type span struct{ start, stop, step int }

func (r *span) len() int {
	switch {
	case r.step > 0 && r.start < r.stop:
		return (r.stop-r.start-1)/r.step + 1
	case r.step < 0 && r.start > r.stop:
		return (r.start-r.stop-1)/-r.step + 1
	default:
		return 0
	}
}

// view is what a dict's keys, values and items methods return.
type view struct {
	dict *Dict
	part string // keys, values or items
}

// generator is a sequence that can be read once and has no length, as filters
// such as map and select return it.
type generator struct {
	items []Value
}

// namespace is the only value that a template can change.
type namespace struct{ attrs *Dict }

// callable is a value that can be called.
type callable interface {
	call(st *state, a args) (Value, error)
}

// args are the arguments of one call.
type args struct {
	pos  []Value
	keys []string // of the keyword arguments
	vals []Value
}

func typeName(v Value) string {
	switch v := v.(type) {
	case none:
		return "NoneType"
	case bool:
		return "bool"
	case int, *big.Int:
		return "int"
	case float64, *decimal:
		return "float"
	case string:
		return "str"
	case markup:
		return "Markup"
	case *List:
		return "list"
	case *tuple:
		return "tuple"
	case *Dict:
		return "dict"
	case *span:
		return "range"
	case *view:
		return "dict_" + v.part
	case *generator:
		return "generator"
	case *namespace:
		return "Namespace"
	case *undefined:
		return "Undefined"
	case *loop:
		return "LoopContext"
	case *macro:
		return "Macro"
	case callable:
		return "function"
	}
	return strings.TrimPrefix(reflect.TypeOf(v).String(), "*")
}

// text returns the string that v is, if it is one.
func text(v Value) (string, bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case markup:
		return string(v), true
	}
	return "", false
}

func truth(v Value) bool {
	switch v := v.(type) {
	case bool:
		return v
	case none, *undefined:
		return false
	case string:
		return v != ""
	case markup:
		return v != ""
	case int:
		return v != 0
	case float64:
		return v != 0
	case *decimal:
		return v.Float != 0
	case *big.Int:
		return v.Sign() != 0
	case *List:
		return len(v.items) != 0
	case *tuple:
		return len(v.items) != 0
	case *Dict:
		return v.Len() != 0
	case *view:
		return v.dict.Len() != 0
	case *span:
		return v.len() != 0
	}
	return true
}

// elements returns what a for loop over v sees. The caller must not write to
// the slice.
func (st *state) elements(v Value) ([]Value, error) {
	switch v := v.(type) {
	case *List:
		return v.items, st.work(len(v.items))
	case *tuple:
		return v.items, st.work(len(v.items))
	case *Dict:
		return v.keys, st.work(v.Len())
	case *view:
		if v.part == "items" {
			if err := st.spendItems(3 * v.dict.Len()); err != nil {
				return nil, err
			}
		}
		return v.elements(), st.work(v.dict.Len())
	case *undefined:
		if v.kind == SecurityError {
			return nil, v.error()
		}
		return nil, nil
	case *generator:
		items := v.items
		v.items = nil
		return items, st.work(len(items))
	case *span:
		if err := st.spendItems(v.len()); err != nil {
			return nil, err
		}
		items := make([]Value, 0, v.len())
		for i, n := v.start, v.len(); n > 0; i, n = i+v.step, n-1 {
			items = append(items, i)
		}
		return items, nil
	case string:
		return st.characters(v)
	case markup:
		return st.characters(string(v))
	case *loop:
		return v.rest()
	}
	return nil, fail(TypeError, "'%s' object is not iterable", typeName(v))
}

func (st *state) characters(s string) ([]Value, error) {
	n := runeCount(s)
	if err := st.spendItems(2 * n); err != nil {
		return nil, err
	}
	items := make([]Value, 0, n)
	for i, r := range s {
		if r < 0x80 {
			items = append(items, s[i:i+1])
			continue
		}
		items = append(items, string(r))
	}
	return items, nil
}

// size is Python's len, except that None counts as empty: clients send null
// for an absent content, and templates ask for its length.
func size(st *state, v Value) (int, error) {
	switch v := v.(type) {
	case string:
		return runeCount(v), nil
	case markup:
		return runeCount(string(v)), nil
	case *List:
		return len(v.items), nil
	case *tuple:
		return len(v.items), nil
	case *Dict:
		return v.Len(), nil
	case *view:
		return v.dict.Len(), nil
	case *span:
		return v.len(), nil
	case none:
		return 0, nil
	case *undefined:
		if v.kind == SecurityError {
			return 0, v.error()
		}
		return 0, nil
	case *loop:
		return v.length()
	}
	return 0, fail(TypeError, "object of type '%s' has no len()", typeName(v))
}

// maxNesting bounds how deep nested values are followed when they are printed
// or compared; Python gives up at about the same depth.
const maxNesting = 900

func equal(st *state, a, b Value) bool { return equalAt(st, a, b, 0) }

// equalAt is false when the time is up. Like Python it does not look into what is
// compared with itself.
func equalAt(st *state, a, b Value, depth int) bool {
	if x, ok := a.(string); ok {
		if y, ok := b.(string); ok {
			return len(x) == len(y) && st.work(1+len(x)) == nil && x == y
		}
	}
	if depth > maxNesting || st.work(1) != nil {
		return false
	}
	if x, ok := text(a); ok {
		y, ok := text(b)
		return ok && len(x) == len(y) && st.work(len(x)) == nil && x == y
	}
	if isNumber(a) {
		return isNumber(b) && compareNumbers(a, b) == 0
	}
	switch x := a.(type) {
	case none:
		_, ok := b.(none)
		return ok
	case *undefined:
		_, ok := b.(*undefined)
		return ok
	case *List:
		y, ok := b.(*List)
		return ok && (x == y || equalItems(st, x.items, y.items, depth))
	case *tuple:
		y, ok := b.(*tuple)
		return ok && (x == y || equalItems(st, x.items, y.items, depth))
	case *Dict:
		y, ok := b.(*Dict)
		return ok && (x == y || x.equal(st, y, depth))
	case *view:
		y, ok := b.(*view)
		return ok && x.part == y.part && x.part != "values" && x.dict.equal(st, y.dict, depth)
	case *span:
		y, ok := b.(*span)
		return ok && *x == *y
	}
	return a == b
}

func equalItems(st *state, a, b []Value, depth int) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if !equalAt(st, a[i], b[i], depth+1) {
			return false
		}
	}
	return true
}

// compare orders two values as Python's < and > do.
func compare(st *state, a, b Value) (int, error) { return compareAt(st, a, b, "<", 0) }

func compareAt(st *state, a, b Value, op string, depth int) (int, error) {
	if err := st.work(1); err != nil {
		return 0, err
	}
	if x, ok := text(a); ok {
		if y, ok := text(b); ok {
			return strings.Compare(x, y), st.work(min(len(x), len(y)))
		}
	}
	if isNumber(a) && isNumber(b) {
		return compareNumbers(a, b), nil
	}
	for _, v := range []Value{a, b} {
		if u, ok := v.(*undefined); ok {
			return 0, u.error()
		}
	}
	x, y, ok := sequences(a, b)
	if !ok || depth > maxNesting {
		return 0, fail(TypeError, "'%s' not supported between instances of '%s' and '%s'", op, typeName(a), typeName(b))
	}
	for i := 0; i < len(x) && i < len(y); i++ {
		if !equalAt(st, x[i], y[i], depth+1) {
			return compareAt(st, x[i], y[i], op, depth+1)
		}
	}
	return len(x) - len(y), nil
}

func sequences(a, b Value) (x, y []Value, ok bool) {
	switch a := a.(type) {
	case *List:
		if b, ok := b.(*List); ok {
			return a.items, b.items, true
		}
	case *tuple:
		if b, ok := b.(*tuple); ok {
			return a.items, b.items, true
		}
	}
	return nil, nil, false
}

// contains is Python's "item in container".
func contains(st *state, container, item Value) (bool, error) {
	switch c := container.(type) {
	case string, markup:
		haystack, _ := text(c)
		needle, ok := text(item)
		if u, undef := item.(*undefined); undef {
			return false, u.error()
		}
		if !ok {
			return false, fail(TypeError, "'in <string>' requires string as left operand, not %s", typeName(item))
		}
		return strings.Contains(haystack, needle), st.work(len(haystack) + len(needle))
	case *Dict:
		if err := hashable(st, item); err != nil {
			return false, err
		}
		_, ok := c.lookup(st, item)
		return ok, nil
	case *span:
		if !isNumber(item) {
			return false, nil
		}
	}
	items, err := st.elements(container)
	if e, ok := err.(*Error); ok && e.Kind == LimitError {
		return false, err
	}
	if err != nil {
		return false, fail(TypeError, "argument of type '%s' is not iterable", typeName(container))
	}
	for _, v := range items {
		if equal(st, v, item) {
			return true, nil
		}
	}
	return false, nil
}
