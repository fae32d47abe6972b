package mask_test

import (
	"fmt"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/guided/mask"
)

// A class has the characters between its bounds, in UTF-8 and in JSON, and no others.
func TestClasses(t *testing.T) {
	v := byBytes(t)
	edges := []rune{0, 1, ' ', '"', '\\', 0x7e, 0x7f, 0x80, 0x81, 0xbf, 0xc0, 0xff, 0x100, 0x7fe, 0x7ff, 0x800, 0x801, 0xfff, 0x1000, 0xd7ff, 0xe000, 0xe001, 0xfffd, 0xffff, 0x10000, 0x10001, 0x3ffff, 0x40000, 0xfffff, 0x10fffe, 0x10ffff}
	char := rapid.OneOf(rapid.SampledFrom(edges), rapid.Int32Range(0, 0x10ffff))
	rapid.Check(t, func(t *rapid.T) {
		low, high := char.Draw(t, "low"), char.Draw(t, "high")
		if low > high {
			low, high = high, low
		}
		class := fmt.Sprintf(`[\x{%x}-\x{%x}]`, low, high)
		raw, err := mask.NewCompiler(v).Compile(&chat.OutputFormat{Kind: chat.FormatRegex, Pattern: class})
		if !utf8.ValidRune(low) && !utf8.ValidRune(high) && low>>11 == high>>11 {
			if err == nil {
				t.Fatalf("%s was compiled", class)
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		in, err := mask.NewCompiler(v).Compile(schemaFormat(fmt.Sprintf(`{"type":"string","pattern":"^[\\u{%x}-\\u{%x}]$"}`, low, high)))
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range append(edges, low-1, low, low+1, high-1, high, high+1, low+(high-low)/2, char.Draw(t, "any")) {
			if !utf8.ValidRune(r) {
				continue
			}
			want := low <= r && r <= high
			if err := say(v, raw, string(r), 1); (err == nil) != want {
				t.Fatalf("%s and %U: %v", class, r, err)
			}
			if err := say(v, in, quoted(r), 1); (err == nil) != want {
				t.Fatalf("%s and %U in JSON: %v", class, r, err)
			}
		}
	})
}

// quoted is a string of one character, written as answers with a pattern write it.
func quoted(r rune) string {
	switch short := map[rune]string{'"': `\"`, '\\': `\\`, '\b': `\b`, '\f': `\f`, '\n': `\n`, '\r': `\r`, '\t': `\t`}[r]; {
	case short != "":
		return `"` + short + `"`
	case r < ' ':
		return fmt.Sprintf(`"\u%04x"`, r)
	}
	return `"` + string(r) + `"`
}
