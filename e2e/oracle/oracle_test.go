// Package oracle compares the numbers that engine/tiny/llama computes with those
// of two programs that others wrote: llama.cpp, which reads GGUF files of ours, and
// PyTorch with the models of Hugging Face.
//
// What is compared are log-probabilities of every token at every position of a few
// prompts, since a single wrong row of a single matrix shows in all of them.
// e2e/oracle/run installs either and sets the environment; some numbers of PyTorch's
// are kept in testdata, for tests that have neither.
package oracle_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/dynago/dynago/engine/tiny/llama"
)

// logProbabilities computes a prompt at once, as prefills are.
func logProbabilities(t testing.TB, m *llama.Model, prompt []uint32) []float64 {
	t.Helper()
	const block = 16
	cache := m.NewCache((len(prompt)+block-1)/block, block)
	blocks := make([]int32, cache.Blocks())
	for i := range blocks {
		blocks[i] = int32(i)
	}
	vocab := m.Config().Vocab
	logits := make([]float32, len(prompt)*vocab)
	if err := m.Forward(cache, []llama.Span{{Tokens: prompt, Blocks: blocks, Logits: logits}}); err != nil {
		t.Fatal(err)
	}
	all := make([]float64, len(logits))
	for from := 0; from < len(logits); from += vocab {
		row, most, sum := logits[from:from+vocab], math.Inf(-1), 0.0
		for _, x := range row {
			most = max(most, float64(x))
		}
		for _, x := range row {
			sum += math.Exp(float64(x) - most)
		}
		for i, x := range row {
			all[from+i] = float64(x) - most - math.Log(sum)
		}
	}
	return all
}

// farthest returns the largest difference between two lists of log-probabilities,
// and where it is.
func farthest(t testing.TB, ours []float64, theirs []float32, vocab int) (float64, string) {
	t.Helper()
	if len(ours) != len(theirs) {
		t.Fatalf("%d log-probabilities, want %d", len(theirs), len(ours))
	}
	most, where := 0.0, ""
	for i, x := range ours {
		d := math.Abs(x - float64(theirs[i]))
		if d > most || math.IsNaN(d) {
			most, where = d, fmt.Sprintf("token %d at position %d: ours %v, theirs %v", i%vocab, i/vocab, x, theirs[i])
			if math.IsNaN(d) {
				return math.Inf(1), where
			}
		}
	}
	return most, where
}
