package kserve

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"unicode/utf8"
	"unsafe"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/internal/wire"
)

// ToJSON encodes a response for REST. It appends the JSON to dst, and returns the data
// of the outputs that go out as bytes, which follow the JSON in their order and share
// memory with r. Numbers and texts that JSON cannot hold are an error of kind
// [engine.InvalidArgument], which tells of the binary form.
func ToJSON(dst []byte, r *Response, binary Binary) (text []byte, tail [][]byte, err error) {
	dst = append(dst, `{"model_name":`...)
	dst = wire.AppendString(dst, r.Model)
	dst = append(dst, `,"model_version":`...)
	dst = wire.AppendString(dst, r.Version)
	if r.ID != "" {
		dst = append(dst, `,"id":`...)
		dst = wire.AppendString(dst, r.ID)
	}
	if len(r.Parameters) > 0 {
		if dst, err = appendParameters(append(dst, `,"parameters":`...), r.Parameters); err != nil {
			return nil, nil, err
		}
	}
	dst = append(dst, `,"outputs":[`...)
	for i := range r.Outputs {
		if i > 0 {
			dst = append(dst, ',')
		}
		t := &r.Outputs[i]
		asBytes := binary.of(t.Name)
		if asBytes {
			data := t.Data
			if t.Datatype == "BOOL" {
				data = plainBools(data)
			}
			tail = append(tail, data)
		}
		if dst, err = appendOutput(dst, t, asBytes); err != nil {
			return nil, nil, err
		}
	}
	return append(dst, `]}`...), tail, nil
}

func appendOutput(dst []byte, t *engine.Tensor, asBytes bool) (_ []byte, err error) {
	dst = append(dst, `{"name":`...)
	dst = wire.AppendString(dst, t.Name)
	dst = append(dst, `,"datatype":`...)
	dst = wire.AppendString(dst, t.Datatype)
	dst = append(dst, `,"shape":[`...)
	for i, n := range t.Shape {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = strconv.AppendInt(dst, n, 10)
	}
	dst = append(dst, ']')
	parameters := t.Parameters
	if asBytes {
		parameters = maps.Clone(parameters)
		if parameters == nil {
			parameters = engine.Parameters{}
		}
		parameters[binarySize] = int64(len(t.Data))
	}
	if len(parameters) > 0 {
		if dst, err = appendParameters(append(dst, `,"parameters":`...), parameters); err != nil {
			return nil, err
		}
	}
	if !asBytes {
		dst = append(dst, `,"data":`...)
		if dst, err = appendData(dst, t); err != nil {
			return nil, err
		}
	}
	return append(dst, '}'), nil
}

func appendParameters(dst []byte, all engine.Parameters) ([]byte, error) {
	lead := byte('{')
	for _, name := range slices.Sorted(maps.Keys(all)) {
		dst = wire.AppendString(append(dst, lead), name)
		dst = append(dst, ':')
		lead = ','
		switch v := all[name].(type) {
		case bool:
			dst = strconv.AppendBool(dst, v)
		case int64:
			dst = strconv.AppendInt(dst, v, 10)
		case uint64:
			dst = strconv.AppendUint(dst, v, 10)
		case float64:
			if math.IsNaN(v) || math.IsInf(v, 0) {
				return nil, engine.Errorf(engine.Internal, "parameter '%s' is %v, which JSON has no number for", name, v)
			}
			dst = appendFloat(dst, v, 64)
		case string:
			dst = wire.AppendString(dst, v)
		default:
			return nil, engine.Errorf(engine.Internal, "parameter '%s' is a %T, want bool, int64, uint64, float64 or string", name, v)
		}
	}
	return append(dst, '}'), nil
}

// appendFloat appends a number that stays a fraction for those who tell these from
// whole ones.
func appendFloat(dst []byte, f float64, bits int) []byte {
	begin := len(dst)
	dst = strconv.AppendFloat(dst, f, 'g', -1, bits)
	if !slices.ContainsFunc(dst[begin:], func(c byte) bool { return c == '.' || c == 'e' }) {
		dst = append(dst, '.', '0')
	}
	return dst
}

