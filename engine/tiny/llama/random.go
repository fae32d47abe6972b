package llama

import (
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
)

// Random returns a model of that shape with weights that depend on the seed
// alone, the same everywhere. It says nothing that makes sense, but its numbers
// are as lively as those of a trained one. It panics if cfg is not valid.
func Random(cfg Config, seed uint64) *Model {
	m, err := New(cfg, RandomTensors(cfg, seed))
	if err != nil {
		panic(err)
	}
	return m
}

// RandomTensors returns the tensors of Random, as F32.
func RandomTensors(cfg Config, seed uint64) func(name string) (Tensor, error) {
	return func(name string) (Tensor, error) {
		list := cfg.Tensors()
		i := slices.IndexFunc(list, func(s Spec) bool { return s.Name == name })
		if i < 0 {
			return Tensor{}, fmt.Errorf("a model of this shape has no such tensor")
		}
		shape := list[i].Shape
		h := fnv.New64a()
		h.Write([]byte(name))
		random := rand.New(rand.NewPCG(seed, h.Sum64()))

		// Weights of norms lie around one. The others spread so that a sum of
		// products is about as large as what went in, and the embedding so that
		// the output, if it is the same matrix, has clear favourites.
		middle, spread := 0.0, 0.1
		switch {
		case strings.HasSuffix(name, "norm.weight"):
			middle = 1
		case name == embeddingName:
			spread = 2 / math.Sqrt(float64(cfg.Width))
		case len(shape) == 2:
			spread = 1 / math.Sqrt(float64(shape[1]))
		}
		numbers := make([]float32, size(shape))
		for i := range numbers {
			// Even over an interval that has this spread.
			u := 2*random.Float64() - 1
			numbers[i] = float32(middle + float64(u*spread*math.Sqrt(3)))
		}
		return NewTensor(name, shape, numbers), nil
	}
}
