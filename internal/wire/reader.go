package wire

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// Reader reads one JSON document value by value. Values that it returns alias
// the document, which nobody writes to.
type Reader struct {
	doc  []byte
	base string // path of the document itself; empty for a whole body
	d    *jsontext.Decoder
}

// NewReader returns a reader over a body, or over a value inside it that stands
// at the path base.
func NewReader(doc []byte, base string) *Reader {
	return &Reader{doc: doc, base: base, d: jsontext.NewDecoder(bytes.NewBuffer(doc),
		jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))}
}

// Kind returns the kind of the next value: one of the bytes n t f " 0 { [, or
// 0 where the document is broken.
func (r *Reader) Kind() jsontext.Kind { return r.d.PeekKind() }

// Raw reads the next value, whatever it is.
func (r *Reader) Raw() ([]byte, error) {
	v, err := r.d.ReadValue()
	if err != nil {
		return nil, r.broken(err)
	}
	end := int(r.d.InputOffset())
	return r.doc[end-len(v) : end], nil
}

// Skip reads the next value and forgets it.
func (r *Reader) Skip() error {
	if err := r.d.SkipValue(); err != nil {
		return r.broken(err)
	}
	return nil
}

// Null reads the next value if it is null.
func (r *Reader) Null() (bool, error) {
	if r.Kind() != 'n' {
		return false, nil
	}
	return true, r.Skip()
}

// Object calls member for each member of an object, in order. member reads the
// value. The name, which is valid UTF-8, may be used until then.
func (r *Reader) Object(want string, member func(name []byte) error) error {
	_, err := r.ObjectRaw(want, member)
	return err
}

// ObjectRaw is [Reader.Object], and returns the object as it came.
func (r *Reader) ObjectRaw(want string, member func(name []byte) error) ([]byte, error) {
	if r.Kind() != '{' {
		return nil, r.Mistyped(want)
	}
	if _, err := r.d.ReadToken(); err != nil {
		return nil, r.broken(err)
	}
	begin := r.d.InputOffset() - 1
	for r.Kind() != '}' {
		name, err := r.Raw()
		if err != nil {
			return nil, err
		}
		if bytes.IndexByte(name, '\\') >= 0 || !utf8.Valid(name) {
			name = []byte(Unquote(name))
		} else {
			name = name[1 : len(name)-1]
		}
		if err := member(name); err != nil {
			return nil, err
		}
	}
	if _, err := r.d.ReadToken(); err != nil {
		return nil, r.broken(err)
	}
	return r.doc[begin:r.d.InputOffset()], nil
}

// Array calls element for each element of an array; element reads it.
func (r *Reader) Array(want string, element func(i int) error) error {
	if r.Kind() != '[' {
		return r.Mistyped(want)
	}
	if _, err := r.d.ReadToken(); err != nil {
		return r.broken(err)
	}
	for i := 0; r.Kind() != ']'; i++ {
		if err := element(i); err != nil {
			return err
		}
	}
	if _, err := r.d.ReadToken(); err != nil {
		return r.broken(err)
	}
	return nil
}

// End checks that nothing follows.
func (r *Reader) End() error {
	switch _, err := r.d.ReadToken(); {
	case err == io.EOF:
		return nil
	case err != nil:
		return r.broken(err)
	}
	return Malformed("", "more than one JSON value in the body")
}

// Text reads a string.
func (r *Reader) Text(want string) (string, error) {
	if r.Kind() != '"' {
		return "", r.Mistyped(want)
	}
	raw, err := r.Raw()
	if err != nil {
		return "", err
	}
	return Unquote(raw), nil
}

// Boolean reads true or false.
func (r *Reader) Boolean() (bool, error) {
	if k := r.Kind(); k != 't' && k != 'f' {
		return false, r.Mistyped("a boolean")
	}
	raw, err := r.Raw()
	return err == nil && raw[0] == 't', err
}

// Integer reads a number without fraction within [low, high]; 1e3 and 5.0 are
// such numbers.
func (r *Reader) Integer(low, high int64) (int64, error) {
	if r.Kind() != '0' {
		return 0, r.Mistyped("an integer")
	}
	raw, err := r.Raw()
	if err != nil {
		return 0, err
	}
	n, ok := ParseInteger(raw)
	if !ok {
		return 0, Malformed(r.Path(), "expected an integer, got %s", Clip(raw))
	}
	if n < low || n > high {
		return 0, Malformed(r.Path(), "expected an integer from %d to %d, got %s", low, high, Clip(raw))
	}
	return n, nil
}

// Float reads a number.
func (r *Reader) Float() (float64, error) {
	if r.Kind() != '0' {
		return 0, r.Mistyped("a number")
	}
	raw, err := r.Raw()
	if err != nil {
		return 0, err
	}
	f, err := strconv.ParseFloat(string(raw), 64)
	if err != nil {
		return 0, Malformed(r.Path(), "number %s is out of range", Clip(raw))
	}
	return f, nil
}

func ParseInteger(raw []byte) (int64, bool) {
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

// Mistyped reads the next value and returns the error that it is not what was
// wanted.
func (r *Reader) Mistyped(want string) error {
	kind := r.Kind()
	if _, err := r.Raw(); err != nil {
		return err
	}
	return Malformed(r.Path(), "expected %s, got %s", want, Describe(kind))
}

// broken turns an error of the JSON syntax into the client's error.
func (r *Reader) broken(err error) error {
	if err == io.EOF || errors.Is(err, io.ErrUnexpectedEOF) {
		return &SyntaxError{Malformed("", "the JSON text ends too early")}
	}
	return &SyntaxError{Malformed("", "%s", strings.TrimPrefix(err.Error(), "jsontext: "))}
}

// SyntaxError marks a document that is no JSON, which a lenient second try may
// mend.
type SyntaxError struct{ Cause *Error }

func (e *SyntaxError) Error() string { return e.Cause.Error() }

// Path returns where the value read last stands, as in messages[2].content.
func (r *Reader) Path() string {
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

// Describe names the kind of a value as a client knows it.
func Describe(k jsontext.Kind) string {
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

// Clip shortens what a client sent for use in a message.
func Clip[T string | []byte](s T) string {
	const most = 64
	if len(s) <= most {
		return strings.ToValidUTF8(string(s), "\uFFFD")
	}
	return strings.ToValidUTF8(string(s[:most]), "\uFFFD") + "…"
}
