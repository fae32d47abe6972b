package jinja

import "strings"

// arguments are the argument expressions of one call.
type arguments struct {
	pos            []expr
	keys           []string
	vals           []expr
	star, starstar expr
}

func (a *arguments) keyword(name string, value expr) {
	a.keys, a.vals = append(a.keys, name), append(a.vals, value)
}

// plain tells that there are positional arguments only.
func (a *arguments) plain() bool { return a.keys == nil && a.star == nil && a.starstar == nil }

func (a *arguments) eval(st *state, f *frame) (args, error) {
	var out args
	var err error
	if out.pos, err = evalAll(st, f, a.pos); err != nil {
		return out, err
	}
	if a.keys != nil {
		out.keys = a.keys[:len(a.keys):len(a.keys)]
		if out.vals, err = evalAll(st, f, a.vals); err != nil {
			return out, err
		}
	}
	if a.star != nil {
		v, err := a.star.eval(st, f)
		if err != nil {
			return out, err
		}
		items, err := st.elements(v)
		if err != nil {
			return out, err
		}
		if err := st.spendItems(len(items)); err != nil {
			return out, err
		}
		out.pos = append(out.pos, items...)
	}
	if a.starstar == nil {
		return out, nil
	}
	v, err := a.starstar.eval(st, f)
	if err != nil {
		return out, err
	}
	d, ok := v.(*Dict)
	if !ok {
		return out, fail(TypeError, "argument after ** must be a mapping, not %s", typeName(v))
	}
	if err := st.spendItems(2 * d.Len()); err != nil {
		return out, err
	}
	for i, k := range d.keys {
		name, ok := text(k)
		if !ok {
			return out, fail(TypeError, "keywords must be strings")
		}
		out.keys, out.vals = append(out.keys, name), append(out.vals, d.vals[i])
	}
	return out, nil
}

// builtin is a function written in Go: a filter, test, method or global.
type builtin struct {
	name     string
	params   []string
	required int
	rest     bool // the last but one value is a *tuple of further arguments
	keywords bool // the last value is a *Dict of further keyword arguments
	// run gets one value per parameter, nil where an optional argument is
	// absent. It must not keep the slice.
	run func(st *state, a []Value) (Value, error)
}

// fn declares a builtin. The signature reads "name a b c? *": c is optional,
// and "*" at the end takes any further arguments.
func fn(signature string, run func(st *state, a []Value) (Value, error)) *builtin {
	words := strings.Fields(signature)
	b := &builtin{name: words[0], run: run}
	for _, w := range words[1:] {
		if w == "*" {
			b.rest, b.keywords = true, true
			continue
		}
		name, optional := strings.CutSuffix(w, "?")
		b.params = append(b.params, name)
		if !optional {
			b.required++
		}
	}
	return b
}

func table(list ...*builtin) map[string]*builtin {
	m := make(map[string]*builtin, len(list))
	for _, b := range list {
		m[b.name] = b
	}
	return m
}

// bind puts arguments in the order of the parameters.
func (b *builtin) bind(st *state, a args) ([]Value, error) {
	out := make([]Value, len(b.params), len(b.params)+2)
	n := copy(out, a.pos)
	var rest []Value
	if n < len(a.pos) {
		if !b.rest {
			return nil, fail(TypeError, "%s() takes at most %d arguments but %d were given", b.name, len(b.params), len(a.pos))
		}
		rest = a.pos[n:]
	}
	more := NewDict(0)
	for i, key := range a.keys {
		p := b.param(key)
		switch {
		case p < 0 && b.keywords:
			more.put(st, key, a.vals[i])
		case p < 0:
			return nil, fail(TypeError, "%s() got an unexpected keyword argument '%s'", b.name, key)
		case out[p] != nil:
			return nil, fail(TypeError, "%s() got multiple values for argument '%s'", b.name, key)
		default:
			out[p] = a.vals[i]
		}
	}
	for i := range b.required {
		if out[i] == nil {
			return nil, fail(TypeError, "%s() missing required argument '%s'", b.name, b.params[i])
		}
	}
	if b.rest {
		out = append(out, &tuple{items: rest}, more)
	}
	return out, nil
}

func (b *builtin) param(name string) int {
	for i, p := range b.params {
		if p == name {
			return i
		}
	}
	return -1
}

func (b *builtin) call(st *state, a args) (Value, error) {
	bound, err := b.bind(st, a)
	if err != nil {
		return nil, err
	}
	return b.do(st, bound)
}

