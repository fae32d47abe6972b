//go:build e2e

package oracle_test

import (
	"bytes"
	"maps"
	"slices"
	"testing"

	"github.com/dynago/dynago/engine/tiny/gguf"
	"github.com/dynago/dynago/engine/tiny/llama"
	"github.com/dynago/dynago/engine/tiny/weights"
)

// What llama.cpp makes of our files is what we make of them. It multiplies blocks
// of Q8_0 with activations that it has rounded to as few bits; so its numbers are
// compared twice there, as far as they go with blocks, and without such rounding
// where it is given the numbers that the blocks stand for.
func TestLlamaCpp(t *testing.T) {
	theirs := start(t, "node", "llamacpp.cjs", setting(t, "E2E_LLAMACPP"))
	for _, name := range slices.Sorted(maps.Keys(shapes)) {
		c := shapes[name]
		random := llama.RandomTensors(c, 12)
		blocks := llama.Quantized(random)
		for _, form := range []struct {
			name         string
			ours, theirs func(string) (llama.Tensor, error)
			most         float64
		}{
			{"F32", random, random, 1e-3},
			{"Q8_0 widened", blocks, widened(blocks), 1e-3},
			{"Q8_0", blocks, blocks, 0.5},
		} {
			t.Run(name+"/"+form.name, func(t *testing.T) {
				m, err := weights.Load(write(t, c, form.ours), 0)
				if err != nil {
					t.Fatal(err)
				}
				path := write(t, c, form.theirs)
				for _, prompt := range prompts(c.Vocab) {
					d, where := farthest(t, logProbabilities(t, m, prompt), theirs.ask(t, question{Model: path, Prompt: prompt}, c.Vocab), c.Vocab)
					t.Logf("%d tokens: at most %.2g apart", len(prompt), d)
					if d > form.most {
						t.Errorf("%d tokens: %v apart, want at most %v: %s", len(prompt), d, form.most, where)
					}
				}
			})
		}
	}
}

// widened gives tensors as F32.
func widened(tensor func(string) (llama.Tensor, error)) func(string) (llama.Tensor, error) {
	return func(name string) (llama.Tensor, error) {
		t, err := tensor(name)
		if err != nil {
			return t, err
		}
		return llama.NewTensor(name, t.Shape, t.Numbers()), nil
	}
}

// write writes a model without a vocabulary and returns its path.
func write(t testing.TB, c llama.Config, tensor func(string) (llama.Tensor, error)) string {
	t.Helper()
	var b bytes.Buffer
	if err := weights.WriteGGUF(&b, c, tensor, gguf.Metadata{"tokenizer.ggml.model": "no_vocab"}); err != nil {
		t.Fatal(err)
	}
	return saved(t, b.Bytes())
}
