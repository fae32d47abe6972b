package parser

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// literal returns a Python literal as JSON: what models write for lists and
// objects when they think of Python rather than of JSON.
func literal(text string) (value string, ok bool) {
	r := literalReader{s: text}
	if !r.value(0) {
		return "", false
	}
	r.space()
	return string(r.out), r.s == ""
}

// literalReader reads a literal from s, and writes it to out.
type literalReader struct {
	s   string
	out []byte
}

func (r *literalReader) space() { r.s = r.s[spaces(r.s):] }

// take reads a byte if it is the next behind white space.
func (r *literalReader) take(c byte) bool {
	r.space()
	if r.s == "" || r.s[0] != c {
		return false
	}
	r.s = r.s[1:]
	return true
}

func (r *literalReader) value(depth int) bool {
	r.space()
	if r.s == "" || depth > maxDepth {
		return false
	}
	switch c := r.s[0]; c {
	case '[':
		return r.list(']', depth)
	case '(':
		return r.list(')', depth)
	case '{':
		return r.dict(depth)
	case '\'', '"':
		return r.text()
	}
	n := strings.IndexAny(r.s, " \t\r\n,:]})")
	if n < 0 {
		n = len(r.s)
	}
	word := r.s[:n]
	r.s = r.s[n:]
	switch word {
	case "None", "null":
		word = "null"
	case "True", "true":
		word = "true"
	case "False", "false":
		word = "false"
	default:
		if !isJSONNumber(word) {
			return false
		}
	}
	r.out = append(r.out, word...)
	return true
}

// list reads a list or a tuple. One value in parentheses is that value.
func (r *literalReader) list(end byte, depth int) bool {
	r.s = r.s[1:]
	at := len(r.out)
	r.out = append(r.out, '[')
	comma, items := true, 0
	for !r.take(end) {
		if !comma {
			return false
		}
		if items > 0 {
			r.out = append(r.out, ',')
		}
		if !r.value(depth + 1) {
			return false
		}
		items++
		comma = r.take(',')
	}
	if end == ')' && items == 1 && !comma {
		r.out = append(r.out[:at], r.out[at+1:]...)
		return true
	}
	r.out = append(r.out, ']')
	return true
}

func (r *literalReader) dict(depth int) bool {
	r.s = r.s[1:]
	r.out = append(r.out, '{')
	comma, items := true, 0
	for !r.take('}') {
		if !comma {
			return false
		}
		if items > 0 {
			r.out = append(r.out, ',')
		}
		at := len(r.out)
		if !r.value(depth+1) || !r.take(':') {
			return false
		}
		switch key := string(r.out[at:]); key[0] {
		case '"':
		case '[', '{':
			return false
		default: // JSON knows no other keys than strings
			r.out = append(r.out[:at], quoteJSON(key)...)
		}
		r.out = append(r.out, ':')
		if !r.value(depth + 1) {
			return false
		}
		items++
		comma = r.take(',')
	}
	r.out = append(r.out, '}')
	return true
}

// text reads a string in quotes of either kind, one or three.
func (r *literalReader) text() bool {
	quote := r.s[:1]
	if three := strings.Repeat(quote, 3); strings.HasPrefix(r.s, three) {
		quote = three
	}
	r.out = append(r.out, '"')
	for i := len(quote); i < len(r.s); i++ {
		switch {
		case strings.HasPrefix(r.s[i:], quote):
			r.s = r.s[i+len(quote):]
			r.out = append(r.out, '"')
			return true
		case r.s[i] == '\\':
			n, char := unescapeLiteral(r.s[i:])
			if n == 0 {
				return false
			}
			r.out = appendEscaped(r.out, char)
			i += n - 1
		default:
			r.out = appendEscaped(r.out, r.s[i:i+1])
		}
	}
	return false
}

// unescapeLiteral reads an escape sequence of n bytes; of none, if s ends in it.
// As in Python a backslash before any other character stands for itself.
func unescapeLiteral(s string) (n int, char string) {
	if len(s) < 2 {
		return 0, ""
	}
	digits := 0
	switch s[1] {
	case 'n':
		return 2, "\n"
	case 't':
		return 2, "\t"
	case 'r':
		return 2, "\r"
	case 'b':
		return 2, "\b"
	case 'f':
		return 2, "\f"
	case '\\', '\'', '"':
		return 2, s[1:2]
	case '\n':
		return 2, ""
	case 'x':
		digits = 2
	case 'u':
		digits = 4
	case 'U':
		digits = 8
	}
	if digits > 0 && len(s) >= 2+digits {
		if code, err := strconv.ParseUint(s[2:2+digits], 16, 32); err == nil && utf8.ValidRune(rune(code)) {
			return 2 + digits, string(rune(code))
		}
	}
	return 1, `\`
}
