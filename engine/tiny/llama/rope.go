package llama

import (
	"math"
	"sync/atomic"
)

// ropePage is how many positions' sines and cosines are computed together.
const ropePage = 256

// rope turns pairs of numbers by angles that grow with the position: the number
// with index i of a head and the one half a head later, as Hugging Face has it.
//
// Frequencies and angles are rounded to float32, as they were where models of
// this kind were trained.
type rope struct {
	frequencies []float32
	pages       []atomic.Pointer[[]float32] // made when a position is first seen
}

func newRope(c Config) rope {
	half := c.HeadSize / 2
	r := rope{
		frequencies: make([]float32, half),
		pages:       make([]atomic.Pointer[[]float32], (c.Context+ropePage-1)/ropePage),
	}
	for i := range r.frequencies {
		r.frequencies[i] = float32(c.RopeScaling.stretch(c.frequency(i), i))
	}
	return r
}

// frequency returns frequency number i before it is stretched. It is rounded at
// each of the steps that PyTorch takes: a frequency that is rounded once differs in
// its last bit, and two thousand positions on so do log-probabilities in their
// fourth digit.
func (c Config) frequency(i int) float64 {
	exponent := float32(2*i) / float32(c.HeadSize)
	return float64(1 / float32(math.Pow(c.RopeBase, float64(exponent))))
}

// stretch returns frequency number i, scaled.
func (s RopeScaling) stretch(f float64, i int) float64 {
	switch s.Type {
	case "linear":
		return f / s.Factor
	case "factors":
		return f / float64(s.Factors[i])
	case "llama3":
		// Short waves stay, long ones are stretched, and between the two a
		// share of both. A wave is short or long by how many of it the context
		// of the first training had.
		waves := float64(s.Original) * f / (2 * math.Pi)
		switch {
		case waves < s.LowFrequency:
			return f / s.Factor
		case waves > s.HighFrequency:
			return f
		}
		share := (waves - s.LowFrequency) / (s.HighFrequency - s.LowFrequency)
		return (1-share)*f/s.Factor + share*f
	}
	return f
}

// at returns the cosines and then the sines of a position, one for each frequency.
func (r *rope) at(position int) []float32 {
	page := &r.pages[position/ropePage]
	p := page.Load()
	if p == nil {
		p = r.page(position / ropePage)
		page.Store(p) // two who come at once store the same numbers
	}
	n := 2 * len(r.frequencies)
	return (*p)[position%ropePage*n:][:n]
}

func (r *rope) page(number int) *[]float32 {
	half := len(r.frequencies)
	p := make([]float32, ropePage*2*half)
	for i := range ropePage {
		row := p[i*2*half:][:2*half]
		for j, f := range r.frequencies {
			sin, cos := sincos(float64(float32(number*ropePage+i) * f))
			row[j], row[half+j] = float32(cos), float32(sin)
		}
	}
	return &p
}

// turn rotates each head of row by its position's angles and scales the result.
func (r *rope) turn(row []float32, position int, scale float32) {
	half := len(r.frequencies)
	angles := r.at(position)
	cos, sin := angles[:half], angles[half:][:half]
	for ; len(row) > 0; row = row[2*half:] {
		low, high := row[:half], row[half:][:half]
		for i, c := range cos {
			a, b, s := low[i], high[i], sin[i]
			low[i] = (float32(a*c) - float32(b*s)) * scale
			high[i] = (float32(b*c) + float32(a*s)) * scale
		}
	}
}

// sincos returns the sine and the cosine of x, |x| < 2^28, to within 2^-50. The
// ones of package math may differ in the last bit from one architecture to the
// next, where the compiler fuses multiplication and addition; this one's roundings
// are all written out.
func sincos(x float64) (sin, cos float64) {
	// π/2 in three parts of which n times the first two is exact.
	const (
		first  = 0x1.921fb5p+00
		second = 0x1.110b44p-26
		third  = 0x1.08d313198a2e0p-49
	)
	n := math.RoundToEven(x * (2 / math.Pi))
	r := x - float64(n*first)
	r = r - float64(n*second)
	r = r - float64(n*third)

	s, c := taylor(r, 1, 17), taylor(r, 0, 16)
	switch int64(n) & 3 {
	case 0:
		return s, c
	case 1:
		return c, -s
	case 2:
		return -s, -c
	}
	return -c, s
}

// taylor sums the series of the sine or the cosine, from the term of the given
// power down to that of the lowest, 1 or 0.
func taylor(r float64, lowest, power int) float64 {
	sum, square := 1.0, float64(r*r)
	for ; power > lowest; power -= 2 {
		sum = 1 - float64(float64(sum*square)/float64(power*(power-1)))
	}
	if lowest == 1 {
		return float64(sum * r)
	}
	return sum
}
