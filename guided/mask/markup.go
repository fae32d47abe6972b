package mask

import "slices"

// markup is how a family of models writes arguments as tags, one for each.
type markup struct {
	before, after string // around a name
	kind          func(text bool) string
	open, close   string // around a value
	between       string // parameters
	end           string // behind all of them, if there are any
}

func noKind(bool) string { return "" }

var markups = map[string]*markup{
	"qwen_xml":    {before: "<parameter=", after: ">", kind: noKind, open: "\n", close: "\n</parameter>", between: "\n"},
	"minimax_xml": {before: `<parameter name="`, after: `">`, kind: noKind, close: "</parameter>", between: "\n", end: "\n"},
	"deepseek_xml": {
		before: `<｜DSML｜parameter name="`, after: ">",
		kind: func(text bool) string {
			if text {
				return `" string="true"`
			}
			return `" string="false"`
		},
		close: "</｜DSML｜parameter>", between: "\n", end: "\n",
	},
}

// write is the parameters of an object that the schema is of: texts as they are,
// all else as JSON.
func (m *markup) write(t *tags, s *schemas) (*expr, error) {
	branches := []branch{nil}
	if s.root.kind != 't' {
		var err error
		if branches, err = s.branches([]*value{s.root}); err != nil {
			return nil, err
		}
	}
	var parts []*expr
	for _, b := range branches {
		if b.types()&objectType == 0 {
			continue
		}
		e, err := m.object(t, s, b)
		if err != nil {
			return nil, err
		}
		parts = append(parts, e)
	}
	return alt(parts...), nil
}

// object is the parameters of one branch. Those that it does not name are texts
// with simple names, and are written only if it names none.
func (m *markup) object(t *tags, s *schemas, b branch) (*expr, error) {
	members, err := s.named(b)
	if err != nil {
		return nil, err
	}
	if len(members) == 0 {
		if !b.open() {
			return empty, nil
		}
		name, err := plain.pattern(`[A-Za-z_][A-Za-z0-9_.-]{0,63}`, false)
		if err != nil {
			return nil, err
		}
		one := seq(t.literal(m.before), name, t.literal(m.kind(true)+m.after+m.open), t.until(nil, m.close))
		return option(seq(one, star(seq(t.literal(m.between), one)), t.literal(m.end))), nil
	}
	// What comes behind none of them, and behind some.
	none, some := empty, t.literal(m.end)
	for i := len(members) - 1; i >= 0; i-- {
		one, err := m.parameter(t, s, members[i])
		if err != nil {
			return nil, err
		}
		first, further := seq(one, some), seq(t.literal(m.between), one, some)
		if !members[i].required {
			first, further = alt(first, none), alt(further, some)
		}
		none, some = first, further
	}
	return none, nil
}

// parameter is one of them, with its value.
func (m *markup) parameter(t *tags, s *schemas, p named) (*expr, error) {
	if !p.allowed {
		return void, nil
	}
	branches, err := s.branches(p.goal)
	if err != nil {
		return nil, err
	}
	var parts []*expr
	for _, b := range branches {
		kinds := b.types()
		if kinds == anyType && b.implied() != 0 {
			kinds = b.implied()
		}
		if kinds&stringType != 0 {
			text, err := s.plainText(b)
			if err != nil {
				return nil, err
			}
			value := and(seq(text, lit(m.close)), t.until(nil, m.close))
			if closing := t.literal(m.close); hasMark(closing) {
				value = seq(and(text, without([]string{m.close})), closing)
			}
			parts = append(parts, seq(t.literal(m.before+p.name+m.kind(true)+m.after+m.open), value))
		}
		if kinds&^stringType == 0 {
			continue
		}
		rest, err := s.otherThanText(b, kinds)
		if err != nil {
			return nil, err
		}
		parts = append(parts, seq(t.literal(m.before+p.name+m.kind(false)+m.after+m.open), rest, t.literal(m.close)))
	}
	return alt(parts...), nil
}

func hasMark(e *expr) bool {
	for _, part := range e.list {
		if part.op == opMark || hasMark(part) {
			return true
		}
	}
	return e.op == opMark
}

// otherThanText is a value of a branch that is no string.
func (s *schemas) otherThanText(b branch, kinds types) (*expr, error) {
	if b.find("const", "enum") == nil {
		return s.ofTypes(b, kinds&^stringType)
	}
	list, err := s.listed(b)
	return oneOf(slices.DeleteFunc(list, func(v *value) bool { return v.kind == '"' })), err
}
