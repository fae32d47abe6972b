package pipeline_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/nvext"
	"github.com/dynago/dynago/pipeline"
	"github.com/dynago/dynago/router"
)

// scorer is a worker of tensors whose answers a test writes.
type scorer struct {
	fake
	infer func(ctx context.Context, r *engine.TensorRequest, yield func(*engine.TensorResponse, error) bool)
	calls atomic.Int64
	runs  atomic.Int64
}

func newScorer(infer func(ctx context.Context, r *engine.TensorRequest, yield func(*engine.TensorResponse, error) bool)) *scorer {
	return &scorer{infer: infer, fake: fake{change: func(c *engine.Card) {
		c.Accepts, c.ContextLength, c.BlockSize, c.HashScheme = []engine.Input{engine.InputTensor}, 0, 0, ""
		c.Tensor = &engine.TensorConfig{Name: "scores"}
	}}}
}

func (s *scorer) Infer(ctx context.Context, r *engine.TensorRequest) iter.Seq2[*engine.TensorResponse, error] {
	return func(yield func(*engine.TensorResponse, error) bool) {
		s.calls.Add(1)
		s.runs.Add(1)
		defer s.runs.Add(-1)
		s.infer(ctx, r, yield)
	}
}

func echo(_ context.Context, r *engine.TensorRequest, yield func(*engine.TensorResponse, error) bool) {
	yield(&engine.TensorResponse{ID: r.ID, Model: r.Model, Outputs: r.Inputs, Parameters: r.Parameters}, nil)
}

// refuses fails each call before its first response.
func refuses(kind engine.ErrorKind) func(context.Context, *engine.TensorRequest, func(*engine.TensorResponse, error) bool) {
	return func(_ context.Context, _ *engine.TensorRequest, yield func(*engine.TensorResponse, error) bool) {
		yield(nil, engine.Errorf(kind, "no"))
	}
}

func hang(ctx context.Context, _ *engine.TensorRequest, yield func(*engine.TensorResponse, error) bool) {
	<-ctx.Done()
	yield(nil, engine.CauseOf(ctx, ctx.Err()))
}

func vector(name string, data ...byte) engine.Tensor {
	return engine.Tensor{Name: name, Datatype: "UINT8", Shape: []int64{int64(len(data))}, Data: data}
}

func inference(inputs ...engine.Tensor) *pipeline.Inference {
	return &pipeline.Inference{ID: "00000000-0000-4000-8000-000000000000", Notes: new(pipeline.Notes), Tensors: &engine.TensorRequest{
		ID: "7", Model: "test/model", Inputs: inputs, Parameters: engine.Parameters{"k": int64(3)},
	}}
}

// collect returns the responses of a call, and how it ended.
func collect(seq iter.Seq2[*engine.TensorResponse, error]) (list []*engine.TensorResponse, err error) {
	for r, err := range seq {
		if err != nil {
			return list, err
		}
		list = append(list, r)
	}
	return list, nil
}

func TestInfer(t *testing.T) {
	s := newScorer(func(_ context.Context, r *engine.TensorRequest, yield func(*engine.TensorResponse, error) bool) {
		for i := range 3 {
			if !yield(&engine.TensorResponse{ID: fmt.Sprint(r.ID, i), Outputs: r.Inputs, Parameters: r.Parameters}, nil) {
				return
			}
		}
	})
	h := newHouse(t, pipeline.Config{}, s)
	call := inference(vector("a", 1, 2), vector("b"))
	got, err := collect(h.Infer(t.Context(), call))
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 3 || got[2].ID != "72" || &got[0].Outputs[0].Data[0] != &call.Tensors.Inputs[0].Data[0] {
		t.Errorf("responses %+v", got)
	}
	if d := cmp.Diff(call.Tensors.Parameters, got[1].Parameters); d != "" {
		t.Error(d)
	}
	if n := call.Notes; n.Model != "test/model" || n.Target.Worker != 1 || n.Attempts != 1 {
		t.Errorf("notes %+v", n)
	}
	if got, err := collect(h.Infer(t.Context(), &pipeline.Inference{Tensors: call.Tensors})); len(got) != 3 || err != nil {
		t.Errorf("without notes: %v, %v", got, err)
	}
	for range h.Infer(t.Context(), call) {
		break
	}
	if n := s.runs.Load(); n != 0 {
		t.Errorf("%d calls run on", n)
	}
	h.released(t)
}

