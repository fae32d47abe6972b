package llama

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
)

// Kind is how the numbers of a tensor are stored.
type Kind uint8

// The kinds that New reads. It keeps F32 and Q8_0 as they are and widens the
// other two to F32, which loses nothing.
const (
	F32  Kind = iota // four bytes each
	F16              // IEEE half precision, two bytes each
	BF16             // the upper half of an F32
	Q8_0             // 32 signed bytes behind an F16 that scales them
)

// String returns the name that GGUF has for the kind.
func (k Kind) String() string {
	switch k {
	case F32:
		return "F32"
	case F16:
		return "F16"
	case BF16:
		return "BF16"
	case Q8_0:
		return "Q8_0"
	}
	return fmt.Sprintf("Kind(%d)", uint8(k))
}

// Bytes returns how many bytes a row of n numbers takes. For Q8_0 n must be a
// multiple of 32; otherwise, and for a kind that does not exist, it returns -1.
func (k Kind) Bytes(n int) int {
	switch k {
	case F32:
		return 4 * n
	case F16, BF16:
		return 2 * n
	case Q8_0:
		if n%q8Values == 0 {
			return n / q8Values * q8Bytes
		}
	}
	return -1
}

// Tensor is a vector or a matrix as it lies in a file.
type Tensor struct {
	Name  string
	Shape []int // outputs before inputs; the last dimension is contiguous
	Kind  Kind
	Data  []byte // little-endian
}

func size(shape []int) int {
	n := 1
	for _, d := range shape {
		n *= d
	}
	return n
}

// check returns an error unless t has that shape and holds finite numbers.
func (t *Tensor) check(shape []int) error {
	if !slices.Equal(t.Shape, shape) {
		return fmt.Errorf("shape is %v; the model's settings make it %v", t.Shape, shape)
	}
	row := shape[len(shape)-1]
	bytes := t.Kind.Bytes(row)
	switch {
	case t.Kind > Q8_0:
		return fmt.Errorf("numbers are stored as %v; F32, F16, BF16 and Q8_0 are read", t.Kind)
	case bytes < 0:
		return fmt.Errorf("rows of %d numbers cannot be stored as Q8_0, which has blocks of %d", row, q8Values)
	}
	want := int64(bytes)
	for _, n := range shape[:len(shape)-1] {
		want *= int64(n)
	}
	if int64(len(t.Data)) != want {
		return fmt.Errorf("%d bytes of data; %v as %v takes %d", len(t.Data), shape, t.Kind, want)
	}
	if i := t.infinite(); i >= 0 {
		at := fmt.Sprint([]int{i})
		if len(shape) > 1 {
			at = fmt.Sprint([]int{i / row, i % row})
		}
		return fmt.Errorf("number at %s is %w", at, errInfinite)
	}
	return nil
}

var errInfinite = errors.New("not finite (NaN or an infinity)")

// infinite returns the index of the first number that is NaN or an infinity, or
// -1: one with all bits of its exponent set.
func (t *Tensor) infinite() int {
	d := t.Data
	switch t.Kind {
	case F32:
		for i := 0; i+4 <= len(d); i += 4 {
			if binary.LittleEndian.Uint32(d[i:])&0x7f800000 == 0x7f800000 {
				return i / 4
			}
		}
	case F16:
		for i := 0; i+2 <= len(d); i += 2 {
			if binary.LittleEndian.Uint16(d[i:])&0x7c00 == 0x7c00 {
				return i / 2
			}
		}
	case BF16:
		for i := 0; i+2 <= len(d); i += 2 {
			if binary.LittleEndian.Uint16(d[i:])&0x7f80 == 0x7f80 {
				return i / 2
			}
		}
	case Q8_0:
		for i := 0; i+q8Bytes <= len(d); i += q8Bytes {
			if binary.LittleEndian.Uint16(d[i:])&0x7c00 == 0x7c00 {
				return i / q8Bytes * q8Values
			}
		}
	}
	return -1
}

// read widens len(dst) numbers from the one with index from on; for Q8_0 both
// are multiples of 32.
func (t *Tensor) read(dst []float32, from int) {
	switch t.Kind {
	case F32:
		d := t.Data[4*from:]
		for i := range dst {
			dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(d[4*i:]))
		}
	case F16:
		d := t.Data[2*from:]
		for i := range dst {
			dst[i] = fromF16(binary.LittleEndian.Uint16(d[2*i:]))
		}
	case BF16:
		d := t.Data[2*from:]
		for i := range dst {
			dst[i] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(d[2*i:])) << 16)
		}
	case Q8_0:
		dequantizeQ8(dst, t.Data[from/q8Values*q8Bytes:])
	}
}

// NewTensor returns a tensor that holds the numbers as F32. It panics if the
// shape has room for another number of them.
func NewTensor(name string, shape []int, numbers []float32) Tensor {
	if size(shape) != len(numbers) {
		panic(fmt.Sprintf("llama: %d numbers for tensor %s of shape %v", len(numbers), name, shape))
	}
	data := make([]byte, 0, 4*len(numbers))
	for _, x := range numbers {
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(x))
	}
	return Tensor{Name: name, Shape: slices.Clone(shape), Kind: F32, Data: data}
}

// Numbers returns the numbers of the tensor, widened. The data must be as long
// as shape and kind say.
func (t Tensor) Numbers() []float32 {
	dst := make([]float32, size(t.Shape))
	t.read(dst, 0)
	return dst
}
