//go:build unix

package main

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/dynago/dynago/engine/mock"
	"github.com/dynago/dynago/internal/fake/ollama"
	pb "github.com/dynago/dynago/internal/gen/inferencepb"
)

// with gives a call more parameters.
func with(m *pb.ModelInferRequest, parameters map[string]any) *pb.ModelInferRequest {
	for name, value := range parameters {
		p := &pb.InferParameter{}
		switch v := value.(type) {
		case string:
			p.ParameterChoice = &pb.InferParameter_StringParam{StringParam: v}
		case bool:
			p.ParameterChoice = &pb.InferParameter_BoolParam{BoolParam: v}
		case uint64:
			p.ParameterChoice = &pb.InferParameter_Uint64Param{Uint64Param: v}
		}
		m.Parameters[name] = p
	}
	return m
}

const tellWorker = `{"extra_fields":["worker_id"]}`

// workerOf returns the worker that a response tells of.
func workerOf(t *testing.T, m *pb.ModelInferResponse) uint64 {
	t.Helper()
	var told struct {
		WorkerID struct {
			Decode uint64 `json:"decode_worker_id"`
		} `json:"worker_id"`
	}
	if err := json.Unmarshal([]byte(m.Parameters["nvext"].GetStringParam()), &told); err != nil || told.WorkerID.Decode == 0 {
		t.Fatalf("%v tells of no worker: %v", m, err)
	}
	return told.WorkerID.Decode
}

// A sequence is a session: it stays where it is, until its end.
func TestKServeSequences(t *testing.T) {
	t.Parallel()
	_, client := kserved(t, "--router-mode", "round-robin", "--router-session-affinity-ttl-secs", "60", "--workers", "4")
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	at := func(ctx context.Context, parameters map[string]any) uint64 {
		t.Helper()
		parameters["nvext"] = tellWorker
		out, err := client.ModelInfer(ctx, with(completion("", "Hi", false), parameters))
		if err != nil {
			t.Fatal(err)
		}
		return workerOf(t, out)
	}
	for _, id := range []any{uint64(7), "talk"} {
		home := at(ctx, map[string]any{"sequence_id": id, "sequence_start": true})
		for range 3 {
			if w := at(ctx, map[string]any{"sequence_id": id}); w != home {
				t.Errorf("sequence %v went from %d to %d", id, home, w)
			}
		}
		if w := at(ctx, map[string]any{"sequence_id": id, "sequence_end": true}); w != home {
			t.Errorf("sequence %v ended at %d, not at %d", id, w, home)
		}
	}
	places := func(ctx context.Context, parameters func() map[string]any) int {
		seen := map[uint64]bool{}
		for range 4 {
			seen[at(ctx, parameters())] = true
		}
		return len(seen)
	}
	if n := places(ctx, func() map[string]any { return map[string]any{"sequence_id": uint64(7), "sequence_end": true} }); n != 4 {
		t.Errorf("sequences that end at once were on %d workers", n)
	}
	if n := places(ctx, func() map[string]any { return map[string]any{"sequence_id": uint64(0)} }); n != 4 {
		t.Errorf("without a sequence: on %d workers", n)
	}
	// All other names of sessions come before it.
	named := metadata.AppendToOutgoingContext(ctx, "x-dynamo-session-id", "agent")
	if n := places(named, func() map[string]any { return map[string]any{"sequence_id": uint64(9), "sequence_end": true} }); n != 1 {
		t.Errorf("a session of an agent was on %d workers", n)
	}
}

