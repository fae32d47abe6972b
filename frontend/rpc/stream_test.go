package rpc_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/dynago/dynago/frontend"
	"github.com/dynago/dynago/frontend/rpc"
	pb "github.com/dynago/dynago/internal/gen/inferencepb"
)

const emptyFinal = "triton_enable_empty_final_response"

// What each kind of call says on a stream, with the flag that it ends.
func TestStreamConventions(t *testing.T) {
	wrong := with(text("wrong", "dummy input"), emptyFinal, true)
	wrong.Parameters[emptyFinal] = &pb.InferParameter{ParameterChoice: &pb.InferParameter_StringParam{StringParam: "true"}}
	lost := text("lost", "dummy input")
	lost.ModelName = "nobody"
	for name, c := range map[string]struct {
		in   *pb.ModelInferRequest
		want []string
	}{
		"whole":                   {text("a", "dummy input"), []string{"a: dummyinput final"}},
		"whole, empty final":      {with(text("a", "dummy input"), emptyFinal, true), []string{"a: dummyinput final"}},
		"pieces":                  {pieces("a", "dummy input"), []string{"a: dummy", "a: input"}},
		"pieces, empty final":     {with(pieces("a", "dummy input"), emptyFinal, true), []string{"a: dummy", "a: input", "a: final"}},
		"pieces, no empty final":  {with(pieces("a", "dummy input"), emptyFinal, false), []string{"a: dummy", "a: input"}},
		"two tensors":             {tensors("a", 2), []string{"a: tensors", "a: tensors"}},
		"two tensors, and final":  {with(tensors("a", 2), emptyFinal, true), []string{"a: tensors", "a: tensors", "a: final"}},
		"no tensors":              {tensors("a", 0), nil},
		"no tensors, and final":   {with(tensors("a", 0), emptyFinal, true), []string{"a: final"}},
		"empty final of no bool":  {wrong, []string{"wrong: error Failed to parse request: parameter 'triton_enable_empty_final_response' must be a bool_param final"}},
		"no such model":           {lost, []string{"lost: error Model 'nobody' not found final"}},
		"no inputs":               {&pb.ModelInferRequest{ModelName: "words", Id: "a"}, []string{"a: error Failed to parse request: Missing required input: 'text_input' final"}},
		"refused, whole":          {text("a", "refuse"), []string{"a: error Failed to generate completions: the engine is broken final"}},
		"refused, pieces":         {pieces("a", "refuse"), []string{"a: error Failed to generate completions: the engine is broken final"}},
		"broken, whole":           {text("a", "dummy break"), []string{"a: error Failed to fold completions stream: the engine is broken final"}},
		"broken, pieces":          {with(pieces("a", "dummy break"), emptyFinal, true), []string{"a: dummy", "a: break", "a: error Failed to generate completions: the engine is broken final"}},
		"tensors that fail":       {with(tensors("a", 1), "fail", true), []string{"a: tensors", "a: error Failed to generate tensor response stream: the worker has raised final"}},
		"tensors nobody can read": {with(tensors("a", 1), "bad", true), []string{"a: error Failed to parse response: parameter 'bad' is not valid UTF-8 final"}},
		"panic":                   {text("a", "panic"), []string{"a: error Internal server error final"}},
	} {
		t.Run(name, func(t *testing.T) {
			h := open(t, nil)
			got, err := h.talk(t.Context(), c.in)
			if err != nil || !slices.Equal(got, c.want) {
				t.Errorf("%q %v, want %q", got, err, c.want)
			}
		})
	}
}

// A call that fails leaves the others alone.
func TestStreamOutlivesErrors(t *testing.T) {
	h := open(t, nil)
	got, err := h.talk(t.Context(), text("0", "refuse"), text("1", "one"), &pb.ModelInferRequest{Id: "2"}, text("3", "three"), text("4", "panic"), text("5", "five"))
	want := []string{
		"0: error Failed to generate completions: the engine is broken final", "1: one final", "2: error Model '' not found final",
		"3: three final", "4: error Internal server error final", "5: five final",
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%q %v, want %q", got, err, want)
	}
	if !strings.Contains(h.log.String(), "the backend has a fault") {
		t.Errorf("nothing of the panic in the log:\n%s", h.log)
	}
}

