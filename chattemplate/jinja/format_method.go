package jinja

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// strFormat is Python's str.format.
func strFormat(st *state, a []Value) (Value, error) {
	format, _ := text(a[0])
	f := formatter{st: st, pos: a[1].(*tuple).items, kw: a[2].(*Dict)}
	if _, ok := a[0].(markup); ok {
		f.escape = true
	}
	out, err := f.format(format, 2)
	if err != nil {
		return nil, err
	}
	return likeText(a[0], out), st.spend(len(out))
}

type formatter struct {
	st     *state
	pos    []Value
	kw     *Dict
	auto   int  // fields without a number so far
	manual bool // a field had a number
	escape bool
}

func (f *formatter) format(s string, depth int) (string, error) {
	if depth == 0 {
		return "", fail(ValueError, "max string recursion exceeded")
	}
	var b strings.Builder
	for {
		i := strings.IndexAny(s, "{}")
		if i < 0 {
			b.WriteString(s)
			return b.String(), nil
		}
		b.WriteString(s[:i])
		c := s[i]
		s = s[i+1:]
		if s != "" && s[0] == c {
			b.WriteByte(c)
			s = s[1:]
			continue
		}
		if c == '}' {
			return "", fail(ValueError, "single '}' encountered in format string")
		}
		end := fieldEnd(s)
		if end < 0 {
			return "", fail(ValueError, "expected '}' before end of string")
		}
		field, err := f.field(s[:end], depth)
		if err != nil {
			return "", err
		}
		b.WriteString(field)
		if b.Len() > f.st.room() {
			return "", fail(LimitError, "formatted text is too long")
		}
		s = s[end+1:]
	}
}

// fieldEnd finds the brace that closes a replacement field.
func fieldEnd(s string) int {
	depth := 0
	for i := range len(s) {
		switch s[i] {
		case '{':
			depth++
		case '}':
			if depth == 0 {
				return i
			}
			depth--
		}
	}
	return -1
}

func (f *formatter) field(field string, depth int) (string, error) {
	name, format, _ := strings.Cut(field, ":")
	name, conversion, converts := strings.Cut(name, "!")
	v, err := f.lookup(name)
	if err != nil {
		return "", err
	}
	if converts {
		switch conversion {
		case "s":
			v, err = softText(f.st, v)
			if err == nil {
				err = f.st.work(weight(v))
			}
		case "r", "a":
			var r []byte
			r, err = appendRepr(f.st, nil, v, 0)
			v = string(r)
			if err == nil {
				err = f.st.work(len(r))
			}
		default:
			err = fail(ValueError, "unknown conversion specifier %q", conversion)
		}
		if err != nil {
			return "", err
		}
	}
	if format, err = f.format(format, depth-1+boolInt(!strings.Contains(format, "{"))); err != nil {
		return "", err
	}
	out, err := formatValue(f.st, v, format)
	if err == nil && f.escape {
		if _, ok := v.(markup); !ok {
			out = htmlEscaper.Replace(out)
		}
	}
	return out, err
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// lookup finds what a field names: a number or name, then attributes and items.
func (f *formatter) lookup(name string) (Value, error) {
	end := strings.IndexAny(name, ".[")
	if end < 0 {
		end = len(name)
	}
	first, rest := name[:end], name[end:]
	numbered := first != "" && digits(first, "0123456789") == len(first)
	if first == "" && f.manual || numbered && f.auto > 0 {
		return nil, fail(ValueError, "cannot mix fields that are numbered with fields that are not")
	}
	f.manual = f.manual || numbered
	if first == "" {
		first = strconv.Itoa(f.auto)
		f.auto++
	}
	var v Value
	if n, err := strconv.Atoi(first); err == nil {
		if n < 0 || n >= len(f.pos) {
			return nil, fail(ValueError, "replacement index %d out of range for positional args", n)
		}
		v = f.pos[n]
	} else if named, ok := f.kw.get(first); ok {
		v = named
	} else {
		return nil, fail(ValueError, "no such key in format: %s", first)
	}
	for rest != "" {
		var err error
		if rest[0] == '.' {
			end := strings.IndexAny(rest[1:], ".[")
			if end < 0 {
				end = len(rest) - 1
			}
			v, err = attribute(v, rest[1:1+end])
			rest = rest[1+end:]
		} else {
			end := strings.IndexByte(rest, ']')
			if end < 0 {
				return nil, fail(ValueError, "missing ']' in format string")
			}
			var key Value = rest[1:end]
			if n, numErr := strconv.Atoi(rest[1:end]); numErr == nil {
				key = n
			}
			v, err = item(f.st, v, key)
			rest = rest[end+1:]
		}
		if err != nil {
			return nil, err
		}
	}
	return v, nil
}

func formatValue(st *state, v Value, format string) (string, error) {
	if format == "" {
		return str(st, v)
	}
	s, err := parseSpec(format)
	if err != nil {
		return "", err
	}
	if err := st.work(s.width + max(s.precision, 0) + weight(v)); err != nil {
		return "", err
	}
	if t, ok := text(v); ok {
		if s.verb != 0 && s.verb != 's' || s.sign != 0 || s.align == '=' {
			return "", fail(ValueError, "invalid format specifier '%s' for object of type 'str'", format)
		}
		if s.align == 0 {
			s.align = '<'
		}
		return s.pad("", clip(t, s.precision)), nil
	}
	if b, ok := v.(bool); ok && s.verb == 0 {
		return formatValue(st, map[bool]string{true: "1", false: "0"}[b], format)
	}
	if !isNumber(v) {
		return "", fail(TypeError, "unsupported format string passed to %s", typeName(v))
	}
	return s.number(v)
}

// parseSpec reads [[fill]align][sign][#][0][width][,][.precision][type].
func parseSpec(format string) (spec, error) {
	s := spec{fill: " ", precision: -1}
	f := format
	if _, n := utf8.DecodeRuneInString(f); len(f) > n && strings.IndexByte("<>^=", f[n]) >= 0 {
		s.fill, s.align, f = f[:n], f[n], f[n+1:]
	} else if strings.IndexByte("<>^=", f[0]) >= 0 {
		s.align, f = f[0], f[1:]
	}
	if f != "" && strings.IndexByte("+- ", f[0]) >= 0 {
		if f[0] != '-' {
			s.sign = f[0]
		}
		f = f[1:]
	}
	if rest, ok := strings.CutPrefix(f, "#"); ok {
		s.alternate, f = true, rest
	}
	if rest, ok := strings.CutPrefix(f, "0"); ok {
		f = rest
		if s.align == 0 {
			s.fill, s.align = "0", '='
		}
	}
	n := digits(f, "0123456789")
	s.width, _ = strconv.Atoi(f[:n])
	f = f[n:]
	if f != "" && (f[0] == ',' || f[0] == '_') {
		s.comma, f = f[0], f[1:]
	}
	if rest, ok := strings.CutPrefix(f, "."); ok {
		n := digits(rest, "0123456789")
		s.precision, _ = strconv.Atoi(rest[:n])
		f = rest[n:]
	}
	if f != "" {
		s.verb, f = f[0], f[1:]
	}
	if f != "" {
		return s, fail(ValueError, "invalid format specifier '%s'", format)
	}
	if s.width > maxWidth || s.precision > maxWidth {
		return s, fail(LimitError, "format width is larger than %d", maxWidth)
	}
	return s, nil
}
