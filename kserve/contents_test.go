package kserve

import (
	"bytes"
	"math"
	"slices"
	"testing"
)

// Where memory is not little-endian, numbers are copied, and are the same.
func TestCopies(t *testing.T) {
	agree(t, []bool{true, false})
	agree(t, []int32{1, -2, math.MinInt32})
	agree(t, []uint32{1, math.MaxUint32})
	agree(t, []int64{1, -2, math.MinInt64})
	agree(t, []uint64{1, math.MaxUint64})
	agree(t, []float32{1.5, float32(math.Inf(-1))})
	agree(t, []float64{1.5, math.Inf(1)})
}

func agree[T numeric](t *testing.T, numbers []T) {
	t.Helper()
	shared, copied := bytesOf(numbers), copyBytes(numbers)
	if littleEndian && !bytes.Equal(shared, copied) {
		t.Errorf("%T: %x is copied as %x", numbers, shared, copied)
	}
	if back := copyNumbers[T](copied); !slices.Equal(back, numbers) {
		t.Errorf("%v has become %v", numbers, back)
	}
}

func TestPlain(t *testing.T) {
	for size := range 40 {
		data := bytes.Repeat([]byte{1}, size)
		if !plain(data) {
			t.Errorf("%d times 1 is not plain", size)
		}
		for at := range data {
			data[at] = 0x80
			if plain(data) {
				t.Errorf("% x is plain", data)
			}
			data[at] = 0
			if !plain(data) {
				t.Errorf("% x is not plain", data)
			}
		}
	}
}
