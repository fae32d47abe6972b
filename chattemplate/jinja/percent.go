package jinja

import (
	"strconv"
	"strings"
)

// percent is Python's string % values.
func percent(st *state, like Value, format string, values Value) (Value, error) {
	out, err := percentFormat(st, format, values)
	if err != nil {
		return nil, err
	}
	return likeText(like, out), st.spend(len(out))
}

func percentFormat(st *state, format string, values Value) (string, error) {
	items := []Value{values}
	if t, ok := values.(*tuple); ok {
		items = t.items
	}
	take := func() (Value, error) {
		if len(items) == 0 {
			return nil, fail(TypeError, "not enough arguments for format string")
		}
		v := items[0]
		items = items[1:]
		return v, nil
	}
	var b strings.Builder
	for {
		i := strings.IndexByte(format, '%')
		if i < 0 {
			break
		}
		b.WriteString(format[:i])
		format = format[i+1:]
		if rest, ok := strings.CutPrefix(format, "%"); ok {
			b.WriteByte('%')
			format = rest
			continue
		}
		var key string
		if rest, ok := strings.CutPrefix(format, "("); ok {
			if key, format, ok = strings.Cut(rest, ")"); !ok {
				return "", fail(ValueError, "incomplete format key")
			}
			d, ok := values.(*Dict)
			if !ok {
				return "", fail(TypeError, "format requires a mapping")
			}
			v, ok := d.get(key)
			if !ok {
				return "", fail(ValueError, "no such key in format: %s", key)
			}
			items = []Value{v}
		}
		s, rest, err := percentSpec(format, take)
		if err != nil {
			return "", err
		}
		format = rest
		v, err := take()
		if err != nil {
			return "", err
		}
		if err := s.writePercent(st, &b, v); err != nil {
			return "", err
		}
		if b.Len() > st.room() {
			return "", fail(LimitError, "formatted text is too long")
		}
	}
	if len(items) > 0 && !subscriptable(values) {
		return "", fail(TypeError, "not all arguments converted during string formatting")
	}
	b.WriteString(format)
	return b.String(), nil
}

// subscriptable tells which values Python takes for a mapping, of which a
// format need not use all.
func subscriptable(v Value) bool {
	switch v.(type) {
	case *Dict, *List, *span, *undefined:
		return true
	}
	return false
}

func percentSpec(f string, take func() (Value, error)) (spec, string, error) {
	s := spec{fill: " ", align: '>', precision: -1}
	for f != "" && strings.IndexByte("-+ #0", f[0]) >= 0 {
		switch f[0] {
		case '-':
			s.align = '<'
		case '+':
			s.sign = '+'
		case ' ':
			s.sign = max(s.sign, ' ')
		case '#':
			s.alternate = true
		case '0':
			if s.align != '<' {
				s.fill, s.align = "0", '='
			}
		}
		f = f[1:]
	}
	var err error
	number := func() (n int) {
		if rest, ok := strings.CutPrefix(f, "*"); ok {
			f = rest
			var v Value
			if v, err = take(); err == nil {
				n, err = needInt(v, 0)
			}
			return n
		}
		d := digits(f, "0123456789")
		n, _ = strconv.Atoi(f[:d])
		f = f[d:]
		return n
	}
	if s.width = number(); s.width < 0 {
		s.width, s.align = -s.width, '<'
	}
	if rest, ok := strings.CutPrefix(f, "."); ok {
		f = rest
		s.precision = number()
	}
	if err != nil {
		return s, "", err
	}
	if f = strings.TrimLeft(f, "hlL"); f == "" {
		return s, "", fail(ValueError, "incomplete format")
	}
	if s.width > maxWidth || s.precision > maxWidth {
		return s, "", fail(LimitError, "format width is larger than %d", maxWidth)
	}
	s.verb = f[0]
	return s, f[1:], nil
}

func (s spec) writePercent(st *state, b *strings.Builder, v Value) error {
	if err := st.work(s.width + max(s.precision, 0)); err != nil {
		return err
	}
	switch s.verb {
	case 's', 'r', 'a':
		t, err := str(st, v)
		if s.verb != 's' {
			var r []byte
			r, err = appendRepr(st, nil, v, 0)
			t = string(r)
		}
		if err != nil {
			return err
		}
		if err := st.work(len(t)); err != nil {
			return err
		}
		if s.align == '=' {
			s.fill, s.align = " ", '>'
		}
		b.WriteString(s.pad("", clip(t, s.precision)))
		return nil
	case 'c':
		if n, ok := small(v); ok {
			v = string(rune(n))
		}
		t, err := needText(v)
		if err != nil {
			return err
		}
		b.WriteString(s.pad("", t))
		return nil
	case 'd', 'i', 'u':
		if isFloat(v) {
			v, _ = truncate(toFloat(v))
		}
		s.verb = 'd'
	}
	if err := needNumber(optional(v, None)); err != nil {
		return err
	}
	t, err := s.number(v)
	b.WriteString(t)
	return err
}
