package mask_test

import (
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/guided"
	"github.com/dynago/dynago/guided/mask"
)

// FuzzSchema says at random what any schema that is taken lets be said; it has to
// keep the schema, and nothing may get stuck or go on for long.
func FuzzSchema(f *testing.F) {
	for _, source := range schemas {
		f.Add(source, uint64(1))
	}
	v := byBytes(f, `{"`, `":`, `"}`, "true", `","`, "12", "00", ".5", "ab", `\"`, "null")
	f.Fuzz(func(t *testing.T, source string, seed uint64) {
		form, err := guided.Compile(schemaFormat(source))
		g, err2 := mask.NewCompiler(v).Compile(schemaFormat(source))
		if err != nil {
			if err2 == nil {
				t.Fatalf("%s: compiled, though %v", source, err)
			}
			return
		}
		if err2 != nil {
			return
		}
		if strings.Contains(source, "$schema") || strings.Contains(source, `\u`) || !utf8.ValidString(source) {
			return // other dialects judge in other ways
		}
		if text, ended := babbled(t, v, g, seed, 60); ended {
			if err := form.Check(text); err != nil && !strings.Contains(err.Error(), "too long") {
				t.Fatalf("%s: %q: %v", source, text, err)
			}
		}
	})
}

// FuzzPattern does the same for regular expressions.
func FuzzPattern(f *testing.F) {
	for _, p := range []string{`a+b?[c-e]{2,4}`, `(ab|ä)*\d`, `^[^a-zA-Z]$`, `(?i)straße|k`, `.`, `x{3}|\pL{2}`, `(a*)*b`, `^a$|^b$`, `(?s).\x{10ffff}?`} {
		f.Add(p, uint64(1))
	}
	v := byBytes(f, "ab", "ä", "12", "\xe2\x82")
	f.Fuzz(func(t *testing.T, pattern string, seed uint64) {
		g, err := mask.NewCompiler(v).Compile(&chat.OutputFormat{Kind: chat.FormatRegex, Pattern: pattern})
		if err != nil {
			return
		}
		whole, err := regexp.Compile(`\A(?:` + pattern + `)\z`)
		if err != nil {
			t.Fatalf("%s was compiled, though %v", pattern, err)
		}
		if text, ended := babbled(t, v, g, seed, 60); ended && !whole.MatchString(text) {
			t.Fatalf("%s: %q", pattern, text)
		}
	})
}

// FuzzTag reads structural tags of any kind.
func FuzzTag(f *testing.F) {
	f.Add(`{"type":"structural_tag","format":{"type":"triggered_tags","triggers":["<a>"],"tags":[{"type":"tag","begin":"<a>","content":{"type":"json_schema","json_schema":{"type":"object"},"style":"qwen_xml"},"end":"</a>"}],"at_least_one":true}}`, uint64(1))
	f.Add(`{"type":"structural_tag","format":{"type":"sequence","elements":[{"type":"tag","begin":"","content":{"type":"any_text"},"end":"b"},{"type":"regex","pattern":"a*"},{"type":"any_tokens","exclude_tokens":["x"]}]}}`, uint64(2))
	f.Add(`{"structures":[{"begin":"<f>","schema":{"type":"null"},"end":"</f>"}],"triggers":["<f"]}`, uint64(3))
	v := byBytes(f, "<a>", "</a>", `{"`)
	f.Fuzz(func(t *testing.T, source string, seed uint64) {
		if g, err := mask.NewCompiler(v).Compile(tagFormat(source)); err == nil {
			babbled(t, v, g, seed, 40)
		}
	})
}

// babbled is babble for forms that may have too many states.
func babbled(t *testing.T, v *mask.Vocabulary, g *mask.Grammar, seed uint64, most int) (string, bool) {
	s := g.Start()
	bits := make([]uint64, v.Words())
	if err := s.Mask(bits); err != nil && strings.Contains(err.Error(), "states") {
		return "", false
	}
	return babble(t, v, g, seed, most)
}
