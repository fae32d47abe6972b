package wire

import (
	"strings"
	"unicode"
)

// Nullable reads a value, or the zero value for null.
func Nullable[T any](r *Reader, at *T, read func(*Reader) (T, error)) error {
	var zero T
	*at = zero
	if null, err := r.Null(); null {
		return err
	}
	v, err := read(r)
	*at = v
	return err
}

// Optional reads a value of which it matters whether it was given; nil is null.
func Optional[T any](r *Reader, at **T, read func(*Reader) (T, error)) error {
	*at = nil
	if null, err := r.Null(); null {
		return err
	}
	v, err := read(r)
	*at = &v
	return err
}

// Text reads a string, for functions that take a way of reading.
func Text(r *Reader) (string, error) { return r.Text("a string") }

// Loose reads a string, any other value as its JSON, and null as nothing: for
// members of which only later is known whether they have to be text.
func Loose(r *Reader) (string, error) {
	switch r.Kind() {
	case '"':
		return Text(r)
	case 'n':
		return "", r.Skip()
	}
	v, err := Clean(r)
	return string(v), err
}

// Clean reads any value, to be kept as it came.
func Clean(r *Reader) ([]byte, error) {
	v, err := r.Raw()
	return CleanRaw(v), err
}

// SplitDataURL takes a base64 data URL apart, as a source of media, and leaves
// any other whole. A media type comes without its parameters: it is shown to
// models, in the same way by every protocol.
func SplitDataURL(s string) (source, mediaType, data string) {
	rest, ok := strings.CutPrefix(s, "data:")
	if !ok {
		return "url", "", s
	}
	head, data, ok := strings.Cut(rest, ",")
	head, base64 := strings.CutSuffix(head, ";base64")
	if !ok || !base64 {
		return "url", "", s
	}
	mediaType, _, _ = strings.Cut(head, ";")
	return "base64", mediaType, data
}

// NotInToolName says whether no name of a tool may hold a character: control
// characters, blanks, quotes, < and > break the markup of some models' calls.
func NotInToolName(r rune) bool {
	return unicode.IsControl(r) || unicode.IsSpace(r) || strings.ContainsRune("\"'`<>", r)
}
