package thompson

import (
	"math"
	"math/rand/v2"
)

// beta is what is believed of a share between 0 and 1: as much as if it had been
// seen in a-1 trials that went well and b-1 that did not.
type beta struct{ a, b float64 }

// learn takes in one reward between 0 and 1. What was learned before counts
// forget of what it did.
func (s *beta) learn(reward, forget float64) {
	f := s.faded(forget)
	s.a, s.b = f.a+reward, f.b+1-reward
}

// faded returns what is believed when only a part of the lessons is left.
func (s beta) faded(part float64) beta {
	return beta{1 + part*(s.a-1), 1 + part*(s.b-1)}
}

// sample draws a share: of two gamma variates, the part that the first makes of
// both.
func (s beta) sample(r *rand.Rand) float64 {
	a, b := gamma(r, s.a), gamma(r, s.b)
	if a+b == 0 {
		return 0.5
	}
	return a / (a + b)
}

// gamma draws from the gamma distribution with a shape above 0 and scale 1, by
// the method of Marsaglia and Tsang (ACM Transactions on Mathematical Software
// 26, 2000).
func gamma(r *rand.Rand, shape float64) float64 {
	if shape < 1 {
		return gamma(r, shape+1) * math.Pow(1-r.Float64(), 1/shape)
	}
	d := shape - 1.0/3
	c := 1 / math.Sqrt(9*d)
	for {
		x := r.NormFloat64()
		v := 1 + c*x
		if v <= 0 {
			continue
		}
		v *= v * v
		if math.Log(1-r.Float64()) < x*x/2+d*(1-v+math.Log(v)) {
			return d * v
		}
	}
}
