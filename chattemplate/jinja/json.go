package jinja

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// FromJSON reads one JSON document. Objects keep the order of their keys (of a
// repeated key the last value counts), integers keep all their digits, and a
// number that float64 cannot hold keeps its spelling. A document that is nested
// deeper than [ToJSON] can write it back, with what a template may put around it,
// is an error.
func FromJSON(doc []byte) (Value, error) {
	d := jsontext.NewDecoder(bytes.NewBuffer(doc), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	v, err := readJSON(d)
	if err != nil {
		return nil, fmt.Errorf("jinja: read JSON: %w", err)
	}
	if _, err := d.ReadToken(); err != io.EOF {
		return nil, fmt.Errorf("jinja: read JSON: more than one document")
	}
	return v, nil
}

// maxDocument is how deep a document may be nested.
const maxDocument = maxNesting / 2

func readJSON(d *jsontext.Decoder) (Value, error) {
	tok, err := d.ReadToken()
	if err != nil {
		return nil, err
	}
	if d.StackDepth() > maxDocument {
		return nil, fmt.Errorf("nested more than %d levels deep", maxDocument)
	}
	switch tok.Kind() {
	case 'n':
		return None, nil
	case 't':
		return true, nil
	case 'f':
		return false, nil
	case '"':
		return tok.String(), nil
	case '0':
		return jsonNumber(tok.String()), nil
	case '[':
		list := NewList()
		for d.PeekKind() != ']' {
			v, err := readJSON(d)
			if err != nil {
				return nil, err
			}
			list.items = append(list.items, v)
		}
		_, err := d.ReadToken()
		return list, err
	default:
		dict := NewDict(4)
		for d.PeekKind() != '}' {
			name, err := d.ReadToken()
			if err != nil {
				return nil, err
			}
			key := name.String()
			v, err := readJSON(d)
			if err != nil {
				return nil, err
			}
			dict.Set(key, v)
		}
		_, err := d.ReadToken()
		return dict, err
	}
}

func jsonNumber(s string) Value {
	if !strings.ContainsAny(s, ".eE") {
		if v, ok := integer(s, 10); ok {
			return v
		}
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || significant(s) != significant(string(appendFloat(nil, f))) {
		return &decimal{Text: s, Float: f}
	}
	return f
}

// significant returns the digits of a number without sign, point, exponent and
// outer zeros: two spellings of about the same size are the same number if
// these agree.
func significant(s string) string {
	s = strings.TrimPrefix(s, "-")
	if i := strings.IndexAny(s, "eE"); i >= 0 {
		s = s[:i]
	}
	return strings.Trim(strings.Replace(s, ".", "", 1), "0")
}

// jsonStyle is how tojson writes: Python's json.dumps with its options.
type jsonStyle struct {
	st              *state // whose limits hold; nil = none
	ascii, sortKeys bool
	indent          string
	multiline       bool
	item, key       string // separators
}

var compactJSON = jsonStyle{item: ", ", key: ": "}

// ToJSON returns v as Python's json.dumps(v, ensure_ascii=False) spells it.
func ToJSON(v Value) (string, error) {
	b, err := compactJSON.append(nil, v, 0)
	return string(b), err
}

func (s *jsonStyle) append(dst []byte, v Value, depth int) ([]byte, error) {
	if err := s.st.prints(len(dst), depth); err != nil {
		return nil, err
	}
	switch v := v.(type) {
	case none:
		return append(dst, "null"...), nil
	case bool:
		return strconv.AppendBool(dst, v), nil
	case int:
		return strconv.AppendInt(dst, int64(v), 10), nil
	case *big.Int:
		return v.Append(dst, 10), nil
	case float64:
		return appendJSONFloat(dst, v), nil
	case *decimal:
		return append(dst, v.Text...), nil
	case string:
		return s.appendString(dst, v), nil
	case markup:
		return s.appendString(dst, string(v)), nil
	case *List:
		return s.appendArray(dst, v.items, depth)
	case *tuple:
		return s.appendArray(dst, v.items, depth)
	case *Dict:
		return s.appendObject(dst, v, depth)
	}
	return nil, fail(TypeError, "Object of type %s is not JSON serializable", typeName(v))
}

func (s *jsonStyle) appendArray(dst []byte, items []Value, depth int) ([]byte, error) {
	if len(items) == 0 {
		return append(dst, "[]"...), nil
	}
	dst = append(dst, '[')
	var err error
	for i, item := range items {
		if i > 0 {
			dst = append(dst, s.item...)
		}
		dst = s.newline(dst, depth+1)
		if dst, err = s.append(dst, item, depth+1); err != nil {
			return nil, err
		}
	}
	return append(s.newline(dst, depth), ']'), nil
}

func (s *jsonStyle) appendObject(dst []byte, d *Dict, depth int) ([]byte, error) {
	if d.Len() == 0 {
		return append(dst, "{}"...), nil
	}
	order, err := s.order(d)
	if err != nil {
		return nil, err
	}
	dst = append(dst, '{')
	for n := range d.keys {
		i := n
		if order != nil {
			i = order[n]
		}
		if n > 0 {
			dst = append(dst, s.item...)
		}
		dst = s.newline(dst, depth+1)
		if dst, err = s.appendKey(dst, d.keys[i]); err != nil {
			return nil, err
		}
		dst = append(dst, s.key...)
		if dst, err = s.append(dst, d.vals[i], depth+1); err != nil {
			return nil, err
		}
	}
	return append(s.newline(dst, depth), '}'), nil
}

func (s *jsonStyle) order(d *Dict) ([]int, error) {
	if !s.sortKeys {
		return nil, nil
	}
	order := make([]int, d.Len())
	for i := range order {
		order[i] = i
	}
	var failed error
	slices.SortStableFunc(order, func(a, b int) int {
		c, err := compare(s.st, d.keys[a], d.keys[b])
		if err != nil {
			failed = err
		}
		return c
	})
	return order, failed
}

func (s *jsonStyle) appendKey(dst []byte, key Value) ([]byte, error) {
	switch k := key.(type) {
	case string:
		return s.appendString(dst, k), nil
	case markup:
		return s.appendString(dst, string(k)), nil
	case none, bool, int, float64, *big.Int, *decimal:
		b, err := s.append(nil, k, 0)
		return append(append(append(dst, '"'), b...), '"'), err
	}
	return nil, fail(TypeError, "keys must be str, int, float, bool or None, not %s", typeName(key))
}

func (s *jsonStyle) newline(dst []byte, depth int) []byte {
	if !s.multiline {
		return dst
	}
	dst = append(dst, '\n')
	for range depth {
		dst = append(dst, s.indent...)
	}
	return dst
}

func appendJSONFloat(dst []byte, f float64) []byte {
	switch {
	case math.IsNaN(f):
		return append(dst, "NaN"...)
	case math.IsInf(f, 1):
		return append(dst, "Infinity"...)
	case math.IsInf(f, -1):
		return append(dst, "-Infinity"...)
	}
	return appendFloat(dst, f)
}

func (s *jsonStyle) appendString(dst []byte, t string) []byte {
	dst = append(dst, '"')
	plain := 0
	for i := 0; i < len(t); {
		c := t[i]
		if c >= utf8.RuneSelf {
			r, n := utf8.DecodeRuneInString(t[i:])
			if s.ascii {
				dst = appendSurrogates(append(dst, t[plain:i]...), r)
				plain = i + n
			}
			i += n
			continue
		}
		if c >= ' ' && c != '"' && c != '\\' && (c != 0x7f || !s.ascii) {
			i++
			continue
		}
		dst = append(dst, t[plain:i]...)
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\r':
			dst = append(dst, '\\', 'r')
		case '\t':
			dst = append(dst, '\\', 't')
		case '\b':
			dst = append(dst, '\\', 'b')
		case '\f':
			dst = append(dst, '\\', 'f')
		default:
			dst = fmt.Appendf(dst, "\\u%04x", c)
		}
		i++
		plain = i
	}
	return append(append(dst, t[plain:]...), '"')
}

func appendSurrogates(dst []byte, r rune) []byte {
	if r <= 0xffff {
		return fmt.Appendf(dst, "\\u%04x", r)
	}
	r -= 0x10000
	return fmt.Appendf(dst, "\\u%04x\\u%04x", 0xd800+(r>>10), 0xdc00+(r&0x3ff))
}
