package parser

import "strings"

const hexDigits = "0123456789abcdef"

// appendEscaped appends s as it stands in a JSON string. Only what must be
// escaped is: quotes, backslashes and control characters.
func appendEscaped(dst []byte, s string) []byte {
	from := 0
	for i := range len(s) {
		c := s[i]
		if c >= ' ' && c != '"' && c != '\\' {
			continue
		}
		dst = append(dst, s[from:i]...)
		from = i + 1
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\t':
			dst = append(dst, '\\', 't')
		case '\r':
			dst = append(dst, '\\', 'r')
		default:
			dst = append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		}
	}
	return append(dst, s[from:]...)
}

// escapeText returns s as it stands in a JSON string.
func escapeText(s string) string {
	for i := range len(s) {
		if s[i] < ' ' || s[i] == '"' || s[i] == '\\' {
			return string(appendEscaped(make([]byte, 0, len(s)+len(s)/8+8), s))
		}
	}
	return s
}

func quoteJSON(s string) string {
	return string(append(appendEscaped(append(make([]byte, 0, len(s)+2), '"'), s), '"'))
}

// escapeControls escapes the control characters in the strings of JSON.
func escapeControls(text string) string {
	var out []byte
	inString := false
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case c == '"':
			inString = !inString
		case inString && c == '\\' && i+1 < len(text) && text[i+1] >= ' ':
			out = append(out, c)
			i++
			c = text[i]
		case inString && c < ' ':
			out = appendEscaped(out, text[i:i+1])
			continue
		}
		out = append(out, c)
	}
	return string(out)
}

// entities are pairs: a name that a family's models may write for a character
// which means something in tags, and the character.
type entities []string

// unescape replaces entities, unless s has a raw bracket: who writes those means
// what he writes.
func (e entities) unescape(s string) string {
	if strings.IndexByte(s, '&') < 0 || strings.ContainsAny(s, "<>") {
		return s
	}
	return e.replace(s)
}

func (e entities) replace(s string) string {
	var out strings.Builder
	for s != "" {
		i := strings.IndexByte(s, '&')
		if i < 0 {
			break
		}
		out.WriteString(s[:i])
		s = s[i:]
		if k, st := e.match(s); st == done {
			out.WriteString(e[k+1])
			s = s[len(e[k]):]
		} else {
			out.WriteByte('&')
			s = s[1:]
		}
	}
	out.WriteString(s)
	return out.String()
}

// match finds the entity that s begins with, or may begin with (more).
func (e entities) match(s string) (k int, st status) {
	st = bad
	for k := 0; k < len(e); k += 2 {
		if strings.HasPrefix(s, e[k]) {
			return k, done
		}
		if strings.HasPrefix(e[k], s) {
			st = more
		}
	}
	return 0, st
}

// textValue writes a string as JSON while it arrives. From its first entity on
// the string is held until a raw bracket shows that entities are data in it, or
// until its end shows that they are not.
type textValue struct {
	names entities // nil if entities are data anyway
	held  []byte
}

// write returns what can be said of the string when s has arrived.
func (v *textValue) write(s string) string {
	if v.names == nil {
		return escapeText(s)
	}
	if strings.ContainsAny(s, "<>") {
		v.names = nil
		return v.release(s)
	}
	if len(v.held) == 0 && strings.IndexByte(s, '&') < 0 {
		return escapeText(s)
	}
	if len(v.held) > 0 {
		if _, st := v.names.match(string(v.held[:min(len(v.held), maxEntity)])); st == done {
			v.held = append(v.held, s...)
			return ""
		}
		s = string(v.held) + s
		v.held = v.held[:0]
	}
	for i := 0; i < len(s); i++ {
		if s[i] != '&' {
			continue
		}
		if _, st := v.names.match(s[i:]); st != bad {
			v.held = append(v.held, s[i:]...)
			return escapeText(s[:i])
		}
	}
	return escapeText(s)
}

// maxEntity is more than the length of any entity.
const maxEntity = 8

// release returns what is held, and s, as they are.
func (v *textValue) release(s string) string {
	if len(v.held) > 0 {
		s = string(v.held) + s
		v.held = v.held[:0]
	}
	return escapeText(s)
}

// end returns what is held when the string has ended.
func (v *textValue) end() string {
	s := string(v.held)
	v.held = v.held[:0]
	if v.names == nil {
		return escapeText(s)
	}
	return escapeText(v.names.replace(s))
}

// isName says whether s may be the name of a tool or a parameter, or begin one:
// anything that has no white space, brackets, quotes or control characters in it.
func isName(s string) bool {
	for i := range len(s) {
		if c := s[i]; c <= ' ' || c == '<' || c == '>' || c == '"' || c == '\'' {
			return false
		}
	}
	return s != "" && len(s) <= maxTag
}
