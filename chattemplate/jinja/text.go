package jinja

import (
	"math/big"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

func runeCount(s string) int { return utf8.RuneCountInString(s) }

// isSpace tells what Python's str.strip and str.split take for white space.
func isSpace(r rune) bool {
	return unicode.IsSpace(r) || r >= 0x1c && r <= 0x1f
}

// appendStr appends str(v).
func appendStr(st *state, dst []byte, v Value) ([]byte, error) {
	switch v := v.(type) {
	case string:
		return append(dst, v...), nil
	case markup:
		return append(dst, v...), nil
	case *undefined:
		return dst, nil
	}
	return appendRepr(st, dst, v, 0)
}

func str(st *state, v Value) (string, error) {
	if s, ok := text(v); ok {
		return s, nil
	}
	b, err := appendStr(st, nil, v)
	return string(b), err
}

// appendRepr appends repr(v).
func appendRepr(st *state, dst []byte, v Value, depth int) ([]byte, error) {
	if err := st.prints(len(dst), depth); err != nil {
		return nil, err
	}
	switch v := v.(type) {
	case none:
		return append(dst, "None"...), nil
	case bool:
		if v {
			return append(dst, "True"...), nil
		}
		return append(dst, "False"...), nil
	case int:
		return strconv.AppendInt(dst, int64(v), 10), nil
	case *big.Int:
		return v.Append(dst, 10), nil
	case float64:
		return appendFloat(dst, v), nil
	case *decimal:
		return append(dst, v.Text...), nil
	case string:
		return appendQuoted(dst, v), nil
	case markup:
		return append(appendQuoted(append(dst, "Markup("...), string(v)), ')'), nil
	case *List:
		return appendSequence(st, dst, '[', v.items, ']', depth)
	case *tuple:
		dst, err := appendSequence(st, dst, '(', v.items, ')', depth)
		if err == nil && len(v.items) == 1 {
			dst = append(dst[:len(dst)-1], ",)"...)
		}
		return dst, err
	case *Dict:
		return appendDict(st, dst, v, depth)
	case *view:
		dst = append(dst, "dict_"+v.part+"("...)
		dst, err := appendSequence(st, dst, '[', v.elements(), ']', depth)
		return append(dst, ')'), err
	case *span:
		s := "range(" + strconv.Itoa(v.start) + ", " + strconv.Itoa(v.stop)
		if v.step != 1 {
			s += ", " + strconv.Itoa(v.step)
		}
		return append(dst, s+")"...), nil
	case *namespace:
		dst, err := appendDict(st, append(dst, "<Namespace "...), v.attrs, depth)
		return append(dst, '>'), err
	case *undefined:
		return append(dst, "Undefined"...), nil
	case *macro:
		return append(appendQuoted(append(dst, "<Macro "...), v.def.name), '>'), nil
	}
	return append(dst, "<"+typeName(v)+">"...), nil
}

func appendSequence(st *state, dst []byte, begin byte, items []Value, end byte, depth int) ([]byte, error) {
	dst = append(dst, begin)
	var err error
	for i, item := range items {
		if i > 0 {
			dst = append(dst, ", "...)
		}
		if dst, err = appendRepr(st, dst, item, depth+1); err != nil {
			return nil, err
		}
	}
	return append(dst, end), nil
}

func appendDict(st *state, dst []byte, d *Dict, depth int) ([]byte, error) {
	dst = append(dst, '{')
	var err error
	for i, k := range d.keys {
		if i > 0 {
			dst = append(dst, ", "...)
		}
		if dst, err = appendRepr(st, dst, k, depth+1); err != nil {
			return nil, err
		}
		dst = append(dst, ": "...)
		if dst, err = appendRepr(st, dst, d.vals[i], depth+1); err != nil {
			return nil, err
		}
	}
	return append(dst, '}'), nil
}

// appendQuoted appends the repr of a Python string.
func appendQuoted(dst []byte, s string) []byte {
	quote := byte('\'')
	if strings.Contains(s, "'") && !strings.Contains(s, `"`) {
		quote = '"'
	}
	dst = append(dst, quote)
	for _, r := range s {
		switch {
		case r == rune(quote) || r == '\\':
			dst = append(dst, '\\', byte(r))
		case r == '\n':
			dst = append(dst, '\\', 'n')
		case r == '\r':
			dst = append(dst, '\\', 'r')
		case r == '\t':
			dst = append(dst, '\\', 't')
		case r < ' ' || r == 0x7f || r > 0x7f && !unicode.IsPrint(r):
			dst = appendEscape(dst, r)
		default:
			dst = utf8.AppendRune(dst, r)
		}
	}
	return append(dst, quote)
}

func appendEscape(dst []byte, r rune) []byte {
	const hex = "0123456789abcdef"
	digits, prefix := 2, byte('x')
	switch {
	case r > 0xffff:
		digits, prefix = 8, 'U'
	case r > 0xff:
		digits, prefix = 4, 'u'
	}
	dst = append(dst, '\\', prefix)
	for shift := 4 * (digits - 1); shift >= 0; shift -= 4 {
		dst = append(dst, hex[r>>shift&0xf])
	}
	return dst
}

var htmlEscaper = strings.NewReplacer("&", "&amp;", ">", "&gt;", "<", "&lt;", "'", "&#39;", `"`, "&#34;")

// escape returns str(v) safe for HTML.
func escape(st *state, v Value) (markup, error) {
	if m, ok := v.(markup); ok {
		return m, nil
	}
	s, err := str(st, v)
	return markup(htmlEscaper.Replace(s)), err
}
