package kserve

import (
	"encoding/binary"
	"math"
	"unsafe"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/internal/gen/inferencepb"
)

// Elements may travel as numbers of a message instead of bytes. Numbers of four and
// eight bytes lie in memory as they lie on the wire, on every machine that this runs
// on but for a few, so that a slice of them is looked at as bytes and not copied.

// members are the lists of [inferencepb.InferTensorContents] in the words of its
// schema, and how many elements each holds.
func members(c *inferencepb.InferTensorContents) [8]member {
	return [8]member{
		{"bool_contents", len(c.GetBoolContents())},
		{"int_contents", len(c.GetIntContents())},
		{"int64_contents", len(c.GetInt64Contents())},
		{"uint_contents", len(c.GetUintContents())},
		{"uint64_contents", len(c.GetUint64Contents())},
		{"fp32_contents", len(c.GetFp32Contents())},
		{"fp64_contents", len(c.GetFp64Contents())},
		{"bytes_contents", len(c.GetBytesContents())},
	}
}

type member struct {
	name string
	n    int
}

// memberOf returns which list a datatype has, or "".
func memberOf(datatype string) string {
	switch datatype {
	case "BOOL":
		return "bool_contents"
	case "INT8", "INT16", "INT32":
		return "int_contents"
	case "INT64":
		return "int64_contents"
	case "UINT8", "UINT16", "UINT32":
		return "uint_contents"
	case "UINT64":
		return "uint64_contents"
	case "FP32":
		return "fp32_contents"
	case "FP64":
		return "fp64_contents"
	case "BYTES":
		return "bytes_contents"
	}
	return ""
}

// readContents sets the data of an input that came as numbers, as many as there are,
// and says what is wrong with them.
func readContents(t *engine.Tensor, c *inferencepb.InferTensorContents) error {
	own := memberOf(t.Datatype)
	switch {
	case own != "":
	case half(t.Datatype):
		return refused("input tensor '%s' of %s must be given in `raw_input_contents`: no contents hold it", t.Name, t.Datatype)
	default:
		return refused("Invalid data type '%s' of input tensor '%s'", t.Datatype, t.Name)
	}
	got := 0
	for _, m := range members(c) {
		switch {
		case m.name == own:
			got = m.n
		case m.n > 0:
			return refused("input tensor '%s' of %s must be given in %s, not in %s", t.Name, t.Datatype, own, m.name)
		}
	}
	if err := readNumbers(t, c); err != nil {
		return err
	}
	return checkCount(t, int64(got))
}

// readNumbers sets the data of an input to what the list of its datatype holds.
func readNumbers(t *engine.Tensor, c *inferencepb.InferTensorContents) error {
	switch t.Datatype {
	case "BOOL":
		t.Data = bytesOf(c.GetBoolContents())
	case "INT8":
		return narrow(t, c.GetIntContents(), math.MinInt8, math.MaxInt8, 1)
	case "INT16":
		return narrow(t, c.GetIntContents(), math.MinInt16, math.MaxInt16, 2)
	case "INT32":
		t.Data = bytesOf(c.GetIntContents())
	case "INT64":
		t.Data = bytesOf(c.GetInt64Contents())
	case "UINT8":
		return narrow(t, c.GetUintContents(), 0, math.MaxUint8, 1)
	case "UINT16":
		return narrow(t, c.GetUintContents(), 0, math.MaxUint16, 2)
	case "UINT32":
		t.Data = bytesOf(c.GetUintContents())
	case "UINT64":
		t.Data = bytesOf(c.GetUint64Contents())
	case "FP32":
		t.Data = bytesOf(c.GetFp32Contents())
	case "FP64":
		t.Data = bytesOf(c.GetFp64Contents())
	case "BYTES":
		size := 0
		for _, element := range c.GetBytesContents() {
			size += 4 + len(element)
		}
		t.Data = make([]byte, 0, size)
		for _, element := range c.GetBytesContents() {
			t.Data = appendElement(t.Data, element)
		}
	}
	return nil
}

// checkCount says whether an input that came as numbers has as many as its shape
// asks for.
func checkCount(t *engine.Tensor, got int64) error {
	want, err := elements(t.Shape)
	if err != nil {
		return err
	}
	if got != want {
		return refused("input tensor '%s': shape implies %d elements but data has %d", t.Name, want, got)
	}
	return nil
}

// narrow sets data to numbers of one or two bytes that came in four.
func narrow[T int32 | uint32](t *engine.Tensor, numbers []T, least, most T, size int) error {
	data := make([]byte, len(numbers)*size)
	for i, n := range numbers {
		if n < least || n > most {
			return refused("element %d of input tensor '%s' is %d, which is out of range for %s", i, t.Name, n, t.Datatype)
		}
		if size == 1 {
			data[i] = byte(n)
		} else {
			binary.LittleEndian.PutUint16(data[2*i:], uint16(n))
		}
	}
	t.Data = data
	return nil
}

