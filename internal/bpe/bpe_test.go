package bpe_test

import (
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
