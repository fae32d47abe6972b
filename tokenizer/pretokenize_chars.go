package tokenizer

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// charFinder finds the characters that is holds for, each on its own.
func charFinder(is func(rune) bool) finder {
	return func(text string) (parts []fragment) {
		pos := 0
		for i, r := range text {
			if is(r) {
				n := min(utf8.RuneLen(r), len(text)-i)
				if r == utf8.RuneError {
					_, n = utf8.DecodeRuneInString(text[i:])
				}
				parts = appendMatch(parts, pos, i, i+n)
				pos = i + n
			}
		}
		return appendRest(parts, pos, len(text))
	}
}

func isSpace(r rune) bool { return classOf(r)&sp != 0 }

func isPunctuation(r rune) bool { return unicode.Is(bertPunctuation, r) }

// splitWords cuts out runs of word characters and runs of others, and drops
// whitespace.
type splitWords struct{}

func (splitWords) split(dst []string, text string) []string {
	const (
		space = iota
		word
		other
	)
	start, last := 0, space
	for i, r := range text {
		kind := other
		switch {
		case isSpace(r):
			kind = space
		case unicode.Is(wordChars, r):
			kind = word
		}
		if kind == last {
			continue
		}
		if last != space {
			dst = append(dst, text[start:i])
		}
		start, last = i, kind
	}
	if last != space {
		dst = append(dst, text[start:])
	}
	return dst
}

// splitLength cuts text into pieces of so many characters.
type splitLength int

func (n splitLength) split(dst []string, text string) []string {
	start, count := 0, 0
	for i := range text {
		if count == int(n) {
			dst = append(dst, text[start:i])
			start, count = i, 0
		}
		count++
	}
	if start < len(text) {
		dst = append(dst, text[start:])
	}
	return dst
}

// splitScripts cuts where the script changes. Characters that all scripts share
// stay with those before them; at the start of a text they are dropped, as in
// the reference implementation.
type splitScripts struct{}

func (splitScripts) split(dst []string, text string) []string {
	start, last := -1, shared
	for i, r := range text {
		s := scriptOf(r)
		if s == shared || s == last {
			continue
		}
		if start >= 0 {
			dst = append(dst, text[start:i])
		}
		start, last = i, s
	}
	if start >= 0 {
		dst = append(dst, text[start:])
	}
	return dst
}

// script numbers the scripts that splitScripts tells apart.
type script uint8

// shared is the script of spaces and of what belongs to no script alone.
const shared script = 0

// scriptRun is a run of code points of one script, up to the next run.
type scriptRun struct {
	first rune
	script
}

func scriptOf(r rune) script {
	low, high := 0, len(scriptRuns)
	for high-low > 1 {
		if mid := (low + high) / 2; scriptRuns[mid].first <= r {
			low = mid
		} else {
			high = mid
		}
	}
	return scriptRuns[low].script
}

// toAlphabet writes the bytes of a text in the alphabet of byte-level
// vocabularies.
func toAlphabet(text string) string {
	var b strings.Builder
	b.Grow(len(text) + len(text)/4)
	for i := range len(text) {
		b.WriteRune(alphabet[text[i]])
	}
	return b.String()
}

// splitAlphabet is toAlphabet as a stage. Only models that something else than a
// byte-level vocabulary follows need it: that has its tokens as bytes.
type splitAlphabet struct{}

func (splitAlphabet) split(dst []string, text string) []string {
	return append(dst, toAlphabet(text))
}

// nmt is the normal form of the corpora of machine translation: no control
// characters, and spaces for all that is blank.
func nmt(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 0x1 && r <= 0x8, r == 0xb, r >= 0xe && r <= 0x1f, r == 0x7f, r == 0x8f, r == 0x9f:
			return -1
		case r == '\t', r == '\n', r == '\f', r == '\r', r == 0x1680, r >= 0x200b && r <= 0x200f,
			r == 0x2028, r == 0x2029, r == 0x2581, r == 0xfeff, r == unicode.ReplacementChar:
			return ' '
		}
		return r
	}, text)
}