// A worker may have nothing to say.
func TestInferWithoutResponse(t *testing.T) {
	h := newHouse(t, pipeline.Config{}, newScorer(func(context.Context, *engine.TensorRequest, func(*engine.TensorResponse, error) bool) {}))
	if got, err := collect(h.Infer(t.Context(), inference())); got != nil || err != nil {
		t.Errorf("%v, %v", got, err)
	}
	h.released(t)
}

// What contradicts itself neither gets to a worker nor to a client.
func TestTensorsAreConsistent(t *testing.T) {
	long := func(shape ...int64) engine.Tensor {
		return engine.Tensor{Name: "x", Datatype: "INT32", Shape: shape, Data: make([]byte, 24)}
	}
	texts := func(n int64, data string) engine.Tensor {
		return engine.Tensor{Name: "x", Datatype: "BYTES", Shape: []int64{n}, Data: []byte(data)}
	}
	odd := long(6)
	odd.Data = odd.Data[:23]
	for _, tt := range []struct {
		tensor engine.Tensor
		want   string // part of the error; "": good
	}{
		{long(2, 3), ""},
		{long(6, 1, 1), ""},
		{engine.Tensor{Name: "x", Datatype: "FP64", Data: make([]byte, 8)}, ""},
		{engine.Tensor{Name: "x", Datatype: "BF16", Shape: []int64{3, 0, 5}}, ""},
		{texts(2, "\x00\x00\x00\x00\x01\x00\x00\x00a"), ""},
		{texts(0, ""), ""},
		{long(5), "shape implies 5 elements but data has 6"},
		{long(2, -3, -1), "only -1 is allowed as a wildcard dimension"},
		{long(-1), "negative dimension -1"},
		{long(1<<32, 1<<32), "more elements than can be counted"},
		{long(1<<62, 4, 0, 6), "shape implies 0 elements but data has 6"},
		{odd, "23 bytes of data are no whole number of elements of INT32"},
		{engine.Tensor{Name: "x", Shape: []int64{0}}, "missing field `data_type`"},
		{engine.Tensor{Name: "x", Datatype: "FLOAT"}, "Invalid data type 'FLOAT'"},
		{texts(1, ""), "shape implies 1 elements but data has 0"},
		{texts(1, "\x00\x00\x00\x00\x00\x00\x00\x00"), "shape implies 1 elements but data has 2"},
		{texts(1, "\x05\x00\x00\x00abcd"), "element 0 of its data is cut off"},
		{texts(2, "\x01\x00\x00\x00abcd"), "element 1 of its data is cut off"},
		{texts(1, "\xff\xff\xff\xff"), "element 0 of its data is cut off"},
	} {
		s := newScorer(echo)
		h := newHouse(t, pipeline.Config{MigrationLimit: 3}, s)
		_, err := collect(h.Infer(t.Context(), inference(vector("fine", 1), tt.tensor)))
		switch {
		case (err == nil) != (tt.want == ""):
			t.Errorf("%+v: error %v, want %q", tt.tensor, err, tt.want)
		case err != nil && (engine.KindOf(err) != engine.InvalidArgument || !contains(err, tt.want) || !contains(err, "'x'") || s.calls.Load() != 0):
			t.Errorf("%+v: %v after %d calls, want %q", tt.tensor, err, s.calls.Load(), tt.want)
		}
		s.infer = func(_ context.Context, _ *engine.TensorRequest, yield func(*engine.TensorResponse, error) bool) {
			yield(&engine.TensorResponse{Outputs: []engine.Tensor{vector("fine", 1), tt.tensor}}, nil)
		}
		s.calls.Store(0)
		_, err = collect(h.Infer(t.Context(), inference()))
		e, _ := errors.AsType[*engine.Error](err)
		switch {
		case (err == nil) != (tt.want == ""):
			t.Errorf("response %+v: error %v, want %q", tt.tensor, err, tt.want)
		case err != nil && (e.Kind != engine.Internal || e.Code != pipeline.CodeBadTensors || !contains(err, tt.want) || s.calls.Load() != 1):
			t.Errorf("response %+v: %v after %d calls, want %q", tt.tensor, err, s.calls.Load(), tt.want)
		}
		h.released(t)
	}
}

