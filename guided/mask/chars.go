package mask

import (
	"fmt"
	"unicode/utf8"
)

// writing is how characters are put into bytes.
type writing uint8

const (
	// plain is UTF-8.
	plain writing = iota
	// quoted is the inside of a JSON string, each character in one way only: with an
	// escape if it needs one, the short one if there is one. So texts can be
	// compared as they are written.
	quoted
	// loose is the inside of a JSON string in any way in which it may be written.
	loose
)

// shortEscapes are the characters that have an escape of two bytes in what is
// quoted.
var shortEscapes = map[rune]byte{'"': '"', '\\': '\\', '\b': 'b', '\f': 'f', '\n': 'n', '\r': 'r', '\t': 't'}

// spelled returns the bytes of a text.
func (w writing) spelled(s string) string {
	if w == plain {
		return s
	}
	var b []byte
	for _, r := range s {
		switch short, ok := shortEscapes[r]; {
		case ok:
			b = append(b, '\\', short)
		case r < ' ':
			b = fmt.Appendf(b, `\u%04x`, r)
		default:
			b = utf8.AppendRune(b, r)
		}
	}
	return string(b)
}

// chars is one character of a class, which is given as pairs of bounds.
func (w writing) chars(class []rune) *expr {
	var parts []*expr
	for i := 0; i+1 < len(class); i += 2 {
		low, high := class[i], class[i+1]
		if w == plain {
			parts = append(parts, utf8Range(low, high)...)
			continue
		}
		for r := max(low, 0); r <= min(high, '\\'); r++ {
			if _, ok := shortEscapes[r]; ok || r < ' ' {
				parts = append(parts, lit(w.spelled(string(r))))
			}
		}
		for _, raw := range [][2]rune{{' ', '"' - 1}, {'"' + 1, '\\' - 1}, {'\\' + 1, utf8.MaxRune}} {
			parts = append(parts, utf8Range(max(low, raw[0]), min(high, raw[1]))...)
		}
	}
	return alt(parts...)
}

// any is one character.
func (w writing) any() *expr { return anyChar[w] }

var anyChar = [...]*expr{
	plain:  plain.chars([]rune{0, utf8.MaxRune}),
	quoted: quoted.chars([]rune{0, utf8.MaxRune}),
	loose:  stringChar,
}

// utf8Range lists the encodings of the characters from low to high, as sequences
// of ranges of bytes. The halves of UTF-16 pairs have none.
func utf8Range(low, high rune) []*expr {
	if low > high {
		return nil
	}
	for _, last := range []rune{0x7f, 0x7ff, 0xd7ff, 0xdfff, 0xffff} { // where encodings change
		if low <= last && last < high {
			return append(utf8Range(low, last), utf8Range(last+1, high)...)
		}
	}
	if low >= 0xd800 && high <= 0xdfff {
		return nil
	}
	// All but the first differing byte must run through its whole range.
	for bits := 6; bits <= 18 && low>>7 != 0; bits += 6 {
		low6 := rune(1)<<bits - 1
		if low&^low6 == high&^low6 {
			break
		}
		if low&low6 != 0 {
			return append(utf8Range(low, low|low6), utf8Range((low|low6)+1, high)...)
		}
		if high&low6 != low6 {
			return append(utf8Range(low, high&^low6-1), utf8Range(high&^low6, high)...)
		}
	}
	first, last := string(low), string(high)
	parts := make([]*expr, len(first))
	for i := range len(first) {
		parts[i] = span(first[i], last[i])
	}
	return []*expr{seq(parts...)}
}
