package openai

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// reader reads one JSON document value by value. Values that it returns alias
// the document, which nobody writes to.
type reader struct {
	doc  []byte
	base string // path of the document itself; empty for a whole body
	d    *jsontext.Decoder
	open int // where the object that was entered last begins
}

// newReader returns a reader over a body, or over a value inside it that stands
// at the path base.
func newReader(doc []byte, base string) *reader {
	return &reader{doc: doc, base: base, d: jsontext.NewDecoder(bytes.NewBuffer(doc),
		jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))}
}

// kind returns the kind of the next value: one of the bytes n t f " 0 { [, or
// 0 where the document is broken.
func (r *reader) kind() jsontext.Kind { return r.d.PeekKind() }

// raw reads the next value, whatever it is.
func (r *reader) raw() ([]byte, error) {
	v, err := r.d.ReadValue()
	if err != nil {
		return nil, r.broken(err)
	}
	end := int(r.d.InputOffset())
	return r.doc[end-len(v) : end], nil
}

// skip reads the next value and forgets it.
func (r *reader) skip() error {
	if err := r.d.SkipValue(); err != nil {
		return r.broken(err)
	}
	return nil
}

// null reads the next value if it is null.
func (r *reader) null() (bool, error) {
	if r.kind() != 'n' {
		return false, nil
	}
	return true, r.skip()
}

// object calls member for each member of an object, in order. member reads the
// value. The name may be used until then.
func (r *reader) object(want string, member func(name []byte) error) error {
	if r.kind() != '{' {
		return r.mistyped(want)
	}
	if _, err := r.d.ReadToken(); err != nil {
		return r.broken(err)
	}
	r.open = int(r.d.InputOffset()) - 1
	for r.kind() != '}' {
		name, err := r.raw()
		if err != nil {
			return err
		}
		if bytes.IndexByte(name, '\\') >= 0 {
			name = []byte(unquote(name))
		} else {
			name = name[1 : len(name)-1]
		}
		if err := member(name); err != nil {
			return err
		}
	}
	if _, err := r.d.ReadToken(); err != nil {
		return r.broken(err)
	}
	return nil
}

// array calls element for each element of an array; element reads it.
func (r *reader) array(want string, element func(i int) error) error {
	if r.kind() != '[' {
		return r.mistyped(want)
	}
	if _, err := r.d.ReadToken(); err != nil {
		return r.broken(err)
	}
	for i := 0; r.kind() != ']'; i++ {
		if err := element(i); err != nil {
			return err
		}
	}
	if _, err := r.d.ReadToken(); err != nil {
		return r.broken(err)
	}
	return nil
}

// end checks that nothing follows.
func (r *reader) end() error {
	switch _, err := r.d.ReadToken(); {
	case err == io.EOF:
		return nil
	case err != nil:
		return r.broken(err)
	}
	return malformed("", "more than one JSON value in the body")
}

// text reads a string.
func (r *reader) text(want string) (string, error) {
	if r.kind() != '"' {
		return "", r.mistyped(want)
	}
	raw, err := r.raw()
	if err != nil {
		return "", err
	}
	return unquote(raw), nil
}

// boolean reads true or false.
func (r *reader) boolean() (bool, error) {
	if k := r.kind(); k != 't' && k != 'f' {
		return false, r.mistyped("a boolean")
	}
	raw, err := r.raw()
	return err == nil && raw[0] == 't', err
}

// integer reads a number without fraction within [low, high]; 1e3 and 5.0 are
// such numbers.
func (r *reader) integer(low, high int64) (int64, error) {
	if r.kind() != '0' {
		return 0, r.mistyped("an integer")
	}
	raw, err := r.raw()
	if err != nil {
		return 0, err
	}
	n, ok := parseInteger(raw)
	if !ok {
		return 0, malformed(r.path(), "expected an integer, got %s", clip(raw))
	}
	if n < low || n > high {
		return 0, malformed(r.path(), "expected an integer from %d to %d, got %s", low, high, clip(raw))
	}
	return n, nil
}

// float reads a number.
func (r *reader) float() (float64, error) {
	if r.kind() != '0' {
		return 0, r.mistyped("a number")
	}
	raw, err := r.raw()
	if err != nil {
		return 0, err
	}
	f, err := strconv.ParseFloat(string(raw), 64)
	if err != nil {
		return 0, malformed(r.path(), "number %s is out of range", clip(raw))
	}
	return f, nil
}

func parseInteger(raw []byte) (int64, bool) {
	n, err := strconv.ParseInt(string(raw), 10, 64)
	if err == nil {
		return n, true
	}
	f, err := strconv.ParseFloat(string(raw), 64)
	if err != nil || f != math.Trunc(f) || math.Abs(f) > 1<<53 {
		return 0, false
	}
	return int64(f), true
}

// mistyped reads the next value and returns the error that it is not what was
// wanted.
func (r *reader) mistyped(want string) error {
	kind := r.kind()
	if _, err := r.raw(); err != nil {
		return err
	}
	return malformed(r.path(), "expected %s, got %s", want, describe(kind))
}

// broken turns an error of the JSON syntax into the client's error.
func (r *reader) broken(err error) error {
	if err == io.EOF || errors.Is(err, io.ErrUnexpectedEOF) {
		return &syntaxError{malformed("", "the JSON text ends too early")}
	}
	return &syntaxError{malformed("", "%s", strings.TrimPrefix(err.Error(), "jsontext: "))}
}

// syntaxError marks a document that is no JSON, which a lenient second try may
// mend.
type syntaxError struct{ cause *Error }

func (e *syntaxError) Error() string { return e.cause.Error() }

// path returns where the value read last stands, as in messages[2].content.
func (r *reader) path() string {
	var b strings.Builder
	b.WriteString(r.base)
	level := 0
	for token := range r.d.StackPointer().Tokens() {
		if kind, _ := r.d.StackIndex(level + 1); kind == '[' {
			fmt.Fprintf(&b, "[%s]", token)
		} else {
			if b.Len() > 0 {
				b.WriteByte('.')
			}
			b.WriteString(strings.ToValidUTF8(token, "\uFFFD"))
		}
		level++
	}
	return b.String()
}

// describe names the kind of a value as a client knows it.
func describe(k jsontext.Kind) string {
	switch k {
	case 'n':
		return "null"
	case 't', 'f':
		return "a boolean"
	case '"':
		return "a string"
	case '0':
		return "a number"
	case '{':
		return "an object"
	case '[':
		return "an array"
	}
	return "nothing"
}

// clip shortens what a client sent for use in a message.
func clip[T string | []byte](s T) string {
	const most = 64
	if len(s) <= most {
		return strings.ToValidUTF8(string(s), "\uFFFD")
	}
	return strings.ToValidUTF8(string(s[:most]), "\uFFFD") + "…"
}
