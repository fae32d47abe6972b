package prompt

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/dynago/dynago/tokenizer"
)

// object is a JSON object in a model's file, read member by member. What is
// absent or null reads as nothing. The first member that is not what it should be
// is kept in fault, and the reading goes on, so that whoever reads asks once.
type object struct {
	at      string // the file, and after a colon the path inside it
	members map[string]jsontext.Value
	fault   *error
}

// lenient is how Python reads JSON, which these files are written for.
var lenient = json.JoinOptions(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))

// parseObject reads a file that is a JSON object.
func parseObject(name string, text []byte) (object, error) {
	o := object{at: name, fault: new(error)}
	text = bytes.TrimPrefix(text, []byte("\ufeff"))
	err := json.Unmarshal(text, &o.members, lenient)
	if err != nil {
		// Python writes NaN and Infinity, which JSON does not have.
		if finite := nullifyNonFinite(text); finite != nil {
			err = json.Unmarshal(finite, &o.members, lenient)
		}
	}
	if err == nil {
		return o, nil
	}
	return o, fmt.Errorf("%s: %w", name, describeJSON(text, err))
}

// describeJSON says in the words of the file's owner why text is no JSON object.
func describeJSON(text []byte, err error) error {
	syntax, ok := errors.AsType[*jsontext.SyntacticError](err)
	switch {
	case len(bytes.TrimSpace(text)) == 0:
		return errors.New("want a JSON object, and the file is empty")
	case !ok:
		return fmt.Errorf("want a JSON object, not %s", shown(bytes.TrimSpace(text)))
	case int(syntax.ByteOffset) >= len(text):
		return errors.New("the file ends within its JSON: want a complete file")
	}
	before := text[:syntax.ByteOffset]
	line := 1 + bytes.Count(before, []byte("\n"))
	column := len(before) - bytes.LastIndexByte(before, '\n')
	return fmt.Errorf("line %d, column %d: want JSON, not %s", line, column, shown(text[syntax.ByteOffset:]))
}

// plainly says a decoder's error about a vocabulary in words that are none of
// this program's: no type of Go, no name of a package.
func plainly(text []byte, err error) error {
	if _, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		return describeJSON(text, err)
	}
	said := strings.TrimPrefix(err.Error(), "tokenizer: ")
	wrong, ok := errors.AsType[*json.SemanticError](err)
	if !ok {
		return errors.New(said)
	}
	want := "another kind of value"
	if wrong.GoType != nil {
		switch kind := wrong.GoType.Kind(); {
		case kind == reflect.Struct || kind == reflect.Map:
			want = "an object"
		case kind == reflect.Slice || kind == reflect.Array:
			want = "a list"
		case kind == reflect.String:
			want = "a string"
		case kind == reflect.Bool:
			want = "true or false"
		case kind >= reflect.Int && kind <= reflect.Uint64:
			want = "a whole number that is not negative"
		case kind == reflect.Float64:
			want = "a number"
		}
	}
	at := strings.TrimSuffix(strings.TrimSuffix(said, wrong.Error()), ": ")
	for token := range wrong.JSONPointer.Tokens() {
		switch {
		case strings.Trim(token, "0123456789") == "":
			at += "[" + token + "]"
		case at == "":
			at = token
		default:
			at += "." + token
		}
	}
	if at == "" {
		return fmt.Errorf("want %s", want)
	}
	return fmt.Errorf("%s: want %s", at, want)
}

// nullifyNonFinite returns text with null for each NaN, Infinity and -Infinity
// outside strings; nil if there is none.
func nullifyNonFinite(text []byte) []byte {
	var out []byte
	done := 0
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '"':
			for i++; i < len(text) && text[i] != '"'; i++ {
				if text[i] == '\\' {
					i++
				}
			}
		case '-', 'N', 'I':
			for _, word := range []string{"-Infinity", "Infinity", "NaN"} {
				if bytes.HasPrefix(text[i:], []byte(word)) {
					out = append(append(out, text[done:i]...), "null"...)
					done = i + len(word)
					i = done - 1
					break
				}
			}
		}
	}
	if out == nil {
		return nil
	}
	return append(out, text[done:]...)
}

// shown is the beginning of a value as a message shows it, in one line.
func shown(v []byte) string {
	const most = 40
	v = bytes.Join(bytes.Fields(v[:min(len(v), 2*most)]), []byte(" "))
	s := string(bytes.ToValidUTF8(v[:min(len(v), most)], nil))
	if strings.ContainsFunc(s, func(r rune) bool { return !strconv.IsPrint(r) }) {
		s = strconv.QuoteToASCII(s)
	}
	if len(v) > most {
		s += "…"
	}
	return s
}

func (o object) failf(key, format string, args ...any) {
	if *o.fault == nil {
		*o.fault = fmt.Errorf("%s: %s", o.path(key), fmt.Sprintf(format, args...))
	}
}

// want notes that the member is not what it should be.
func (o object) want(key, what string) { o.failf(key, "want %s, not %s", what, shown(o.members[key])) }

