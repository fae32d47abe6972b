package engine

import (
	"context"
	"encoding/json"
	"iter"
)

// Tensorer is a worker that takes tensors and gives tensors, whatever they mean.
type Tensorer interface {
	// Infer runs one request and yields its responses in their order; then the
	// sequence ends, or with one error.
	Infer(ctx context.Context, r *TensorRequest) iter.Seq2[*TensorResponse, error]
}

// TensorRequest is one call. It is read-only for the worker.
type TensorRequest struct {
	ID, Model, Version string
	Inputs             []Tensor
	Outputs            []string // names of those that are wanted; none: all
	Parameters         Parameters
	Ext                json.RawMessage   // the extension object of agents, or nil
	Meta               map[string]string // headers of the client that are passed on
}

// TensorResponse is one answer of a call.
type TensorResponse struct {
	ID, Model, Version string
	Outputs            []Tensor
	Parameters         Parameters
}

// Tensor is an array of numbers or texts.
type Tensor struct {
	Name string
	// Datatype is KServe's word: BOOL, UINT8 … INT64, FP16, BF16, FP32, FP64, BYTES.
	Datatype   string
	Shape      []int64
	Parameters Parameters
	// Data is little-endian and row-major; elements of BYTES have their length in
	// four bytes before them.
	Data []byte
}

// Parameters are values by name: of types bool, int64, uint64, float64 or string.
type Parameters map[string]any

// TensorConfig says which tensors a worker takes and gives.
type TensorConfig struct {
	Name            string
	Inputs, Outputs []TensorSpec
	Triton          []byte // a serialised ModelConfig of Triton, or nil
}

// TensorSpec describes one tensor; -1 in its shape is any length.
type TensorSpec struct {
	Name, Datatype string
	Shape          []int64
	Parameters     Parameters
	Optional       bool
}
