package rpc_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"iter"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/frontend"
	"github.com/dynago/dynago/frontend/rpc"
	pb "github.com/dynago/dynago/internal/gen/inferencepb"
	"github.com/dynago/dynago/pipeline"
)

// fake is a backend of two models. The one of text says its prompt word by word, and
// does what some prompts tell it; the one of tensors gives them back.
type fake struct {
	mu     sync.Mutex
	ready  bool
	asked  []*pipeline.Request
	killed []string // prompts whose context has ended, by its cause

	// step, if not nil, is received from before each event.
	step chan struct{}
}

var errBroken = engine.Errorf(engine.Internal, "the engine is broken")

func (f *fake) Run(ctx context.Context, requests ...*pipeline.Request) iter.Seq2[chat.Event, error] {
	r := requests[0]
	prompt := r.Chat.Prompt.Text
	f.mu.Lock()
	f.asked = append(f.asked, r)
	step := f.step
	f.mu.Unlock()
	*r.Notes = pipeline.Notes{Model: "words", PromptTokens: 2, Attempts: 1, Queue: time.Millisecond}
	return func(yield func(chat.Event, error) bool) {
		wait := func() bool {
			if step != nil && strings.HasPrefix(prompt, "stepwise") {
				select {
				case <-step:
				case <-ctx.Done():
				}
			}
			if prompt == "forever" {
				<-ctx.Done()
			}
			if ctx.Err() == nil {
				return true
			}
			f.mu.Lock()
			f.killed = append(f.killed, prompt+": "+context.Cause(ctx).Error())
			f.mu.Unlock()
			yield(chat.Event{}, engine.CauseOf(ctx, ctx.Err()))
			return false
		}
		switch {
		case strings.HasPrefix(prompt, "panic"):
			panic("the backend has a fault")
		case strings.HasPrefix(prompt, "refuse"):
			yield(chat.Event{}, errBroken)
			return
		case prompt == "vanished":
			yield(chat.Event{}, &engine.Error{Kind: engine.NotFound, Code: "model_not_found", Message: "The model `words` does not exist"})
			return
		case prompt == "busy":
			yield(chat.Event{}, engine.Errorf(engine.ResourceExhausted, "all are busy"))
			return
		}
		if !yield(chat.Event{Kind: chat.Start, Usage: chat.Usage{Prompt: 2}}, nil) || !yield(chat.Event{Kind: chat.BlockStart, BlockKind: chat.Text}, nil) {
			return
		}
		words := strings.Fields(prompt)
		if prompt == "large" {
			words = slices.Repeat([]string{strings.Repeat("x", 10_000)}, 1000)
		}
		for i, word := range words {
			last := i == len(words)-1 && word != "break"
			if !wait() || !yield(chat.Event{Kind: chat.TextDelta, Text: word, IDs: []uint32{uint32(i)}, Last: last}, nil) {
				return
			}
			if word == "break" {
				yield(chat.Event{}, errBroken)
				return
			}
		}
		if yield(chat.Event{Kind: chat.BlockStop}, nil) {
			yield(chat.Event{Kind: chat.Finished, Finish: chat.Finish{Reason: chat.FinishStop}, Usage: chat.Usage{Prompt: 2, Output: len(words)}}, nil)
		}
	}
}

func (f *fake) Infer(_ context.Context, call *pipeline.Inference) iter.Seq2[*engine.TensorResponse, error] {
	n, _ := call.Tensors.Parameters["responses"].(int64)
	return func(yield func(*engine.TensorResponse, error) bool) {
		for range n {
			r := &engine.TensorResponse{Model: "echo", Outputs: call.Tensors.Inputs, Parameters: engine.Parameters{"processed": true}}
			if bad, _ := call.Tensors.Parameters["bad"].(bool); bad {
				r.Parameters["bad"] = "\xff"
			}
			if !yield(r, nil) {
				return
			}
		}
		if say, _ := call.Tensors.Parameters["say"].(string); say != "" {
			yield(nil, engine.Errorf(engine.Internal, "%s\xff", say))
			return
		}
		if fail, _ := call.Tensors.Parameters["fail"].(bool); fail {
			yield(nil, engine.Errorf(engine.Internal, "the worker has raised"))
		}
	}
}

var cards = map[string]*engine.Card{
	"words": {Model: "words", Accepts: []engine.Input{engine.InputTokens}},
	"echo": {Model: "echo", Accepts: []engine.Input{engine.InputTensor}, Tensor: &engine.TensorConfig{
		Name: "echo", Inputs: []engine.TensorSpec{{Name: "in", Datatype: "FP32", Shape: []int64{-1}}},
	}},
}

func (f *fake) Card(model string) *engine.Card { return cards[model] }

func (f *fake) Models() []pipeline.ModelInfo {
	f.mu.Lock()
	defer f.mu.Unlock()
	return []pipeline.ModelInfo{
		{ID: "echo", Card: cards["echo"], Reason: "missing worker types: prefill"},
		{ID: "words", Card: cards["words"], Ready: f.ready},
	}
}

func (f *fake) requests() []*pipeline.Request {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.asked
}

// forget lets go of the requests that have arrived so far.
func (f *fake) forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = nil
}

func (f *fake) ends() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.killed
}

func (f *fake) setReady(ready bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ready = ready
}

func (f *fake) Workers() []pipeline.WorkerInfo { return nil }
func (f *fake) Caches() pipeline.CacheInfo     { return pipeline.CacheInfo{} }
func (f *fake) Dropped() []pipeline.DropCount  { return nil }
func (f *fake) Flow() *pipeline.Flow           { return new(pipeline.Flow) }
func (f *fake) Detokenize(string, []uint32) (string, error) {
	return "", errors.New("there is no tokenizer")
}

