package prompt

import "math/bits"

// chain names a list of ids. That of two lists joined is made of theirs, so that
// a list has one name however it was put together, and what is known of its
// parts need not be looked at again.
//
// It is a polynomial over the field of 2^61-1, in which the ids are the
// coefficients.
type chain struct {
	sum   uint64
	power uint64 // of the base, to the number of ids
}

const (
	field = 1<<61 - 1
	base  = 0x1d8a_71c3_5b64_9e2f
)

// noIDs is the chain of an empty list.
var noIDs = chain{power: 1}

func chainOf(ids []uint32) chain {
	c := noIDs
	for _, id := range ids {
		c.sum = times(c.sum, base) + uint64(id) + 1
	}
	c.sum = reduced(c.sum)
	square := uint64(base)
	for n := len(ids); n > 0; n >>= 1 {
		if n&1 == 1 {
			c.power = times(c.power, square)
		}
		square = times(square, square)
	}
	return c
}

func (c chain) join(next chain) chain {
	return chain{sum: reduced(times(c.sum, next.power) + next.sum), power: times(c.power, next.power)}
}

// then is the chain with one more id.
func (c chain) then(id uint32) chain {
	return chain{sum: reduced(times(c.sum, base) + uint64(id) + 1), power: times(c.power, base)}
}

// times multiplies in the field. Either factor may be up to 2^62.
func times(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	return reduced(lo&field + (hi<<3 | lo>>61))
}

func reduced(x uint64) uint64 {
	x = x&field + x>>61
	if x >= field {
		x -= field
	}
	return x
}
