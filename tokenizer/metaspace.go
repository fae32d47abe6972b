package tokenizer

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// metaspace writes a visible character for each space, puts one before the text
// and cuts before each.
type metaspace struct {
	replacement string
	prepend     bool
	cut         bool
}

func (m metaspace) split(dst []string, text string) []string {
	text = strings.ReplaceAll(text, " ", m.replacement)
	if m.prepend && !strings.HasPrefix(text, m.replacement) {
		text = m.replacement + text
	}
	if !m.cut {
		return append(dst, text)
	}
	for text != "" {
		end := len(text)
		_, n := utf8.DecodeRuneInString(text)
		if i := strings.Index(text[n:], m.replacement); i >= 0 {
			end = n + i
		}
		dst = append(dst, text[:end])
		text = text[end:]
	}
	return dst
}

// metaspaceFile is the pre-tokenizer or the decoder of this name.
type metaspaceFile struct {
	Replacement    string `json:"replacement"`
	AddPrefixSpace *bool  `json:"add_prefix_space"`
	PrependScheme  string `json:"prepend_scheme"`
	Split          *bool  `json:"split"`
}

// The values of prepend_scheme.
const (
	prependAlways = "always"
	prependFirst  = "first" // before the first piece of a text only
	prependNever  = "never"
)

func loadMetaspace(path string, v jsontext.Value) (metaspaceFile, error) {
	var f metaspaceFile
	if err := read(path, v, &f); err != nil {
		return f, err
	}
	if utf8.RuneCountInString(f.Replacement) != 1 {
		return f, fmt.Errorf("%s.replacement: %q must be one character", path, f.Replacement)
	}
	// Old files have the flag alone.
	if f.PrependScheme == "" {
		f.PrependScheme = prependAlways
		if f.AddPrefixSpace != nil && !*f.AddPrefixSpace {
			f.PrependScheme = prependNever
		}
	}
	switch f.PrependScheme {
	case prependAlways, prependFirst, prependNever:
	default:
		return f, fmt.Errorf("%s.prepend_scheme: %q must be always, first or never", path, f.PrependScheme)
	}
	if f.Split == nil {
		f.Split = new(true)
	}
	return f, nil
}
