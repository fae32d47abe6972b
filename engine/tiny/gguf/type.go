package gguf

import (
	"fmt"
	"math"
)

// Type is how the numbers of a tensor are stored, by the number that files give
// it.
type Type uint32

// The types that can be read and written. Q8_0 is a float16 scale and 32 signed
// bytes for every 32 numbers of a row.
const (
	F32  Type = 0
	F16  Type = 1
	Q8_0 Type = 8
	BF16 Type = 30
)

// typeNames are those of llama.cpp, for messages.
var typeNames = map[Type]string{
	0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 6: "Q5_0", 7: "Q5_1", 8: "Q8_0", 9: "Q8_1",
	10: "Q2_K", 11: "Q3_K", 12: "Q4_K", 13: "Q5_K", 14: "Q6_K", 15: "Q8_K", 16: "IQ2_XXS",
	17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S", 20: "IQ4_NL", 21: "IQ3_S", 22: "IQ2_S",
	23: "IQ4_XS", 24: "I8", 25: "I16", 26: "I32", 27: "I64", 28: "F64", 29: "IQ1_M", 30: "BF16",
	34: "TQ1_0", 35: "TQ2_0", 39: "MXFP4",
}

// String returns the type's name, or its number if it has none here.
func (t Type) String() string {
	if name, ok := typeNames[t]; ok {
		return name
	}
	return fmt.Sprint(uint32(t))
}

// Bounds that no real tensor comes near, and under which nothing overflows.
const (
	maxSide   = 1 << 40
	maxOffset = math.MaxInt64 / 4
)

// Size returns the bytes of a tensor of this type. It is an error if the type is
// not one of this package, if a row of Q8_0 is not whole blocks, or if the bytes
// are more than a file can have.
func (t Type) Size(shape []int) (int64, error) {
	numbers, bytes := int64(1), int64(0)
	switch t {
	case F32:
		bytes = 4
	case F16, BF16:
		bytes = 2
	case Q8_0:
		numbers, bytes = 32, 34
	default:
		return 0, fmt.Errorf("type %s: want F32, F16, BF16 or Q8_0", t)
	}
	if columns := int64(shape[len(shape)-1]); columns%numbers != 0 {
		return 0, fmt.Errorf("rows of %d numbers: want a multiple of %d for %s", columns, numbers, t)
	}
	count := int64(1)
	for _, side := range shape {
		if side < 1 || count > maxOffset/bytes/int64(side) {
			return 0, fmt.Errorf("shape %v: want sides of 1 or more, and less than %d bytes", shape, int64(maxOffset))
		}
		count *= int64(side)
	}
	return count / numbers * bytes, nil
}