// do runs b. Nearly every builtin takes as long as its values are large, which is
// accounted for here; those that take longer account for the rest themselves.
func (b *builtin) do(st *state, values []Value) (Value, error) {
	n := 1
	for _, v := range values {
		n += weight(v)
	}
	if err := st.work(n); err != nil {
		return nil, err
	}
	v, err := b.run(st, values)
	if st.over != nil {
		return nil, st.over
	}
	return v, err
}

// weight is about how much there is to see in a value.
func weight(v Value) int {
	switch v := v.(type) {
	case string:
		return len(v)
	case markup:
		return len(v)
	case *List:
		return len(v.items)
	case *tuple:
		return len(v.items)
	case *generator:
		return len(v.items)
	case *Dict:
		return v.Len()
	}
	return 0
}

// invoke calls b with a first argument that is already evaluated, if any, and
// with argument expressions. The usual call, with few positional arguments,
// borrows its values from the state's stack.
func (b *builtin) invoke(st *state, f *frame, self Value, a *arguments) (Value, error) {
	n := len(a.pos)
	if self != nil {
		n++
	}
	if !a.plain() || b.rest || n > len(b.params) || n < b.required {
		bound, err := a.eval(st, f)
		if err != nil {
			return nil, err
		}
		if self != nil {
			bound.pos = append([]Value{self}, bound.pos...)
		}
		return b.call(st, bound)
	}
	mark := len(st.stack)
	defer func() { st.stack = st.stack[:mark] }()
	if self != nil {
		st.stack = append(st.stack, self)
	}
	for _, e := range a.pos {
		v, err := e.eval(st, f)
		if err != nil {
			return nil, err
		}
		st.stack = append(st.stack, v)
	}
	for range len(b.params) - n {
		st.stack = append(st.stack, nil)
	}
	return b.do(st, st.stack[mark:len(st.stack):len(st.stack)])
}

// bound is a method of a value.
type bound struct {
	self Value
	fn   *builtin
}

func (m *bound) call(st *state, a args) (Value, error) {
	a.pos = append([]Value{m.self}, a.pos...)
	return m.fn.call(st, a)
}

type (
	callExpr struct {
		callee expr
		args   arguments
		line   int
	}
	// methodExpr is a call of an attribute. It finds the methods of strings,
	// dicts and lists without making a bound one first.
	methodExpr struct {
		attr   *attrExpr
		method methods
		args   arguments
		line   int
	}
	// builtinExpr is a filter or test.
	builtinExpr struct {
		fn   *builtin
		args arguments
		line int
	}
)

func (e *builtinExpr) eval(st *state, f *frame) (Value, error) {
	v, err := e.fn.invoke(st, f, nil, &e.args)
	return v, at(err, e.line)
}

func (e *callExpr) eval(st *state, f *frame) (Value, error) {
	callee, err := e.callee.eval(st, f)
	if err != nil {
		return nil, err
	}
	v, err := invoke(st, f, callee, &e.args)
	return v, at(err, e.line)
}

func invoke(st *state, f *frame, callee Value, a *arguments) (Value, error) {
	if b, ok := callee.(*builtin); ok {
		return b.invoke(st, f, nil, a)
	}
	evaluated, err := a.eval(st, f)
	if err != nil {
		return nil, err
	}
	return callValue(st, callee, evaluated)
}

func callValue(st *state, callee Value, a args) (Value, error) {
	switch c := callee.(type) {
	case callable:
		if err := st.step(); err != nil {
			return nil, err
		}
		return c.call(st, a)
	case *undefined:
		return nil, c.error()
	}
	return nil, fail(TypeError, "'%s' object is not callable", typeName(callee))
}

func (e *methodExpr) eval(st *state, f *frame) (Value, error) {
	v, err := e.attr.object.eval(st, f)
	if err != nil {
		return nil, err
	}
	var m *builtin
	switch v.(type) {
	case string, markup:
		m = e.method.str
	case *Dict:
		m = e.method.dict
	case *List:
		m = e.method.list
	case *tuple:
		m = e.method.tuple
	}
	if m != nil {
		v, err := m.invoke(st, f, v, &e.args)
		return v, at(err, e.line)
	}
	callee, err := attribute(v, e.attr.name)
	if err != nil {
		return nil, at(err, e.line)
	}
	v, err = invoke(st, f, callee, &e.args)
	return v, at(err, e.line)
}
