package jinja

// globals are the functions that every template sees.
var globals map[string]*builtin

func init() {
	globals = table(
		fn("range start stop? step?", makeRange),
		fn("dict mapping? *", makeDict),
		fn("namespace mapping? *", func(st *state, a []Value) (Value, error) {
			d, err := makeDict(st, a)
			if err != nil {
				return nil, err
			}
			return &namespace{d.(*Dict)}, nil
		}),
		fn("cycler *", makeCycler),
		fn("joiner sep?", func(_ *state, a []Value) (Value, error) {
			return &joiner{sep: optional(a[0], ", ")}, nil
		}),
		fn("raise_exception message", func(st *state, a []Value) (Value, error) {
			s, err := str(st, a[0])
			if err != nil {
				return nil, err
			}
			return nil, &Error{Kind: Raised, Message: s}
		}),
		fn("strftime_now format", func(st *state, a []Value) (Value, error) {
			format, err := needText(a[0])
			if err != nil {
				return nil, err
			}
			return strftime(st.now, format), nil
		}),
		// Random text has no place in a prompt that must be the same each time.
		fn("lipsum n? html? min? max?", func(*state, []Value) (Value, error) {
			return nil, fail(SecurityError, "lipsum is random and not available in chat templates")
		}),
	)
}

// maxRange is the longest range that Jinja's sandbox allows.
const maxRange = 100_000

func makeRange(st *state, a []Value) (Value, error) {
	var n [3]int
	for i, fallback := range [3]int{0, 0, 1} {
		var err error
		if n[i], err = needInt(a[i], fallback); err != nil {
			return nil, err
		}
	}
	r := &span{n[0], n[1], n[2]}
	if a[1] == nil {
		r.start, r.stop = 0, n[0]
	}
	if r.step == 0 {
		return nil, fail(ValueError, "range() arg 3 must not be zero")
	}
	if size := r.len(); size > maxRange || size < 0 {
		return nil, fail(LimitError, "range is longer than %d", maxRange)
	}
	return r, st.spend(8)
}

func makeDict(st *state, a []Value) (Value, error) {
	d := NewDict(4)
	switch m := a[0].(type) {
	case nil:
	case *Dict:
		d.merge(st, m)
	default:
		items, err := st.elements(m)
		if err != nil {
			return nil, err
		}
		for _, pair := range items {
			kv, err := st.elements(pair)
			if err != nil {
				return nil, err
			}
			if len(kv) != 2 {
				return nil, fail(ValueError, "dictionary update sequence element has length %d; 2 is required", len(kv))
			}
			d.put(st, kv[0], kv[1])
		}
	}
	if len(a[1].(*tuple).items) > 0 {
		return nil, fail(TypeError, "dict expected at most 1 argument")
	}
	d.merge(st, a[2].(*Dict))
	return d, st.spendItems(2 * d.Len())
}

// cycler hands out its items in turn.
type cycler struct {
	items []Value
	pos   int
}

func makeCycler(_ *state, a []Value) (Value, error) {
	items := a[0].(*tuple).items
	if len(items) == 0 {
		return nil, fail(TypeError, "at least one item has to be provided")
	}
	return &cycler{items: append([]Value(nil), items...)}, nil
}

func (c *cycler) attribute(name string) Value {
	switch name {
	case "current":
		return c.items[c.pos]
	case "next":
		return &bound{c, cyclerNext}
	case "reset":
		return &bound{c, cyclerReset}
	}
	return nil
}

var cyclerNext = fn("next cycler", func(_ *state, a []Value) (Value, error) {
	c := a[0].(*cycler)
	v := c.items[c.pos]
	c.pos = (c.pos + 1) % len(c.items)
	return v, nil
})

var cyclerReset = fn("reset cycler", func(_ *state, a []Value) (Value, error) {
	a[0].(*cycler).pos = 0
	return None, nil
})

// joiner is empty the first time it is called, and its separator from then on.
type joiner struct {
	sep  Value
	used bool
}

func (j *joiner) call(*state, args) (Value, error) {
	if !j.used {
		j.used = true
		return "", nil
	}
	return j.sep, nil
}
