package kserve_test

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/internal/gen/inferencepb"
	"github.com/dynago/dynago/kserve"
)

// BenchmarkEcho takes a decoded message through the house and back: small, large as
// bytes, large as numbers. What the wire's own decoder costs is beside it.
func BenchmarkEcho(b *testing.B) {
	const large = 16 << 20
	small := parsed[inferencepb.ModelInferRequest](b, `model_name: "m" id: "7" inputs { name: "x" datatype: "FP32" shape: 4 }`)
	small.RawInputContents = [][]byte{make([]byte, 16)}
	raw := parsed[inferencepb.ModelInferRequest](b, `model_name: "m" id: "7" inputs { name: "x" datatype: "FP32" shape: 4194304 }`)
	raw.RawInputContents = [][]byte{make([]byte, large)}
	bools := parsed[inferencepb.ModelInferRequest](b, `model_name: "m" id: "7" inputs { name: "x" datatype: "BOOL" shape: 16777216 }`)
	bools.RawInputContents = [][]byte{make([]byte, large)}
	typed := parsed[inferencepb.ModelInferRequest](b, `model_name: "m" id: "7" inputs { name: "x" datatype: "FP32" shape: 4194304 }`)
	typed.Inputs[0].Contents = &inferencepb.InferTensorContents{Fp32Contents: make([]float32, large/4)}

	for _, c := range []struct {
		name string
		m    *inferencepb.ModelInferRequest
		size int64
	}{
		{"small", small, 16},
		{"raw 16 MiB", raw, large},
		{"raw booleans 16 MiB", bools, large},
		{"numbers 16 MiB", typed, large},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.SetBytes(c.size)
			b.ReportAllocs()
			for b.Loop() {
				r, err := kserve.FromProto(c.m)
				if err != nil {
					b.Fatal(err)
				}
				in, err := r.Tensors()
				if err != nil {
					b.Fatal(err)
				}
				if _, err := kserve.ToProto(r.FromTensors(&engine.TensorResponse{Outputs: in.Inputs}), r.Raw); err != nil {
					b.Fatal(err)
				}
			}
		})
		wire, err := proto.Marshal(c.m)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(c.name+", decoding", func(b *testing.B) {
			b.SetBytes(c.size)
			b.ReportAllocs()
			for b.Loop() {
				if err := proto.Unmarshal(wire, &inferencepb.ModelInferRequest{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
