package enginetest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/kv"
)

// abilities are the optional interfaces that a card speaks of.
func abilities(t *testing.T, s *Subject) {
	e := s.New(t)
	card := ready(t, e).Card
	for _, a := range []struct {
		said bool
		has  func() bool
		what string
	}{
		{card.Features.Has(engine.FeatureSessions), has[engine.Sessioner](e), "sessions"},
		{card.Features.Has(engine.FeatureHandoff), has[engine.Disaggregator](e), "hand-offs"},
		{len(card.Controls) > 0, has[engine.Controller](e), "controls"},
		{card.Accept(engine.InputTensor), has[engine.Tensorer](e), "tensors"},
		{card.Accept(engine.InputChat), has[engine.ChatEngine](e), "conversations"},
	} {
		if a.said && !a.has() {
			t.Errorf("the card promises %s, and there are none", a.what)
		}
	}
}

func has[T any](e engine.Engine) func() bool {
	return func() bool { _, ok := engine.As[T](e); return ok }
}

func sessions(t *testing.T, s *Subject) {
	e := s.New(t)
	ready(t, e)
	keeper, _ := engine.As[engine.Sessioner](e)
	key, other := kv.SessionKey{Model: "m", ID: "one"}, kv.SessionKey{Model: "m", Salt: "s", ID: "one"}
	o := engine.SessionOptions{Timeout: time.Minute, Capacity: 1 << 20}
	check := func(what string, known bool, err error, want bool) {
		t.Helper()
		if err != nil || known != want {
			t.Errorf("%s: known %v, %v; want %v", what, known, err, want)
		}
	}
	known, err := keeper.CloseSession(t.Context(), key)
	check("closing one that was never opened", known, err, false)
	known, err = keeper.OpenSession(t.Context(), key, o)
	check("opening", known, err, false)
	known, err = keeper.OpenSession(t.Context(), key, o)
	check("opening again", known, err, true)
	known, err = keeper.OpenSession(t.Context(), other, o)
	check("opening that of another tenant", known, err, false)
	r := s.request(1, 40, 5)
	want := generate(t, e, r).ids
	r.KV.Session = kv.Session{ID: key.ID}
	if got := generate(t, e, r).ids; !slices.Equal(got, want) {
		t.Errorf("in a session the answer is %v, else %v", got, want)
	}
	for _, k := range []kv.SessionKey{key, other} {
		known, err = keeper.CloseSession(t.Context(), k)
		check("closing", known, err, true)
		known, err = keeper.CloseSession(t.Context(), k)
		check("closing again", known, err, false)
	}
}

func controls(t *testing.T, s *Subject) {
	e := s.New(t)
	st := ready(t, e)
	told, _ := engine.As[engine.Controller](e)
	if out, err := told.Control(t.Context(), "no such thing", nil); engine.KindOf(err) != engine.Unsupported {
		t.Errorf("an unknown control: %s, %v, want unsupported", out, err)
	}
	if !slices.Contains(st.Card.Controls, engine.ControlReset) {
		return
	}
	r := s.request(1, 100, 5)
	want := generate(t, e, r).ids
	for range 2 {
		if _, err := told.Control(t.Context(), engine.ControlReset, json.RawMessage(`{}`)); err != nil {
			t.Errorf("reset: %v", err)
		}
	}
	a := generate(t, e, r)
	if !slices.Equal(a.ids, want) {
		t.Errorf("after a reset %v, before %v", a.ids, want)
	}
	if c := a.last.Usage.Cached; c != nil && *c != 0 {
		t.Errorf("%d tokens were cached after a reset", *c)
	}
}

// full checks an engine that admits two requests and no third.
func full(t *testing.T, s *Subject) {
	e := s.Full(t)
	ready(t, e)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	for i := range uint64(2) {
		running.Go(func() {
			for ctx.Err() == nil { // the third may have come first
				collect(ctx, t, e, s.request(i, 10, 400))
			}
		})
	}
	for deadline := time.Now().Add(5 * time.Second); ; {
		soon, stop := context.WithTimeout(t.Context(), 50*time.Millisecond)
		a := collect(soon, t, e, s.request(3, 10, 1))
		stop()
		if engine.KindOf(a.err) == engine.WorkerOverloaded {
			if len(a.deltas) > 0 {
				t.Errorf("refused after %d deltas", len(a.deltas))
			}
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("a third request: %v, want worker_overloaded", a.err)
		}
	}
	cancel()
	running.Wait()
	for deadline := time.Now().Add(5 * time.Second); ; {
		a := collect(t.Context(), t, e, s.request(4, 10, 2))
		if a.err == nil {
			break
		}
		if engine.KindOf(a.err) != engine.WorkerOverloaded || time.Now().After(deadline) {
			t.Fatalf("once there is room again: %v", a.err)
		}
	}
}