// Until there is a response a call may go on elsewhere, as far as that is of use.
func TestInferMoves(t *testing.T) {
	for _, tt := range []struct {
		kind    engine.ErrorKind
		limit   int
		pinned  bool
		both    bool // the other worker fails as well
		calls   int64
		moved   []pipeline.MoveEnd
		outcome engine.ErrorKind // of the call; "": it is served
	}{
		{kind: engine.Disconnected, limit: 1, calls: 2, moved: []pipeline.MoveEnd{pipeline.MoveSuccess}},
		{kind: engine.WorkerOverloaded, limit: 1, calls: 2, moved: []pipeline.MoveEnd{pipeline.MoveSuccess}},
		{kind: engine.Unsupported, limit: 1, calls: 2, moved: []pipeline.MoveEnd{pipeline.MoveSuccess}},
		{kind: engine.Disconnected, calls: 1, outcome: engine.Disconnected},
		{kind: engine.Disconnected, limit: 1, pinned: true, calls: 1, outcome: engine.Disconnected},
		{kind: engine.Internal, limit: 1, calls: 1, outcome: engine.Internal},
		{kind: engine.InvalidArgument, limit: 1, calls: 1, outcome: engine.InvalidArgument},
		{kind: engine.WorkerOverloaded, limit: 5, both: true, calls: 2, moved: []pipeline.MoveEnd{pipeline.MoveFailure}, outcome: engine.ResourceExhausted},
		{kind: engine.EngineShutdown, limit: 5, both: true, calls: 2, moved: []pipeline.MoveEnd{pipeline.MoveFailure}, outcome: engine.EngineShutdown},
		{kind: engine.EngineShutdown, limit: 1, both: true, calls: 2, moved: []pipeline.MoveEnd{pipeline.MoveFailure}, outcome: engine.EngineShutdown},
		{kind: engine.Stale, both: true, calls: 2, moved: []pipeline.MoveEnd{pipeline.MoveFailure}, outcome: engine.Stale},
	} {
		t.Run(fmt.Sprint(tt.kind, tt.limit, tt.pinned, tt.both), func(t *testing.T) {
			first, second := newScorer(refuses(tt.kind)), newScorer(echo)
			if tt.both {
				second.infer = first.infer
			}
			var moved []pipeline.MoveEnd
			h := newHouse(t, pipeline.Config{MigrationLimit: tt.limit, Moved: func(m pipeline.Move) {
				if m.Model != "test/model" || m.Ongoing {
					t.Errorf("move %+v", m)
				}
				moved = append(moved, m.End)
			}}, first, second)
			call := inference(vector("a", 1))
			if tt.pinned {
				one := nvext.WorkerID(1)
				call.Ext = &nvext.Ext{Placement: nvext.Placement{BackendInstanceID: &one}}
			}
			got, err := collect(h.Infer(t.Context(), call))
			if tt.outcome == "" && (err != nil || len(got) != 1) || tt.outcome != "" && engine.KindOf(err) != tt.outcome {
				t.Errorf("%d responses, error %v, want %q", len(got), err, tt.outcome)
			}
			if n := first.calls.Load() + second.calls.Load(); n != tt.calls || call.Notes.Attempts != int(tt.calls) {
				t.Errorf("%d calls, %d attempts, want %d", n, call.Notes.Attempts, tt.calls)
			}
			if !slices.Equal(moved, tt.moved) {
				t.Errorf("moved %v, want %v", moved, tt.moved)
			}
			h.released(t)
		})
	}
}

// That a worker has died ends its own attempt and none of a later one, however late that
// is heard of.
func TestInferMovesFromTheDead(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // what hears of it has its turn when somebody waits
	for range 20 {
		var h *house
		dead := false
		infer := func(id uint64) *scorer {
			return newScorer(func(ctx context.Context, r *engine.TensorRequest, yield func(*engine.TensorResponse, error) bool) {
				if !dead {
					dead = true
					h.fleet.Remove(id)
					yield(nil, engine.ErrWorkerLost)
					return
				}
				for range 100 {
					runtime.Gosched()
				}
				if ctx.Err() != nil {
					yield(nil, engine.CauseOf(ctx, ctx.Err()))
					return
				}
				echo(ctx, r, yield)
			})
		}
		h = newHouse(t, pipeline.Config{MigrationLimit: 1}, infer(1), infer(2))
		if got, err := collect(h.Infer(t.Context(), inference(vector("a", 1)))); len(got) != 1 || err != nil {
			t.Fatalf("%d responses, %v", len(got), err)
		}
		h.released(t)
	}
}