// What the extension says comes as a parameter, and is told in one; where it is turned
// off it has no effect, readable or not.
func TestKServeExtension(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	_, client := kserved(t, "--strict-nvext")
	var there uint64
	for i := range 3 {
		ask := tellWorker
		if i > 0 {
			pin, err := json.Marshal(map[string]any{"extra_fields": []string{"worker_id"}, "backend_instance_id": there})
			if err != nil {
				t.Fatal(err)
			}
			ask = string(pin)
		}
		out, err := client.ModelInfer(ctx, with(completion("", "Hi", false), map[string]any{"nvext": ask}))
		if err != nil {
			t.Fatal(err)
		}
		if w := workerOf(t, out); i > 0 && w != there {
			t.Errorf("pinned to %d, and on %d", there, w)
		} else {
			there = w
		}
	}
	_, err := client.ModelInfer(ctx, with(completion("", "Hi", false), map[string]any{"nvext": `{"later":1}`}))
	if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "invalid nvext: nvext.later: unknown field") {
		t.Error(err)
	}
	// Who only asks where gets no answer, and uses no tokens.
	out, err := client.ModelInfer(ctx, with(completion("", "Hi", false), map[string]any{"nvext": `{"annotations":["query_instance_id:"]}`}))
	if err != nil || workerOf(t, out) == 0 || len(out.Outputs[0].Contents.BytesContents[0]) > 0 || len(out.Outputs[1].Contents.BytesContents[0]) > 0 || out.Parameters["prompt_tokens"] != nil {
		t.Error(out, err)
	}

	_, client = kserved(t, "--disable-frontend-nvext", "--strict-nvext")
	nowhere := metadata.AppendToOutgoingContext(ctx, "x-dynamo-worker-instance-id", "4242")
	for _, ask := range []any{tellWorker, `{"backend_instance_id":4242}`, "{", true} {
		out, err := client.ModelInfer(nowhere, with(completion("", "Hi", false), map[string]any{"nvext": ask}))
		if err != nil || out.Parameters["nvext"] != nil || len(out.Outputs[0].Contents.BytesContents[0]) == 0 {
			t.Errorf("%v: %v, %v", ask, out, err)
		}
	}
}

// A server of texts alone serves KServe as well, and refuses in its own words.
func TestKServeByTexts(t *testing.T) {
	t.Parallel()
	script, err := mock.LoadScript(strings.NewReader("default:\n  emit: \" upon a time\"\n"))
	if err != nil {
		t.Fatal(err)
	}
	args := mock.DefaultArgs()
	args.SpeedupRatio = 0
	f, err := ollama.New(ollama.Config{Mock: mock.Config{Model: "tiny", Args: args, Script: script}, Made: 1024})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	p, client := kserved(t, "--engine", "ollama="+host(t, f).URL+",model=tiny,context_length=512,load.interval=20ms")
	p.ready("tiny")
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	call := completion("a", "Once", false)
	call.ModelName = "tiny"
	out, err := client.ModelInfer(ctx, call)
	if err != nil || string(out.Outputs[0].Contents.BytesContents[0]) != " upon a " || string(out.Outputs[1].Contents.BytesContents[0]) != "length" {
		t.Error(out, err)
	}
	call = completion("b", strings.Repeat("x ", 600), false)
	call.ModelName = "tiny"
	_, err = client.ModelInfer(ctx, call)
	if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "the input length exceeds the context length") {
		t.Error(err)
	}
}

// A response for each token, the last of which says how it ended. What the model has no
// room for is refused in the words of completions.
func TestKServeDeltas(t *testing.T) {
	t.Parallel()
	_, client := kserved(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	whole, err := client.ModelInfer(ctx, with(completion("a", "Hi", false), map[string]any{"temperature": "0"}))
	if err != nil {
		t.Fatal(err)
	}
	_, err = client.ModelInfer(ctx, completion("a", strings.Repeat("river ", 40_000), false))
	if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "maximum context length is 32768 tokens") {
		t.Error(err)
	}
	stream, err := client.ModelStreamInfer(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(with(completion("b", "Hi", true), map[string]any{"temperature": "0"})); err != nil {
		t.Fatal(err)
	}
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	text, n := "", 0
	for {
		m, err := stream.Recv()
		if err != nil {
			break
		}
		r := m.GetInferResponse()
		if m.ErrorMessage != "" || r.GetId() != "b" || len(r.GetOutputs()) != 2 {
			t.Fatal(m)
		}
		piece, reason := r.Outputs[0].Contents.BytesContents[0], string(r.Outputs[1].Contents.BytesContents[0])
		n++
		if last := n == 8; len(piece) == 0 || last != (reason == "length") || last != (r.Parameters["completion_tokens"].GetInt64Param() == 8) {
			t.Errorf("response %d: %v", n, r)
		}
		text += string(piece)
	}
	if want := string(whole.Outputs[0].Contents.BytesContents[0]); text != want || n != 8 {
		t.Errorf("%d responses of %q, want 8 of %q", n, text, want)
	}
}
