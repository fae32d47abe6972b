package llama_test

import (
	"bytes"
	"fmt"

	"github.com/dynago/dynago/engine/tiny/llama"
)

// A prompt is computed once. Its first block then serves a second request, moved to
// another place of the cache as it would be from another tier, and the logits of
// both are equal bit for bit.
func Example() {
	model := llama.Random(llama.Config{
		Vocab: 100, Width: 32, Layers: 2, Heads: 4, KVHeads: 2, HeadSize: 8, Hidden: 64,
		Context: 64, RopeBase: 10000, NormEps: 1e-5, Tied: true,
	}, 1)
	cache := model.NewCache(4, 8)
	prompt := []uint32{3, 1, 4, 1, 5, 9, 2, 6, 5, 3}

	cold := make([]float32, 100)
	err := model.Forward(cache, []llama.Span{{Tokens: prompt, Blocks: []int32{0, 1}, Logits: cold}})
	if err != nil {
		fmt.Println(err)
		return
	}

	copy(cache.Block(3), bytes.Clone(cache.Block(0)))
	warm := make([]float32, 100)
	err = model.Forward(cache, []llama.Span{{Tokens: prompt[8:], Start: 8, Blocks: []int32{3, 2}, Logits: warm}})
	if err != nil {
		fmt.Println(err)
		return
	}
	equal := true
	for i := range cold {
		equal = equal && cold[i] == warm[i]
	}
	fmt.Println("equal:", equal)
	// Output: equal: true
}
