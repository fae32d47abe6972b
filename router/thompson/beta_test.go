package thompson

import (
	"math"
	"math/rand/v2"
	"testing"
)

// Variates have the mean and the variance of their distributions.
func TestVariates(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	const n = 200_000
	moments := func(draw func() float64) (mean, variance float64) {
		square := 0.0
		for range n {
			x := draw()
			mean += x / n
			square += x * x / n
		}
		return mean, square - mean*mean
	}
	for _, shape := range []float64{0.3, 1, 2.5, 40} {
		mean, variance := moments(func() float64 { return gamma(r, shape) })
		if math.Abs(mean/shape-1) > 0.02 || math.Abs(variance/shape-1) > 0.05 {
			t.Errorf("gamma of %v has mean %v and variance %v, want %v", shape, mean, variance, shape)
		}
	}
	for _, b := range []beta{{1, 1}, {0.5, 2}, {3, 9}, {200, 100}} {
		sum := b.a + b.b
		wantMean, wantVariance := b.a/sum, b.a*b.b/(sum*sum*(sum+1))
		mean, variance := moments(func() float64 { return b.sample(r) })
		if math.Abs(mean/wantMean-1) > 0.02 || math.Abs(variance/wantVariance-1) > 0.05 {
			t.Errorf("beta of %v has mean %v and variance %v, want %v and %v", b, mean, variance, wantMean, wantVariance)
		}
	}
}

func TestBetaLearns(t *testing.T) {
	b := beta{1, 1}
	b.learn(0.25, 1)
	b.learn(1, 1)
	if want := (beta{2.25, 1.75}); b != want {
		t.Errorf("got %v, want %v", b, want)
	}
	b.learn(0, 0.5)
	if want := (beta{1.625, 2.375}); b != want {
		t.Errorf("with half forgotten: got %v, want %v", b, want)
	}
	for range 10_000 {
		b.learn(1, 0.99)
	}
	if math.Abs(b.a-101) > 0.01 || math.Abs(b.b-1) > 0.01 {
		t.Errorf("after many lessons: got %v, want 101 and 1: never more than the last hundred", b)
	}
	if got, want := (beta{11, 5}).faded(0.1), (beta{2, 1.4}); math.Abs(got.a-want.a) > 1e-12 || math.Abs(got.b-want.b) > 1e-12 {
		t.Errorf("faded: got %v, want %v", got, want)
	}
}
