package router

import (
	"math"
	"math/rand/v2"
)

// Bounds of bootstrap rooms, both excluded: that of SGLang itself, and that of
// gateways whose field is a signed number of 32 bits.
const (
	roomBound      = math.MaxInt64
	smallRoomBound = math.MaxInt32
)

// meetingRoom draws the number under which two legs find each other, below bound.
// The prefill engine takes the number modulo its ranks for the rank that the
// request runs on, so only numbers that give rank will do; each of them has the
// same chance. ranks is at least 1.
func meetingRoom(r *rand.Rand, bound uint64, ranks, rank uint32) uint64 {
	n := uint64(max(1, ranks))
	first := uint64(rank) % n
	// Of the numbers first, first+n, … as many lie below the bound as that.
	return first + n*r.Uint64N((bound-first+n-1)/n)
}

// randomBytes reads bytes from a source of numbers.
type randomBytes struct{ *rand.Rand }

// Read fills p. It never fails.
func (r randomBytes) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(r.Uint32())
	}
	return len(p), nil
}
