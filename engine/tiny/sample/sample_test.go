package sample_test

import (
	"math"
	"testing"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/tiny/sample"
)

func ptr[T any](v T) *T { return &v }

func params(t *testing.T, s engine.Sampling, vocab int) sample.Params {
	t.Helper()
	p, err := sample.Default().With(&s, vocab)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestGreedyTakesTheLowestOfEquals(t *testing.T) {
	s := sample.New(params(t, engine.Sampling{Temperature: ptr(0.0)}, 5), nil, 5)
	id, err := s.Next(sample.Step{Logits: []float32{1, 3, 2, 3, 0}})
	if err != nil || id != 1 {
		t.Fatalf("got %d, %v; want 1", id, err)
	}
	id, err = s.Next(sample.Step{Logits: []float32{1, 3, 2, 3, 0}, Mask: []uint64{0b11101}})
	if err != nil || id != 3 {
		t.Fatalf("got %d, %v; want 3", id, err)
	}
	if _, err = s.Next(sample.Step{Logits: []float32{1, 3, 2, 3, 0}, Mask: []uint64{0}}); err != sample.ErrNothing {
		t.Fatalf("got %v; want %v", err, sample.ErrNothing)
	}
	if _, err = s.Next(sample.Step{Logits: []float32{1, float32(math.NaN()), 2, 3, 0}}); err == nil {
		t.Fatal("a logit that is no number was taken")
	}
}
