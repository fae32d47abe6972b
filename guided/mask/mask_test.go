package mask_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/guided/mask"
)

// byBytes is a vocabulary of all bytes, some words, and an end.
func byBytes(t testing.TB, words ...string) *mask.Vocabulary {
	t.Helper()
	var tokens [][]byte
	for b := range 256 {
		tokens = append(tokens, []byte{byte(b)})
	}
	for _, w := range words {
		tokens = append(tokens, []byte(w))
	}
	tokens = append(tokens, nil)
	v, err := mask.NewVocabulary(mask.Tokens{Bytes: tokens, Ends: []uint32{uint32(len(tokens) - 1)}})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestJSONObject(t *testing.T) {
	v := byBytes(t, `{"`, `":`, `"}`, "true", "}}", `","`)
	g, err := mask.NewCompiler(v).Compile(&chat.OutputFormat{Kind: chat.FormatJSONObject})
	if err != nil {
		t.Fatal(err)
	}
	for seed := range uint64(200) {
		if text, ended := babble(t, v, g, seed, 400); ended && !json.Valid([]byte(text)) {
			t.Fatalf("%q is no JSON", text)
		}
	}
}

func TestRegex(t *testing.T) {
	v := byBytes(t, "ab", "abc", "ä")
	for _, p := range []string{`a+b?[c-e]{2,4}`, `(ab|ä)*\d`, `^[^a-zA-Z]$`, `(?i)straße|k`, `.`, `x{3}|\pL{2}`} {
		g, err := mask.NewCompiler(v).Compile(&chat.OutputFormat{Kind: chat.FormatRegex, Pattern: p})
		if err != nil {
			t.Fatal(err)
		}
		re := regexp.MustCompile(`\A(?:` + p + `)\z`)
		for seed := range uint64(200) {
			if text, ended := babble(t, v, g, seed, 100); ended && !re.MatchString(text) {
				t.Fatalf("%q does not match %s", text, p)
			}
		}
	}
}

// fataler is a test, or one of rapid's.
type fataler interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// babble says what the mask lets it say, at random, up to so many tokens.
func babble(t fataler, v *mask.Vocabulary, g *mask.Grammar, seed uint64, most int) (text string, ended bool) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 1))
	s := g.Start()
	bits := make([]uint64, v.Words())
	var b strings.Builder
	for range most {
		if err := s.Mask(bits); err != nil {
			t.Fatalf("behind %q: %v", b.String(), err)
		}
		var ids []uint32
		for id := range uint32(v.Size()) {
			if bits[id>>6]>>(id&63)&1 == 1 {
				ids = append(ids, id)
			}
		}
		id := ids[r.IntN(len(ids))]
		if err := s.Advance(id); err != nil {
			t.Fatal(err)
		}
		if s.Ended() {
			return b.String(), true
		}
		b.Write(v.Token(id))
	}
	return b.String(), false
}

// say reads a text in tokens of random length, as far as the vocabulary has them,
// and the end. Each must be in the mask.
func say(v *mask.Vocabulary, g *mask.Grammar, text string, seed uint64) error {
	r := rand.New(rand.NewPCG(seed, 2))
	s := g.Start()
	bits := make([]uint64, v.Words())
	rest := text
	for {
		if err := s.Mask(bits); err != nil {
			return err
		}
		var ids []uint32
		for id := range uint32(v.Size()) {
			if b := v.Token(id); len(b) > 0 && strings.HasPrefix(rest, string(b)) {
				ids = append(ids, id)
			}
		}
		id := uint32(v.Size() - 1)
		if rest != "" {
			id = ids[r.IntN(len(ids))]
		}
		if bits[id>>6]>>(id&63)&1 == 0 {
			return fmt.Errorf("token %q in front of %q is not in the mask", v.Token(id), rest)
		}
		if err := s.Advance(id); err != nil {
			return err
		}
		if rest == "" {
			return nil
		}
		rest = rest[len(v.Token(id)):]
	}
}
