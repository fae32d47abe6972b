package tokenizer

import (
	"testing"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
	"pgregory.net/rapid"
)

func TestInertTextIsNormal(t *testing.T) {
	for text, want := range map[string]bool{
		"":                           true,
		"The cache holds 12 blocks.": true,
		"schöne Grüße, 你好。안녕":        true,
		"12345678e\u0301":            false,
		"1234567\u2126":              false,
		"😀":                          false,
		"\u1100\u1161":               false,
	} {
		if got := isInert(text); got != want {
			t.Errorf("%+q is inert: %v, want %v", text, got, want)
		}
	}
	special := rapid.SampledFrom([]rune("aeé\u0301\u0327\u212b\u1100\u1161\u11a8\uac00\u0915\u093c\u0958\u09c7\u09be\u2adc你x "))
	rapid.Check(t, func(t *rapid.T) {
		text := string(rapid.SliceOfN(rapid.OneOf(special, rapid.Rune()), 0, 12).Draw(t, "text"))
		if isInert(text) && !norm.NFC.IsNormalString(text) {
			t.Fatalf("%+q is inert, and not in the form", text)
		}
	})
}

// What follows an inert character never joins it, so that one by one is enough.
func TestInertCharactersJoinNothingBefore(t *testing.T) {
	n := 0
	for r := rune(0); r < 1<<16; r++ {
		if !utf8.ValidRune(r) || !isInert(string(r)) {
			continue
		}
		n++
		for _, before := range []string{"a", "\u1100", "\uac00", "\u09c7", "e\u0301", "\u0338"} {
			if text := before + string(r); norm.NFC.IsNormalString(before) && !norm.NFC.IsNormalString(text) {
				t.Errorf("%+q is not in the form", text)
			}
		}
	}
	if n < 50_000 {
		t.Errorf("only %d characters are inert", n)
	}
}
