package tokenizer

import (
	"slices"

	"golang.org/x/text/unicode/norm"
)

// With returns a tokenizer that knows these tokens too, with all their flags. It
// is for those that only files beside tokenizer.json declare; what has no place
// stays out as with [Tokenizer.AddSpecial]. The order is that of the list.
func (t *Tokenizer) With(tokens ...AddedToken) *Tokenizer {
	n := *t
	n.added = slices.Clone(t.added)
	ids, contents := map[uint32]bool{}, map[string]bool{"": true}
	for _, a := range t.added {
		ids[a.ID], contents[a.Content] = true, true
	}
	for _, a := range tokens {
		if ids[a.ID] || contents[a.Content] || a.ID >= maxID {
			continue
		}
		ids[a.ID], contents[a.Content] = true, true
		n.added = append(n.added, a)
	}
	n.setAdded()
	return &n
}

// WithAround returns a tokenizer whose [Tokenizer.AppendWithSpecial] puts these
// ids before and after a text, in place of what it put there so far.
func (t *Tokenizer) WithAround(before, after []uint32) *Tokenizer {
	n := *t
	n.before, n.after = slices.Clone(before), slices.Clone(after)
	return &n
}

// WithNFC returns a tokenizer that brings text into Unicode's form C first. Rank
// files do not tell that a model wants it.
func (t *Tokenizer) WithNFC() *Tokenizer {
	n := *t
	n.normalize = append([]normalizer{toForm(norm.NFC)}, t.normalize...)
	n.setAdded()
	return &n
}

// WithFirstBlank returns a tokenizer that puts the blank of a SentencePiece model
// before the first word of a prompt alone, and not before what stands behind an
// added token. Its file does not tell which of the two a model was trained with:
// "legacy": false in tokenizer_config.json does. Any other tokenizer, and one that
// puts no blank before a text, stays as it is.
func (t *Tokenizer) WithFirstBlank() *Tokenizer {
	if t.spelling == nil || !t.spelling.file.dummyPrefix || t.spelling.file.suffixes {
		return t
	}
	n, spelling := *t, *t.spelling
	spelling.part, spelling.file.dummyPrefix = true, false
	n.normalize, n.spelling = []normalizer{spelling.normalize}, &spelling
	n.split = []splitter{metaspace{replacement: spelling.file.space(), prepend: true}}
	n.setAdded()
	return &n
}

// Kind names the tokenizer's model: BPE, WordPiece, Unigram or
// WordLevel.
func (t *Tokenizer) Kind() string {
	switch t.model.(type) {
	case *wordPiece:
		return "WordPiece"
	case *unigram:
		return "Unigram"
	case *wordLevel:
		return "WordLevel"
	}
	return "BPE"
}

// PatternsDeepSeek returns the patterns by which DeepSeek V3 and R1 cut a text in
// turn.
func PatternsDeepSeek() []string { return slices.Clone(deepSeekPatterns[:]) }
