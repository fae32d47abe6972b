package kvevent_test

import (
	"encoding/binary"
	"fmt"
	"math"
)

// list and obj are arrays and maps for pack to write.
type (
	list  []any
	field struct {
		name  string
		value any
	}
	obj []field
)

// pack writes a value in msgpack, as Python's writers would: numbers in their
// shortest form, positive ones unsigned.
func pack(v any) []byte { return appendPacked(nil, v) }

func appendPacked(b []byte, v any) []byte {
	switch v := v.(type) {
	case nil:
		return append(b, 0xc0)
	case bool:
		if v {
			return append(b, 0xc3)
		}
		return append(b, 0xc2)
	case float64:
		return binary.BigEndian.AppendUint64(append(b, 0xcb), math.Float64bits(v))
	case string:
		return append(appendPackedHead(b, len(v), 0xa0, 32, 0xd9, 0xda, 0xdb), v...)
	case []byte:
		return append(appendPackedHead(b, len(v), 0, 0, 0xc4, 0xc5, 0xc6), v...)
	case int:
		return appendPackedInt(b, int64(v))
	case int64:
		return appendPackedInt(b, v)
	case uint32:
		return appendPackedUint(b, uint64(v))
	case uint64:
		return appendPackedUint(b, v)
	case []uint32:
		b = appendPackedHead(b, len(v), 0x90, 16, 0, 0xdc, 0xdd)
		for _, t := range v {
			b = appendPackedUint(b, uint64(t))
		}
		return b
	case list:
		b = appendPackedHead(b, len(v), 0x90, 16, 0, 0xdc, 0xdd)
		for _, item := range v {
			b = appendPacked(b, item)
		}
		return b
	case obj:
		b = appendPackedHead(b, len(v), 0x80, 16, 0, 0xde, 0xdf)
		for _, f := range v {
			b = appendPacked(appendPacked(b, f.name), f.value)
		}
		return b
	}
	panic(fmt.Sprintf("pack: %T", v))
}

// appendPackedHead writes a length: inside the byte small if it is less than
// limit, else behind the byte for 8, 16 or 32 bits. 0 = there is no such form.
func appendPackedHead(b []byte, n int, small byte, limit int, one, two, four byte) []byte {
	switch {
	case n < limit:
		return append(b, small|byte(n))
	case n <= math.MaxUint8 && one != 0:
		return append(b, one, byte(n))
	case n <= math.MaxUint16:
		return binary.BigEndian.AppendUint16(append(b, two), uint16(n))
	}
	return binary.BigEndian.AppendUint32(append(b, four), uint32(n))
}

func appendPackedUint(b []byte, v uint64) []byte {
	switch {
	case v < 0x80:
		return append(b, byte(v))
	case v <= math.MaxUint8:
		return append(b, 0xcc, byte(v))
	case v <= math.MaxUint16:
		return binary.BigEndian.AppendUint16(append(b, 0xcd), uint16(v))
	case v <= math.MaxUint32:
		return binary.BigEndian.AppendUint32(append(b, 0xce), uint32(v))
	}
	return binary.BigEndian.AppendUint64(append(b, 0xcf), v)
}

func appendPackedInt(b []byte, v int64) []byte {
	switch {
	case v >= 0:
		return appendPackedUint(b, uint64(v))
	case v >= -32:
		return append(b, byte(v))
	case v >= math.MinInt8:
		return append(b, 0xd0, byte(v))
	case v >= math.MinInt16:
		return binary.BigEndian.AppendUint16(append(b, 0xd1), uint16(v))
	case v >= math.MinInt32:
		return binary.BigEndian.AppendUint32(append(b, 0xd2), uint32(v))
	}
	return binary.BigEndian.AppendUint64(append(b, 0xd3), uint64(v))
}