// Behind a response there is no going on.
func TestInferFailsBehindAResponse(t *testing.T) {
	infer := func(ctx context.Context, r *engine.TensorRequest, yield func(*engine.TensorResponse, error) bool) {
		echo(ctx, r, yield)
		yield(nil, engine.Errorf(engine.Disconnected, "gone"))
	}
	first, second := newScorer(infer), newScorer(infer)
	h := newHouse(t, pipeline.Config{MigrationLimit: 3}, first, second)
	got, err := collect(h.Infer(t.Context(), inference(vector("a", 1))))
	if len(got) != 1 || engine.KindOf(err) != engine.Disconnected || first.calls.Load()+second.calls.Load() != 1 {
		t.Errorf("%d responses, %v", len(got), err)
	}
	h.released(t)
}

// A call ends soon when its client leaves, its time is over, or its worker dies or falls
// silent; and the worker hears why.
func TestInferEnds(t *testing.T) {
	for _, tt := range []struct {
		name string
		end  func(h *house, cancel context.CancelCauseFunc)
		call func(*pipeline.Inference)
		want engine.ErrorKind
	}{
		{"client", func(_ *house, cancel context.CancelCauseFunc) { cancel(engine.ErrClientGone) }, nil, engine.Cancelled},
		{"shutdown", func(_ *house, cancel context.CancelCauseFunc) { cancel(engine.ErrShutdown) }, nil, engine.Unavailable},
		{"worker", func(h *house, _ context.CancelCauseFunc) { h.fleet.Remove(1) }, nil, engine.Disconnected},
		{"deadline", nil, func(c *pipeline.Inference) { c.Deadline = time.Now().Add(time.Second) }, engine.DeadlineExceeded},
		{"silence", nil, nil, engine.ResponseTimeout},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var heard error
				s := newScorer(func(ctx context.Context, r *engine.TensorRequest, yield func(*engine.TensorResponse, error) bool) {
					<-ctx.Done()
					heard = engine.CauseOf(ctx, ctx.Err())
					yield(nil, heard)
				})
				h := newHouse(t, pipeline.Config{Limits: pipeline.Limits{FirstItem: time.Minute}}, s)
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				call := inference(vector("a", 1))
				if tt.call != nil {
					tt.call(call)
				}
				ended := make(chan error, 1)
				go func() {
					_, err := collect(h.Infer(ctx, call))
					ended <- err
				}()
				synctest.Wait()
				if s.runs.Load() != 1 {
					t.Fatal("the call does not run")
				}
				if tt.end != nil {
					tt.end(h, cancel)
					synctest.Wait()
					if len(ended) == 0 {
						t.Error("it does not end at once")
					}
				}
				if err := <-ended; engine.KindOf(err) != tt.want || engine.KindOf(heard) != tt.want {
					t.Errorf("ends with %v, the worker hears %v, want %s", err, heard, tt.want)
				}
				h.released(t)
			})
		})
	}
}

// A worker that falls silent in the middle is given up as well, however slowly its
// client reads.
func TestInferFallsSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScorer(func(ctx context.Context, r *engine.TensorRequest, yield func(*engine.TensorResponse, error) bool) {
			for range 2 {
				time.Sleep(time.Second)
				echo(ctx, r, yield)
			}
			hang(ctx, r, yield)
		})
		h := newHouse(t, pipeline.Config{MigrationLimit: 1, Limits: pipeline.Limits{FirstItem: time.Minute, Inactivity: 3 * time.Second}}, s)
		began, n := time.Now(), 0
		for _, err := range h.Infer(t.Context(), inference(vector("a", 1))) {
			if n++; n < 3 {
				time.Sleep(time.Minute) // the client's time
				continue
			}
			if engine.KindOf(err) != engine.ResponseTimeout || time.Since(began) != 2*time.Minute+5*time.Second {
				t.Errorf("after %v: %v", time.Since(began), err)
			}
		}
		if n != 3 || s.calls.Load() != 1 {
			t.Errorf("%d items, %d calls", n, s.calls.Load())
		}
		h.released(t)
	})
}

