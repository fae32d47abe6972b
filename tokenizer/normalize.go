package tokenizer

import (
	"fmt"
	"strings"
	"unicode"

	"github.com/dlclark/regexp2"
	"github.com/go-json-experiment/json/jsontext"
)

// normalizer brings a text into the form that the model was trained on.
type normalizer func(string) string

// loadNormalizer returns the normalizers that text passes in turn.
func loadNormalizer(path string, v jsontext.Value) ([]normalizer, error) {
	if isNull(v) {
		return nil, nil
	}
	kind, err := typeOf(path, v)
	if err != nil {
		return nil, err
	}
	if form, ok := normalForms[kind]; ok {
		return []normalizer{toForm(form)}, nil
	}
	switch kind {
	case "BertNormalizer":
		return loadBert(path, v)
	case "Lowercase":
		return []normalizer{lowercase}, nil
	case "StripAccents":
		return []normalizer{stripAccents}, nil
	case "Nmt":
		return []normalizer{nmt}, nil
	case "ByteLevel":
		return []normalizer{toAlphabet}, nil
	case "Precompiled":
		n, err := loadPrecompiled(path, v)
		return []normalizer{n}, err
	case "Prepend":
		var f struct {
			Prepend string `json:"prepend"`
		}
		err := read(path, v, &f)
		return []normalizer{func(text string) string {
			if text == "" {
				return ""
			}
			return f.Prepend + text
		}}, err
	case "Strip":
		var f struct {
			Left  bool `json:"strip_left"`
			Right bool `json:"strip_right"`
		}
		err := read(path, v, &f)
		return []normalizer{func(text string) string {
			if f.Left {
				text = strings.TrimLeftFunc(text, unicode.IsSpace)
			}
			if f.Right {
				text = strings.TrimRightFunc(text, unicode.IsSpace)
			}
			return text
		}}, err
	case "Replace":
		replace, err := loadReplace(path, v)
		return []normalizer{replace}, err
	case "Sequence":
		return loadNormalizers(path, v)
	}
	return nil, unsupported(path, kind)
}

func loadNormalizers(path string, v jsontext.Value) ([]normalizer, error) {
	var seq struct {
		Normalizers []jsontext.Value `json:"normalizers"`
	}
	if err := read(path, v, &seq); err != nil {
		return nil, err
	}
	var all []normalizer
	for i, n := range seq.Normalizers {
		some, err := loadNormalizer(fmt.Sprintf("%s.normalizers[%d]", path, i), n)
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	return all, nil
}

// patternFile is a pattern as tokenizer.json has it in several places.
type patternFile struct {
	String *string
	Regex  *string

	dialect dialect
}

// finder returns what finds the pattern at path.
func (p patternFile) finder(path string) (finder, error) {
	switch {
	case p.String != nil:
		return literalFinder(*p.String), nil
	case p.Regex != nil:
		pattern, err := translate(*p.Regex, p.dialect)
		if err != nil {
			return nil, fmt.Errorf("%s.Regex: %w", path, err)
		}
		re, err := regexp2.Compile(pattern, regexp2.None)
		if err != nil {
			return nil, fmt.Errorf("%s.Regex: %w", path, err)
		}
		return regexpFinder(*p.Regex, re), nil
	}
	return nil, fmt.Errorf("%s: must hold a String or a Regex", path)
}

// loadReplace reads a component that puts content in place of a pattern, which
// normalizers and decoders have.
func loadReplace(path string, v jsontext.Value) (normalizer, error) {
	f, err := readReplace(path, v)
	if err != nil {
		return nil, err
	}
	return f.load(path)
}

// replaceFile is such a component.
type replaceFile struct {
	Pattern patternFile `json:"pattern"`
	Content string      `json:"content"`
}

func readReplace(path string, v jsontext.Value) (f replaceFile, err error) {
	if err := read(path, v, &f); err != nil {
		return f, err
	}
	if s := f.Pattern.String; s != nil && *s == "" {
		return f, fmt.Errorf("%s.pattern.String: must not be empty", path)
	}
	return f, nil
}

func (f replaceFile) load(path string) (normalizer, error) {
	if s := f.Pattern.String; s != nil {
		return func(text string) string { return strings.ReplaceAll(text, *s, f.Content) }, nil
	}
	find, err := f.Pattern.finder(path + ".pattern")
	if err != nil {
		return nil, err
	}
	return func(text string) string {
		var b strings.Builder
		for _, p := range find(text) {
			if p.match {
				b.WriteString(f.Content)
			} else {
				b.WriteString(text[p.start:p.end])
			}
		}
		return b.String()
	}, nil
}

// lowercase maps character by character, as the reference implementation does,
// by the tables of Unicode 16.0.
func lowercase(text string) string {
	return strings.ReplaceAll(strings.Map(lower, text), "\u0130", "i\u0307")
}

func lower(r rune) rune {
	switch {
	case r == 0x130: // the one that becomes two
		return r
	case r == 0xa7cb:
		return 0x264
	case r == 0xa7cc, r == 0xa7da:
		return r + 1
	case r == 0xa7dc:
		return 0x19b
	case r >= 0x10d50 && r <= 0x10d65: // Garay
		return r + 0x20
	}
	return unicode.ToLower(r)
}

func stripAccents(text string) string {
	return strings.Map(func(r rune) rune {
		if classOf(r)&mk != 0 {
			return -1
		}
		return r
	}, text)
}
