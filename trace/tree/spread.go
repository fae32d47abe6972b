package tree

import (
	"math"
	"slices"
)

// Spread is the distribution of a number that is 0 or more, such as a time. Up to a few
// thousand values it is exact; of more, percentiles are within half a percent, and the
// room that it takes stops growing. The zero value has seen nothing.
type Spread struct {
	N             int
	Sum, Min, Max float64
	few           []float64
	sorted        bool
	many          map[int]int // values by bucket, once there are too many
}

const (
	fewValues = 4096
	// perOctave buckets divide the numbers between one power of two and the next.
	perOctave = 128
)

// Add adds a value. Those that are no number, or less than 0, are not added.
func (s *Spread) Add(v float64) {
	if !(v >= 0) || math.IsInf(v, 1) {
		return
	}
	if s.N == 0 {
		s.Min = v
	}
	s.N++
	s.Sum += v
	s.Min, s.Max = min(s.Min, v), max(s.Max, v)
	if s.many != nil {
		s.many[bucket(v)]++
		return
	}
	s.few, s.sorted = append(s.few, v), false
	if len(s.few) > fewValues {
		s.many = map[int]int{}
		for _, v := range s.few {
			s.many[bucket(v)]++
		}
		s.few = nil
	}
}

// bucket returns the bucket of a value: 0 has one for itself.
func bucket(v float64) int {
	if v == 0 {
		return math.MinInt
	}
	return int(math.Floor(math.Log2(v) * perOctave))
}

// Mean returns the mean, or 0 of nothing.
func (s *Spread) Mean() float64 {
	if s.N == 0 {
		return 0
	}
	return s.Sum / float64(s.N)
}

// Percentile returns the smallest value that so many percent, 0 to 100, of the values do
// not exceed; 0 of nothing.
func (s *Spread) Percentile(p float64) float64 {
	if s.N == 0 {
		return 0
	}
	rank := min(s.N, max(1, int(math.Ceil(p/100*float64(s.N)))))
	if s.many == nil {
		if !s.sorted {
			slices.Sort(s.few)
			s.sorted = true
		}
		return s.few[rank-1]
	}
	buckets := make([]int, 0, len(s.many))
	for b := range s.many {
		buckets = append(buckets, b)
	}
	slices.Sort(buckets)
	for _, b := range buckets {
		if rank -= s.many[b]; rank <= 0 {
			if b == math.MinInt {
				return 0
			}
			return min(s.Max, max(s.Min, math.Exp2((float64(b)+0.5)/perOctave)))
		}
	}
	return s.Max
}
