package kserve_test

import (
	"fmt"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/internal/gen/inferencepb"
	"github.com/dynago/dynago/kserve"
)

func ExampleFromProto() {
	r, err := kserve.FromProto(&inferencepb.ModelInferRequest{
		Id: "job-7", ModelName: "scorer",
		Inputs: []*inferencepb.ModelInferRequest_InferInputTensor{{
			Name: "scores", Datatype: "INT16", Shape: []int64{2},
			Contents: &inferencepb.InferTensorContents{IntContents: []int32{1, -2}},
		}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	call, err := r.Tensors()
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("worker gets %s %v: % x\n", call.Inputs[0].Datatype, call.Inputs[0].Shape, call.Inputs[0].Data)

	answer := &engine.TensorResponse{Model: "scorer", Outputs: []engine.Tensor{
		{Name: "best", Datatype: "INT16", Shape: []int64{1}, Data: []byte{1, 0}},
	}}
	m, err := kserve.ToProto(r.FromTensors(answer), r.Raw)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("client gets", m.Id, m.Outputs[0].Name, m.Outputs[0].Contents.IntContents)
	// Output:
	// worker gets INT16 [2]: 01 00 fe ff
	// client gets job-7 best [1]
}
