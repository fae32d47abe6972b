package anthropic

import (
	"math"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/dynago/dynago/internal/wire"
)

// lenient reads a value of one kind, and passes over any other: which members a
// block has depends on its type, which may come last.
func lenient[T any](r *wire.Reader, at *T, kind jsontext.Kind, read func(*wire.Reader) (T, error)) error {
	if r.Kind() != kind {
		var zero T
		*at = zero
		return r.Skip()
	}
	return wire.Nullable(r, at, read)
}

func integer(r *wire.Reader) (int64, error) { return r.Integer(math.MinInt64, math.MaxInt64) }

func texts(r *wire.Reader) ([]string, error) {
	var out []string
	err := r.Array("an array of strings", func(int) error {
		s, err := wire.Text(r)
		out = append(out, s)
		return err
	})
	return out, err
}
