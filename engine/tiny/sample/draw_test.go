package sample_test

import (
	"math"
	"slices"
	"testing"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/tiny/sample"
)

// What one worker began another goes on with, and they may be of different versions:
// the draws of a seed stay what they are. The numbers are those of SplitMix64, begun
// at its own first output for the seed, times 256.
func TestDrawsOfASeedStay(t *testing.T) {
	for _, c := range []struct {
		seed int64
		want []uint32
	}{
		{0, []uint32{167, 179, 99, 168, 201, 37, 199, 67}},
		{1, []uint32{94, 241, 11, 199, 56, 198, 160, 63}},
		{-1, []uint32{93, 189, 130, 237, 131, 39, 222, 185}},
	} {
		const vocab = 256
		s := sample.New(params(t, engine.Sampling{Seed: ptr(c.seed)}, vocab), nil, vocab)
		var got []uint32
		for position := range len(c.want) {
			id, err := s.Next(sample.Step{Logits: make([]float32, vocab), Position: position})
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, id)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("seed %d draws %v; want %v", c.seed, got, c.want)
		}
	}
}

// The tokens of top-p are the fewest that together have that share: when a token
// reaches it exactly, the next one is out.
func TestTopPEndsWhereTheShareIsReached(t *testing.T) {
	for _, c := range []struct {
		p    float64
		want int
	}{{0.25, 1}, {0.5, 2}, {math.Nextafter(0.5, 1), 3}, {0.75, 3}, {1, 4}} {
		s := sample.New(params(t, engine.Sampling{TopP: ptr(c.p)}, 4), nil, 4)
		drawn := map[uint32]bool{}
		for position := range 200 {
			id, err := s.Next(sample.Step{Logits: make([]float32, 4), Position: position})
			if err != nil {
				t.Fatal(err)
			}
			drawn[id] = true
		}
		for id := range uint32(4) {
			if want := int(id) < c.want; drawn[id] != want {
				t.Errorf("top-p %v: token %d of four equal ones was drawn: %v; want %v", c.p, id, drawn[id], want)
			}
		}
	}
}
