package remote_test

import (
	"bytes"
	"context"
	"iter"
	"strings"
	"sync"
	"testing"

	"github.com/dynago/dynago/engine"
)

// echoes is an engine that gives tensors back, and fails in the ways of backends.
type echoes struct{ engine.Engine }

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
			if !yield(&engine.TensorResponse{ID: r.ID, Model: r.Model, Version: r.Version, Outputs: r.Inputs}, nil) {
				return
			}
		}
	}
}

// tensors sends tensors of all kinds through a worker that gives them back.
func tensors(t *testing.T, e engine.Tensorer) {
	t.Helper()
	text := []byte("\x00\x00\x00\x00\x03\x00\x00\x00\xff\xfe\x00")
	inputs := []engine.Tensor{{Name: "texts", Datatype: "BYTES", Shape: []int64{2}, Data: text}}
	for size, kinds := range map[int][]string{
		1: {"BOOL", "UINT8", "INT8"}, 2: {"UINT16", "INT16", "FP16", "BF16"},
		4: {"UINT32", "INT32", "FP32"}, 8: {"UINT64", "INT64", "FP64"},
	} {
		for _, kind := range kinds {
			inputs = append(inputs, engine.Tensor{
				Name: kind, Datatype: kind, Shape: []int64{1, 3}, Data: bytes.Repeat([]byte{0xff, 0, 0x80, 1, 0x7f, 2, 3, 4}, 3)[:3*size],
				Parameters: engine.Parameters{"i": int64(-1), "u": uint64(1 << 63), "f": 0.5, "s": "s", "b": true},
			})
		}
	}
	r := &engine.TensorRequest{ID: "a", Model: "m", Version: "2", Inputs: inputs, Parameters: engine.Parameters{"repeat": int64(3)}}
	responses := 0
	for got, err := range e.Infer(t.Context(), r) {
		if err != nil {
			t.Fatal(err)
		}
		responses++
		want := &engine.TensorResponse{ID: "a", Model: "m", Version: "2", Outputs: inputs}
		if diff := different(got, want); diff != "" {
			t.Error(diff)
		}
	}
	if responses != 3 {
		t.Errorf("%d responses, want 3", responses)
	}
	for _, err := range e.Infer(t.Context(), &engine.TensorRequest{Parameters: engine.Parameters{"raise_exception": true}}) {
		if engine.KindOf(err) != engine.Internal || !strings.Contains(err.Error(), "asked for it") {
			t.Errorf("a failing call: %v", err)
		}
	}
	large := bytes.Repeat([]byte{7}, 64<<20)
	for got, err := range e.Infer(t.Context(), &engine.TensorRequest{Inputs: []engine.Tensor{{Name: "x", Datatype: "UINT8", Shape: []int64{64 << 20}, Data: large}}}) {
		if err != nil || !bytes.Equal(got.Outputs[0].Data, large) {
			t.Errorf("64 MiB: %v", err)
		}
	}
	var all sync.WaitGroup
	for i := range 100 {
		all.Go(func() {
			in := []engine.Tensor{{Name: "n", Datatype: "UINT8", Shape: []int64{1}, Data: []byte{byte(i)}}}
			for got, err := range e.Infer(t.Context(), &engine.TensorRequest{Inputs: in}) {
				if err != nil || got.Outputs[0].Data[0] != byte(i) {
					t.Errorf("call %d: %v", i, err)
				}
			}
		})
	}
	all.Wait()
}