// Errors end a stream where the operator wants that, before the first response of a
// call, and where the client wants it, always.
func TestStreamErrorsByStatus(t *testing.T) {
	byStatus := func(_ *frontend.Config, c *rpc.Config) { c.Errors = rpc.ErrorStatus }
	asked := metadata.AppendToOutgoingContext(t.Context(), "triton_grpc_error", "true")
	for name, c := range map[string]struct {
		change  func(*frontend.Config, *rpc.Config)
		ctx     context.Context
		in      *pb.ModelInferRequest
		want    []string
		code    codes.Code
		message string
	}{
		"operator, no model":  {byStatus, t.Context(), &pb.ModelInferRequest{Id: "1", ModelName: "nobody"}, nil, codes.NotFound, "Model 'nobody' not found"},
		"operator, no inputs": {byStatus, t.Context(), &pb.ModelInferRequest{Id: "1", ModelName: "words"}, nil, codes.InvalidArgument, "Failed to parse request: Missing required input: 'text_input'"},
		"operator, refused":   {byStatus, t.Context(), text("1", "refuse"), nil, codes.Internal, "Failed to generate completions: the engine is broken"},
		"operator, busy":      {byStatus, t.Context(), text("1", "busy"), nil, codes.ResourceExhausted, "Service temporarily overloaded"},
		"operator, broken":    {byStatus, t.Context(), pieces("1", "dummy break"), []string{"1: dummy", "1: break", "1: error Failed to generate completions: the engine is broken final"}, codes.OK, ""},
		"client, no model":    {nil, asked, &pb.ModelInferRequest{Id: "1", ModelName: "nobody"}, nil, codes.NotFound, "Model 'nobody' not found"},
		"client, broken":      {nil, asked, pieces("1", "dummy break"), []string{"1: dummy", "1: break"}, codes.Internal, "Failed to generate completions: the engine is broken"},
	} {
		t.Run(name, func(t *testing.T) {
			h := open(t, c.change)
			got, err := h.talk(c.ctx, text("0", "zero"), c.in)
			got = slices.DeleteFunc(got, func(s string) bool { return s == "0: zero final" })
			if !slices.Equal(got, c.want) || status.Code(err) != c.code || status.Convert(err).Message() != c.message {
				t.Errorf("%q %v, want %q %v %s", got, err, c.want, c.code, c.message)
			}
		})
	}
}

