package jinja

import (
	"math"
	"math/big"
	"strconv"
	"strings"
	"unicode/utf8"
)

// maxWidth bounds the width and precision of a formatted value.
const maxWidth = 10_000

// spec says how one value is formatted, for % and for str.format alike.
type spec struct {
	fill      string
	align     byte // < > ^ = or 0
	sign      byte // + or blank, or 0
	alternate bool
	comma     byte // thousands separator, or 0
	width     int
	precision int // -1 = none
	verb      byte
}

// percent is Python's string % values.
func percent(st *state, like Value, format string, values Value) (Value, error) {
	out, err := percentFormat(format, values)
	if err != nil {
		return nil, err
	}
	return likeText(like, out), st.spend(len(out))
}

func percentFormat(format string, values Value) (string, error) {
	items := []Value{values}
	if t, ok := values.(*Tuple); ok {
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
		if err := s.writePercent(&b, v); err != nil {
			return "", err
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

func (s spec) writePercent(b *strings.Builder, v Value) error {
	switch s.verb {
	case 's', 'r', 'a':
		t, err := str(v)
		if s.verb != 's' {
			var r []byte
			r, err = appendRepr(nil, v, 0)
			t = string(r)
		}
		if err != nil {
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

func clip(s string, runes int) string {
	if runes < 0 || runeCount(s) <= runes {
		return s
	}
	return string([]rune(s)[:runes])
}

// pad fills a sign and digits up to the width.
func (s spec) pad(sign, body string) string {
	n := s.width - runeCount(sign) - runeCount(body)
	if n <= 0 {
		return sign + body
	}
	switch s.align {
	case '<':
		return sign + body + strings.Repeat(s.fill, n)
	case '^':
		return strings.Repeat(s.fill, n/2) + sign + body + strings.Repeat(s.fill, n-n/2)
	case '=':
		return sign + strings.Repeat(s.fill, n) + body
	default:
		return strings.Repeat(s.fill, n) + sign + body
	}
}

// number formats an integer or a float.
func (s spec) number(v Value) (string, error) {
	if b, ok := whole(v); ok && strings.IndexByte("bdoxXcn\x00", s.verb) >= 0 {
		return s.integer(b), nil
	}
	f := toFloat(v)
	body := ""
	switch verb := s.verb; verb {
	case 'f', 'F', 'e', 'E':
		body = strconv.FormatFloat(math.Abs(f), lowerByte(verb), s.digits(6), 64)
	case '%':
		body = strconv.FormatFloat(math.Abs(f)*100, 'f', s.digits(6), 64) + "%"
	case 'g', 'G', 'n':
		body = s.general(math.Abs(f))
	case 0:
		if s.precision < 0 {
			body = string(appendFloat(nil, math.Abs(f)))
			break
		}
		if body = s.general(math.Abs(f)); !strings.ContainsAny(body, ".en") {
			body += ".0"
		}
	default:
		return "", fail(ValueError, "unknown format code '%c' for object of type '%s'", verb, typeName(v))
	}
	if math.IsInf(f, 0) {
		body = "inf"
	}
	if math.IsNaN(f) {
		body = "nan"
	}
	if s.verb == 'E' || s.verb == 'G' || s.verb == 'F' {
		body = strings.ToUpper(body)
	}
	return s.signed(math.Signbit(f) && !math.IsNaN(f), "", body), nil
}

func lowerByte(c byte) byte { return c | 0x20 }

func (s spec) digits(fallback int) int {
	if s.precision < 0 {
		return fallback
	}
	return s.precision
}

// general is C's %g.
func (s spec) general(f float64) string {
	p := max(s.digits(6), 1)
	e := strconv.FormatFloat(f, 'e', p-1, 64)
	exp, _ := strconv.Atoi(e[strings.IndexByte(e, 'e')+1:])
	if exp < -4 || exp >= p {
		mantissa, tail, _ := strings.Cut(e, "e")
		if strings.Contains(mantissa, ".") {
			mantissa = strings.TrimRight(strings.TrimRight(mantissa, "0"), ".")
		}
		return mantissa + "e" + tail
	}
	out := strconv.FormatFloat(f, 'f', p-1-exp, 64)
	if strings.Contains(out, ".") {
		out = strings.TrimRight(strings.TrimRight(out, "0"), ".")
	}
	return out
}

func (s spec) integer(b *big.Int) string {
	base, prefix := 10, ""
	switch s.verb {
	case 'b':
		base, prefix = 2, "0b"
	case 'o':
		base, prefix = 8, "0o"
	case 'x', 'X':
		base, prefix = 16, "0x"
	}
	body := new(big.Int).Abs(b).Text(base)
	if s.verb == 'X' {
		body, prefix = strings.ToUpper(body), "0X"
	}
	if !s.alternate {
		prefix = ""
	}
	if n := s.precision - len(body); n > 0 {
		body = strings.Repeat("0", n) + body
	}
	return s.signed(b.Sign() < 0, prefix, body)
}

func (s spec) signed(negative bool, prefix, body string) string {
	sign := ""
	switch {
	case negative:
		sign = "-"
	case s.sign != 0:
		sign = string(s.sign)
	}
	if s.comma != 0 {
		whole, fraction, dot := strings.Cut(body, ".")
		for i := len(whole) - 3; i > 0; i -= 3 {
			whole = whole[:i] + string(s.comma) + whole[i:]
		}
		body = whole
		if dot {
			body += "." + fraction
		}
	}
	if s.align == 0 {
		s.align = '>'
	}
	return s.pad(sign+prefix, body)
}

// strFormat is Python's str.format.
func strFormat(st *state, a []Value) (Value, error) {
	format, _ := text(a[0])
	f := formatter{pos: a[1].(*Tuple).items, kw: a[2].(*Dict)}
	if _, ok := a[0].(Markup); ok {
		f.escape = true
	}
	out, err := f.format(format, 2)
	if err != nil {
		return nil, err
	}
	return likeText(a[0], out), st.spend(len(out))
}

type formatter struct {
	pos    []Value
	kw     *Dict
	auto   int
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
		if b.Len() > 1<<24 {
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
			v, err = boxed(str(v))
		case "r", "a":
			var r []byte
			r, err = appendRepr(nil, v, 0)
			v = string(r)
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
	out, err := formatValue(v, format)
	if err == nil && f.escape {
		if _, ok := v.(Markup); !ok {
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
			v, err = item(v, key)
			rest = rest[end+1:]
		}
		if err != nil {
			return nil, err
		}
	}
	return v, nil
}

func formatValue(v Value, format string) (string, error) {
	if format == "" {
		return str(v)
	}
	s, err := parseSpec(format)
	if err != nil {
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
		return formatValue(map[bool]string{true: "1", false: "0"}[b], format)
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
