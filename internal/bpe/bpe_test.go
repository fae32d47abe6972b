package bpe_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/dynago/dynago/internal/bpe"
)

// Worked by hand: of "aab" ×3, "ab" ×2 and "cd" ×1 the pair ab occurs most often
// (5), then a+ab (3); c+d occurs once and is not worth a token.
func TestLearn(t *testing.T) {
	words := map[string]int{"aab": 3, "ab": 2, "cd": 1}
	want := []bpe.Merge{{"a", "b"}, {"a", "ab"}}
	if got := bpe.Learn(words, 10); !slices.Equal(got, want) {
		t.Errorf("learned %q, want %q", got, want)
	}
	if got := bpe.Learn(words, 1); !slices.Equal(got, want[:1]) {
		t.Errorf("learned %q, want %q", got, want[:1])
	}
}

func ExampleLearn() {
	words, err := bpe.Count(`\p{L}+`, "low lower lowest, slow")
	if err != nil {
		panic(err)
	}
	for _, m := range bpe.Learn(words, 3) {
		fmt.Printf("%s+%s\n", m.Left, m.Right)
	}
	// Output:
	// l+o
	// lo+w
	// low+e
}

func TestPatternOfWords(t *testing.T) {
	if _, err := bpe.Count("(", "text"); err == nil {
		t.Error("a broken pattern was taken")
	}
}

// Ids go to bytes, to what the merges make, and to the added tokens, in this order;
// two merges that make one token give it one id.
func TestFile(t *testing.T) {
	spec := bpe.Spec{
		Merges: []bpe.Merge{{Left: "a", Right: "b"}, {Left: "ab", Right: "c"}, {Left: "b", Right: "c"}, {Left: "a", Right: "bc"}, {Left: " ", Right: "a"}},
		Added:  []bpe.Added{{Content: "<end>", Special: true}}, Pattern: `\S+`, Digits: true,
	}
	text, err := spec.File()
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Added []struct {
			ID      int
			Content string
			Special bool
		} `json:"added_tokens"`
		Normalizer any
		Model      struct {
			Vocab  map[string]int
			Merges []string
		}
	}
	if err := json.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	for token, want := range map[string]int{"!": 0, "ab": 256, "abc": 257, "bc": 258, "Ġa": 259} {
		if got, ok := file.Model.Vocab[token]; !ok || got != want {
			t.Errorf("%q has id %d (known: %v), want %d", token, got, ok, want)
		}
	}
	if len(file.Model.Vocab) != 260 || len(file.Model.Merges) != 5 || file.Model.Merges[4] != "Ġ a" {
		t.Errorf("%d tokens, merges %q", len(file.Model.Vocab), file.Model.Merges)
	}
	if len(file.Added) != 1 || file.Added[0].ID != 260 || !file.Added[0].Special || file.Normalizer != nil {
		t.Errorf("added tokens %+v, normalizer %v", file.Added, file.Normalizer)
	}
}
