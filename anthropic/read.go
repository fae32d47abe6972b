package anthropic

import (
	"math"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/dynago/dynago/internal/wire"
)

// The functions below read one value, and count null as absent.

// nullable reads a value, or the zero value for null.
func nullable[T any](r *wire.Reader, at *T, read func(*wire.Reader) (T, error)) error {
	var zero T
	*at = zero
	if null, err := r.Null(); null {
		return err
	}
	v, err := read(r)
	*at = v
	return err
}

// optional reads a value of which it matters whether it was given.
func optional[T any](r *wire.Reader, at **T, read func(*wire.Reader) (T, error)) error {
	*at = nil
	if null, err := r.Null(); null {
		return err
	}
	v, err := read(r)
	*at = &v
	return err
}

// lenient reads a value of one kind, and passes over any other: which members a
// block has depends on its type, which may come last.
func lenient[T any](r *wire.Reader, at *T, kind jsontext.Kind, read func(*wire.Reader) (T, error)) error {
	if r.Kind() != kind {
		var zero T
		*at = zero
		return r.Skip()
	}
	return nullable(r, at, read)
}

func text(r *wire.Reader) (string, error) { return r.Text("a string") }

func integer(r *wire.Reader) (int64, error) { return r.Integer(math.MinInt64, math.MaxInt64) }

func texts(r *wire.Reader) ([]string, error) {
	var out []string
	err := r.Array("an array of strings", func(int) error {
		s, err := text(r)
		out = append(out, s)
		return err
	})
	return out, err
}

// clean reads any value, to be kept as it came.
func clean(r *wire.Reader) ([]byte, error) {
	v, err := r.Raw()
	return wire.CleanRaw(v), err
}
