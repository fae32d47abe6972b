package kserve

import (
	"encoding/binary"
	"math"

	"github.com/dynago/dynago/engine"
)

// checkInput says what is wrong with an input that came as bytes: its shape first,
// then whether the bytes are elements, then how many those are. It gives booleans
// the one form that they have inside, and changes nothing else.
func checkInput(t *engine.Tensor) error {
	size, known := engine.ElementSize(t.Datatype)
	if !known {
		return refused("Invalid data type '%s' of input tensor '%s'", t.Datatype, t.Name)
	}
	want, err := elements(t.Shape)
	if err != nil {
		return err
	}
	var got int64
	if size == 0 {
		got, err = countBytes(t)
		if err != nil {
			return err
		}
	} else {
		if len(t.Data)%size != 0 {
			return refused("Raw input length must be a multiple of %d for input tensor '%s' of %s, got %d bytes", size, t.Name, t.Datatype, len(t.Data))
		}
		got = int64(len(t.Data) / size)
	}
	if got != want {
		return refused("Raw input element count for '%s' does not match expected size, expected %d elements, got %d elements", t.Name, want, got)
	}
	if t.Datatype == "BOOL" {
		t.Data = plainBools(t.Data)
	}
	return nil
}

// elements returns how many a shape asks for: one if it has no dimensions.
func elements(shape []int64) (int64, error) {
	n := int64(1)
	for _, d := range shape {
		if d < 0 {
			return 0, refused("Shape contains negative dimension: %d; only -1 is allowed as a wildcard dimension, and only where a model is described", d)
		}
	}
	for _, d := range shape {
		if d > 0 && n > math.MaxInt64/d {
			return 0, refused("Overflow occurred while calculating element count")
		}
		n *= d
	}
	return n, nil
}

// countBytes returns how many elements an input of BYTES has. Each has its length in
// four bytes before it.
func countBytes(t *engine.Tensor) (n int64, err error) {
	data := t.Data
	for ; len(data) >= 4; n++ {
		size := binary.LittleEndian.Uint32(data)
		if uint64(size) > uint64(len(data)-4) {
			return 0, refused("Invalid length-prefixed BYTES input for '%s', length exceeds raw input size", t.Name)
		}
		data = data[4+int(size):]
	}
	if len(data) > 0 {
		return 0, refused("Invalid length-prefixed BYTES input for '%s', extra bytes at the end", t.Name)
	}
	return n, nil
}

// plainBools returns booleans as 0 and 1. Clients may send any byte for true. The
// message that data came in stays as it is.
func plainBools(data []byte) []byte {
	if plain(data) {
		return data
	}
	bools := make([]byte, len(data))
	for i, b := range data {
		if b != 0 {
			bools[i] = 1
		}
	}
	return bools
}

// plain says whether all bytes are 0 or 1.
func plain(data []byte) bool {
	const ones = 0x0101010101010101
	all := uint64(0)
	for len(data) >= 8 {
		all |= binary.LittleEndian.Uint64(data)
		data = data[8:]
	}
	for _, b := range data {
		all |= uint64(b)
	}
	return all&^ones == 0
}

// appendElement appends an element of BYTES to the data of a tensor.
func appendElement[T string | []byte](data []byte, element T) []byte {
	data = binary.LittleEndian.AppendUint32(data, uint32(len(element)))
	return append(data, element...)
}

// eachElement calls yield with each element of the data of a tensor of BYTES, until
// it returns false. It returns false as well if the data is not made of elements.
func eachElement(data []byte, yield func([]byte) bool) bool {
	for len(data) >= 4 {
		size := binary.LittleEndian.Uint32(data)
		if uint64(size) > uint64(len(data)-4) {
			return false
		}
		end := 4 + int(size)
		if !yield(data[4:end:end]) {
			return false
		}
		data = data[end:]
	}
	return len(data) == 0
}
