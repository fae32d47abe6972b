package jinja

import (
	"math/big"
	"strings"
)

// expr is a node of the compiled tree that yields a value.
type expr interface {
	eval(st *state, f *frame) (Value, error)
}

type (
	constExpr struct{ value Value }
	nameExpr  struct {
		name    string
		scope   *scope // until linked
		refs    []ref
		global  int
		missing *undefined
	}
	tupleExpr struct{ items []expr }
	listExpr  struct{ items []expr }
	dictExpr  struct{ keys, vals []expr }
	condExpr  struct{ then, test, otherwise expr }
	logicExpr struct {
		or          bool
		left, right expr
	}
	notExpr     struct{ operand expr }
	compareExpr struct {
		first expr
		links []comparison
	}
	comparison struct {
		op      string
		operand expr
	}
	// sumExpr is a chain of additions: prompts are mostly such chains of
	// strings, which are joined once, at the end.
	sumExpr struct {
		terms  []expr
		closed bool // it stood in parentheses, and must not be extended
		line   int
	}
	concatExpr struct {
		terms  []expr
		escape bool
	}
	arithExpr struct {
		op          string
		left, right expr
		line        int
	}
	signExpr struct {
		operand expr
		minus   bool
		line    int
	}
	attrExpr struct {
		object expr
		name   string
		line   int
	}
	itemExpr struct {
		object, key expr
		line        int
	}
	sliceExpr struct {
		object, start, stop, step expr
		line                      int
	}
	// holeExpr stands for the text that a block captured.
	holeExpr  struct{}
	macroExpr struct{ def *macroDef }
	failExpr  struct{ err error }
)

func (e constExpr) eval(*state, *frame) (Value, error) { return e.value, nil }

func (e *nameExpr) eval(st *state, f *frame) (Value, error) {
	if n := len(e.refs); n > 4 { // shadowed often, on purpose
		if err := st.work(n * n); err != nil {
			return nil, err
		}
	}
	for _, r := range e.refs {
		g := f
		for range r.hops {
			g = g.parent
		}
		if v := g.slots[r.slot]; v != nil {
			return v, nil
		}
	}
	if v := st.globals[e.global]; v != nil {
		return v, nil
	}
	return e.missing, nil
}

func evalAll(st *state, f *frame, exprs []expr) ([]Value, error) {
	if err := st.spendItems(len(exprs)); err != nil {
		return nil, err
	}
	values := make([]Value, len(exprs))
	for i, e := range exprs {
		v, err := e.eval(st, f)
		if err != nil {
			return nil, err
		}
		values[i] = v
	}
	return values, nil
}

func (e *tupleExpr) eval(st *state, f *frame) (Value, error) {
	items, err := evalAll(st, f, e.items)
	return &tuple{items: items}, err
}

func (e *listExpr) eval(st *state, f *frame) (Value, error) {
	items, err := evalAll(st, f, e.items)
	return &List{items}, err
}

func (e *dictExpr) eval(st *state, f *frame) (Value, error) {
	if err := st.spendItems(2 * len(e.keys)); err != nil {
		return nil, err
	}
	d := NewDict(len(e.keys))
	for i := range e.keys {
		k, err := e.keys[i].eval(st, f)
		if err != nil {
			return nil, err
		}
		v, err := e.vals[i].eval(st, f)
		if err != nil {
			return nil, err
		}
		if err := hashable(st, k); err != nil {
			return nil, err
		}
		d.put(st, k, v)
	}
	return d, nil
}

func hashable(st *state, v Value) error { return hashableAt(st, v, 0) }

func hashableAt(st *state, v Value, depth int) error {
	switch v := v.(type) {
	case *List, *Dict:
		return fail(TypeError, "unhashable type: '%s'", typeName(v))
	case *tuple:
		if depth > maxNesting {
			return fail(LimitError, "tuple nested too deep for a key")
		}
		for _, item := range v.items {
			if err := st.work(1); err != nil {
				return err
			}
			if err := hashableAt(st, item, depth+1); err != nil {
				return err
			}
		}
	}
	return nil
}

var noElse = &undefined{kind: UndefinedError, why: "the inline if-expression evaluated to false and no else section was defined"}

func (e *condExpr) eval(st *state, f *frame) (Value, error) {
	ok, err := evalTruth(st, f, e.test)
	if err != nil {
		return nil, err
	}
	if ok {
		return e.then.eval(st, f)
	}
	if e.otherwise != nil {
		return e.otherwise.eval(st, f)
	}
	return noElse, nil
}

func evalTruth(st *state, f *frame, e expr) (bool, error) {
	v, err := e.eval(st, f)
	if err != nil {
		return false, err
	}
	return truth(v), nil
}

func (e *logicExpr) eval(st *state, f *frame) (Value, error) {
	v, err := e.left.eval(st, f)
	if err != nil || truth(v) == e.or {
		return v, err
	}
	return e.right.eval(st, f)
}

