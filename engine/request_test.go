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
