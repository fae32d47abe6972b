package jinja

import "errors"

// stmt is a node of the compiled tree that writes output or sets variables.
type stmt interface {
	exec(st *state, f *frame) error
}

type (
	textStmt  struct{ text string }
	printStmt struct {
		value  expr
		escape bool
		line   int
	}
	ifStmt struct {
		branches  []branch
		otherwise []stmt
	}
	branch struct {
		test expr
		body []stmt
		line int
	}
	setStmt struct {
		target target
		value  expr
		line   int
	}
	// captureStmt runs its body and sets or prints what that wrote, filtered.
	captureStmt struct {
		target   target // nil prints
		filtered expr
		body     []stmt
		escape   bool
		line     int
	}
	withStmt struct {
		targets []target
		values  []expr
		body    []stmt
		line    int
	}
	groupStmt struct{ body []stmt }
	macroStmt struct {
		def  *macroDef
		slot int
	}
	jumpStmt struct{ jump error }
	// failStmt stands for tags that would load another template.
	failStmt struct {
		tag  string
		line int
	}
)

// A loop's body ends early with one of these, which only the loop sees.
var (
	errBreak    = errors.New("break")
	errContinue = errors.New("continue")
)

func execAll(st *state, f *frame, body []stmt) error {
	if err := st.work(len(body)); err != nil {
		return err
	}
	for _, s := range body {
		if err := s.exec(st, f); err != nil {
			return err
		}
	}
	return nil
}

func (s *textStmt) exec(st *state, _ *frame) error { return st.writeString(s.text) }

func (s *printStmt) exec(st *state, f *frame) error {
	return at(s.print(st, f), s.line)
}

// print writes the terms of a concatenation without joining them first.
func (s *printStmt) print(st *state, f *frame) error {
	switch e := s.value.(type) {
	case *concatExpr:
		return e.write(st, f, e.terms)
	case *sumExpr:
		if s.escape {
			break
		}
		p, err := e.collect(st, f)
		if err != nil {
			return err
		}
		if p.parts == nil {
			return st.write(p.value, false)
		}
		for _, part := range p.parts {
			if err := st.writeString(part); err != nil {
				return err
			}
		}
		return nil
	}
	v, err := s.value.eval(st, f)
	if err != nil {
		return err
	}
	return st.write(v, s.escape)
}

func (s *ifStmt) exec(st *state, f *frame) error {
	for i := range s.branches {
		b := &s.branches[i]
		ok, err := evalTruth(st, f, b.test)
		if err != nil {
			return at(err, b.line)
		}
		if ok {
			return execAll(st, f, b.body)
		}
	}
	return execAll(st, f, s.otherwise)
}

func (s *setStmt) exec(st *state, f *frame) error {
	v, err := s.value.eval(st, f)
	if err != nil {
		return at(err, s.line)
	}
	return at(s.target.assign(st, f, v), s.line)
}

func (s *captureStmt) exec(st *state, f *frame) error {
	mark := len(st.out)
	if err := execAll(st, f, s.body); err != nil {
		return err
	}
	out := st.cut(mark)
	if err := st.spend(len(out)); err != nil {
		return at(err, s.line)
	}
	st.captured = out
	if s.escape {
		st.captured = markup(out)
	}
	v, err := s.filtered.eval(st, f)
	if err != nil {
		return at(err, s.line)
	}
	if s.target == nil {
		return at(st.write(v, s.escape), s.line)
	}
	return at(s.target.assign(st, f, v), s.line)
}

func (s *withStmt) exec(st *state, f *frame) error {
	values, err := evalAll(st, f, s.values)
	if err != nil {
		return at(err, s.line)
	}
	for i, t := range s.targets {
		if err := t.assign(st, f, values[i]); err != nil {
			return at(err, s.line)
		}
	}
	return execAll(st, f, s.body)
}

func (s *groupStmt) exec(st *state, f *frame) error { return execAll(st, f, s.body) }

func (s *macroStmt) exec(_ *state, f *frame) error {
	f.slots[s.slot] = &macro{s.def, f}
	return nil
}

func (s jumpStmt) exec(*state, *frame) error { return s.jump }

func (s *failStmt) exec(*state, *frame) error {
	return at(fail(TypeError, "'%s' needs another template, and there is none", s.tag), s.line)
}

// target is the left side of an assignment.
type target interface {
	assign(st *state, f *frame, v Value) error
}

type (
	slotTarget  int
	tupleTarget struct{ parts []target }
	attrTarget  struct {
		object     expr
		name, attr string
	}
)

func (t slotTarget) assign(_ *state, f *frame, v Value) error {
	f.slots[t] = v
	return nil
}

func (t *tupleTarget) assign(st *state, f *frame, v Value) error {
	items, err := st.elements(v)
	if err != nil {
		return fail(TypeError, "cannot unpack non-iterable %s object", typeName(v))
	}
	if len(items) != len(t.parts) {
		return fail(ValueError, "%d values to unpack, expected %d", len(items), len(t.parts))
	}
	for i, part := range t.parts {
		if err := part.assign(st, f, items[i]); err != nil {
			return err
		}
	}
	return nil
}

func (t *attrTarget) assign(st *state, f *frame, v Value) error {
	object, err := t.object.eval(st, f)
	if err != nil {
		return err
	}
	ns, ok := object.(*namespace)
	if !ok {
		return fail(TypeError, "cannot assign attribute on non-namespace object '%s'", t.name)
	}
	ns.attrs.put(st, t.attr, v)
	return nil
}
