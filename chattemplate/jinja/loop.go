package jinja

type forStmt struct {
	source       expr
	target       target
	filter       expr // nil = every item
	filterTarget target
	body         []stmt
	otherwise    []stmt
	fn           *funcScope // of a recursive loop, whose body has its own frame
	recursive    bool
	usesLoop     bool
	loopSlot     int
	// The body's variables begin every round unset.
	firstSlot, lastSlot int
	cost                int // tokens of source, which is about the work of a round
	line                int
}

// loop walks over the items of a for statement, and is its variable "loop".
type loop struct {
	st    *state
	frame *frame // the loop stands in
	stmt  *forStmt
	// ready are the items known to come; raw those that the filter has not
	// seen yet. The filter runs as late as possible, because the body may
	// change a namespace that it reads.
	ready, raw []Value
	index0     int
	depth0     int
	previous   Value
	current    Value
	changed    *tuple
}

func (s *forStmt) exec(st *state, f *frame) error {
	v, err := s.source.eval(st, f)
	if err != nil {
		return at(err, s.line)
	}
	return s.run(st, f, v, 0)
}

func (s *forStmt) run(st *state, f *frame, source Value, depth int) error {
	items, err := st.elements(source)
	if err != nil {
		return at(err, s.line)
	}
	l := &loop{st: st, frame: f, stmt: s, ready: items, index0: -1, depth0: depth}
	if s.filter != nil {
		l.ready, l.raw = nil, items
	}
	body := f
	if s.recursive {
		if err := st.spendItems(s.fn.slots); err != nil {
			return at(err, s.line)
		}
		body = &frame{slots: make([]Value, s.fn.slots), parent: f}
	}
	// Jinja's else stands for "no round came to its end".
	completed := false
	for {
		v, err := l.next()
		if err != nil {
			return at(err, s.line)
		}
		if v == nil {
			break
		}
		if err := st.work(s.cost); err != nil {
			return at(err, s.line)
		}
		clear(body.slots[s.firstSlot:s.lastSlot])
		if s.usesLoop {
			body.slots[s.loopSlot] = l
		}
		if err := s.target.assign(st, body, v); err != nil {
			return at(err, s.line)
		}
		err = execAll(st, body, s.body)
		if err == errBreak {
			break
		}
		if err != nil && err != errContinue {
			return err
		}
		completed = completed || err == nil
	}
	if !completed {
		return execAll(st, f, s.otherwise)
	}
	return nil
}

// next returns nil at the end.
func (l *loop) next() (Value, error) {
	v, err := l.peek()
	if v == nil || err != nil {
		return nil, err
	}
	if err := l.st.step(); err != nil {
		return nil, err
	}
	l.ready = l.ready[1:]
	l.index0++
	l.previous, l.current = l.current, v
	return v, nil
}

func (l *loop) peek() (Value, error) {
	if len(l.ready) > 0 {
		return l.ready[0], nil
	}
	for len(l.raw) > 0 {
		v := l.raw[0]
		l.raw = l.raw[1:]
		ok, err := l.passes(v)
		if err != nil {
			return nil, err
		}
		if ok {
			l.ready = []Value{v}
			return v, nil
		}
	}
	return nil, nil
}

func (l *loop) passes(v Value) (bool, error) {
	if err := l.st.step(); err != nil {
		return false, err
	}
	if err := l.st.work(l.stmt.cost); err != nil {
		return false, err
	}
	if err := l.stmt.filterTarget.assign(l.st, l.frame, v); err != nil {
		return false, err
	}
	return evalTruth(l.st, l.frame, l.stmt.filter)
}

func (l *loop) length() (int, error) {
	ready := l.ready
	for len(l.raw) > 0 {
		l.ready = nil
		v, err := l.peek()
		if err != nil {
			return 0, err
		}
		if v != nil {
			ready = append(ready, v)
		}
	}
	l.ready = ready
	return l.index0 + 1 + len(ready), nil
}

// rest takes all items that are left.
func (l *loop) rest() ([]Value, error) {
	if _, err := l.length(); err != nil {
		return nil, err
	}
	items := l.ready
	l.ready = nil
	return items, nil
}

func (l *loop) attribute(name string) (Value, error) {
	switch name {
	case "index":
		return l.index0 + 1, nil
	case "index0":
		return l.index0, nil
	case "first":
		return l.index0 == 0, nil
	case "depth":
		return l.depth0 + 1, nil
	case "depth0":
		return l.depth0, nil
	case "previtem":
		if l.previous == nil {
			return &undefined{kind: UndefinedError, why: "there is no previous item"}, nil
		}
		return l.previous, nil
	case "cycle":
		return &bound{l, loopCycle}, nil
	case "changed":
		return &bound{l, loopChanged}, nil
	case "last", "nextitem":
		v, err := l.peek()
		if err != nil {
			return nil, err
		}
		if name == "last" {
			return v == nil, nil
		}
		if v == nil {
			return &undefined{kind: UndefinedError, why: "there is no next item"}, nil
		}
		return v, nil
	case "length", "revindex", "revindex0":
		n, err := l.length()
		switch name {
		case "revindex":
			n -= l.index0
		case "revindex0":
			n -= l.index0 + 1
		}
		return n, err
	}
	return nil, nil
}

var loopCycle = fn("cycle loop *", func(_ *state, a []Value) (Value, error) {
	items := a[1].(*tuple).items
	if len(items) == 0 {
		return nil, fail(TypeError, "no items for cycling given")
	}
	return items[a[0].(*loop).index0%len(items)], nil
})

var loopChanged = fn("changed loop *", func(st *state, a []Value) (Value, error) {
	l, now := a[0].(*loop), &tuple{items: append([]Value(nil), a[1].(*tuple).items...)}
	changed := l.changed == nil || !equal(st, l.changed, now)
	l.changed = now
	return changed, nil
})

// call runs a recursive loop over other items.
func (l *loop) call(st *state, a args) (Value, error) {
	if !l.stmt.recursive {
		return nil, fail(TypeError, "the loop must have the 'recursive' marker to be called recursively")
	}
	if len(a.pos) != 1 || len(a.keys) > 0 {
		return nil, fail(TypeError, "loop() takes exactly one argument")
	}
	if err := st.enter(); err != nil {
		return nil, err
	}
	defer st.leave()
	mark := len(st.out)
	if err := l.stmt.run(st, l.frame, a.pos[0], l.depth0+1); err != nil {
		return nil, err
	}
	s := st.cut(mark)
	return s, st.spend(len(s))
}