func (e *notExpr) eval(st *state, f *frame) (Value, error) {
	ok, err := evalTruth(st, f, e.operand)
	return !ok, err
}

func (e *compareExpr) eval(st *state, f *frame) (Value, error) {
	left, err := e.first.eval(st, f)
	if err != nil {
		return nil, err
	}
	if err := st.work(len(e.links)); err != nil {
		return nil, err
	}
	for _, link := range e.links {
		right, err := link.operand.eval(st, f)
		if err != nil {
			return nil, err
		}
		ok, err := holds(st, link.op, left, right)
		if err != nil || !ok {
			return false, err
		}
		left = right
	}
	return true, nil
}

func holds(st *state, op string, a, b Value) (bool, error) {
	switch op {
	case "==":
		return equal(st, a, b), nil
	case "!=":
		return !equal(st, a, b), nil
	case "in":
		return contains(st, b, a)
	case "not in":
		ok, err := contains(st, b, a)
		return !ok && err == nil, err
	}
	c, err := compareAt(st, a, b, op, 0)
	if err != nil {
		return false, err
	}
	if c == 2 && isNumber(a) { // NaN
		return false, nil
	}
	switch op {
	case "<":
		return c < 0, nil
	case "<=":
		return c <= 0, nil
	case ">":
		return c > 0, nil
	default:
		return c >= 0, nil
	}
}

// partial is the state of a sum: strings that wait to be joined, or a value.
type partial struct {
	parts []string
	value Value
}

func (p *partial) settle(st *state) (Value, error) {
	if p.parts != nil {
		return boxed(st.concat(p.parts...))
	}
	return p.value, nil
}

func (e *sumExpr) eval(st *state, f *frame) (Value, error) {
	p, err := e.collect(st, f)
	if err != nil {
		return nil, err
	}
	v, err := p.settle(st)
	return v, at(err, e.line)
}

func joined(parts []string) int {
	n := 0
	for _, s := range parts {
		n += len(s)
	}
	return n
}

func (e *sumExpr) collect(st *state, f *frame) (partial, error) {
	var p partial
	for i, term := range e.terms {
		v, err := term.eval(st, f)
		if err != nil {
			return p, err
		}
		s, isString := v.(string)
		switch {
		case isString && (i == 0 || p.parts != nil):
			if p.parts == nil {
				p.parts = make([]string, 0, len(e.terms))
			}
			p.parts = append(p.parts, s)
		case i == 0:
			p.value = v
		default:
			sum, err := p.settle(st)
			if err == nil {
				sum, err = add(st, sum, v)
			}
			if err != nil {
				return p, at(err, e.line)
			}
			p = partial{value: sum}
			if s, ok := sum.(string); ok {
				p = partial{parts: append(make([]string, 0, len(e.terms)), s)}
			}
		}
	}
	return p, nil
}

// add is Python's +.
func add(st *state, a, b Value) (Value, error) {
	if isNumber(a) && isNumber(b) {
		return numbers(st, "+", a, b)
	}
	switch x := a.(type) {
	case *undefined:
		return nil, x.error()
	case string:
		switch y := b.(type) {
		case string:
			return boxed(st.concat(x, y))
		case markup:
			m, _ := escape(st, x)
			return m + y, st.spend(len(m) + len(y))
		case *undefined:
			return nil, y.error()
		}
		return nil, fail(TypeError, "can only concatenate str (not \"%s\") to str", typeName(b))
	case markup:
		if _, ok := text(b); ok {
			m, _ := escape(st, b)
			return x + m, st.spend(len(x) + len(m))
		}
	case *List:
		if y, ok := b.(*List); ok {
			return &List{join(x.items, y.items)}, st.spendItems(len(x.items) + len(y.items))
		}
	case *tuple:
		if y, ok := b.(*tuple); ok {
			return &tuple{items: join(x.items, y.items)}, st.spendItems(len(x.items) + len(y.items))
		}
	}
	return nil, operandError("+", a, b)
}

// numbers computes a op b. Large integers take time and room.
func numbers(st *state, op string, a, b Value) (Value, error) {
	v, err := arith(op, a, b)
	if n, ok := v.(*big.Int); ok {
		err = st.spend(n.BitLen() / 8)
	}
	return v, err
}

func join(a, b []Value) []Value {
	return append(append(make([]Value, 0, len(a)+len(b)), a...), b...)
}

func operandError(op string, a, b Value) error {
	for _, v := range []Value{a, b} {
		if u, ok := v.(*undefined); ok {
			return u.error()
		}
	}
	return fail(TypeError, "unsupported operand type(s) for %s: '%s' and '%s'", op, typeName(a), typeName(b))
}

