package tiny_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/dynago/dynago/engine/tiny/llama"
)

// A prompt may be computed in one go or in pieces, beside others or alone, behind a part
// of it that another request has left in the cache, in whatever blocks: with the weights
// that are served, too, every logit is the same, bit for bit.
func TestPartsChangeNothing(t *testing.T) {
	model, _ := load(t)
	vocab := model.Config().Vocab
	rng := rand.New(rand.NewPCG(14, 5))
	random := func(n int) []uint32 {
		ids := make([]uint32, n)
		for i := range ids {
			ids[i] = uint32(rng.IntN(vocab))
		}
		return ids
	}
	forward := func(c *llama.Cache, spans ...llama.Span) {
		t.Helper()
		if err := model.Forward(c, spans); err != nil {
			t.Fatal(err)
		}
	}
	const longest = 120
	for round := range 30 {
		tokens := random(1 + rng.IntN(longest))
		want := make([]float32, len(tokens)*vocab)
		forward(model.NewCache(1, longest), llama.Span{Tokens: tokens, Blocks: []int32{0}, Logits: want})

		// All blocks of the cache, in some order: so many for the prompt, for the request
		// that was there before it, and for the one that is computed beside it.
		size := 1 << rng.IntN(6)
		room := (longest + size - 1) / size
		cache := model.NewCache(3*room, size)
		order := make([]int32, 3*room)
		for i, b := range rng.Perm(len(order)) {
			order[i] = int32(b)
		}
		mine, before, beside := order[:room], order[room:2*room], order[2*room:]
		cached := rng.IntN((len(tokens)-1)/size+1) * size
		if cached > 0 {
			earlier := append(slices.Clone(tokens[:cached]), random(rng.IntN(longest-cached+1))...)
			forward(cache, llama.Span{Tokens: earlier, Blocks: before})
			copy(mine, before[:cached/size])
		}
		other, at := random(longest), 0
		for from := cached; from < len(tokens); {
			n := 1 + rng.IntN(len(tokens)-from)
			got := make([]float32, n*vocab)
			spans := []llama.Span{{Tokens: tokens[from : from+n], Start: from, Blocks: mine, Logits: got}}
			if more := rng.IntN(longest - at + 1); more > 0 {
				spans = append(spans, llama.Span{Tokens: other[at : at+more], Start: at, Blocks: beside})
				at += more
				rng.Shuffle(2, func(i, j int) { spans[i], spans[j] = spans[j], spans[i] })
			}
			forward(cache, spans...)
			if !slices.EqualFunc(got, want[from*vocab:(from+n)*vocab], func(a, b float32) bool { return math.Float32bits(a) == math.Float32bits(b) }) {
				t.Fatalf("round %d: tokens %d to %d of %d in blocks of %d, %d of them cached, have other logits than in one go", round, from, from+n, len(tokens), size, cached)
			}
			from += n
		}
	}
}