func (f *fake) Tokenize(*chat.Request, bool) ([]uint32, int, error) {
	return nil, 0, errors.New("there is no tokenizer")
}

// house is a server over a pipe in memory, and a client of it.
type house struct {
	pb.GRPCInferenceServiceClient
	t     testing.TB
	fake  *fake
	front *frontend.Server
	rpc   *rpc.Server
	line  *bufconn.Listener
	conn  *grpc.ClientConn
	log   *syncBuffer
}

// open starts a server; changes are made to its settings, options to the client's.
func open(t testing.TB, change func(*frontend.Config, *rpc.Config), options ...grpc.DialOption) *house {
	t.Helper()
	h := &house{t: t, fake: &fake{ready: true}, log: &syncBuffer{}}
	log := slog.New(slog.NewTextHandler(h.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	fc, rc := frontend.Config{Backend: h.fake, Tensors: h.fake, Logger: log}, rpc.Config{Logger: log, Version: "1.2.3", Reflection: true}
	if change != nil {
		change(&fc, &rc)
	}
	var err error
	if h.front, err = frontend.New(fc); err != nil {
		t.Fatal(err)
	}
	rc.Frontend = h.front
	h.rpc = rpc.New(rc)
	h.line = bufconn.Listen(64 << 10)
	served := make(chan error, 1)
	go func() { served <- h.rpc.Serve(h.line) }()
	h.conn, err = grpc.NewClient("passthrough:///house", append([]grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return h.line.DialContext(ctx) }),
	}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	h.GRPCInferenceServiceClient = pb.NewGRPCInferenceServiceClient(h.conn)
	t.Cleanup(func() {
		h.conn.Close()
		h.front.Close() //nolint:errcheck // it never fails
		h.rpc.Close()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return h
}

// metrics returns the page of metrics.
func (h *house) metrics() string {
	w := httptest.NewRecorder()
	h.front.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", http.NoBody))
	return w.Body.String()
}

// text is a call of the model of text.
func text(id, prompt string) *pb.ModelInferRequest {
	return &pb.ModelInferRequest{
		ModelName: "words", Id: id,
		Inputs: []*pb.ModelInferRequest_InferInputTensor{{
			Name: "text_input", Datatype: "BYTES", Shape: []int64{1}, Contents: &pb.InferTensorContents{BytesContents: [][]byte{[]byte(prompt)}},
		}},
	}
}

// pieces is text that is to be answered in pieces.
func pieces(id, prompt string) *pb.ModelInferRequest {
	in := text(id, prompt)
	in.Inputs = append(in.Inputs, &pb.ModelInferRequest_InferInputTensor{
		Name: "stream", Datatype: "BOOL", Shape: []int64{1}, Contents: &pb.InferTensorContents{BoolContents: []bool{true}},
	})
	return in
}

// tensors is a call of the model of tensors that has so many responses.
func tensors(id string, responses int64) *pb.ModelInferRequest {
	return &pb.ModelInferRequest{
		ModelName: "echo", Id: id,
		Parameters:       map[string]*pb.InferParameter{"responses": {ParameterChoice: &pb.InferParameter_Int64Param{Int64Param: responses}}},
		Inputs:           []*pb.ModelInferRequest_InferInputTensor{{Name: "in", Datatype: "FP32", Shape: []int64{1}}},
		RawInputContents: [][]byte{{0, 0, 128, 63}},
	}
}

// with adds a parameter to a call.
func with(in *pb.ModelInferRequest, name string, value bool) *pb.ModelInferRequest {
	if in.Parameters == nil {
		in.Parameters = map[string]*pb.InferParameter{}
	}
	in.Parameters[name] = &pb.InferParameter{ParameterChoice: &pb.InferParameter_BoolParam{BoolParam: value}}
	return in
}

// said is one message of a stream, for people: the call, what it says, and the flag.
func said(m *pb.ModelStreamInferResponse) string {
	r := m.GetInferResponse()
	s := r.GetId() + ":"
	if len(r.GetOutputs()) > 0 && r.GetModelName() == "words" {
		s += " " + string(bytes.Join(r.GetOutputs()[0].GetContents().GetBytesContents(), []byte("|")))
	} else if len(r.GetOutputs()) > 0 {
		s += " tensors"
	}
	if m.GetErrorMessage() != "" {
		s += " error " + m.GetErrorMessage()
	}
	if r.GetParameters()["triton_final_response"].GetBoolParam() {
		s += " final"
	}
	return s
}

// talk opens a stream, sends calls, half-closes it, and returns all that was said, and
// how it ended.
func (h *house) talk(ctx context.Context, calls ...*pb.ModelInferRequest) (all []string, err error) {
	h.t.Helper()
	stream, err := h.ModelStreamInfer(ctx)
	if err != nil {
		h.t.Fatal(err)
	}
	for _, in := range calls {
		if err := stream.Send(in); err != nil {
			break // Recv says why
		}
	}
	if err := stream.CloseSend(); err != nil {
		h.t.Fatal(err)
	}
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return all, err
		}
		all = append(all, said(m))
	}
}

// until waits for a condition.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(10 * time.Second); !ok(); <-tick.C {
		if time.Now().After(end) {
			t.Fatalf("waited in vain: %s", what)
		}
	}
}

// syncBuffer is a buffer that is written while it is read.
type syncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
