package tokenizer

import (
	"sort"
	"unicode"
	"unicode/utf8"
)

// class is a set of the properties that split patterns ask for. The tables are
// those of Unicode 16.0, whatever Go's own package unicode has: a letter that
// only one side knows as such would cut words, and so tokens, differently from
// the tokenizer that the model was trained with.
type class uint16

// No run of the table needs more than one letter bit: the patterns treat title
// case as upper case, and modifier letters as other letters.
const (
	lu  class = 1 << iota // \p{Lu}\p{Lt}
	ll                    // \p{Ll}
	lo                    // \p{Lm}\p{Lo}
	mk                    // \p{M}
	nu                    // \p{N}
	ps                    // \p{P}\p{S}
	sp                    // \s
	nl                    // CR or LF, which are sp too
	han                   // \p{Han}

	letter = lu | ll | lo
)

//go:generate go run unicode_gen.go https://www.unicode.org/Public/16.0.0/ucd/UnicodeData.txt

// classRun is a run of code points of one class, up to the next run.
type classRun struct {
	first rune
	class class
}

// bmp holds the class of every code point below U+10000, so that text of any
// living language costs one load per character.
var bmp = func() (table [1 << 16]class) {
	for i, run := range classRuns {
		end := rune(len(table))
		if i+1 < len(classRuns) {
			end = min(end, classRuns[i+1].first)
		}
		for c := run.first; c < end; c++ {
			table[c] = run.class
		}
	}
	for _, c := range "\t\n\v\f\r \u0085\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000" {
		table[c] |= sp
	}
	for _, r := range unicode.Han.R16 {
		for c := r.Lo; ; c += r.Stride {
			table[c] |= han
			if c == r.Hi {
				break
			}
		}
	}
	table['\r'] |= nl
	table['\n'] |= nl
	return table
}()

// classAt returns the class and the length of the character at text[i:]; a byte
// that begins none is a character of no class.
func classAt(text string, i int) (class, int) {
	if b := text[i]; b < utf8.RuneSelf {
		return bmp[b], 1
	}
	r, n := utf8.DecodeRuneInString(text[i:])
	if n == 1 {
		return 0, 1
	}
	return classOf(r), n
}

func classOf(r rune) class {
	if r < 1<<16 {
		return bmp[r]
	}
	next := sort.Search(len(classRuns), func(k int) bool { return classRuns[k].first > r })
	c := classRuns[next-1].class
	// Go's table has no extension I of Unicode 15.1.
	if unicode.Is(unicode.Han, r) || r >= 0x2ebf0 && r <= 0x2ee5d {
		c |= han
	}
	return c
}

// runUntil is run that ends before a character with a property in stop.
func (set class) runUntil(text string, i int, stop class) int {
	for i < len(text) {
		c, n := bmp[text[i]], 1
		if text[i] >= utf8.RuneSelf {
			c, n = classAt(text, i)
		}
		if c&set == 0 || c&stop != 0 {
			break
		}
		i += n
	}
	return i
}

// run returns the end of the longest run of characters with a property in set
// that begins at text[i:].
func (set class) run(text string, i int) int {
	for i < len(text) {
		c, n := bmp[text[i]], 1
		if text[i] >= utf8.RuneSelf {
			c, n = classAt(text, i)
		}
		if c&set == 0 {
			break
		}
		i += n
	}
	return i
}

// runWithout is run for characters without any property in set.
func (set class) runWithout(text string, i int) int {
	for i < len(text) {
		c, n := bmp[text[i]], 1
		if text[i] >= utf8.RuneSelf {
			c, n = classAt(text, i)
		}
		if c&set != 0 {
			break
		}
		i += n
	}
	return i
}
