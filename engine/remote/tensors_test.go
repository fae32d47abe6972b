package remote_test

import (
	"context"
	"iter"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/kv"
)

// echoes is an engine that gives tensors back, and fails in the ways of backends.
type echoes struct{}

func (echoes) Card(ctx context.Context) iter.Seq2[engine.Status, error] {
	return func(yield func(engine.Status, error) bool) {
		card := &engine.Card{Model: "echo", Accepts: []engine.Input{engine.InputTensor}, Tensor: &engine.TensorConfig{Name: "echo"}}
		if yield(engine.Status{Epoch: 1, Revision: 1, State: engine.Ready, Card: card}, nil) {
			<-ctx.Done()
		}
	}
}

func (echoes) Generate(context.Context, *engine.Request) iter.Seq2[engine.Delta, error] {
	return func(yield func(engine.Delta, error) bool) {
		yield(engine.Delta{}, engine.Errorf(engine.Unsupported, "it takes tensors"))
	}
}

func (echoes) Events(context.Context, []kv.Cursor) iter.Seq2[kv.Batch, error] {
	return func(func(kv.Batch, error) bool) {}
}

func (echoes) Load(ctx context.Context) iter.Seq2[engine.Load, error] {
	return func(func(engine.Load, error) bool) { <-ctx.Done() }
}

func (echoes) Infer(ctx context.Context, r *engine.TensorRequest) iter.Seq2[*engine.TensorResponse, error] {
	return func(yield func(*engine.TensorResponse, error) bool) {
		if _, ok := r.Parameters["raise_exception"]; ok {
			yield(nil, engine.Errorf(engine.Internal, "the request asked for it"))
			return
		}
		if _, ok := r.Parameters["hang"]; ok {
			<-ctx.Done()
			yield(nil, engine.CauseOf(ctx, ctx.Err()))
			return
		}
		n, ok := r.Parameters["repeat"].(int64)
		if !ok {
			n = 1
		}
		for range n {
			if ctx.Err() != nil {
				yield(nil, engine.CauseOf(ctx, ctx.Err()))
				return
			}
			if !yield(&engine.TensorResponse{ID: r.ID, Model: r.Model, Version: r.Version, Outputs: r.Inputs}, nil) {
				return
			}
		}
	}
}
