package openai

import (
	"math"
	"strconv"

	"github.com/dynago/dynago/internal/wire"
)

// The functions below make the read function of a field from the place its
// value goes to. What is null counts as absent.

func text(at func(*body) *string) func(*wire.Reader, *body) error {
	return func(r *wire.Reader, b *body) error { return wire.Nullable(r, at(b), wire.Text) }
}

func optionalText(at func(*body) **string) func(*wire.Reader, *body) error {
	return func(r *wire.Reader, b *body) error { return wire.Optional(r, at(b), wire.Text) }
}

func boolean(at func(*body) **bool) func(*wire.Reader, *body) error {
	return func(r *wire.Reader, b *body) error { return wire.Optional(r, at(b), (*wire.Reader).Boolean) }
}

// integer reads numbers from low on; fields whose ranges have a text of their
// own are checked later.
func integer(low int64, at func(*body) **int64) func(*wire.Reader, *body) error {
	high := int64(math.MaxInt64)
	if low == 0 {
		high = math.MaxUint32
	}
	return func(r *wire.Reader, b *body) error {
		return wire.Optional(r, at(b), func(r *wire.Reader) (int64, error) { return r.Integer(low, high) })
	}
}

func number(at func(*body) **float64) func(*wire.Reader, *body) error {
	return func(r *wire.Reader, b *body) error { return wire.Optional(r, at(b), (*wire.Reader).Float) }
}

func raw(at func(*body) *[]byte) func(*wire.Reader, *body) error {
	return func(r *wire.Reader, b *body) error { return wire.Nullable(r, at(b), (*wire.Reader).Raw) }
}

// accept takes a value of any type, without effect.
func accept(r *wire.Reader, _ *body) error { return r.Skip() }

// passThrough reads a value that is handed on as it is; its type error has a
// text of its own.
func passThrough(name, must string, read func(*wire.Reader, *body) error, clear func(*body)) func(*wire.Reader, *body) error {
	return func(r *wire.Reader, b *body) error {
		clear(b)
		if null, err := r.Null(); null {
			return err
		}
		err := read(r, b)
		if e, ok := err.(*wire.Error); ok {
			return wire.Invalid(e.Param, "`%s` %s", name, must)
		}
		return err
	}
}

func ids(name string, at func(*body) *[]uint32) func(*wire.Reader, *body) error {
	return passThrough(name, "must be an array of token IDs", func(r *wire.Reader, b *body) (err error) {
		*at(b), err = readIDs(r)
		return err
	}, func(b *body) { *at(b) = nil })
}

// readIDs reads an array of token ids.
func readIDs(r *wire.Reader) ([]uint32, error) {
	out := []uint32{}
	err := r.Array("an array of token IDs", func(int) error {
		id, err := r.Integer(0, math.MaxUint32)
		out = append(out, uint32(id))
		return err
	})
	return out, err
}

func readBadWords(r *wire.Reader, b *body) error {
	return passThrough("bad_words_token_ids", "must be an array of token ID arrays", func(r *wire.Reader, b *body) error {
		return r.Array("an array of arrays", func(int) error {
			if err := b.count.Take(r, "arrays of token IDs"); err != nil {
				return err
			}
			word, err := readIDs(r)
			b.badWords = append(b.badWords, word)
			return err
		})
	}, func(b *body) { b.badWords = nil })(r, b)
}

func readStreamOptions(r *wire.Reader, b *body) error {
	b.hasStreamOptions, b.includeUsage, b.continuousUsage = false, false, false
	if null, err := r.Null(); null {
		return err
	}
	b.hasStreamOptions = true
	given := false
	err := r.Object("an object", func(name []byte) (err error) {
		switch string(name) {
		case "include_usage":
			given = true
			b.includeUsage, err = r.Boolean()
		case "continuous_usage_stats":
			if null, err := r.Null(); null {
				return err
			}
			b.continuousUsage, err = r.Boolean()
		default:
			err = r.Skip()
		}
		return err
	})
	if err == nil && !given {
		err = wire.Missing("stream_options.include_usage", "`stream_options.include_usage` is required when `stream_options` is given")
	}
	return err
}