// Whole answers come in the order of their calls, whichever is ready first; pieces come
// when they are there.
func TestStreamOrder(t *testing.T) {
	h := open(t, nil)
	h.fake.step = make(chan struct{})
	stream, err := h.ModelStreamInfer(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	say := func(in *pb.ModelInferRequest) {
		t.Helper()
		if err := stream.Send(in); err != nil {
			t.Fatal(err)
		}
	}
	hear := func(want string) {
		t.Helper()
		m, err := stream.Recv()
		if err != nil || said(m) != want {
			t.Fatalf("%v %v, want %q", m, err, want)
		}
	}
	say(text("0", "stepwise first"))
	say(text("1", "second"))
	say(pieces("2", "third"))
	hear("2: third")
	say(text("3", "refuse"))
	say(pieces("4", "fifth"))
	hear("4: fifth")
	h.fake.step <- struct{}{}
	h.fake.step <- struct{}{}
	hear("0: stepwisefirst final")
	hear("1: second final")
	hear("3: error Failed to generate completions: the engine is broken final")
}

// The status that ends a stream comes in its turn as well.
func TestStreamStatusWaits(t *testing.T) {
	h := open(t, func(_ *frontend.Config, c *rpc.Config) { c.Errors = rpc.ErrorStatus })
	h.fake.step = make(chan struct{})
	stream, err := h.ModelStreamInfer(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, in := range []*pb.ModelInferRequest{text("0", "stepwise"), text("1", "refuse")} {
		if err := stream.Send(in); err != nil {
			t.Fatal(err)
		}
	}
	until(t, "both run", func() bool { return len(h.fake.requests()) == 2 })
	go func() {
		select {
		case h.fake.step <- struct{}{}:
		case <-t.Context().Done():
		}
	}()
	if m, err := stream.Recv(); err != nil || said(m) != "0: stepwise final" {
		t.Errorf("%v %v", m, err)
	}
	if m, err := stream.Recv(); status.Code(err) != codes.Internal {
		t.Errorf("%v %v", m, err)
	}
}

// No more calls of a stream run at once than the operator lets.
func TestStreamLimit(t *testing.T) {
	h := open(t, func(_ *frontend.Config, c *rpc.Config) { c.Inflight = 3 })
	h.fake.step = make(chan struct{})
	stream, err := h.ModelStreamInfer(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for range 5 {
		if err := stream.Send(pieces("", "stepwise")); err != nil {
			t.Fatal(err)
		}
	}
	until(t, "three run", func() bool { return len(h.fake.requests()) == 3 })
	h.fake.step <- struct{}{}
	until(t, "a fourth runs", func() bool { return len(h.fake.requests()) == 4 })
	for range 4 {
		h.fake.step <- struct{}{}
	}
	for range 5 {
		if m, err := stream.Recv(); err != nil || m.GetErrorMessage() != "" {
			t.Errorf("%v %v", m, err)
		}
	}
}

// Whoever leaves ends all that he has asked for.
func TestStreamCancelled(t *testing.T) {
	h := open(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	stream, err := h.ModelStreamInfer(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, in := range []*pb.ModelInferRequest{text("0", "forever"), pieces("1", "forever"), text("2", "forever")} {
		if err := stream.Send(in); err != nil {
			t.Fatal(err)
		}
	}
	until(t, "all run", func() bool { return len(h.fake.requests()) == 3 })
	cancel()
	until(t, "all are killed", func() bool { return len(h.fake.ends()) == 3 })
	for _, end := range h.fake.ends() {
		if end != "forever: the client has gone" {
			t.Error(end)
		}
	}
	until(t, "they are counted", func() bool {
		page := h.metrics()
		return strings.Contains(page, `dynamo_frontend_model_cancellation_total{endpoint="grpc_completions",model="words",request_type="unary"} 2`) &&
			strings.Contains(page, `dynamo_frontend_model_cancellation_total{endpoint="grpc_completions",model="words",request_type="stream"} 1`) &&
			strings.Contains(page, `dynamo_frontend_requests_total{endpoint="completions",error_type="cancelled",model="words",request_type="stream",status="error"} 1`) &&
			strings.Contains(page, "dynamo_frontend_disconnected_clients 3\n") && strings.Contains(page, `dynamo_frontend_inflight_requests{model="words"} 0`)
	})
}

// Half-closing is no leaving.
func TestStreamHalfClosed(t *testing.T) {
	h := open(t, nil)
	h.fake.step = make(chan struct{})
	go func() {
		for range 3 {
			h.fake.step <- struct{}{}
		}
	}()
	got, err := h.talk(t.Context(), text("0", "stepwise to the"), text("1", "end"))
	if want := []string{"0: stepwisetothe final", "1: end final"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%q %v, want %q", got, err, want)
	}
}

// A client that reads nothing makes the server make no more than one response of each
// call, and is sent away when its time is over. All answers together have 1 GB.
func TestStreamBlocked(t *testing.T) {
	h := open(t, func(_ *frontend.Config, c *rpc.Config) { c.Patience = 300 * time.Millisecond },
		grpc.WithStaticStreamWindowSize(64<<10), grpc.WithStaticConnWindowSize(64<<10))
	stream, err := h.ModelStreamInfer(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for i := range 100 {
		if err := stream.Send(pieces(fmt.Sprint(i), "large")); err != nil {
			t.Fatal(err)
		}
	}
	until(t, "all run", func() bool { return len(h.fake.requests()) == 100 })
	until(t, "the client is sent away", func() bool { return strings.Count(h.log.String(), "request completed") == 100 })
	runtime.GC()
	runtime.ReadMemStats(&after)
	if made := after.TotalAlloc - before.TotalAlloc; made > 50<<20 {
		t.Errorf("%d MB of answers were made that nobody reads", made>>20)
	}
	if n := strings.Count(h.log.String(), "error_type=cancelled"); n != 100 {
		t.Errorf("%d calls are cancelled", n)
	}
	for err = nil; err == nil; {
		_, err = stream.Recv()
	}
	if status.Code(err) != codes.Aborted || !strings.Contains(err.Error(), "the client has accepted nothing for 300ms") {
		t.Error(err)
	}
}

// A stream that goes on for long keeps nothing of the calls that were on it.
func TestStreamForgets(t *testing.T) {
	h := open(t, nil)
	stream, err := h.ModelStreamInfer(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	prompt := strings.Repeat("x", 10_000)
	heap := func() int64 {
		h.fake.forget()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := int64(0)
	for i := range 1100 {
		if i == 100 {
			before = heap()
		}
		if err := stream.Send(text("", prompt)); err != nil {
			t.Fatal(err)
		}
		if m, err := stream.Recv(); err != nil || m.GetErrorMessage() != "" {
			t.Fatal(m, err)
		}
	}
	if grown := heap() - before; grown > 5<<20 {
		t.Errorf("1000 calls of 10 kB have left %d kB", grown>>10)
	}
}

// Many streams at once, and nothing is left of them.
func TestManyStreams(t *testing.T) {
	h := open(t, nil)
	if _, err := h.talk(t.Context(), text("0", "warm")); err != nil {
		t.Fatal(err)
	}
	before := runtime.NumGoroutine()
	const streams = 500
	type end struct {
		got []string
		err error
	}
	ends := make(chan end, streams)
	for i := range streams {
		go func() {
			got, err := h.talk(t.Context(), pieces("a", fmt.Sprintf("w%d x", i)), text("b", "y z"))
			slices.Sort(got)
			ends <- end{got, err}
		}()
	}
	for range streams {
		e := <-ends
		if e.err != nil || len(e.got) != 3 || e.got[1] != "a: x" || e.got[2] != "b: yz final" {
			t.Errorf("%q %v", e.got, e.err)
		}
	}
	until(t, "nothing is left", func() bool { return runtime.NumGoroutine() <= before })
}

// What is wrong with one call is told in a message that clients can take, whatever its
// words are, and harms no other call.
func TestStreamOddWords(t *testing.T) {
	h := open(t, nil)
	lost, long := text("lost", "dummy"), tensors("long", 0)
	lost.ModelName = "a" + strings.Repeat("é", 200) // which no cut at an even number of bytes leaves whole
	long.Parameters["say"] = &pb.InferParameter{ParameterChoice: &pb.InferParameter_StringParam{StringParam: strings.Repeat("é", 1<<20)}}
	broken := tensors("broken", 0)
	broken.Parameters["say"] = &pb.InferParameter{ParameterChoice: &pb.InferParameter_StringParam{StringParam: "quoted"}}
	got, err := h.talk(t.Context(), lost, text("next", "dummy"))
	if err != nil || len(got) != 2 || !strings.HasPrefix(got[0], "lost: error Model 'aé") || got[1] != "next: dummy final" {
		t.Errorf("%q %v", got, err)
	}
	for _, in := range []*pb.ModelInferRequest{long, broken} {
		got, err := h.talk(t.Context(), in)
		if err != nil || len(got) != 1 || !strings.HasPrefix(got[0], in.Id+": error Failed to generate tensor response stream: ") || len(got[0]) > 4<<10 {
			t.Errorf("%s: %.200q %v", in.Id, got, err)
		}
		soon, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		if _, err := h.ModelInfer(soon, in); status.Code(err) != codes.Internal || len(err.Error()) > 4<<10 {
			t.Errorf("%s: %.200q", in.Id, err)
		}
		cancel()
	}
}
