package gguf

import (
	"encoding/binary"
	"fmt"
	"reflect"
)

// The kinds of a value, by the number that files give them.
const (
	kindUint8 = iota
	kindInt8
	kindUint16
	kindInt16
	kindUint32
	kindInt32
	kindFloat32
	kindBool
	kindText
	kindList
	kindUint64
	kindInt64
	kindFloat64
)

// fixed reads values of a kind that have a fixed size.
type fixed struct {
	value reflect.Type
	size  int
	one   func(b []byte) any
	many  func(b []byte) any // a slice of them
}

var fixedKinds = [...]fixed{
	kindUint8: fixedKind[uint8](), kindInt8: fixedKind[int8](),
	kindUint16: fixedKind[uint16](), kindInt16: fixedKind[int16](),
	kindUint32: fixedKind[uint32](), kindInt32: fixedKind[int32](),
	kindUint64: fixedKind[uint64](), kindInt64: fixedKind[int64](),
	kindFloat32: fixedKind[float32](), kindFloat64: fixedKind[float64](),
	kindBool: fixedKind[bool](),
}

func fixedKind[T any]() fixed {
	size := binary.Size(*new(T))
	decode := func(b []byte, n int) []T {
		list := make([]T, n)
		// It fails only if there are fewer bytes than asked for.
		if _, err := binary.Decode(b, binary.LittleEndian, list); err != nil {
			panic(err)
		}
		return list
	}
	return fixed{
		value: reflect.TypeFor[T](),
		size:  size,
		one:   func(b []byte) any { return decode(b, 1)[0] },
		many:  func(b []byte) any { return decode(b, len(b)/size) },
	}
}

func numberKind(kind uint32) (fixed, error) {
	if kind >= uint32(len(fixedKinds)) || fixedKinds[kind].size == 0 {
		return fixed{}, fmt.Errorf("type %d: want 0 to %d", kind, len(fixedKinds)-1)
	}
	return fixedKinds[kind], nil
}

// number returns a value of any type of number as the one that holds all that
// matter here exactly.
func number(v reflect.Value) (float64, bool) {
	switch {
	case v.CanInt():
		return float64(v.Int()), true
	case v.CanUint():
		return float64(v.Uint()), true
	case v.CanFloat():
		return v.Float(), true
	}
	return 0, false
}

// numbers does so for a list.
func numbers(v reflect.Value) ([]float64, bool) {
	if v.Kind() != reflect.Slice {
		return nil, false
	}
	if _, ok := number(reflect.Zero(v.Type().Elem())); !ok {
		return nil, false
	}
	list := make([]float64, v.Len())
	for i := range list {
		list[i], _ = number(v.Index(i))
	}
	return list, true
}
