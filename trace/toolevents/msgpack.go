package toolevents

import (
	"errors"
	"fmt"
	"math"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/tinylib/msgp/msgp"

	"github.com/dynago/dynago/trace"
)

// maxDepth bounds maps and arrays inside each other.
const maxDepth = 16

// DecodeMsgpack reads one event in MessagePack, as [Decode] does. Text may be of the
// binary type: older packers know no other.
func DecodeMsgpack(packed []byte) (*trace.Record, error) {
	if len(packed) > MaxEvent {
		return nil, fmt.Errorf("an event of %d bytes; want at most %d", len(packed), MaxEvent)
	}
	text, rest, err := appendJSON(make([]byte, 0, 2*len(packed)), packed, maxDepth)
	if err != nil {
		return nil, fmt.Errorf("read the event: %w", err)
	}
	if len(rest) > 0 {
		return nil, fmt.Errorf("read the event: %d bytes follow it", len(rest))
	}
	return Decode(text)
}

// appendJSON appends the first value of b as JSON, and returns what follows it. A
// header that claims more than there is costs nothing: items are read one by one.
func appendJSON(to, b []byte, depth int) (text, rest []byte, err error) {
	if depth == 0 {
		return to, b, fmt.Errorf("values lie more than %d deep", maxDepth)
	}
	switch kind := msgp.NextType(b); kind {
	case msgp.NilType:
		b, err = msgp.ReadNilBytes(b)
		return append(to, "null"...), b, err
	case msgp.BoolType:
		is, rest, err := msgp.ReadBoolBytes(b)
		if is {
			return append(to, "true"...), rest, err
		}
		return append(to, "false"...), rest, err
	case msgp.IntType:
		i, rest, err := msgp.ReadInt64Bytes(b)
		return append(to, jsontext.Int(i).String()...), rest, err
	case msgp.UintType:
		u, rest, err := msgp.ReadUint64Bytes(b)
		return append(to, jsontext.Uint(u).String()...), rest, err
	case msgp.Float32Type, msgp.Float64Type:
		f, rest, err := msgp.ReadFloat64Bytes(b)
		if err == nil && (math.IsNaN(f) || math.IsInf(f, 0)) {
			err = errors.New("a number is not finite")
		}
		return append(to, jsontext.Float(f).String()...), rest, err
	case msgp.StrType, msgp.BinType:
		return appendText(to, b)
	case msgp.ArrayType:
		n, rest, err := msgp.ReadArrayHeaderBytes(b)
		to = append(to, '[')
		for i := uint32(0); i < n && err == nil; i++ {
			if i > 0 {
				to = append(to, ',')
			}
			to, rest, err = appendJSON(to, rest, depth-1)
		}
		return append(to, ']'), rest, err
	case msgp.MapType:
		n, rest, err := msgp.ReadMapHeaderBytes(b)
		to = append(to, '{')
		for i := uint32(0); i < n && err == nil; i++ {
			if i > 0 {
				to = append(to, ',')
			}
			if to, rest, err = appendText(to, rest); err != nil {
				break
			}
			to, rest, err = appendJSON(append(to, ':'), rest, depth-1)
		}
		return append(to, '}'), rest, err
	default:
		return to, b, fmt.Errorf("a value is of the type %v, which says nothing here", kind)
	}
}

// appendText appends text, which may be of either type that has bytes.
func appendText(to, b []byte) (text, rest []byte, err error) {
	var s []byte
	switch kind := msgp.NextType(b); kind {
	case msgp.StrType:
		s, rest, err = msgp.ReadStringZC(b)
	case msgp.BinType:
		s, rest, err = msgp.ReadBytesZC(b)
	default:
		return to, b, fmt.Errorf("a name is of the type %v; want text", kind)
	}
	if err != nil {
		return to, b, err
	}
	if to, err = jsontext.AppendQuote(to, s); err != nil {
		return to, b, errors.New("text is not UTF-8")
	}
	return to, rest, nil
}