// write prints the terms one by one.
func (e *concatExpr) write(st *state, f *frame, terms []expr) error {
	for _, term := range terms {
		v, err := term.eval(st, f)
		if err != nil {
			return err
		}
		if err := st.write(v, e.escape); err != nil {
			return err
		}
	}
	return nil
}

func (e *concatExpr) eval(st *state, f *frame) (Value, error) {
	mark := len(st.out)
	first, err := e.terms[0].eval(st, f)
	if err != nil {
		return nil, err
	}
	head, _ := first.(string)
	if len(head) < long || e.escape {
		head = ""
		if err := st.write(first, e.escape); err != nil {
			return nil, err
		}
	}
	if err := e.write(st, f, e.terms[1:]); err != nil {
		return nil, err
	}
	s := st.cut(mark)
	switch {
	case head != "":
		return boxed(st.concat(head, s))
	case e.escape:
		return markup(s), st.spend(len(s))
	}
	return s, st.spend(len(s))
}

func (e *arithExpr) eval(st *state, f *frame) (Value, error) {
	a, err := e.left.eval(st, f)
	if err != nil {
		return nil, err
	}
	b, err := e.right.eval(st, f)
	if err != nil {
		return nil, err
	}
	v, err := operate(st, e.op, a, b)
	return v, at(err, e.line)
}

func operate(st *state, op string, a, b Value) (Value, error) {
	if err := st.work(1); err != nil {
		return nil, err
	}
	if isNumber(a) && isNumber(b) {
		return numbers(st, op, a, b)
	}
	switch op {
	case "%":
		if s, ok := text(a); ok {
			return percent(st, a, s, b)
		}
	case "*":
		if n, ok := small(a); ok {
			return repeat(st, b, n, a)
		}
		if n, ok := small(b); ok {
			return repeat(st, a, n, b)
		}
	}
	return nil, operandError(op, a, b)
}

func repeat(st *state, v Value, n int, count Value) (Value, error) {
	n = max(n, 0)
	switch v := v.(type) {
	case string, markup:
		s, _ := text(v)
		if err := st.spendTimes(len(s), n); err != nil {
			return nil, err
		}
		return likeText(v, strings.Repeat(s, n)), nil
	case *List:
		items, err := repeatItems(st, v.items, n)
		return &List{items}, err
	case *tuple:
		items, err := repeatItems(st, v.items, n)
		return &tuple{items: items}, err
	}
	return nil, operandError("*", v, count)
}

func repeatItems(st *state, items []Value, n int) ([]Value, error) {
	if err := st.spendTimes(16*len(items), n); err != nil {
		return nil, err
	}
	out := make([]Value, 0, n*len(items))
	for range n {
		if len(items) == 0 {
			break
		}
		out = append(out, items...)
	}
	return out, nil
}

// likeText returns s as the kind of text that like is.
func likeText(like Value, s string) Value {
	if _, ok := like.(markup); ok {
		return markup(s)
	}
	return s
}

func (e *signExpr) eval(st *state, f *frame) (Value, error) {
	v, err := e.operand.eval(st, f)
	if err != nil {
		return nil, err
	}
	if u, ok := v.(*undefined); ok {
		return nil, at(u.error(), e.line)
	}
	if !isNumber(v) {
		return nil, at(fail(TypeError, "bad operand type for unary sign: '%s'", typeName(v)), e.line)
	}
	if e.minus {
		return negate(v), nil
	}
	return arith("+", 0, v)
}

func (e *attrExpr) eval(st *state, f *frame) (Value, error) {
	v, err := e.object.eval(st, f)
	if err != nil {
		return nil, err
	}
	v, err = attribute(v, e.name)
	return v, at(err, e.line)
}

func (e *itemExpr) eval(st *state, f *frame) (Value, error) {
	v, err := e.object.eval(st, f)
	if err != nil {
		return nil, err
	}
	key, err := e.key.eval(st, f)
	if err != nil {
		return nil, err
	}
	v, err = item(st, v, key)
	return v, at(err, e.line)
}

func (e *sliceExpr) eval(st *state, f *frame) (Value, error) {
	if e.object == nil {
		return nil, fail(TypeError, "a slice cannot be part of a tuple")
	}
	v, err := e.object.eval(st, f)
	if err != nil {
		return nil, err
	}
	var bounds [3]Value
	for i, b := range []expr{e.start, e.stop, e.step} {
		bounds[i] = None
		if b == nil {
			continue
		}
		if bounds[i], err = b.eval(st, f); err != nil {
			return nil, err
		}
	}
	v, err = sliceOf(st, v, bounds)
	return v, at(err, e.line)
}

func (holeExpr) eval(st *state, _ *frame) (Value, error) { return st.captured, nil }

func (e *macroExpr) eval(_ *state, f *frame) (Value, error) { return &macro{e.def, f}, nil }

func (e *failExpr) eval(*state, *frame) (Value, error) { return nil, e.err }
