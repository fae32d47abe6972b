package wire

import (
	"math"
	"strconv"
	"unicode/utf8"
)

// plain marks the ASCII bytes that stand for themselves in a JSON string.
var plain = func() (t [utf8.RuneSelf]bool) {
	for c := range t {
		t[c] = c >= ' ' && c != '"' && c != '\\'
	}
	return t
}()

// AppendString appends s as a JSON string. Bytes that are no UTF-8 become
// U+FFFD. The line separators of Unicode are escaped, though JSON does not ask
// for it: some clients split a stream into lines at them.
func AppendString(dst []byte, s string) []byte {
	return append(AppendEscaped(append(dst, '"'), s), '"')
}

// AppendEscaped appends s as the inside of a JSON string.
func AppendEscaped(dst []byte, s string) []byte {
	const digits = "0123456789abcdef"
	done := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c < utf8.RuneSelf {
			if plain[c] {
				i++
				continue
			}
			dst = append(dst, s[done:i]...)
			switch c {
			case '"', '\\':
				dst = append(dst, '\\', c)
			case '\b':
				dst = append(dst, '\\', 'b')
			case '\f':
				dst = append(dst, '\\', 'f')
			case '\n':
				dst = append(dst, '\\', 'n')
			case '\r':
				dst = append(dst, '\\', 'r')
			case '\t':
				dst = append(dst, '\\', 't')
			default:
				dst = append(dst, '\\', 'u', '0', '0', digits[c>>4], digits[c&15])
			}
			i++
			done = i
			continue
		}
		r, size := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			dst = append(dst, s[done:i]...)
			dst = append(dst, "\uFFFD"...)
			done = i + 1
		case r == '\u2028' || r == '\u2029':
			dst = append(dst, s[done:i]...)
			dst = append(dst, `\u202`...)
			dst = append(dst, digits[r&15])
			done = i + size
		case r == '\u0085':
			dst = append(dst, s[done:i]...)
			dst = append(dst, `\u0085`...)
			done = i + size
		}
		i += size
	}
	return append(dst, s[done:]...)
}

// AppendLogprob appends a logarithm. JSON has no infinities; what has no
// probability at all is shown as -9999, as other servers do.
func AppendLogprob(dst []byte, f float64) []byte {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		f = -9999
	}
	return strconv.AppendFloat(dst, f, 'g', -1, 64)
}
