package kserve

import (
	"encoding/base64"
	"maps"
	"math"
	"slices"
	"strconv"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/dynago/dynago/internal/wire"
)

// AppendProto appends a message as JSON the way Triton does: fields have the names of
// the .proto file and are there even when they are empty, but for messages and
// members of a oneof, and 64-bit integers are numbers. Who reads protobuf's own JSON
// reads this as well.
func AppendProto(dst []byte, m proto.Message) []byte {
	return appendMessage(dst, m.ProtoReflect())
}

// AppendProtos appends messages as an array.
func AppendProtos[M proto.Message](dst []byte, all []M) []byte {
	dst = append(dst, '[')
	for i, m := range all {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = AppendProto(dst, m)
	}
	return append(dst, ']')
}

func appendMessage(dst []byte, m protoreflect.Message) []byte {
	dst = append(dst, '{')
	begin := len(dst)
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		field := fields.Get(i)
		if field.HasPresence() && !m.Has(field) {
			continue
		}
		if len(dst) > begin {
			dst = append(dst, ',')
		}
		dst = append(wire.AppendString(dst, string(field.Name())), ':')
		value := m.Get(field)
		switch {
		case field.IsMap():
			dst = appendMap(dst, field.MapValue(), value.Map())
		case field.IsList():
			dst = appendList(dst, field, value.List())
		default:
			dst = appendValue(dst, field, value)
		}
	}
	return append(dst, '}')
}

func appendList(dst []byte, field protoreflect.FieldDescriptor, list protoreflect.List) []byte {
	dst = append(dst, '[')
	for i := range list.Len() {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendValue(dst, field, list.Get(i))
	}
	return append(dst, ']')
}

// appendMap appends a map in the order of its keys.
func appendMap(dst []byte, field protoreflect.FieldDescriptor, all protoreflect.Map) []byte {
	named := make(map[string]protoreflect.Value, all.Len())
	for key, value := range all.Range {
		named[key.String()] = value
	}
	lead := byte('{')
	for _, name := range slices.Sorted(maps.Keys(named)) {
		dst = append(wire.AppendString(append(dst, lead), name), ':')
		dst = appendValue(dst, field, named[name])
		lead = ','
	}
	if lead == '{' {
		dst = append(dst, lead)
	}
	return append(dst, '}')
}

func appendValue(dst []byte, field protoreflect.FieldDescriptor, v protoreflect.Value) []byte {
	switch field.Kind() {
	case protoreflect.MessageKind, protoreflect.GroupKind:
		return appendMessage(dst, v.Message())
	case protoreflect.BoolKind:
		return strconv.AppendBool(dst, v.Bool())
	case protoreflect.StringKind:
		return wire.AppendString(dst, v.String())
	case protoreflect.BytesKind:
		return append(base64.StdEncoding.AppendEncode(append(dst, '"'), v.Bytes()), '"')
	case protoreflect.EnumKind:
		if named := field.Enum().Values().ByNumber(v.Enum()); named != nil {
			return wire.AppendString(dst, string(named.Name()))
		}
		return strconv.AppendInt(dst, int64(v.Enum()), 10)
	case protoreflect.FloatKind, protoreflect.DoubleKind:
		return appendFraction(dst, v.Float(), field.Kind())
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind, protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		return strconv.AppendUint(dst, v.Uint(), 10)
	}
	return strconv.AppendInt(dst, v.Int(), 10)
}

// appendFraction appends a number; what is none is a text in protobuf's JSON.
func appendFraction(dst []byte, f float64, kind protoreflect.Kind) []byte {
	switch {
	case math.IsNaN(f):
		return append(dst, `"NaN"`...)
	case math.IsInf(f, 1):
		return append(dst, `"Infinity"`...)
	case math.IsInf(f, -1):
		return append(dst, `"-Infinity"`...)
	case kind == protoreflect.FloatKind:
		return strconv.AppendFloat(dst, f, 'g', -1, 32)
	}
	return strconv.AppendFloat(dst, f, 'g', -1, 64)
}
