// Package echo is a worker of tensors that gives back what it is sent, and fails in
// the ways in which workers fail when it is asked to. Clients of KServe are tried with
// it, and what a call costs besides the work of its model is measured with it.
//
// The one idea: nothing is copied. A response has the very tensors of its request, so
// that whatever time a call takes is the way's.
package echo

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/internal/gen/inferencepb"
	"github.com/dynago/dynago/kv"
)

// Parameters of requests that the worker heeds. Those that make it fail do so whatever
// their value; Repeat is how many responses there are, 1 if it is absent.
const (
	Malformed = "malformed_response" // the first tensor has no datatype
	Mismatch  = "data_mismatch"      // the first tensor has no data
	Raise     = "raise_exception"    // there is an error instead
	Repeat    = "repeat"
	Processed = "processed" // of responses: true
)

// Engine is the worker. It runs any number of calls at once.
type Engine struct {
	card  *engine.Card
	epoch uint64
}

var (
	_ engine.Engine   = (*Engine)(nil)
	_ engine.Tensorer = (*Engine)(nil)
)

// New makes a worker that serves a model of this name.
func New(model string) (*Engine, error) {
	config, err := proto.Marshal(modelConfig(model))
	if err != nil {
		return nil, fmt.Errorf("echo: config of %s: %w", model, err)
	}
	return &Engine{epoch: uint64(time.Now().UnixNano()), card: &engine.Card{
		Model: model, Engine: "echo", Accepts: []engine.Input{engine.InputTensor}, DPSize: 1, Device: engine.DeviceCPU,
		Tensor: &engine.TensorConfig{Triton: config},
	}}, nil
}

// modelConfig describes what clients may send, in Triton's words. It takes any other
// tensors as well.
func modelConfig(name string) *inferencepb.ModelConfig {
	anyLength := []int64{-1}
	return &inferencepb.ModelConfig{
		Name: name, Platform: "dynago", Backend: "echo",
		Input: []*inferencepb.ModelInput{
			{Name: "input", DataType: inferencepb.DataType_TYPE_STRING, Dims: anyLength},
			{Name: "optional_input", DataType: inferencepb.DataType_TYPE_INT32, Dims: anyLength, Optional: true},
		},
		Output: []*inferencepb.ModelOutput{
			{Name: "dummy_output", DataType: inferencepb.DataType_TYPE_STRING, Dims: anyLength},
		},
		ModelTransactionPolicy: &inferencepb.ModelTransactionPolicy{Decoupled: true},
	}
}

// Card yields what the worker is, once.
func (e *Engine) Card(ctx context.Context) iter.Seq2[engine.Status, error] {
	return func(yield func(engine.Status, error) bool) {
		if yield(engine.Status{Epoch: e.epoch, Revision: 1, State: engine.Ready, Card: e.card}, nil) {
			<-ctx.Done()
		}
	}
}

// Infer gives the tensors of a request back.
func (e *Engine) Infer(ctx context.Context, r *engine.TensorRequest) iter.Seq2[*engine.TensorResponse, error] {
	var ranged atomic.Bool
	return func(yield func(*engine.TensorResponse, error) bool) {
		if ranged.Swap(true) {
			yield(nil, engine.Errorf(engine.Internal, "echo: the sequence of call %s was ranged over twice", r.ID))
			return
		}
		if _, ok := r.Parameters[Raise]; ok {
			yield(nil, engine.Errorf(engine.Internal, "the request asked for it: its parameters have %s", Raise))
			return
		}
		n, ok := r.Parameters[Repeat].(int64)
		if !ok {
			n = 1
		}
		for range n {
			if ctx.Err() != nil {
				yield(nil, engine.CauseOf(ctx, ctx.Err()))
				return
			}
			if !yield(answer(r), nil) {
				return
			}
		}
	}
}

// answer is what each response says.
func answer(r *engine.TensorRequest) *engine.TensorResponse {
	a := &engine.TensorResponse{ID: r.ID, Model: r.Model, Version: r.Version, Outputs: r.Inputs, Parameters: make(engine.Parameters, len(r.Parameters)+1)}
	maps.Copy(a.Parameters, r.Parameters)
	a.Parameters[Processed] = true
	_, malformed := r.Parameters[Malformed]
	_, mismatch := r.Parameters[Mismatch]
	if len(r.Inputs) == 0 || !malformed && !mismatch {
		return a
	}
	a.Outputs = append([]engine.Tensor(nil), r.Inputs...)
	if malformed {
		a.Outputs[0].Datatype = ""
	}
	if mismatch {
		a.Outputs[0].Data = nil
	}
	return a
}

// Generate refuses: there are no tokens here.
func (e *Engine) Generate(context.Context, *engine.Request) iter.Seq2[engine.Delta, error] {
	return func(yield func(engine.Delta, error) bool) {
		yield(engine.Delta{}, engine.Errorf(engine.Unsupported, "the worker takes tensors alone"))
	}
}

// Events yields nothing until ctx ends: nothing is cached.
func (e *Engine) Events(ctx context.Context, _ []kv.Cursor) iter.Seq2[kv.Batch, error] {
	return func(func(kv.Batch, error) bool) { <-ctx.Done() }
}

// Load yields nothing until ctx ends: calls wait for nothing.
func (e *Engine) Load(ctx context.Context) iter.Seq2[engine.Load, error] {
	return func(func(engine.Load, error) bool) { <-ctx.Done() }
}
