package corpus_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/dynago/dynago/tokenizer/corpus"
)

// The digests of the golden files are of these very texts.
func TestTextsAreStable(t *testing.T) {
	for _, k := range corpus.Kinds {
		text := k.Text(3, 5000)
		if len(text) < 5000 || len(text) > 8000 || !utf8.ValidString(text) {
			t.Errorf("%s: %d bytes, valid %v", k.Name, len(text), utf8.ValidString(text))
		}
		if again := k.Text(3, 5000); again != text {
			t.Errorf("%s: the same seed gave another text", k.Name)
		}
		if other := k.Text(4, 5000); other == text {
			t.Errorf("%s: another seed gave the same text", k.Name)
		}
	}
}

func TestCoverage(t *testing.T) {
	short := corpus.Short()
	if len(short) < 500 {
		t.Errorf("%d short texts", len(short))
	}
	all := strings.Join(short, "") + corpus.Kinds[0].Text(0, 100_000)
	scripts := map[string]bool{}
	for name, table := range unicode.Scripts {
		if strings.ContainsFunc(all, func(r rune) bool { return unicode.Is(table, r) && unicode.IsLetter(r) }) {
			scripts[name] = true
		}
	}
	if len(scripts) < 60 {
		t.Errorf("only %d scripts", len(scripts))
	}
	for _, want := range []string{"\u200d", "\r\n", strings.Repeat(" ", 500), "\u0301", "\x00", "\ufffd", "'s", "\U0001f3fd", "\u202e"} {
		if !strings.Contains(all, want) {
			t.Errorf("no %q", want)
		}
	}
}

func TestSpelling(t *testing.T) {
	texts := corpus.Spelling([]string{"<s>", "</think>"}, 200)
	if len(texts) != 200 || !slices.ContainsFunc(texts, func(s string) bool { return strings.Contains(s, "<s>") }) || !slices.ContainsFunc(texts, func(s string) bool { return strings.Contains(s, "</THINK>") }) {
		t.Errorf("%d texts, not all ways of spelling", len(texts))
	}
	if corpus.Spelling(nil, 5) != nil {
		t.Error("texts that spell nothing")
	}
}

func TestIDs(t *testing.T) {
	low, high := 0, 0
	for _, ids := range corpus.IDs(10_000, 300) {
		if len(ids) == 0 || len(ids) > 40 {
			t.Fatalf("%d ids", len(ids))
		}
		for _, id := range ids {
			switch {
			case id >= 10_000:
				t.Fatalf("id %d of 10000", id)
			case id < 300:
				low++
			case id >= 10_000-64:
				high++
			}
		}
	}
	if low < 500 || high < 300 {
		t.Errorf("%d low and %d high ids", low, high)
	}
}

func ExampleKind_Text() {
	text := corpus.Kinds[1].Text(0, 1_000_000)
	fmt.Println(corpus.Kinds[1].Name, len(text) >= 1_000_000)
	// Output: code true
}
