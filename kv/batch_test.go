package kv_test

import (
	"slices"
	"testing"

	"github.com/dynago/dynago/kv"
)

func TestCut(t *testing.T) {
	small := slices.Repeat([]int{1}, kv.BatchEvents)
	for _, tt := range []struct {
		name   string
		blocks []int // of each event
		want   []int // events of each part
	}{
		{"nothing", nil, nil},
		{"as many events as can be", small, []int{128}},
		{"one event more", append(small, 0), []int{128, 1}},
		{"as many blocks as can be", []int{8000, 192, 0}, []int{3}},
		{"one block more", []int{8000, 192, 1}, []int{2, 1}},
		{"an event of too many goes alone", []int{1, 9000, 1}, []int{1, 1, 1}},
		{"alone", []int{9000}, []int{1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var events []kv.Event
			for _, n := range tt.blocks {
				events = append(events, kv.Event{Blocks: make([]kv.Block, n)})
			}
			var got []int
			n := 0
			for _, part := range kv.Cut(events) {
				got = append(got, len(part))
				for i := range part {
					if &part[i] != &events[n] {
						t.Errorf("event %d is another one", n)
					}
					n++
				}
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("parts of %v events, want %v", got, tt.want)
			}
		})
	}
}
