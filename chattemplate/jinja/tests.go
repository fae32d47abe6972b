package jinja

import (
	"math/big"
	"unicode"
)

// tests are what may follow "is". The first value is what is tested.
var tests map[string]*builtin

func init() {
	comparison := func(op string) func(*state, []Value) (Value, error) {
		return func(st *state, a []Value) (Value, error) { return holds(st, op, a[0], a[1]) }
	}
	tests = table(
		fn("defined v", is(func(v Value) bool { _, ok := v.(*undefined); return !ok })),
		fn("undefined v", is(func(v Value) bool { _, ok := v.(*undefined); return ok })),
		fn("none v", is(func(v Value) bool { return v == None })),
		fn("boolean v", is(func(v Value) bool { _, ok := v.(bool); return ok })),
		fn("true v", is(func(v Value) bool { return v == true })),
		fn("false v", is(func(v Value) bool { return v == false })),
		fn("string v", is(func(v Value) bool { _, ok := text(v); return ok })),
		fn("mapping v", is(func(v Value) bool { _, ok := v.(*Dict); return ok })),
		fn("number v", is(isNumber)),
		fn("integer v", is(isInteger)),
		fn("float v", is(isFloat)),
		fn("sequence v", is(isSequence)),
		fn("iterable v", is(isIterable)),
		// An undefined value has a __call__ of its own, which fails.
		fn("callable v", is(func(v Value) bool {
			_, ok := v.(callable)
			_, undef := v.(*undefined)
			return ok || undef
		})),
		fn("escaped v", is(func(v Value) bool { _, ok := v.(markup); return ok })),
		fn("lower v", cased(unicode.IsLower, lower)),
		fn("upper v", cased(unicode.IsUpper, upper)),
		fn("odd v", remainder(2, 1)),
		fn("even v", remainder(2, 0)),
		fn("divisibleby v num", func(st *state, a []Value) (Value, error) { return divides(st, a[0], a[1]) }),
		// Identity as far as it can be told here.
		fn("sameas v other", func(_ *state, a []Value) (Value, error) { return a[0] == a[1], nil }),
		fn("in v container", func(st *state, a []Value) (Value, error) { return contains(st, a[1], a[0]) }),
		fn("filter v", func(_ *state, a []Value) (Value, error) { return named(filters, a[0]), nil }),
		fn("test v", func(_ *state, a []Value) (Value, error) { return named(tests, a[0]), nil }),
	)
	for op, names := range map[string][]string{
		"==": {"eq", "equalto", "=="},
		"!=": {"ne", "!="},
		"<":  {"lt", "lessthan", "<"},
		"<=": {"le", "<="},
		">":  {"gt", "greaterthan", ">"},
		">=": {"ge", ">="},
	} {
		for _, name := range names {
			tests[name] = fn(name+" v other", comparison(op))
		}
	}
}

func is(f func(Value) bool) func(*state, []Value) (Value, error) {
	return func(_ *state, a []Value) (Value, error) { return f(a[0]), nil }
}

func isInteger(v Value) bool {
	switch v.(type) {
	case int, *big.Int:
		return true
	}
	return false
}

func isFloat(v Value) bool {
	switch v.(type) {
	case float64, *decimal:
		return true
	}
	return false
}

// isSequence follows Jinja, where anything with a length and items by key
// counts as a sequence.
func isSequence(v Value) bool {
	switch v.(type) {
	case string, markup, *List, *tuple, *Dict, *span, *undefined:
		return true
	}
	return false
}

func isIterable(v Value) bool {
	switch v.(type) {
	case *view, *generator, *loop:
		return true
	}
	return isSequence(v)
}

func cased(is func(rune) bool, to func(string) string) func(*state, []Value) (Value, error) {
	return func(st *state, a []Value) (Value, error) {
		s, err := str(st, a[0])
		return hasCase(s) && to(s) == s, err
	}
}

func remainder(divisor, want int) func(*state, []Value) (Value, error) {
	return func(st *state, a []Value) (Value, error) {
		r, err := operate(st, "%", a[0], divisor)
		return err == nil && equal(st, r, want), err
	}
}

func divides(st *state, v, by Value) (Value, error) {
	if !isNumber(v) || !isNumber(by) {
		return nil, operandError("%", v, by)
	}
	r, err := arith("%", v, by)
	return err == nil && equal(st, r, 0), err
}

func named(table map[string]*builtin, name Value) bool {
	s, ok := text(name)
	_, known := table[s]
	return ok && known
}
