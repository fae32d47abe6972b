package engine_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/dynago/dynago/engine"
)

// What ends a stream is told once, and in its order.
func TestEnds(t *testing.T) {
	for _, c := range []struct{ ids, hidden, want []uint32 }{
		{nil, nil, nil},
		{[]uint32{7, 3}, nil, []uint32{7, 3}},
		{nil, []uint32{2}, []uint32{2}},
		{[]uint32{7, 2, 7}, []uint32{2, 9}, []uint32{7, 2, 9}},
	} {
		s := engine.Stop{IDs: c.ids, Hidden: c.hidden}
		if got := s.Ends(); !slices.Equal(got, c.want) {
			t.Errorf("%v and %v: %v, want %v", c.ids, c.hidden, got, c.want)
		}
	}
}

func TestNamedBias(t *testing.T) {
	s := engine.Sampling{LogitBias: map[uint32]float64{5: -100, 4294967295: 0.5}}
	if got := s.NamedBias(); !maps.Equal(got, map[string]float64{"5": -100, "4294967295": 0.5}) {
		t.Errorf("%v", got)
	}
	if got := (&engine.Sampling{}).NamedBias(); got != nil {
		t.Errorf("%v, want none at all", got)
	}
}

// Whatever a request says of them, no more of its ids are of the answer than there are.
func TestDivide(t *testing.T) {
	for answered, want := range map[int]int{-1: 4, 0: 4, 1: 3, 4: 0, 5: 0} {
		r := engine.Request{TokenIDs: []uint32{1, 2, 3, 4}, Answered: answered}
		prompt, answer := r.Divide()
		if len(prompt) != want || !slices.Equal(append(prompt, answer...), r.TokenIDs) || !slices.Equal(r.TokenIDs, []uint32{1, 2, 3, 4}) {
			t.Errorf("%d answered: %v and %v", answered, prompt, answer)
		}
	}
}