// connectionLost checks that an engine whose connections break is the same one.
func connectionLost(t *testing.T, s *Subject) {
	e := s.Slow(t)
	epoch := ready(t, e).Epoch
	r := s.request(1, 10, 40)
	want := generate(t, e, r).ids
	var got []uint32
	var end error
	for d, err := range e.Generate(t.Context(), r) {
		before := len(got)
		got, end = append(got, d.TokenIDs...), err
		if before < 5 && len(got) >= 5 {
			s.Cut(e)
		}
	}
	if end == nil || engine.KindOf(end).Retry() != engine.RetryMigrate {
		t.Fatalf("after %d tokens the connection broke, and the stream ended with %v", len(got), end)
	}
	if now := ready(t, e).Epoch; now != epoch {
		t.Errorf("a lost connection made epoch %d of %d", now, epoch)
	}
	rest := *r
	rest.TokenIDs = append(slices.Clone(r.TokenIDs), got...)
	rest.Stop.MaxTokens = 40 - len(got)
	if got = append(got, generate(t, e, &rest).ids...); !slices.Equal(got, want) {
		t.Errorf("carried on: %v\nundisturbed: %v", got, want)
	}
}

// tensors sends tensors of all kinds to an engine that gives them back, as many times
// as the parameter repeat says, unless the parameter raise_exception is there.
func tensors(t *testing.T, s *Subject) {
	e := s.New(t)
	card := ready(t, e).Card
	patience, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	infer, ok := engine.As[engine.Tensorer](e)
	if !ok {
		t.Fatal("the card promises tensors, and there are none")
	}
	inputs := []engine.Tensor{
		// Elements: an empty one, and one that is no text.
		{Name: "texts", Datatype: "BYTES", Shape: []int64{2}, Data: []byte("\x00\x00\x00\x00\x03\x00\x00\x00\xff\xfe\x00")},
		{Name: "none", Datatype: "FP32", Shape: []int64{0, 3}},
	}
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
	r := &engine.TensorRequest{ID: "a", Model: card.Model, Version: "2", Inputs: inputs, Parameters: engine.Parameters{"repeat": int64(3)}}
	responses := 0
	seq := infer.Infer(patience, r)
	for got, err := range seq {
		if err != nil {
			t.Fatal(err)
		}
		responses++
		got.Parameters = nil // they are the worker's
		if want := (&engine.TensorResponse{ID: "a", Model: card.Model, Version: "2", Outputs: inputs}); !reflect.DeepEqual(got, want) {
			t.Errorf("%+v\nwant %+v", got, want)
		}
	}
	if responses != 3 {
		t.Errorf("%d responses, want 3", responses)
	}
	for got, err := range seq {
		if engine.KindOf(err) != engine.Internal || got != nil {
			t.Errorf("a second loop: %v, %v", got, err)
		}
	}
	one := func(number int, data []byte) *engine.TensorRequest {
		return &engine.TensorRequest{ID: fmt.Sprint(number), Inputs: []engine.Tensor{{Name: "x", Datatype: "UINT8", Shape: []int64{int64(len(data))}, Data: data}}}
	}
	large := bytes.Repeat([]byte{7}, 64<<20)
	for got, err := range infer.Infer(patience, one(0, large)) {
		if err != nil || !bytes.Equal(got.Outputs[0].Data, large) {
			t.Errorf("64 MiB: %v", err)
		}
	}
	var all sync.WaitGroup
	for i := range 100 {
		all.Go(func() {
			q := one(i, []byte{byte(i)})
			fails, leaves := i%10 == 3, i%10 == 7
			ctx, cancel := context.WithCancelCause(patience)
			defer cancel(nil)
			switch {
			case fails:
				q.Parameters = engine.Parameters{"raise_exception": true}
			case leaves:
				q.Parameters = engine.Parameters{"repeat": int64(100_000)}
			}
			n := 0
			var end error
			for got, err := range infer.Infer(ctx, q) {
				if end = err; err != nil {
					break
				}
				if n++; n == 3 && leaves {
					cancel(engine.ErrClientGone)
				}
				if got.ID != q.ID || got.Outputs[0].Data[0] != byte(i) {
					t.Errorf("call %d got %s %v", i, got.ID, got.Outputs[0].Data)
				}
			}
			switch {
			case fails && (engine.KindOf(end) != engine.Internal || !strings.Contains(end.Error(), "asked for it")):
				t.Errorf("call %d fails with %v", i, end)
			case leaves && engine.KindOf(end) != engine.Cancelled:
				t.Errorf("call %d was left and ends with %v", i, end)
			case !fails && !leaves && (end != nil || n != 1):
				t.Errorf("call %d: %d responses, %v", i, n, end)
			}
		})
	}
	all.Wait()
}
