//go:build unix

package main

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pb "github.com/dynago/dynago/internal/gen/inferencepb"
)

// echoCall is a call of the model that gives tensors back, with a tensor of each
// datatype, as bytes or as numbers.
func echoCall(raw bool) *pb.ModelInferRequest {
	r := &pb.ModelInferRequest{ModelName: "echo", Id: "7"}
	for _, in := range []struct {
		datatype string
		data     []byte
		numbers  *pb.InferTensorContents // nil: there are none
	}{
		{"BOOL", []byte{1, 0}, &pb.InferTensorContents{BoolContents: []bool{true, false}}},
		{"UINT8", []byte{255, 0}, &pb.InferTensorContents{UintContents: []uint32{255, 0}}},
		{"UINT16", []byte{1, 2, 255, 255}, &pb.InferTensorContents{UintContents: []uint32{0x201, 0xffff}}},
		{"UINT32", []byte{1, 0, 0, 0, 255, 255, 255, 255}, &pb.InferTensorContents{UintContents: []uint32{1, math.MaxUint32}}},
		{"UINT64", append(make([]byte, 8), bytes.Repeat([]byte{255}, 8)...), &pb.InferTensorContents{Uint64Contents: []uint64{0, math.MaxUint64}}},
		{"INT8", []byte{255, 127}, &pb.InferTensorContents{IntContents: []int32{-1, 127}}},
		{"INT16", []byte{255, 255, 0, 1}, &pb.InferTensorContents{IntContents: []int32{-1, 256}}},
		{"INT32", []byte{255, 255, 255, 255, 1, 0, 0, 0}, &pb.InferTensorContents{IntContents: []int32{-1, 1}}},
		{"INT64", append(bytes.Repeat([]byte{255}, 8), make([]byte, 8)...), &pb.InferTensorContents{Int64Contents: []int64{-1, 0}}},
		{"FP16", []byte{1, 2, 3, 4}, nil},
		{"BF16", []byte{1, 2, 3, 4}, nil},
		{"FP32", []byte{0, 0, 128, 63, 0, 0, 0, 192}, &pb.InferTensorContents{Fp32Contents: []float32{1, -2}}},
		{"FP64", []byte{0, 0, 0, 0, 0, 0, 240, 63, 0, 0, 0, 0, 0, 0, 0, 192}, &pb.InferTensorContents{Fp64Contents: []float64{1, -2}}},
		{"BYTES", []byte{0, 0, 0, 0, 2, 0, 0, 0, 255, 0}, &pb.InferTensorContents{BytesContents: [][]byte{{}, {255, 0}}}},
	} {
		if !raw && in.numbers == nil {
			continue
		}
		t := &pb.ModelInferRequest_InferInputTensor{
			Name: in.datatype, Datatype: in.datatype, Shape: []int64{2, 1},
			Parameters: map[string]*pb.InferParameter{"of": {ParameterChoice: &pb.InferParameter_StringParam{StringParam: in.datatype}}},
		}
		if raw {
			r.RawInputContents = append(r.RawInputContents, in.data)
		} else {
			t.Contents = in.numbers
		}
		r.Inputs = append(r.Inputs, t)
	}
	r.Parameters = map[string]*pb.InferParameter{
		"b": {ParameterChoice: &pb.InferParameter_BoolParam{BoolParam: true}}, "i": {ParameterChoice: &pb.InferParameter_Int64Param{Int64Param: -1}},
		"u": {ParameterChoice: &pb.InferParameter_Uint64Param{Uint64Param: math.MaxUint64}}, "f": {ParameterChoice: &pb.InferParameter_DoubleParam{DoubleParam: 0.5}},
		"s": {ParameterChoice: &pb.InferParameter_StringParam{StringParam: "s"}},
	}
	return r
}

