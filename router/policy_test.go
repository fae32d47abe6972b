package router

import (
	"math/rand/v2"
	"testing"
)

// draw is a number below a bound.
type draw struct{ number, bound uint64 }

// script is a source from which these numbers are drawn below these bounds:
// scaled to a bound they come out of the upper half, and masked by one that is a
// power of two out of the lower.
type script struct {
	t     *testing.T
	draws []draw
}

func (s *script) Uint64() uint64 {
	if len(s.draws) == 0 {
		s.t.Error("more is drawn than there is")
		return 0
	}
	d := s.draws[0]
	s.draws = s.draws[1:]
	return (2*d.number+1)<<31/d.bound<<32 | d.number
}

func loaded(requests ...int) []Candidate {
	c := make([]Candidate, len(requests))
	for i, n := range requests {
		c[i].Requests = n
	}
	return c
}

// The first is drawn from all, the second from the others, counted from the first
// on; the first wins where both have as many.
func TestPowerOfTwo(t *testing.T) {
	for _, tc := range []struct {
		requests []int
		draws    []draw
		want     int
	}{
		{[]int{5, 5, 5, 5, 0}, []draw{{0, 5}, {0, 4}}, 0}, // 0 and 1
		{[]int{5, 4, 5, 5, 0}, []draw{{0, 5}, {0, 4}}, 1},
		{[]int{5, 4, 5, 5, 0}, []draw{{0, 5}, {3, 4}}, 4},
		{[]int{5, 4, 5, 5, 0}, []draw{{1, 5}, {3, 4}}, 1}, // 1 and 0, round the end
		{[]int{3, 4, 5, 5, 9}, []draw{{1, 5}, {3, 4}}, 0},
		{[]int{3, 4, 5, 5}, []draw{{3, 4}, {2, 3}}, 3}, // 3 and 2
		{[]int{3, 4, 4, 5}, []draw{{3, 4}, {2, 3}}, 2},
		{[]int{3}, []draw{{0, 1}}, 0},
	} {
		source := &script{t, tc.draws}
		got, err := powerOfTwo{rand.New(source)}.Pick(t.Context(), &Query{}, loaded(tc.requests...))
		if got != tc.want || err != nil || len(source.draws) > 0 {
			t.Errorf("%+v: took %d, %v", tc, got, err)
		}
	}
}

func TestDeviceAware(t *testing.T) {
	rows := func(accelerated, onCPU []int) []Candidate {
		c := loaded(append(accelerated, onCPU...)...)
		for i := range onCPU {
			c[len(accelerated)+i].OnCPU = true
		}
		return c
	}
	for name, tc := range map[string]struct {
		accelerated, onCPU []int
		want               int
	}{
		"idle":                           {[]int{0, 0}, []int{0}, -1},
		"below the share of one":         {[]int{7, 8}, []int{0}, 0}, // 15·1 / (8·2) = 0
		"at the share of one":            {[]int{8, 8}, []int{0}, 2},
		"one has its share":              {[]int{9, 8}, []int{1}, 1},
		"two on processors, one each":    {[]int{8, 8}, []int{1, 0}, 3},
		"two on processors have theirs":  {[]int{8, 8}, []int{1, 1}, -1},
		"only accelerators":              {[]int{3, 2}, nil, 1},
		"only processors":                {nil, []int{3, 2}, 1},
		"only processors, however many":  {nil, []int{300, 200}, 1},
		"a share is rounded down":        {[]int{15}, []int{1}, 0},
		"and two are due at twice eight": {[]int{16}, []int{1}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			p := deviceAware{rand.New(rand.NewPCG(1, 1)), DefaultAcceleratorRatio}
			got, err := p.Pick(t.Context(), &Query{}, rows(tc.accelerated, tc.onCPU))
			if err != nil || tc.want >= 0 && got != tc.want || tc.want < 0 && got >= len(tc.accelerated) {
				t.Errorf("took %d, %v", got, err)
			}
		})
	}
}
