package wire

import (
	"bytes"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
	"unsafe"
)

// Every bad unit of a JSON string (a byte that is no UTF-8, a surrogate without
// its partner, a NUL) becomes U+FFFD: a session must survive what a tool once
// printed, and must look the same on every turn.

// Unquote returns the text of a syntactically valid JSON string.
func Unquote(raw []byte) string {
	raw = raw[1 : len(raw)-1]
	if !utf8.Valid(raw) {
		raw = toValid(raw)
	}
	next := bytes.IndexByte(raw, '\\')
	if next < 0 {
		return string(raw)
	}
	text := make([]byte, len(raw)) // an escape is longer than what it stands for
	n := 0
	for next >= 0 {
		n += copy(text[n:], raw[:next])
		raw = raw[next:]
		for len(raw) > 0 && raw[0] == '\\' { // often several follow each other
			r, size := Unescape(raw)
			n += utf8.EncodeRune(text[n:], r)
			raw = raw[size:]
		}
		next = bytes.IndexByte(raw, '\\')
	}
	n += copy(text[n:], raw)
	return unsafe.String(&text[0], n) // nobody writes to text any more
}

// toValid returns p with each byte that is no UTF-8 replaced.
func toValid(p []byte) []byte {
	out := make([]byte, 0, len(p)+8)
	for len(p) > 0 {
		r, size := utf8.DecodeRune(p)
		out = utf8.AppendRune(out, r)
		p = p[size:]
	}
	return out
}

// Unescape decodes the escape sequence at the start of p, which is inside a valid JSON
// string. A bad unit is U+FFFD, and its size that of what was read.
func Unescape(p []byte) (r rune, size int) {
	switch p[1] {
	case 'b':
		return '\b', 2
	case 'f':
		return '\f', 2
	case 'n':
		return '\n', 2
	case 'r':
		return '\r', 2
	case 't':
		return '\t', 2
	case 'u':
		r = hex4(p[2:6])
		switch {
		case r == 0:
			return utf8.RuneError, 6
		case !utf16.IsSurrogate(r):
			return r, 6
		case len(p) >= 12 && p[6] == '\\' && p[7] == 'u':
			if both := utf16.DecodeRune(r, hex4(p[8:12])); both != utf8.RuneError {
				return both, 12
			}
		}
		return utf8.RuneError, 6
	}
	return rune(p[1]), 2
}

func hex4(p []byte) (r rune) {
	for _, c := range p {
		r <<= 4
		switch {
		case c <= '9':
			r |= rune(c - '0')
		default:
			r |= rune(c|0x20-'a') + 10
		}
	}
	return r
}

// CleanRaw returns a JSON value that is kept as the client sent it, byte for
// byte unless it holds bad units.
func CleanRaw(raw []byte) []byte {
	if !utf8.Valid(raw) {
		raw = toValid(raw)
	}
	if !hasBadEscape(raw) {
		return raw
	}
	out := make([]byte, 0, len(raw))
	for next := bytes.IndexByte(raw, '\\'); next >= 0; next = bytes.IndexByte(raw, '\\') {
		out = append(out, raw[:next]...)
		raw = raw[next:]
		r, size := Unescape(raw)
		if raw[1] == 'u' && r == utf8.RuneError {
			out = append(out, `\ufffd`...)
		} else {
			out = append(out, raw[:size]...)
		}
		raw = raw[size:]
	}
	return append(out, raw...)
}

// OneLine returns a JSON value on one line: what ends a line in JSON that somebody
// else wrote is blank space between tokens, or one of the separators of Unicode
// inside a string.
func OneLine(raw []byte) []byte {
	if !bytes.ContainsAny(raw, "\r\n\u0085\u2028\u2029") {
		return raw
	}
	flat := make([]byte, 0, len(raw)+16)
	for _, r := range string(raw) {
		switch r {
		case '\r', '\n':
			flat = append(flat, ' ')
		case '\u0085', '\u2028', '\u2029':
			flat = AppendEscaped(flat, string(r))
		default:
			flat = utf8.AppendRune(flat, r)
		}
	}
	return flat
}

// hasBadEscape says whether a JSON value has an escape that stands for a bad
// unit. It may err on the side of yes.
func hasBadEscape(raw []byte) bool {
	first := bytes.Index(raw, []byte(`\u`))
	if first < 0 {
		return false
	}
	raw = raw[first:]
	return bytes.Contains(raw, []byte(`\u0000`)) ||
		bytes.Contains(raw, []byte(`\ud`)) || bytes.Contains(raw, []byte(`\uD`))
}

// EscapeControls returns doc with raw control characters inside strings
// escaped, which JSON forbids and some clients write. It reports whether there
// were any.
func EscapeControls(doc []byte) ([]byte, bool) {
	const digits = "0123456789abcdef"
	var out []byte
	inString, done := false, 0
	for i := 0; i < len(doc); i++ {
		switch c := doc[i]; {
		case c == '"':
			inString = !inString
		case !inString:
		case c == '\\':
			i++
		case c < ' ':
			out = append(out, doc[done:i]...)
			out = append(out, '\\', 'u', '0', '0', digits[c>>4], digits[c&15])
			done = i + 1
		}
	}
	if done == 0 {
		return doc, false
	}
	return append(out, doc[done:]...), true
}

// CleanText replaces the bad units of a text that did not come through unquote.
func CleanText(s string) string {
	if !utf8.ValidString(s) {
		s = string(toValid([]byte(s)))
	}
	return strings.ReplaceAll(s, "\x00", "\uFFFD")
}
