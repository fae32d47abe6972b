package tokenizer

import (
	"fmt"

	"github.com/dlclark/regexp2"
	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/text/unicode/norm"
)

var normalForms = map[string]norm.Form{"NFC": norm.NFC, "NFD": norm.NFD, "NFKC": norm.NFKC, "NFKD": norm.NFKD}

// loadNormalizer returns the normal forms that text takes in turn.
func loadNormalizer(path string, v jsontext.Value) ([]norm.Form, error) {
	if isNull(v) {
		return nil, nil
	}
	kind, err := typeOf(path, v)
	if err != nil {
		return nil, err
	}
	if form, ok := normalForms[kind]; ok {
		return []norm.Form{form}, nil
	}
	if kind != "Sequence" {
		return nil, unsupported(path, kind)
	}
	var seq struct {
		Normalizers []jsontext.Value `json:"normalizers"`
	}
	if err := read(path, v, &seq); err != nil {
		return nil, err
	}
	var all []norm.Form
	for i, n := range seq.Normalizers {
		forms, err := loadNormalizer(fmt.Sprintf("%s.normalizers[%d]", path, i), n)
		if err != nil {
			return nil, err
		}
		all = append(all, forms...)
	}
	return all, nil
}

// loadPreTokenizer returns the stages of pre-tokenization. The last must be a
// ByteLevel, which maps bytes to the alphabet: that is what makes the model a
// byte-level one, and stages behind it would see the alphabet.
func loadPreTokenizer(v jsontext.Value) ([]splitter, error) {
	const path = "pre_tokenizer"
	if isNull(v) {
		return nil, fmt.Errorf("%s: must be a ByteLevel, or a Sequence that ends in one", path)
	}
	l := preTokenizerLoader{}
	if err := l.load(path, v); err != nil {
		return nil, err
	}
	if !l.byteLevel {
		return nil, fmt.Errorf("%s: must end in a ByteLevel", path)
	}
	return l.stages, nil
}

type preTokenizerLoader struct {
	stages    []splitter
	byteLevel bool
}

func (l *preTokenizerLoader) load(path string, v jsontext.Value) error {
	kind, err := typeOf(path, v)
	if err != nil {
		return err
	}
	if l.byteLevel {
		return fmt.Errorf("%s.type: %q after ByteLevel is not supported", path, kind)
	}
	switch kind {
	case "ByteLevel":
		return l.loadByteLevel(path, v)
	case "Split":
		return l.loadSplit(path, v)
	case "Digits":
		var digits struct {
			Individual bool `json:"individual_digits"`
		}
		err := read(path, v, &digits)
		l.stages = append(l.stages, splitDigits{digits.Individual})
		return err
	case "Sequence":
		var seq struct {
			PreTokenizers []jsontext.Value `json:"pretokenizers"`
		}
		if err := read(path, v, &seq); err != nil {
			return err
		}
		for i, p := range seq.PreTokenizers {
			if err := l.load(fmt.Sprintf("%s.pretokenizers[%d]", path, i), p); err != nil {
				return err
			}
		}
		return nil
	}
	return unsupported(path, kind)
}

func (l *preTokenizerLoader) loadByteLevel(path string, v jsontext.Value) error {
	// Both default to true, the second because old files do not have it.
	level := struct {
		AddPrefixSpace bool `json:"add_prefix_space"`
		UseRegex       bool `json:"use_regex"`
	}{true, true}
	if err := read(path, v, &level); err != nil {
		return err
	}
	l.byteLevel = true
	if level.AddPrefixSpace {
		l.stages = append(l.stages, prefixSpace{})
	}
	if level.UseRegex {
		l.stages = append(l.stages, scanner(scanGPT2))
	}
	return nil
}

func (l *preTokenizerLoader) loadSplit(path string, v jsontext.Value) error {
	var split struct {
		Pattern struct {
			String *string
			Regex  *string
		} `json:"pattern"`
		Behavior behavior `json:"behavior"`
		Invert   bool     `json:"invert"`
	}
	if err := read(path, v, &split); err != nil {
		return err
	}
	if !split.Behavior.valid() {
		return fmt.Errorf("%s.behavior: %q is not supported", path, split.Behavior)
	}
	stage := splitPattern{behavior: split.Behavior, invert: split.Invert}
	switch {
	case split.Pattern.String != nil:
		stage.find = literalFinder(*split.Pattern.String)
	case split.Pattern.Regex != nil:
		// The known patterns match every character, so keeping the matches as
		// pieces and dropping what lies between them are the same.
		scan, known := knownPatterns[*split.Pattern.Regex]
		if known && (split.Behavior == isolated || split.Behavior == removed && split.Invert) {
			l.stages = append(l.stages, scan)
			return nil
		}
		re, err := regexp2.Compile(*split.Pattern.Regex, regexp2.None)
		if err != nil {
			return fmt.Errorf("%s.pattern.Regex: %w", path, err)
		}
		stage.find = regexpFinder(re)
	default:
		return fmt.Errorf("%s.pattern: must hold a String or a Regex", path)
	}
	l.stages = append(l.stages, stage)
	return nil
}
