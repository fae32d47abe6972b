package sample_test

import (
	"fmt"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/tiny/sample"
)

func Example() {
	seed, hot := int64(7), 0.8
	params, err := sample.Default().With(&engine.Sampling{Temperature: &hot, Seed: &seed}, 4)
	if err != nil {
		panic(err)
	}
	prompt := []uint32{3, 1}
	sampler := sample.New(params, prompt, 4)
	logits := []float32{2, 0, 1, -1} // of the model, for the token behind the prompt
	id, err := sampler.Next(sample.Step{Logits: logits, Position: len(prompt), Mask: []uint64{0b0111}})
	if err != nil {
		panic(err)
	}
	sampler.Accept(id)
	lp := sample.Logprob(logits, id, 1)
	fmt.Printf("token %d, log probability %.2f, rank %d, likeliest %d\n", id, lp.Logprob, lp.Rank, lp.Top[0].ID)
	// Output: token 0, log probability -0.44, rank 1, likeliest 0
}