// readMetadata keeps strings as they are and other values as JSON.
func readMetadata(r *wire.Reader, b *body) error {
	b.metadata = nil
	if null, err := r.Null(); null {
		return err
	}
	b.metadata = map[string]string{}
	return r.Object("an object", func(name []byte) error {
		key := wire.CleanText(string(name))
		if r.Kind() == '"' {
			s, err := r.Text("a string")
			b.metadata[key] = s
			return err
		}
		v, err := r.Raw()
		b.metadata[key] = string(wire.CleanRaw(v))
		return err
	})
}

func readModalities(r *wire.Reader, b *body) error {
	b.audioOut = false
	if null, err := r.Null(); null {
		return err
	}
	return r.Array("an array of strings", func(int) error {
		s, err := r.Text("a string")
		b.audioOut = b.audioOut || s == "audio"
		return err
	})
}

// readStop reads a string, an array of strings or an array of token ids; an
// empty array counts as absent.
func readStop(r *wire.Reader, b *body) error {
	const want = "a string, an array of strings or an array of token IDs"
	b.stop, b.stopIDs = nil, nil
	switch r.Kind() {
	case 'n':
		return r.Skip()
	case '"':
		s, err := r.Text(want)
		if err == nil && s == "" {
			err = wire.Invalid("stop", "Stop sequence cannot be empty")
		}
		b.stop = []string{s}
		return err
	}
	err := r.Array(want, func(i int) error {
		if r.Kind() == '0' && len(b.stop) == 0 {
			id, err := r.Integer(0, math.MaxUint32)
			b.stopIDs = append(b.stopIDs, uint32(id))
			return err
		}
		if len(b.stopIDs) > 0 {
			return r.Mistyped("a token ID, as before it")
		}
		s, err := r.Text("a string or a token ID")
		if err == nil && s == "" {
			err = wire.Invalid(index("stop", i), "Stop sequence at index %d cannot be empty", i)
		}
		b.stop = append(b.stop, s)
		return err
	})
	const most = 32
	switch {
	case err != nil:
		return err
	case len(b.stop) > most:
		return wire.Invalid("stop", "Maximum of %d stop sequences allowed, got %d", most, len(b.stop))
	case len(b.stopIDs) > most:
		return wire.Invalid("stop", "Maximum of %d stop token IDs allowed, got %d", most, len(b.stopIDs))
	}
	return nil
}

func readLogitBias(r *wire.Reader, b *body) error {
	b.logitBias = nil
	if null, err := r.Null(); null {
		return err
	}
	b.logitBias = map[uint32]float64{}
	return r.Object("an object of token ID to bias", func(name []byte) error {
		token := string(name)
		kind := r.Kind()
		v, err := r.Raw()
		if err != nil {
			return err
		}
		id, err := strconv.ParseUint(token, 10, 32)
		if err != nil {
			return wire.Invalid(r.Path(), "Logit bias key '%s' must be a token ID", wire.Clip(token))
		}
		if kind != '0' {
			return wire.Invalid(r.Path(), "Logit bias value for token '%s' must be a number, got %s", token, wire.Describe(kind))
		}
		bias, err := strconv.ParseFloat(string(v), 64)
		if err != nil || bias < -100 || bias > 100 {
			return wire.Invalid(r.Path(), "Logit bias for token '%s' must be between -100 and 100, got %s", token, wire.Clip(v))
		}
		b.logitBias[uint32(id)] = bias
		return nil
	})
}

func readGuidedChoice(r *wire.Reader, b *body) error {
	b.guidedChoice, b.hasGuidedChoice = nil, false
	if null, err := r.Null(); null {
		return err
	}
	b.hasGuidedChoice = true
	return r.Array("an array of strings", func(int) error {
		if err := b.count.Take(r, "choices"); err != nil {
			return err
		}
		s, err := r.Text("a string")
		b.guidedChoice = append(b.guidedChoice, s)
		return err
	})
}

// index returns the path of an element.
func index(path string, i int) string { return path + "[" + strconv.Itoa(i) + "]" }
