package router

import (
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

func TestMeetingRoom(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for ranks := uint32(1); ranks <= 8; ranks++ {
		for rank := range ranks {
			for _, bound := range []uint64{1<<63 - 1, 1<<31 - 1} {
				for range 200 {
					room := meetingRoom(r, bound, ranks, rank)
					if room >= bound || room%uint64(ranks) != uint64(rank) {
						t.Fatalf("%d ranks, rank %d: room %d, bound %d", ranks, rank, room, bound)
					}
				}
			}
		}
	}
}

// Every room below the bound that means the rank is drawn, and as often as any
// other.
func TestMeetingRoomsAreUniform(t *testing.T) {
	const bound, ranks, rank, draws = 23, 4, 3, 50000
	r := rand.New(rand.NewPCG(2, 2))
	seen := map[uint64]int{}
	for range draws {
		seen[meetingRoom(r, bound, ranks, rank)]++
	}
	want := []uint64{3, 7, 11, 15, 19}
	chi := 0.0
	for _, room := range want {
		expected := float64(draws) / float64(len(want))
		chi += math.Pow(float64(seen[room])-expected, 2) / expected
	}
	if len(seen) != len(want) || chi > 18.5 { // 4 degrees of freedom, p = 0.001
		t.Errorf("%v, chi square %.1f", seen, chi)
	}
}

func TestMeetingRoomProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ranks := rapid.Uint32Range(1, 64).Draw(t, "ranks")
		rank := rapid.Uint32Range(0, ranks-1).Draw(t, "rank")
		bound := rapid.Uint64Range(uint64(ranks), 1<<63-1).Draw(t, "bound")
		room := meetingRoom(rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0)), bound, ranks, rank)
		if room >= bound || room%uint64(ranks) != uint64(rank) {
			t.Fatalf("room %d", room)
		}
	})
}