// contentsOf returns the data of an output as numbers. Data that does not fit the
// datatype is an error, and so is a datatype that has no such form.
func contentsOf(t *engine.Tensor) (*inferencepb.InferTensorContents, error) {
	c := &inferencepb.InferTensorContents{}
	size, _ := engine.ElementSize(t.Datatype)
	if size > 0 && len(t.Data)%size != 0 {
		return nil, misfit(t)
	}
	switch t.Datatype {
	case "BOOL":
		c.BoolContents = make([]bool, len(t.Data))
		for i, b := range t.Data {
			c.BoolContents[i] = b != 0
		}
	case "INT8":
		c.IntContents = make([]int32, len(t.Data))
		for i, b := range t.Data {
			c.IntContents[i] = int32(int8(b))
		}
	case "INT16":
		c.IntContents = make([]int32, len(t.Data)/2)
		for i := range c.IntContents {
			c.IntContents[i] = int32(int16(binary.LittleEndian.Uint16(t.Data[2*i:])))
		}
	case "INT32":
		c.IntContents = numbersOf[int32](t.Data)
	case "INT64":
		c.Int64Contents = numbersOf[int64](t.Data)
	case "UINT8":
		c.UintContents = make([]uint32, len(t.Data))
		for i, b := range t.Data {
			c.UintContents[i] = uint32(b)
		}
	case "UINT16":
		c.UintContents = make([]uint32, len(t.Data)/2)
		for i := range c.UintContents {
			c.UintContents[i] = uint32(binary.LittleEndian.Uint16(t.Data[2*i:]))
		}
	case "UINT32":
		c.UintContents = numbersOf[uint32](t.Data)
	case "UINT64":
		c.Uint64Contents = numbersOf[uint64](t.Data)
	case "FP32":
		c.Fp32Contents = numbersOf[float32](t.Data)
	case "FP64":
		c.Fp64Contents = numbersOf[float64](t.Data)
	case "BYTES":
		whole := eachElement(t.Data, func(element []byte) bool {
			c.BytesContents = append(c.BytesContents, element)
			return true
		})
		if !whole {
			return nil, misfit(t)
		}
	default:
		return nil, engine.Errorf(engine.Internal, "output tensor '%s': no contents hold the datatype '%s'", t.Name, t.Datatype)
	}
	return c, nil
}

// misfit is the error of an output whose data is no elements of its datatype.
func misfit(t *engine.Tensor) error {
	return engine.Errorf(engine.Internal, "output tensor '%s': %d bytes of data are no elements of %s", t.Name, len(t.Data), t.Datatype)
}

// numeric is what lies in memory as on the wire, where memory is little-endian.
type numeric interface {
	bool | int32 | int64 | uint32 | uint64 | float32 | float64
}

var littleEndian = binary.NativeEndian.Uint16([]byte{1, 0}) == 1

// bytesOf returns numbers as little-endian bytes. They share memory if they can.
func bytesOf[T numeric](numbers []T) []byte {
	if len(numbers) == 0 {
		return nil
	}
	size := int(unsafe.Sizeof(numbers[0])) * len(numbers)
	if littleEndian || size == len(numbers) {
		return unsafe.Slice((*byte)(unsafe.Pointer(&numbers[0])), size)
	}
	return copyBytes(numbers)
}

// copyBytes is bytesOf for machines whose memory is not little-endian.
func copyBytes[T numeric](numbers []T) []byte {
	data := make([]byte, binary.Size(numbers))
	_, _ = binary.Encode(data, binary.LittleEndian, numbers) // it has room for them
	return data
}

// numbersOf returns little-endian bytes as numbers: whole ones, as many as there
// are. They share memory if they can, which data that begins within a number cannot.
func numbersOf[T numeric](data []byte) []T {
	var zero T
	size := int(unsafe.Sizeof(zero))
	if len(data) < size {
		return nil
	}
	start := unsafe.Pointer(unsafe.SliceData(data))
	if littleEndian && uintptr(start)%unsafe.Alignof(zero) == 0 {
		return unsafe.Slice((*T)(start), len(data)/size)
	}
	return copyNumbers[T](data)
}

// copyNumbers is numbersOf where memory cannot be shared.
func copyNumbers[T numeric](data []byte) []T {
	var zero T
	numbers := make([]T, len(data)/int(unsafe.Sizeof(zero)))
	_, _ = binary.Decode(data, binary.LittleEndian, numbers) // it has bytes for them
	return numbers
}