// What is sent comes back in the form in which it came, from here and from a worker in
// another process.
func TestKServeEchoesTensors(t *testing.T) {
	t.Parallel()
	_, far := attachable(t, "worker", "--engine", "echo", "--listen", "127.0.0.1:0")
	for name, args := range map[string][]string{"in-process": {"--tensor-echo", "echo"}, "remote": {"--engine", far}} {
		t.Run(name, func(t *testing.T) {
			_, client := kserved(t, args...)
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			until(t, "the model is ready", func() bool {
				r, err := client.ModelReady(ctx, &pb.ModelReadyRequest{Name: "echo"})
				return err == nil && r.Ready
			})
			for _, raw := range []bool{true, false} {
				in := echoCall(raw)
				want := &pb.ModelInferResponse{ModelName: "echo", ModelVersion: "1", Id: "7", RawOutputContents: in.RawInputContents, Parameters: maps.Clone(in.Parameters)}
				want.Parameters["processed"] = &pb.InferParameter{ParameterChoice: &pb.InferParameter_BoolParam{BoolParam: true}}
				for _, i := range in.Inputs {
					want.Outputs = append(want.Outputs, &pb.ModelInferResponse_InferOutputTensor{Name: i.Name, Datatype: i.Datatype, Shape: i.Shape, Parameters: i.Parameters, Contents: i.Contents})
				}
				out, err := client.ModelInfer(ctx, in)
				if err != nil || !proto.Equal(out, want) {
					t.Errorf("raw %v: %v\n%v\nwant\n%v", raw, err, out, want)
				}
			}
			some := echoCall(true)
			for _, name := range []string{"BYTES", "INT8"} {
				some.Outputs = append(some.Outputs, &pb.ModelInferRequest_InferRequestedOutputTensor{Name: name})
			}
			out, err := client.ModelInfer(ctx, some)
			if err != nil || len(out.Outputs) != 2 || out.Outputs[0].Name != "BYTES" || !slices.Equal(out.RawOutputContents[1], []byte{255, 127}) {
				t.Errorf("two outputs of all: %v, %v", out, err)
			}
		})
	}
}

// The object of agents is a parameter of the worker's like others, unless it is asked
// for.
func TestKServeExtensionOfTensors(t *testing.T) {
	ask := func(text string) *pb.ModelInferRequest {
		in := echoCall(true)
		in.Parameters["nvext"] = &pb.InferParameter{ParameterChoice: &pb.InferParameter_StringParam{StringParam: text}}
		return in
	}
	const nowhere = `{"backend_instance_id":12345}`
	for _, args := range [][]string{nil, {"--grpc-tensor-nvext", "--disable-frontend-nvext"}} {
		_, client := kserved(t, append(args, "--tensor-echo", "echo")...)
		out, err := client.ModelInfer(t.Context(), ask(nowhere))
		if err != nil || out.Parameters["nvext"].GetStringParam() != nowhere {
			t.Errorf("%v: %v, %v", args, out.GetParameters(), err)
		}
	}
	t.Setenv("DYN_GRPC_TENSOR_NVEXT", "1")
	_, client := kserved(t, "--tensor-echo", "echo")
	if out, err := client.ModelInfer(t.Context(), ask(`{"agent_hints":{"priority":1}}`)); err != nil || out.Parameters["nvext"] != nil || out.Parameters["b"] == nil {
		t.Errorf("%v, %v", out.GetParameters(), err)
	}
	if _, err := client.ModelInfer(t.Context(), ask(nowhere)); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "model temporarily unavailable") {
		t.Errorf("a worker that is not there: %v", err)
	}
	if _, err := client.ModelInfer(t.Context(), ask("{")); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "invalid nvext") {
		t.Errorf("no object: %v", err)
	}
}

// A worker that gets it wrong is not its client's fault.
func TestKServeTensorFailures(t *testing.T) {
	t.Parallel()
	_, client := kserved(t, "--tensor-echo", "echo")
	for name, texts := range map[string][]string{
		"malformed_response": {"missing field", "data_type"},
		"data_mismatch":      {"shape implies 2 elements but data has 0"},
		"raise_exception":    {"Failed to generate tensor response stream:", "the request asked for it"},
	} {
		in := echoCall(true)
		in.Parameters[name] = &pb.InferParameter{ParameterChoice: &pb.InferParameter_BoolParam{BoolParam: true}}
		_, err := client.ModelInfer(t.Context(), in)
		for _, text := range texts {
			if status.Code(err) != codes.Internal || !strings.Contains(fmt.Sprint(err), text) {
				t.Errorf("%s: %v, want %q", name, err, text)
			}
		}
	}
}
