package jinja

import (
	"math"
	"math/big"
	"strconv"
	"strings"
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
