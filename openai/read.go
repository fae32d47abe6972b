package openai

import (
	"math"
	"strconv"
)

// The functions below make the read function of a field from the place its
// value goes to.

func text(at func(*body) *string) func(*reader, *body) error {
	return func(r *reader, b *body) (err error) {
		*at(b), err = nullableText(r)
		return err
	}
}

func optionalText(at func(*body) **string) func(*reader, *body) error {
	return func(r *reader, b *body) error {
		*at(b) = nil
		if null, err := r.null(); null {
			return err
		}
		s, err := r.text("a string")
		*at(b) = &s
		return err
	}
}

func boolean(at func(*body) **bool) func(*reader, *body) error {
	return func(r *reader, b *body) (err error) {
		*at(b), err = nullableBoolean(r)
		return err
	}
}

// integer reads numbers from low on; fields whose ranges have a text of their
// own are checked later.
func integer(low int64, at func(*body) **int64) func(*reader, *body) error {
	return func(r *reader, b *body) error {
		*at(b) = nil
		if null, err := r.null(); null {
			return err
		}
		high := int64(math.MaxInt64)
		if low == 0 {
			high = math.MaxUint32
		}
		v, err := r.integer(low, high)
		*at(b) = &v
		return err
	}
}

func number(at func(*body) **float64) func(*reader, *body) error {
	return func(r *reader, b *body) error {
		*at(b) = nil
		if null, err := r.null(); null {
			return err
		}
		v, err := r.float()
		*at(b) = &v
		return err
	}
}

func raw(at func(*body) *[]byte) func(*reader, *body) error {
	return func(r *reader, b *body) error {
		*at(b) = nil
		if null, err := r.null(); null {
			return err
		}
		v, err := r.raw()
		*at(b) = v
		return err
	}
}

// What is null counts as absent.

func nullableText(r *reader) (string, error) {
	if null, err := r.null(); null {
		return "", err
	}
	return r.text("a string")
}

func nullableBoolean(r *reader) (*bool, error) {
	if null, err := r.null(); null {
		return nil, err
	}
	v, err := r.boolean()
	return &v, err
}

func nullableRaw(r *reader) ([]byte, error) {
	if null, err := r.null(); null {
		return nil, err
	}
	v, err := r.raw()
	return cleanRaw(v), err
}

// accept takes a value of any type, without effect.
func accept(r *reader, _ *body) error { return r.skip() }

// passThrough reads a value that is handed on as it is; its type error has a
// text of its own.
func passThrough(name, must string, read func(*reader, *body) error, clear func(*body)) func(*reader, *body) error {
	return func(r *reader, b *body) error {
		clear(b)
		if null, err := r.null(); null {
			return err
		}
		err := read(r, b)
		if e, ok := err.(*Error); ok {
			return invalid(e.Param, "`%s` %s", name, must)
		}
		return err
	}
}

func ids(name string, at func(*body) *[]uint32) func(*reader, *body) error {
	return passThrough(name, "must be an array of token IDs", func(r *reader, b *body) (err error) {
		*at(b), err = r.ids()
		return err
	}, func(b *body) { *at(b) = nil })
}

// ids reads an array of token ids.
func (r *reader) ids() ([]uint32, error) {
	out := []uint32{}
	err := r.array("an array of token IDs", func(int) error {
		id, err := r.integer(0, math.MaxUint32)
		out = append(out, uint32(id))
		return err
	})
	return out, err
}

func readBadWords(r *reader, b *body) error {
	return passThrough("bad_words_token_ids", "must be an array of token ID arrays", func(r *reader, b *body) error {
		return r.array("an array of arrays", func(int) error {
			word, err := r.ids()
			b.badWords = append(b.badWords, word)
			return err
		})
	}, func(b *body) { b.badWords = nil })(r, b)
}

