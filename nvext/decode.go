package nvext

import (
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Error says which member of an extension object is wrong, and what would be
// right.
type Error struct {
	Path string // nvext.agent_hints.osl
	Want string
}

// Error returns one line that begins with the path.
func (e *Error) Error() string { return e.Path + ": " + e.Want }

func wrong(path, format string, args ...any) *Error {
	return &Error{Path: "nvext." + path, Want: fmt.Sprintf(format, args...)}
}

var lenient = json.JoinOptions(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))

// bounded reads no more ranges than there may be: each takes many times the room that
// it has in a body.
var bounded = json.WithUnmarshalers(json.UnmarshalFromFunc(func(d *jsontext.Decoder, ranges *[]RetentionRange) error {
	if d.PeekKind() != '[' {
		return errors.ErrUnsupported
	}
	if _, err := d.ReadToken(); err != nil {
		return err
	}
	*ranges = []RetentionRange{}
	for d.PeekKind() != ']' {
		if len(*ranges) == mostRanges {
			return wrong("retention.ranges", "must hold at most %d ranges, got more", mostRanges)
		}
		var r RetentionRange
		if err := json.UnmarshalDecode(d, &r); err != nil {
			return err
		}
		*ranges = append(*ranges, r)
	}
	_, err := d.ReadToken()
	return err
}))

// Decode decodes the member nvext of a body, or null, for which it returns nil.
// Unknown members are listed as paths, sorted by where they stand; strict makes
// the first of them an error. Errors of values are of type *Error.
func Decode(raw []byte, strict bool) (ext *Ext, unknown []string, err error) {
	switch jsontext.Value(raw).Kind() {
	case 'n':
		return nil, nil, nil
	case '{':
	default:
		return nil, nil, &Error{Path: "nvext", Want: "expected an object"}
	}
	ext = new(Ext)
	if err := json.Unmarshal(raw, ext, lenient, bounded); err != nil {
		return nil, nil, explain(err)
	}
	if err := ext.check(); err != nil {
		return nil, nil, err
	}
	unknown = strangers(raw)
	if strict && len(unknown) > 0 {
		return nil, nil, &Error{Path: unknown[0], Want: "unknown field"}
	}
	return ext, unknown, nil
}

// explain turns a decoder's error into one that a client can act upon.
func explain(err error) error {
	if own, ok := errors.AsType[*Error](err); ok {
		return own
	}
	var e *json.SemanticError
	if !errors.As(err, &e) {
		return fmt.Errorf("nvext: %w", err)
	}
	var path strings.Builder
	path.WriteString("nvext")
	for token := range e.JSONPointer.Tokens() {
		if _, err := strconv.Atoi(token); err == nil {
			fmt.Fprintf(&path, "[%s]", token)
		} else {
			path.WriteString("." + token)
		}
	}
	return &Error{Path: path.String(), Want: "expected " + describe(e.GoType)}
}

// describe names a type as a client knows it.
func describe(t reflect.Type) string {
	if t == nil {
		return "another type of value"
	}
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == reflect.TypeFor[WorkerID]() {
		return "a worker id: a decimal number or string"
	}
	switch t.Kind() {
	case reflect.Bool:
		return "a boolean"
	case reflect.String:
		return "a string"
	case reflect.Slice:
		return "an array"
	case reflect.Float32, reflect.Float64:
		return "a number"
	case reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return fmt.Sprintf("a signed %d-bit integer", t.Bits())
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return fmt.Sprintf("an unsigned %d-bit integer", t.Bits())
	}
	return "an object"
}

// maxUnknown bounds the list of unknown members: it goes into a log line.
const maxUnknown = 32

// strangers lists the members of a valid extension object that no field of Ext,
// or of what it holds, is named for.
func strangers(raw []byte) []string {
	var found []string
	var walk func(raw []byte, t reflect.Type, path string)
	walk = func(raw []byte, t reflect.Type, path string) {
		for t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		known := members[t]
		if jsontext.Value(raw).Kind() == '[' && t.Kind() == reflect.Slice && members[t.Elem()] != nil {
			each(raw, func(i int, _ string, v []byte) { walk(v, t.Elem(), fmt.Sprintf("%s[%d]", path, i)) })
			return
		}
		if known == nil || jsontext.Value(raw).Kind() != '{' {
			return
		}
		each(raw, func(_ int, name string, v []byte) {
			if field, ok := known[name]; ok {
				walk(v, field, path+"."+name)
			} else if len(found) < maxUnknown {
				found = append(found, path+"."+name)
			}
		})
	}
	walk(raw, reflect.TypeFor[Ext](), "nvext")
	return found
}

// each calls f with the members of an object, or the elements of an array.
func each(raw []byte, f func(i int, name string, v []byte)) {
	d := jsontext.NewDecoder(strings.NewReader(string(raw)), lenient)
	begin, err := d.ReadToken()
	for i := 0; err == nil && d.PeekKind() != '}' && d.PeekKind() != ']'; i++ {
		name := ""
		if begin.Kind() == '{' {
			var token jsontext.Token
			if token, err = d.ReadToken(); err != nil {
				return
			}
			name = strings.ToValidUTF8(token.String(), "\uFFFD")
		}
		var v jsontext.Value
		if v, err = d.ReadValue(); err == nil {
			f(i, name, v)
		}
	}
}

// members holds the member names of each object type below Ext.
var members = func() map[reflect.Type]map[string]reflect.Type {
	all := map[reflect.Type]map[string]reflect.Type{}
	var add func(t reflect.Type) map[string]reflect.Type
	add = func(t reflect.Type) map[string]reflect.Type {
		for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
			t = t.Elem()
		}
		if t.Kind() != reflect.Struct || all[t] != nil {
			return all[t]
		}
		names := map[string]reflect.Type{}
		all[t] = names
		for i := range t.NumField() {
			field := t.Field(i)
			inner := add(field.Type)
			if field.Anonymous {
				for name, t := range inner {
					names[name] = t
				}
				continue
			}
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			names[name] = field.Type
		}
		return names
	}
	add(reflect.TypeFor[Ext]())
	return all
}()
