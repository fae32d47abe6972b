package tokenizer

import (
	"sync"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// inert are the characters below U+10000 that normal form C leaves alone whatever
// stands around them, a bit each. Text of any living language mostly has no
// others, and asking for them takes a fraction of a check of the form.
var inert = sync.OnceValue(func() *[1 << 16 / 64]uint64 {
	bits := new([1 << 16 / 64]uint64)
	for r := rune(0); r < 1<<16; r++ {
		s := string(r)
		if utf8.ValidRune(r) && norm.NFC.PropertiesString(s).BoundaryBefore() && norm.NFC.IsNormalString(s) {
			bits[r/64] |= 1 << (r % 64)
		}
	}
	return bits
})

// isInert tells whether text has inert characters alone, so that it is in normal
// form C.
func isInert(text string) bool {
	inert := inert()
	for i := 0; i < len(text); {
		if i+8 <= len(text) && (load32(text[i:])|load32(text[i+4:]))&0x80808080 == 0 {
			i += 8
			continue
		}
		r, n := rune(text[i]), 1
		if r >= utf8.RuneSelf {
			r, n = utf8.DecodeRuneInString(text[i:])
		}
		if r >= 1<<16 || inert[r/64]>>(r%64)&1 == 0 {
			return false
		}
		i += n
	}
	return true
}