// Of several workers one is chosen that has little to do, that may be chosen, and that
// the client will have.
func TestInferChooses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		workers := []*scorer{newScorer(hang), newScorer(hang), newScorer(hang)}
		for i, s := range workers {
			base := s.change
			s.change = func(c *engine.Card) {
				base(c)
				c.Taints = []string{fmt.Sprint("rack-", i)}
			}
		}
		h := newHouseOf(t, pipeline.Config{}, router.Config{}, workers[0], workers[1], workers[2])
		ctx, cancel := context.WithCancelCause(t.Context())
		begin := func(ext *nvext.Ext) error {
			call := inference(vector("a", 1))
			call.Ext = ext
			ended := make(chan error, 1)
			go func() {
				_, err := collect(h.Infer(ctx, call))
				ended <- err
			}()
			synctest.Wait()
			select {
			case err := <-ended:
				return err
			default:
				return nil
			}
		}
		running := func() (list []int64) {
			for _, s := range workers {
				list = append(list, s.runs.Load())
			}
			return list
		}
		for range 6 {
			begin(nil)
		}
		if got := running(); !slices.Equal(got, []int64{2, 2, 2}) {
			t.Errorf("six calls run as %v", got)
		}
		two := nvext.WorkerID(2)
		begin(&nvext.Ext{Placement: nvext.Placement{BackendInstanceID: &two}})
		begin(&nvext.Ext{Placement: nvext.Placement{DecodeWorkerID: &two}})
		begin(&nvext.Ext{RoutingConstraints: &nvext.Constraints{RequiredTaints: []string{"rack-1"}}})
		if got := running(); !slices.Equal(got, []int64{2, 5, 2}) {
			t.Errorf("three calls for the second worker run as %v", got)
		}
		h.fleet.Drain(1)
		begin(nil)
		begin(nil)
		if got := running(); !slices.Equal(got, []int64{2, 5, 4}) {
			t.Errorf("while the first worker drains calls run as %v", got)
		}
		one := nvext.WorkerID(1)
		if err := begin(&nvext.Ext{Placement: nvext.Placement{BackendInstanceID: &one}}); engine.KindOf(err) != engine.Unavailable {
			t.Errorf("a call for a worker that drains: %v", err)
		}
		h.fleet.Drain(2)
		h.fleet.Drain(3)
		if err := begin(nil); engine.KindOf(err) != engine.Unavailable {
			t.Errorf("all drain: %v", err)
		}
		call := inference()
		call.Tensors.Model = "nobody's"
		if _, err := collect(h.Infer(ctx, call)); engine.KindOf(err) != engine.NotFound {
			t.Errorf("no such model: %v", err)
		}
		cancel(nil)
		synctest.Wait()
		h.released(t)
	})
}

// A model of tensors is there for those who have tensors.
func TestModelOfTensors(t *testing.T) {
	h := newHouse(t, pipeline.Config{}, newScorer(echo))
	if err := h.Preload(); err != nil {
		t.Errorf("preload: %v", err)
	}
	_, err := chat.Fold(h.Run(t.Context(), request("hello")))
	if engine.KindOf(err) != engine.NotFound || !contains(err, "takes tensors") {
		t.Errorf("a chat: %v", err)
	}
	if _, _, err := h.Tokenize(request("hello").Chat, true); engine.KindOf(err) != engine.NotFound {
		t.Errorf("tokenize: %v", err)
	}
	if c := h.Card("test/model"); c == nil || c.Tensor == nil || h.Card("alias") != nil || h.Card("nobody's") != nil {
		t.Errorf("card %+v", c)
	}
	list := h.Models()
	if len(list) != 1 || !list[0].Ready || list[0].Card == nil || !list[0].Card.Accept(engine.InputTensor) {
		t.Errorf("models %+v", list)
	}
	h.fleet.Drain(1)
	if list := h.Models(); list[0].Ready || h.Card("test/model") == nil {
		t.Errorf("while it drains: models %+v", list)
	}

	texts := newHouse(t, pipeline.Config{}, &fake{})
	if _, err := collect(texts.Infer(t.Context(), inference())); engine.KindOf(err) != engine.Unsupported {
		t.Errorf("tensors for a model of text: %v", err)
	}
	texts.released(t)
}

func BenchmarkInfer(b *testing.B) {
	h := newHouse(b, pipeline.Config{Limits: pipeline.Limits{FirstItem: time.Minute}}, newScorer(echo))
	call := inference(vector("a", 1, 2, 3, 4))
	b.ReportAllocs()
	for b.Loop() {
		for _, err := range h.Infer(b.Context(), call) {
			if err != nil {
				b.Fatal(err)
			}
		}
	}
}