func readStreamOptions(r *reader, b *body) error {
	b.hasStreamOptions, b.includeUsage, b.continuousUsage = false, false, false
	if null, err := r.null(); null {
		return err
	}
	b.hasStreamOptions = true
	given := false
	err := r.object("an object", func(name []byte) (err error) {
		switch string(name) {
		case "include_usage":
			given = true
			b.includeUsage, err = r.boolean()
		case "continuous_usage_stats":
			if null, err := r.null(); null {
				return err
			}
			b.continuousUsage, err = r.boolean()
		default:
			err = r.skip()
		}
		return err
	})
	if err == nil && !given {
		err = missing("stream_options.include_usage", "`stream_options.include_usage` is required when `stream_options` is given")
	}
	return err
}

// readMetadata keeps strings as they are and other values as JSON.
func readMetadata(r *reader, b *body) error {
	b.metadata = nil
	if null, err := r.null(); null {
		return err
	}
	b.metadata = map[string]string{}
	return r.object("an object", func(name []byte) error {
		key := cleanText(string(name))
		if r.kind() == '"' {
			s, err := r.text("a string")
			b.metadata[key] = s
			return err
		}
		v, err := r.raw()
		b.metadata[key] = string(cleanRaw(v))
		return err
	})
}

func readModalities(r *reader, b *body) error {
	b.audioOut = false
	if null, err := r.null(); null {
		return err
	}
	return r.array("an array of strings", func(int) error {
		s, err := r.text("a string")
		b.audioOut = b.audioOut || s == "audio"
		return err
	})
}

// readStop reads a string, an array of strings or an array of token ids; an
// empty array counts as absent.
func readStop(r *reader, b *body) error {
	const want = "a string, an array of strings or an array of token IDs"
	b.stop, b.stopIDs = nil, nil
	switch r.kind() {
	case 'n':
		return r.skip()
	case '"':
		s, err := r.text(want)
		if err == nil && s == "" {
			err = invalid("stop", "Stop sequence cannot be empty")
		}
		b.stop = []string{s}
		return err
	}
	err := r.array(want, func(i int) error {
		if r.kind() == '0' && len(b.stop) == 0 {
			id, err := r.integer(0, math.MaxUint32)
			b.stopIDs = append(b.stopIDs, uint32(id))
			return err
		}
		if len(b.stopIDs) > 0 {
			return r.mistyped("a token ID, as before it")
		}
		s, err := r.text("a string or a token ID")
		if err == nil && s == "" {
			err = invalid(index("stop", i), "Stop sequence at index %d cannot be empty", i)
		}
		b.stop = append(b.stop, s)
		return err
	})
	const most = 32
	switch {
	case err != nil:
		return err
	case len(b.stop) > most:
		return invalid("stop", "Maximum of %d stop sequences allowed, got %d", most, len(b.stop))
	case len(b.stopIDs) > most:
		return invalid("stop", "Maximum of %d stop token IDs allowed, got %d", most, len(b.stopIDs))
	}
	return nil
}

func readLogitBias(r *reader, b *body) error {
	b.logitBias = nil
	if null, err := r.null(); null {
		return err
	}
	b.logitBias = map[uint32]float64{}
	return r.object("an object of token ID to bias", func(name []byte) error {
		token := string(name)
		kind := r.kind()
		v, err := r.raw()
		if err != nil {
			return err
		}
		id, err := strconv.ParseUint(token, 10, 32)
		if err != nil {
			return invalid(r.path(), "Logit bias key '%s' must be a token ID", clip(token))
		}
		if kind != '0' {
			return invalid(r.path(), "Logit bias value for token '%s' must be a number, got %s", token, describe(kind))
		}
		bias, err := strconv.ParseFloat(string(v), 64)
		if err != nil || bias < -100 || bias > 100 {
			return invalid(r.path(), "Logit bias for token '%s' must be between -100 and 100, got %s", token, clip(v))
		}
		b.logitBias[uint32(id)] = bias
		return nil
	})
}

func readGuidedChoice(r *reader, b *body) error {
	b.guidedChoice, b.hasGuidedChoice = nil, false
	if null, err := r.null(); null {
		return err
	}
	b.hasGuidedChoice = true
	return r.array("an array of strings", func(int) error {
		s, err := r.text("a string")
		b.guidedChoice = append(b.guidedChoice, s)
		return err
	})
}

// index returns the path of an element.
func index(path string, i int) string { return path + "[" + strconv.Itoa(i) + "]" }
