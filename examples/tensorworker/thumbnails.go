package main

import (
	"context"
	"encoding/binary"
	"iter"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/kv"
)

// mostSide is how wide and high a thumbnail may be.
const mostSide = 4096

// thumbnails is the model. It takes one picture and any number of sizes, and answers
// with one response for each: a client that asks for one size may do so with a plain
// call, and one that asks for several reads a stream.
type thumbnails struct {
	card  *engine.Card
	epoch uint64
}

func newThumbnails(name string) *thumbnails {
	return &thumbnails{epoch: uint64(time.Now().UnixNano()), card: &engine.Card{
		Model: name, Engine: "tensorworker", Accepts: []engine.Input{engine.InputTensor}, Device: engine.DeviceCPU,
		Tensor: &engine.TensorConfig{
			Name: name,
			Inputs: []engine.TensorSpec{
				{Name: "image", Datatype: "BYTES", Shape: []int64{1}},     // a PNG, JPEG or GIF
				{Name: "sizes", Datatype: "INT32", Shape: []int64{-1, 2}}, // rows of width and height
			},
			Outputs: []engine.TensorSpec{
				{Name: "pixels", Datatype: "UINT8", Shape: []int64{-1, -1, 3}}, // height, width, colour
			},
		},
	}}
}

// Card tells what the worker is. A card that changes is yielded anew.
func (t *thumbnails) Card(ctx context.Context) iter.Seq2[engine.Status, error] {
	return func(yield func(engine.Status, error) bool) {
		if yield(engine.Status{Epoch: t.epoch, Revision: 1, State: engine.Ready, Card: t.card}, nil) {
			<-ctx.Done()
		}
	}
}

// Infer runs one call. Whatever it yields goes out at once; an error of kind
// invalid_argument is the client's to mend. When ctx is done nobody waits any more.
func (t *thumbnails) Infer(ctx context.Context, r *engine.TensorRequest) iter.Seq2[*engine.TensorResponse, error] {
	return func(yield func(*engine.TensorResponse, error) bool) {
		file, sizes, err := inputs(r)
		if err != nil {
			yield(nil, err)
			return
		}
		picture, err := decode(file)
		if err != nil {
			yield(nil, err)
			return
		}
		for i, size := range sizes {
			if ctx.Err() != nil {
				yield(nil, engine.CauseOf(ctx, ctx.Err()))
				return
			}
			answer := &engine.TensorResponse{
				ID: r.ID, Model: r.Model, Version: r.Version, Parameters: engine.Parameters{"index": int64(i)},
				Outputs: []engine.Tensor{{
					Name: "pixels", Datatype: "UINT8", Shape: []int64{int64(size.height), int64(size.width), 3},
					Data: resize(picture, size.width, size.height),
				}},
			}
			if !yield(answer, nil) {
				return
			}
		}
	}
}

type size struct{ width, height int }

// inputs reads what a client has sent. That data are those of datatype and shape was
// seen to on the way here.
func inputs(r *engine.TensorRequest) (file []byte, sizes []size, err error) {
	for i := range r.Inputs {
		switch in := &r.Inputs[i]; {
		case in.Name == "image" && in.Datatype == "BYTES" && len(in.Data) >= 4:
			if file = in.Data[4:]; int(binary.LittleEndian.Uint32(in.Data)) != len(file) {
				return nil, nil, engine.Errorf(engine.InvalidArgument, "input 'image': shape %v: want one picture", in.Shape)
			}
		case in.Name == "sizes" && in.Datatype == "INT32" && len(in.Shape) == 2 && in.Shape[1] == 2:
			for d := in.Data; len(d) >= 8; d = d[8:] {
				s := size{int(int32(binary.LittleEndian.Uint32(d))), int(int32(binary.LittleEndian.Uint32(d[4:])))}
				if min(s.width, s.height) < 1 || max(s.width, s.height) > mostSide {
					return nil, nil, engine.Errorf(engine.InvalidArgument, "input 'sizes': %d by %d: want 1 to %d", s.width, s.height, mostSide)
				}
				sizes = append(sizes, s)
			}
		default:
			return nil, nil, engine.Errorf(engine.InvalidArgument, "input '%s' of %s %v: want 'image', BYTES [1], and 'sizes', INT32 [n, 2]", in.Name, in.Datatype, in.Shape)
		}
	}
	if file == nil || sizes == nil {
		return nil, nil, engine.Errorf(engine.InvalidArgument, "want inputs 'image', BYTES [1], and 'sizes', INT32 [n, 2]")
	}
	return file, sizes, nil
}

// Generate refuses: tokens mean nothing here.
func (t *thumbnails) Generate(context.Context, *engine.Request) iter.Seq2[engine.Delta, error] {
	return func(yield func(engine.Delta, error) bool) {
		yield(engine.Delta{}, engine.Errorf(engine.Unsupported, "the worker takes tensors alone"))
	}
}

// Events has nothing to tell: nothing is cached.
func (t *thumbnails) Events(ctx context.Context, _ []kv.Cursor) iter.Seq2[kv.Batch, error] {
	return func(func(kv.Batch, error) bool) { <-ctx.Done() }
}

// Load has nothing to tell that the server does not know.
func (t *thumbnails) Load(ctx context.Context) iter.Seq2[engine.Load, error] {
	return func(func(engine.Load, error) bool) { <-ctx.Done() }
}
