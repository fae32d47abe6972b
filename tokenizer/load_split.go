package tokenizer

import (
	"fmt"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// preTokenizer is what loadPreTokenizer read.
type preTokenizer struct {
	stages []splitter
	// later are the stages for all pieces but one at the start of the text.
	later     []splitter
	byteLevel bool
	regexps   []string // patterns of Split that no scanner is known for
	first     bool     // the first piece is prepended to
}

// loadPreTokenizer returns the stages of pre-tokenization. If the last is a
// ByteLevel, which maps bytes to the alphabet, the model is a byte-level one.
func loadPreTokenizer(v jsontext.Value) (preTokenizer, error) {
	l := preTokenizer{}
	if isNull(v) {
		return l, nil
	}
	return l, l.load("pre_tokenizer", v)
}

// add adds a stage that all pieces go through.
func (l *preTokenizer) add(s splitter) {
	l.stages, l.later = append(l.stages, s), append(l.later, s)
}

// spellBytes makes the mapping of the last stage, a ByteLevel, one that is done:
// what comes behind it sees the alphabet.
func (l *preTokenizer) spellBytes() {
	l.add(splitAlphabet{})
	l.byteLevel = false
}

func (l *preTokenizer) load(path string, v jsontext.Value) error {
	kind, err := typeOf(path, v)
	if err != nil {
		return err
	}
	if l.byteLevel {
		l.spellBytes()
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
		l.add(splitDigits{digits.Individual})
		return err
	case "Whitespace":
		l.add(splitWords{})
		return nil
	case "WhitespaceSplit":
		l.add(splitPattern{find: charFinder(isSpace), behavior: removed})
		return nil
	case "UnicodeScripts":
		l.add(splitScripts{})
		return nil
	case "Punctuation":
		return l.loadPunctuation(path, v)
	case "CharDelimiterSplit":
		return l.loadDelimiter(path, v)
	case "FixedLength":
		return l.loadLength(path, v)
	case "BertPreTokenizer":
		l.add(splitBert{})
		return nil
	case "Metaspace":
		return l.loadMetaspace(path, v)
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

func (l *preTokenizer) loadPunctuation(path string, v jsontext.Value) error {
	f := struct {
		Behavior behavior `json:"behavior"`
	}{isolated}
	if err := read(path, v, &f); err != nil {
		return err
	}
	if !f.Behavior.valid() {
		return fmt.Errorf("%s.behavior: %q is not supported", path, f.Behavior)
	}
	l.add(splitPattern{find: charFinder(isPunctuation), behavior: f.Behavior})
	return nil
}

func (l *preTokenizer) loadDelimiter(path string, v jsontext.Value) error {
	var f struct {
		Delimiter string `json:"delimiter"`
	}
	if err := read(path, v, &f); err != nil {
		return err
	}
	if utf8.RuneCountInString(f.Delimiter) != 1 {
		return fmt.Errorf("%s.delimiter: %q must be one character", path, f.Delimiter)
	}
	l.add(splitPattern{find: literalFinder(f.Delimiter), behavior: removed})
	return nil
}

func (l *preTokenizer) loadLength(path string, v jsontext.Value) error {
	f := struct {
		Length int `json:"length"`
	}{5}
	if err := read(path, v, &f); err != nil {
		return err
	}
	if f.Length < 1 {
		return fmt.Errorf("%s.length: %d must be 1 or more", path, f.Length)
	}
	l.add(splitLength(f.Length))
	return nil
}

func (l *preTokenizer) loadByteLevel(path string, v jsontext.Value) error {
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
		l.add(prefixSpace{})
	}
	if level.UseRegex {
		l.add(scanner(scanGPT2))
	}
	return nil
}

func (l *preTokenizer) loadSplit(path string, v jsontext.Value) error {
	var split struct {
		Pattern  patternFile `json:"pattern"`
		Behavior behavior    `json:"behavior"`
		Invert   bool        `json:"invert"`
	}
	if err := read(path, v, &split); err != nil {
		return err
	}
	if !split.Behavior.valid() {
		return fmt.Errorf("%s.behavior: %q is not supported", path, split.Behavior)
	}
	return l.addPattern(path+".pattern", split.Pattern, split.Behavior, split.Invert)
}

// addPattern adds a stage that cuts at the pattern at path.
func (l *preTokenizer) addPattern(path string, p patternFile, b behavior, invert bool) error {
	if p.Regex != nil {
		// The known patterns match every character, so keeping the matches as
		// pieces and dropping what lies between them are the same.
		scan, known := p.dialect.scanner(*p.Regex)
		if known && (b == isolated || b == removed && invert) {
			l.add(scan)
			return nil
		}
		if scan, known = isolatedPatterns[*p.Regex]; known && b == isolated {
			l.add(scan)
			return nil
		}
	}
	find, err := p.finder(path)
	if err != nil {
		return err
	}
	if p.Regex != nil {
		l.regexps = append(l.regexps, *p.Regex)
	}
	l.add(splitPattern{find: find, behavior: b, invert: invert})
	return nil
}

func (l *preTokenizer) loadMetaspace(path string, v jsontext.Value) error {
	f, err := loadMetaspace(path, v)
	if err != nil {
		return err
	}
	if f.PrependScheme == prependFirst && len(l.stages) > 0 {
		return fmt.Errorf("%s.prepend_scheme: %q behind another stage is not supported", path, prependFirst)
	}
	l.first = l.first || f.PrependScheme == prependFirst
	stage := metaspace{replacement: f.Replacement, prepend: f.PrependScheme != prependNever, cut: *f.Split}
	l.stages = append(l.stages, stage)
	stage.prepend = f.PrependScheme == prependAlways
	l.later = append(l.later, stage)
	return nil
}
