package jinja

// macroDef is a macro, or the body of a call block, as it was compiled.
type macroDef struct {
	name   string
	params []macroParam
	body   []stmt
	slots  int
	escape bool
	cost   int // tokens of source, which is about the work of a call
	line   int

	usesCaller, usesVarargs, usesKwargs bool
}

type macroParam struct {
	name  string
	slot  int
	value expr // default; nil = none
	// missing stands for the parameter where it has no argument and no default.
	missing *undefined
}

// macro is a macro together with the variables around it.
type macro struct {
	def   *macroDef
	outer *frame
}

func (m *macro) call(st *state, a args) (Value, error) {
	if err := st.enter(); err != nil {
		return nil, err
	}
	defer st.leave()
	if err := st.spendItems(m.def.slots); err != nil {
		return nil, at(err, m.def.line)
	}
	if err := st.work(m.def.cost); err != nil {
		return nil, at(err, m.def.line)
	}
	f := &frame{slots: make([]Value, m.def.slots), parent: m.outer}
	if err := m.bind(st, f, a); err != nil {
		return nil, at(err, m.def.line)
	}
	mark := len(st.out)
	if err := execAll(st, f, m.def.body); err != nil {
		return nil, err
	}
	s := st.cut(mark)
	if m.def.escape {
		return markup(s), st.spend(len(s))
	}
	return s, st.spend(len(s))
}

var noCaller = &undefined{kind: UndefinedError, why: "no caller defined"}

func (m *macro) bind(st *state, f *frame, a args) error {
	def := m.def
	for i, v := range a.pos[:min(len(a.pos), len(def.params))] {
		f.slots[def.params[i].slot] = v
	}
	var kwargs *Dict
	if def.usesKwargs {
		kwargs = NewDict(len(a.keys))
		f.slots[kwargsSlot] = kwargs
	}
	for i, key := range a.keys {
		if err := st.work(len(def.params)); err != nil {
			return err
		}
		slot := def.slot(key)
		switch {
		case slot >= 0 && f.slots[slot] != nil:
			return fail(TypeError, "macro '%s' got multiple values for argument '%s'", def.name, key)
		case slot >= 0:
			f.slots[slot] = a.vals[i]
		case key == "caller" && def.usesCaller:
			f.slots[callerSlot] = a.vals[i]
		case def.usesKwargs:
			kwargs.put(st, key, a.vals[i])
		default:
			return fail(TypeError, "macro '%s' takes no keyword argument '%s'", def.name, key)
		}
	}
	if len(a.pos) > len(def.params) && !def.usesVarargs {
		return fail(TypeError, "macro '%s' takes not more than %d argument(s)", def.name, len(def.params))
	}
	if def.usesCaller && f.slots[callerSlot] == nil {
		f.slots[callerSlot] = noCaller
	}
	if def.usesVarargs {
		f.slots[varargsSlot] = &tuple{items: append([]Value(nil), a.pos[min(len(a.pos), len(def.params)):]...)}
	}
	return def.defaults(st, f)
}

func (def *macroDef) slot(param string) int {
	for _, p := range def.params {
		if p.name == param {
			return p.slot
		}
	}
	return -1
}

// defaults fills the parameters that got no argument. A default may speak of
// the parameters before it.
func (def *macroDef) defaults(st *state, f *frame) error {
	for _, p := range def.params {
		if f.slots[p.slot] != nil {
			continue
		}
		if p.value == nil {
			f.slots[p.slot] = p.missing
			continue
		}
		v, err := p.value.eval(st, f)
		if err != nil {
			return err
		}
		f.slots[p.slot] = v
	}
	return nil
}
