package engine

import (
	"encoding/binary"
	"math/bits"
)

// Bytes is the datatype of tensors whose elements are texts of any length.
const Bytes = "BYTES"

// ElementSize returns how many bytes an element of a datatype takes; 0 for [Bytes],
// whose elements differ, and false for a word that is none of KServe's.
func ElementSize(datatype string) (size int, known bool) {
	switch datatype {
	case "BOOL", "UINT8", "INT8":
		return 1, true
	case "UINT16", "INT16", "FP16", "BF16":
		return 2, true
	case "UINT32", "INT32", "FP32":
		return 4, true
	case "UINT64", "INT64", "FP64":
		return 8, true
	case Bytes:
		return 0, true
	}
	return 0, false
}

// Check says what is wrong with a tensor whose data are not those of its datatype and
// shape, or nil. It reads no more of the data than it must to count them.
func (t *Tensor) Check() error {
	if t.Datatype == "" {
		return Errorf(InvalidArgument, "tensor '%s': missing field `data_type`", t.Name)
	}
	size, known := ElementSize(t.Datatype)
	if !known {
		return Errorf(InvalidArgument, "tensor '%s': Invalid data type '%s'", t.Name, t.Datatype)
	}
	want, err := t.elements()
	if err != nil {
		return err
	}
	if size == 0 {
		return t.checkTexts(want)
	}
	got := uint64(len(t.Data))
	if got%uint64(size) != 0 {
		return Errorf(InvalidArgument, "tensor '%s': %d bytes of data are no whole number of elements of %s, which take %d each", t.Name, got, t.Datatype, size)
	}
	if got /= uint64(size); got != want {
		return t.miscounted(want, got)
	}
	return nil
}

// elements returns how many the shape says there are.
func (t *Tensor) elements() (uint64, error) {
	n := uint64(1)
	over := false
	for _, d := range t.Shape {
		if d < 0 {
			return 0, Errorf(InvalidArgument, "tensor '%s': shape %v has negative dimension %d: only -1 is allowed as a wildcard dimension, and only where a model is described", t.Name, t.Shape, d)
		}
		high, low := bits.Mul64(n, uint64(d))
		over = over && d > 0 || high > 0
		n = low
	}
	if over {
		return 0, Errorf(InvalidArgument, "tensor '%s': shape %v has more elements than can be counted", t.Name, t.Shape)
	}
	return n, nil
}

// checkTexts counts the elements of [Bytes].
func (t *Tensor) checkTexts(want uint64) error {
	got, rest := uint64(0), t.Data
	for ; len(rest) > 0; got++ {
		if len(rest) < 4 || uint64(binary.LittleEndian.Uint32(rest)) > uint64(len(rest)-4) {
			return Errorf(InvalidArgument, "tensor '%s': element %d of its data is cut off", t.Name, got)
		}
		rest = rest[4+binary.LittleEndian.Uint32(rest):]
	}
	if got != want {
		return t.miscounted(want, got)
	}
	return nil
}

func (t *Tensor) miscounted(want, got uint64) error {
	return Errorf(InvalidArgument, "tensor '%s': shape implies %d elements but data has %d", t.Name, want, got)
}