func (o object) path(key string) string {
	if bytes.IndexByte([]byte(o.at), ':') >= 0 {
		return o.at + "." + key
	}
	return o.at + ": " + key
}

// has tells whether the member is there and not null.
func (o object) has(key string) bool {
	v := o.members[key]
	return len(v) > 0 && v.Kind() != 'n'
}

func (o object) text(key string) string {
	if !o.has(key) {
		return ""
	}
	s, ok := textOf(o.members[key])
	if !ok {
		o.want(key, "a string")
	}
	return s
}

func textOf(v jsontext.Value) (s string, ok bool) {
	return s, v.Kind() == '"' && json.Unmarshal(v, &s, lenient) == nil
}

// flag returns a boolean, and whether it is given.
func (o object) flag(key string) (value, given bool) {
	if !o.has(key) {
		return false, false
	}
	kind := o.members[key].Kind()
	if kind != 't' && kind != 'f' {
		o.want(key, "true or false")
	}
	return kind == 't', true
}

func (o object) number(key string) float64 {
	if !o.has(key) {
		return 0
	}
	f, ok := numberOf(o.members[key])
	if !ok {
		o.want(key, "a number")
	}
	return f
}

func numberOf(v jsontext.Value) (float64, bool) {
	if v.Kind() != '0' {
		return 0, false
	}
	f, err := strconv.ParseFloat(string(bytes.TrimSpace(v)), 64)
	// A number too large for a float, as for Python, is no fault.
	return f, err == nil || errors.Is(err, strconv.ErrRange)
}

// count returns a whole number that is not negative; what files write for "none",
// a negative number or an immense one, is 0.
func (o object) count(key string) int {
	if !o.has(key) {
		return 0
	}
	f, ok := numberOf(o.members[key])
	if !ok || f != math.Trunc(f) && !math.IsInf(f, 0) {
		o.want(key, "a whole number")
		return 0
	}
	if f < 0 || f >= immense {
		return 0
	}
	return int(f)
}

// immense is more than any length of a text in tokens.
const immense = 1e9

// object returns a member that is an object; of one that is absent, an empty one.
func (o object) object(key string) object {
	inner := object{at: o.path(key), fault: o.fault}
	if o.has(key) && json.Unmarshal(o.members[key], &inner.members, lenient) != nil {
		o.want(key, "an object")
	}
	return inner
}

func (o object) list(key string) []jsontext.Value {
	var list []jsontext.Value
	if o.has(key) && json.Unmarshal(o.members[key], &list, lenient) != nil {
		o.want(key, "a list")
	}
	return list
}

// element is the element of a list, as an object.
func (o object) element(key string, i int, v jsontext.Value) object {
	inner := object{at: fmt.Sprintf("%s[%d]", o.path(key), i), fault: o.fault}
	if json.Unmarshal(v, &inner.members, lenient) != nil && *o.fault == nil {
		*o.fault = fmt.Errorf("%s: want an object, not %s", inner.at, shown(v))
	}
	return inner
}

// token returns the content of a special token, which is a string or an object.
func (o object) token(key string) string {
	if !o.has(key) {
		return ""
	}
	v := o.members[key]
	if v.Kind() == '{' {
		return o.object(key).text("content")
	}
	s, ok := textOf(v)
	// Where there is none, some files say false.
	if !ok && v.Kind() != 'f' {
		o.want(key, `a token: a string, or an object with "content"`)
	}
	return s
}

// tokens returns the contents of a list of special tokens.
func (o object) tokens(key string) []string {
	var contents []string
	for i, v := range o.list(key) {
		content, ok := textOf(v)
		if !ok {
			content = o.element(key, i, v).text("content")
		}
		contents = append(contents, content)
	}
	return contents
}

// ids returns one id or a list of them; negative ones mean none.
func (o object) ids(key string) []uint32 {
	if !o.has(key) {
		return nil
	}
	list := []jsontext.Value{o.members[key]}
	if list[0].Kind() == '[' {
		list = o.list(key)
	}
	var ids []uint32
	for _, v := range list {
		f, ok := numberOf(v)
		if !ok || f != math.Trunc(f) || f >= maxID {
			o.want(key, "a token id or a list of them")
			return nil
		}
		if f >= 0 {
			ids = append(ids, uint32(f))
		}
	}
	return ids
}

// addedToken reads a token with its flags. A token that is to be found before the
// text is normalized has "normalized" false; by default special tokens are.
func (o object) addedToken(id uint32) tokenizer.AddedToken {
	t := tokenizer.AddedToken{ID: id, Content: o.text("content")}
	t.Special, _ = o.flag("special")
	t.SingleWord, _ = o.flag("single_word")
	t.LStrip, _ = o.flag("lstrip")
	t.RStrip, _ = o.flag("rstrip")
	given := false
	if t.Normalized, given = o.flag("normalized"); !given {
		t.Normalized = !t.Special
	}
	return t
}