// appendData appends the elements of a tensor as one flat array.
func appendData(dst []byte, t *engine.Tensor) ([]byte, error) {
	kind, ok := jsonKinds[t.Datatype]
	if !ok {
		return nil, inexpressible(t, "JSON has no numbers of %s", t.Datatype)
	}
	if t.Datatype != engine.Bytes && len(t.Data)%kind.size != 0 {
		return nil, misfit(t)
	}
	if len(t.Data) == 0 {
		return append(dst, "[]"...), nil
	}
	dst = append(slices.Grow(dst, 2*len(t.Data)+2), '[')
	dst, err := kind.write(dst, t)
	if err != nil {
		return nil, err
	}
	dst[len(dst)-1] = ']' // instead of the last comma
	return dst, nil
}

// inexpressible is the error of an output that JSON cannot hold.
func inexpressible(t *engine.Tensor, format string, args ...any) error {
	return engine.Errorf(engine.InvalidArgument, "output tensor '%s': %s; ask for it as bytes, with its parameter %s",
		t.Name, fmt.Sprintf(format, args...), binaryOutput)
}

func writeBools(dst []byte, t *engine.Tensor) ([]byte, error) {
	for _, b := range t.Data {
		dst = append(strconv.AppendBool(dst, b != 0), ',')
	}
	return dst, nil
}

func writeUnsigned[T word](dst []byte, t *engine.Tensor) ([]byte, error) {
	size := int(unsafe.Sizeof(T(0)))
	for i := 0; i < len(t.Data); i += size {
		dst = append(strconv.AppendUint(dst, wordAt(t.Data[i:], size), 10), ',')
	}
	return dst, nil
}

func writeSigned[T integer](dst []byte, t *engine.Tensor) ([]byte, error) {
	size := int(unsafe.Sizeof(T(0)))
	for i := 0; i < len(t.Data); i += size {
		dst = append(strconv.AppendInt(dst, int64(T(wordAt(t.Data[i:], size))), 10), ',')
	}
	return dst, nil
}

// wordAt returns the word with which data begins.
func wordAt(data []byte, size int) uint64 {
	switch size {
	case 1:
		return uint64(data[0])
	case 2:
		return uint64(binary.LittleEndian.Uint16(data))
	case 4:
		return uint64(binary.LittleEndian.Uint32(data))
	}
	return binary.LittleEndian.Uint64(data)
}

func writeFloats[T float32 | float64](dst []byte, t *engine.Tensor) ([]byte, error) {
	size := int(unsafe.Sizeof(T(0)))
	for i := 0; i < len(t.Data); i += size {
		f := math.Float64frombits(wordAt(t.Data[i:], size))
		if size == 4 {
			f = float64(math.Float32frombits(uint32(wordAt(t.Data[i:], size))))
		}
		if math.IsNaN(f) || math.IsInf(f, 0) {
			return nil, inexpressible(t, "element %d is %v, which JSON has no number for", i/size, f)
		}
		dst = strconv.AppendFloat(dst, f, 'g', -1, 8*size)
		if f == 0 && math.Signbit(f) {
			dst = append(dst, ".0"...) // -0 is a whole number to many, and has no sign then
		}
		dst = append(dst, ',')
	}
	return dst, nil
}

func writeTexts(dst []byte, t *engine.Tensor) ([]byte, error) {
	n, valid := 0, true
	whole := eachElement(t.Data, func(element []byte) bool {
		if valid = utf8.Valid(element); !valid {
			return false
		}
		dst = append(wire.AppendString(dst, unsafe.String(unsafe.SliceData(element), len(element))), ',')
		n++
		return true
	})
	switch {
	case !valid:
		return nil, inexpressible(t, "element %d is no UTF-8", n)
	case !whole:
		return nil, misfit(t)
	}
	return dst, nil
}
