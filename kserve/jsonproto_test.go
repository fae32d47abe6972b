package kserve_test

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"pgregory.net/rapid"

	"github.com/dynago/dynago/internal/gen/inferencepb"
	"github.com/dynago/dynago/kserve"
)

func TestProtoAsTritonWritesIt(t *testing.T) {
	for _, c := range []struct {
		m    proto.Message
		want string
	}{
		{&inferencepb.ServerMetadataResponse{Name: "d\n", Extensions: []string{"a", "b"}}, `{"name":"d\n","version":"","extensions":["a","b"]}`},
		{&inferencepb.StatisticDuration{Count: math.MaxUint64, Ns: 1}, `{"count":18446744073709551615,"ns":1}`},
		{&inferencepb.ModelInput{Name: "x", DataType: inferencepb.DataType_TYPE_FP16, Dims: []int64{-1, math.MaxInt64}}, `{"name":"x","data_type":"TYPE_FP16","format":"FORMAT_NONE","dims":[-1,9223372036854775807],"is_shape_tensor":false,"allow_ragged_batch":false,"optional":false,"is_non_linear_format_io":false}`},
		{&inferencepb.ModelInput{DataType: 99}, `{"name":"","data_type":99,"format":"FORMAT_NONE","dims":[],"is_shape_tensor":false,"allow_ragged_batch":false,"optional":false,"is_non_linear_format_io":false}`},
		{&inferencepb.ModelVersionPolicy{}, `{}`},
		{&inferencepb.ModelVersionPolicy{PolicyChoice: &inferencepb.ModelVersionPolicy_Specific_{Specific: &inferencepb.ModelVersionPolicy_Specific{Versions: []int64{3}}}}, `{"specific":{"versions":[3]}}`},
		{&inferencepb.InferParameter{ParameterChoice: &inferencepb.InferParameter_BoolParam{}}, `{"bool_param":false}`},
		{&inferencepb.InferParameter{ParameterChoice: &inferencepb.InferParameter_DoubleParam{DoubleParam: math.Inf(-1)}}, `{"double_param":"-Infinity"}`},
		{&inferencepb.ModelEnsembling_Step{InputMap: map[string]string{"b": "2", "a": "1"}}, `{"model_name":"","model_version":0,"input_map":{"a":"1","b":"2"},"output_map":{},"model_namespace":""}`},
		{&inferencepb.InferTensorContents{BytesContents: [][]byte{{255, 0}}, Fp32Contents: []float32{.1}}, `{"bool_contents":[],"int_contents":[],"int64_contents":[],"uint_contents":[],"uint64_contents":[],"fp32_contents":[0.1],"fp64_contents":[],"bytes_contents":["/wA="]}`},
	} {
		if got := string(kserve.AppendProto([]byte("x"), c.m)); got != "x"+c.want {
			t.Errorf("%s\nwant %s", got, c.want)
		}
	}
	list := []*inferencepb.StatisticDuration{{Count: 1}, {}}
	if got := string(kserve.AppendProtos(nil, list)); got != `[{"count":1,"ns":0},{"count":0,"ns":0}]` {
		t.Error(got)
	}
	if got := string(kserve.AppendProtos(nil, list[:0])); got != `[]` {
		t.Error(got)
	}
}

// Protobuf's own reader reads all of it, whatever the message.
func TestProtoReadsBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		want := rapid.SampledFrom([]proto.Message{
			&inferencepb.ModelConfig{}, &inferencepb.ModelStatisticsResponse{}, &inferencepb.ModelMetadataResponse{}, &inferencepb.ModelInferRequest{},
		}).Draw(t, "message")
		want = want.ProtoReflect().New().Interface()
		fill(random, want.ProtoReflect(), 4)
		text := kserve.AppendProto(nil, want)
		if !json.Valid(text) {
			t.Fatalf("no JSON: %s", text)
		}
		got := want.ProtoReflect().New().Interface()
		if err := protojson.Unmarshal(text, got); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		if !proto.Equal(want, got) {
			t.Fatalf("%s became %v", text, got)
		}
	})
}

// fill sets about half of the fields of a message, down to a depth.
func fill(random *rand.Rand, m protoreflect.Message, depth int) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		field := fields.Get(i)
		message := field.Message() != nil && !field.IsMap()
		switch {
		case random.IntN(2) == 0 || depth == 0 && (message || field.IsMap()):
		case field.IsMap():
			all := m.Mutable(field).Map()
			for range random.IntN(3) {
				value := all.NewValue()
				if field.MapValue().Message() != nil {
					fill(random, value.Message(), depth-1)
				} else {
					value = scalar(random, field.MapValue())
				}
				all.Set(scalar(random, field.MapKey()).MapKey(), value)
			}
		case field.IsList():
			list := m.Mutable(field).List()
			for range random.IntN(3) {
				if message {
					fill(random, list.AppendMutable().Message(), depth-1)
				} else {
					list.Append(scalar(random, field))
				}
			}
		case message:
			fill(random, m.Mutable(field).Message(), depth-1)
		default:
			m.Set(field, scalar(random, field))
		}
	}
}

func scalar(random *rand.Rand, field protoreflect.FieldDescriptor) protoreflect.Value {
	switch field.Kind() {
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(random.IntN(2) == 0)
	case protoreflect.StringKind:
		return protoreflect.ValueOfString([]string{"", "a", "é\"\\\n\u2028", "\x00"}[random.IntN(4)])
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes([]byte{byte(random.Uint32()), 255})
	case protoreflect.EnumKind:
		values := field.Enum().Values()
		return protoreflect.ValueOfEnum(values.Get(random.IntN(values.Len())).Number())
	case protoreflect.Int32Kind:
		return protoreflect.ValueOfInt32(int32(random.Uint32()))
	case protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(int64(random.Uint64()))
	case protoreflect.Uint32Kind:
		return protoreflect.ValueOfUint32(random.Uint32())
	case protoreflect.Uint64Kind:
		return protoreflect.ValueOfUint64(random.Uint64())
	case protoreflect.FloatKind:
		return protoreflect.ValueOfFloat32([]float32{0, 1.5, math.MaxFloat32, float32(math.Inf(1))}[random.IntN(4)])
	}
	return protoreflect.ValueOfFloat64([]float64{0, .1, 1e300, math.Inf(-1)}[random.IntN(4)])
}
