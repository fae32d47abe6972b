package mask_test

import (
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/guided/mask"
)

// patterns draws expressions over two letters, small ones: no text that may go on
// takes more than eight letters to its end.
func patterns() *rapid.Generator[string] {
	var draw func(t *rapid.T, depth int) string
	draw = func(t *rapid.T, depth int) string {
		kind := 0
		if depth > 0 {
			kind = rapid.IntRange(0, 7).Draw(t, "kind")
		}
		switch kind {
		case 1, 2:
			return draw(t, depth-1) + draw(t, depth-1)
		case 3:
			return "(" + draw(t, depth-1) + "|" + draw(t, depth-1) + ")"
		case 4:
			return "(" + draw(t, depth-1) + ")*"
		case 5:
			return "(" + draw(t, depth-1) + ")?"
		case 6:
			return "(" + draw(t, depth-1) + "){1,2}"
		case 7:
			return "(" + draw(t, depth-1) + ")+"
		}
		return rapid.SampledFrom([]string{"a", "b", "[ab]", "ab", "[^a]"}).Draw(t, "atom")
	}
	return rapid.Custom(func(t *rapid.T) string { return draw(t, 2) })
}

// A mask is what a naive reader finds, who tries all texts.
func TestMaskIsThatOfANaiveReader(t *testing.T) {
	var tokens [][]byte
	for _, s := range []string{"a", "b", "c", "aa", "ab", "ba", "bb", "aab", "aba", "bab", "bbb", "abab", "a", "", "ac"} {
		tokens = append(tokens, []byte(s))
	}
	end := uint32(13)
	v, err := mask.NewVocabulary(mask.Tokens{Bytes: tokens, Ends: []uint32{end}})
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		pattern := patterns().Draw(t, "pattern")
		pattern = strings.ReplaceAll(pattern, "[^a]", "[^ac]")
		g, err := mask.NewCompiler(v).Compile(&chat.OutputFormat{Kind: chat.FormatRegex, Pattern: pattern})
		if err != nil {
			t.Fatal(err)
		}
		whole := regexp.MustCompile(`\A(?:` + pattern + `)\z`)
		s := g.Start()
		bits := make([]uint64, v.Words())
		text := ""
		for range 4 {
			if err := s.Mask(bits); err != nil {
				t.Fatalf("%s behind %q: %v", pattern, text, err)
			}
			var allowed []uint32
			for id, token := range tokens {
				want := string(token) != "" && mayGoOn(whole, text+string(token), 9)
				if uint32(id) == end {
					want = whole.MatchString(text)
				}
				if got := bits[id>>6]>>(id&63)&1 == 1; got != want {
					t.Fatalf("%s behind %q: token %d %q: got %t, want %t", pattern, text, id, token, got, want)
				}
				clone := s.Clone()
				if got := clone.Advance(uint32(id)) == nil; got != want {
					t.Fatalf("%s behind %q: token %d %q is read: %t, want %t", pattern, text, id, token, got, want)
				}
				if want && uint32(id) != end {
					allowed = append(allowed, uint32(id))
				}
			}
			if s.Done() != whole.MatchString(text) {
				t.Fatalf("%s behind %q: done: %t", pattern, text, s.Done())
			}
			if len(allowed) == 0 {
				return
			}
			id := rapid.SampledFrom(allowed).Draw(t, "token")
			if err := s.Advance(id); err != nil {
				t.Fatal(err)
			}
			text += string(tokens[id])
		}
	})
}

// mayGoOn says whether a text begins one that matches, with so many letters more.
func mayGoOn(whole *regexp.Regexp, text string, more int) bool {
	for n := range more {
		for letters := range 1 << n {
			tail := make([]byte, n)
			for i := range tail {
				tail[i] = byte('a' + letters>>i&1)
			}
			if whole.MatchString(text + string(tail)) {
				return true
			}
		}
	}
	return false
}

// A token is in the mask if and only if it can be read.
func TestMaskIsWhatCanBeRead(t *testing.T) {
	v := byBytes(t, `{"`, `":`, `"}`, "true", "}}", `","`, "12", "-", ".5", `\"`, "ü", "2024-", "null", "},", "]}", "  ", "\n  ", `"}]`, `a","b":`, `":[{"`)
	rapid.Check(t, func(t *rapid.T) {
		source := rapid.SampledFrom(schemas).Draw(t, "schema")
		g, err := mask.NewCompiler(v).Compile(schemaFormat(source))
		if err != nil {
			t.Fatal(err)
		}
		s := g.Start()
		bits := make([]uint64, v.Words())
		text := ""
		for range rapid.IntRange(1, 12).Draw(t, "tokens") {
			if err := s.Mask(bits); err != nil {
				t.Fatal(err)
			}
			var allowed []uint32
			for id := range uint32(v.Size()) {
				got := bits[id>>6]>>(id&63)&1 == 1
				clone := s.Clone()
				if read := clone.Advance(id) == nil; read != got {
					t.Fatalf("%s behind %q: token %q is in the mask: %t, is read: %t", source, text, v.Token(id), got, read)
				}
				if got {
					allowed = append(allowed, id)
				}
			}
			id := rapid.SampledFrom(allowed).Draw(t, "token")
			if err := s.Advance(id); err != nil {
				t.Fatal(err)
			}
			if s.Ended() {
				return
			}
			text += string(v.Token(id))
		}
	})
}
