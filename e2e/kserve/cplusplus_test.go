//go:build e2e

package kserve_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/dynago/dynago/internal/gen/inferencepb"
)

// cplusplus does with answers what the client in C++ does, and with it Triton's
// benchmark: it takes raw contents to be there for each output, and whatever does not
// say whether it is the last response to be the last.
type cplusplus struct {
	inferencepb.GRPCInferenceServiceClient
}

func dial(t testing.TB, address string) cplusplus {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(1<<31-1), grpc.MaxCallSendMsgSize(1<<31-1)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return cplusplus{inferencepb.NewGRPCInferenceServiceClient(conn)}
}

// outputs reads a response as the client does: what is not there panics.
func outputs(m *inferencepb.ModelInferResponse) map[string][]byte {
	all := map[string][]byte{}
	for i, t := range m.Outputs {
		if t.Contents != nil {
			panic(fmt.Sprintf("output %s has typed contents besides", t.Name))
		}
		all[t.Name] = m.RawOutputContents[i]
	}
	if len(m.RawOutputContents) != len(m.Outputs) {
		panic(fmt.Sprintf("%d raw contents for %d outputs", len(m.RawOutputContents), len(m.Outputs)))
	}
	return all
}

// elements are those of BYTES.
func elements(raw []byte) (list []string) {
	for len(raw) > 0 {
		n := binary.LittleEndian.Uint32(raw)
		list, raw = append(list, string(raw[4:4+n])), raw[4+n:]
	}
	return list
}

func framed(texts ...string) (raw []byte) {
	for _, text := range texts {
		raw = append(binary.LittleEndian.AppendUint32(raw, uint32(len(text))), text...)
	}
	return raw
}

func boolean(v bool) *inferencepb.InferParameter {
	return &inferencepb.InferParameter{ParameterChoice: &inferencepb.InferParameter_BoolParam{BoolParam: v}}
}

func integer(v int64) *inferencepb.InferParameter {
	return &inferencepb.InferParameter{ParameterChoice: &inferencepb.InferParameter_Int64Param{Int64Param: v}}
}

// prompt is a request as the client sends it: raw, and with a wish for an empty final
// response whether it streams or not.
func prompt(id, text string, streaming bool) *inferencepb.ModelInferRequest {
	flag := []byte{0}
	if streaming {
		flag[0] = 1
	}
	return &inferencepb.ModelInferRequest{
		ModelName: demo, Id: id,
		Inputs: []*inferencepb.ModelInferRequest_InferInputTensor{
			{Name: "text_input", Datatype: "BYTES", Shape: []int64{1}}, {Name: "streaming", Datatype: "BOOL", Shape: []int64{1}},
		},
		RawInputContents: [][]byte{framed(text), flag},
		Parameters:       map[string]*inferencepb.InferParameter{"triton_enable_empty_final_response": boolean(true), "max_tokens": integer(12)},
	}
}

// ending reads the responses of one request until the client would take it to have
// ended, and returns the texts.
func ending(stream grpc.BidiStreamingClient[inferencepb.ModelInferRequest, inferencepb.ModelStreamInferResponse], id string) (texts []string, err error) {
	for {
		m, err := stream.Recv()
		if err != nil {
			return nil, err
		}
		if m.ErrorMessage != "" {
			return nil, errors.New(m.ErrorMessage)
		}
		r := m.InferResponse
		if r.Id != id {
			return nil, fmt.Errorf("a response of %s while %s goes on", r.Id, id)
		}
		for _, raw := range outputs(r) {
			elements(raw)
		}
		if len(r.Outputs) > 0 {
			texts = append(texts, elements(outputs(r)["text_output"])...)
		}
		last, ok := r.Parameters["triton_final_response"]
		if !ok {
			return nil, errors.New("a response does not say whether it is the last: the client counts it as an end")
		}
		if last.GetBoolParam() {
			return texts, nil
		}
	}
}

// Each good answer to a raw request has raw contents for each of its outputs.
func TestCPlusPlus(t *testing.T) {
	c := dial(t, mock(t).grpc)
	m, err := c.ModelInfer(t.Context(), prompt("1", "dummy input", false))
	if err != nil {
		t.Fatal(err)
	}
	got := outputs(m)
	if text, finish := elements(got["text_output"]), elements(got["finish_reason"]); !slices.Equal(text, []string{"dummyinput"}) || !slices.Equal(finish, []string{"stop"}) {
		t.Errorf("%q %q", text, finish)
	}
	for name, change := range map[string]func(r *inferencepb.ModelInferRequest){
		"choices": func(r *inferencepb.ModelInferRequest) { r.Parameters["n"] = integer(3) },
		"one output": func(r *inferencepb.ModelInferRequest) {
			r.Outputs = []*inferencepb.ModelInferRequest_InferRequestedOutputTensor{{Name: "finish_reason"}}
		},
		"more outputs": func(r *inferencepb.ModelInferRequest) {
			for _, name := range []string{"return_num_input_tokens", "return_num_output_tokens"} {
				r.Inputs = append(r.Inputs, &inferencepb.ModelInferRequest_InferInputTensor{Name: name, Datatype: "BOOL", Shape: []int64{1}})
				r.RawInputContents = append(r.RawInputContents, []byte{1})
			}
		},
		"no text": func(r *inferencepb.ModelInferRequest) { r.Parameters["max_tokens"] = integer(1) },
	} {
		r := prompt("1", "Which rivers cross Paris?", false)
		change(r)
		m, err := c.ModelInfer(t.Context(), r)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if n := len(outputs(m)); n == 0 {
			t.Errorf("%s: no outputs", name)
		}
	}

	stream, err := c.ModelStreamInfer(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range []struct {
		text      string
		streaming bool
		want      []string
	}{
		{"dummy input", true, []string{"dummy", "input"}},
		{"dummy input", false, []string{"dummyinput"}},
	} {
		if err := stream.Send(prompt("7", r.text, r.streaming)); err != nil {
			t.Fatal(err)
		}
		texts, err := ending(stream, "7")
		if err != nil || !slices.Equal(texts, r.want) {
			t.Errorf("streaming %v: %q %v", r.streaming, texts, err)
		}
	}
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if m, err := stream.Recv(); err != io.EOF {
		t.Errorf("after the end: %v %v", m, err)
	}
}

// profile is what Triton's benchmark does with a model, step by step.
func profile(t *testing.T, c cplusplus, model string, request func(id string) *inferencepb.ModelInferRequest) {
	ctx := t.Context()
	metadata, err := c.ModelMetadata(ctx, &inferencepb.ModelMetadataRequest{Name: model})
	if err != nil {
		t.Fatal(err)
	}
	config, err := c.ModelConfig(ctx, &inferencepb.ModelConfigRequest{Name: model})
	if err != nil {
		t.Fatal(err)
	}
	described := map[string]string{}
	for _, in := range metadata.Inputs {
		described[in.Name] = in.Datatype
	}
	for _, in := range config.Config.Input {
		if strings.HasPrefix(described[in.Name], "TYPE_") || described[in.Name] == "" {
			t.Errorf("input %s of the configuration has the datatype %q in the metadata", in.Name, described[in.Name])
		}
	}
	about, err := c.ServerMetadata(ctx, &inferencepb.ServerMetadataRequest{})
	if err != nil || !slices.Contains(about.Extensions, "statistics") {
		t.Fatalf("%v %v", about, err)
	}
	statistics := func() *inferencepb.ModelStatistics {
		m, err := c.ModelStatistics(ctx, &inferencepb.ModelStatisticsRequest{Name: model, Version: "1"})
		if err != nil || len(m.ModelStats) != 1 {
			t.Fatalf("%v %v", m, err)
		}
		return m.ModelStats[0]
	}

	const n = 20
	before := statistics()
	for i := range n {
		m, err := c.ModelInfer(ctx, request(fmt.Sprint(i)))
		if err != nil {
			t.Fatal(err)
		}
		if outputs(m); m.Id != fmt.Sprint(i) {
			t.Errorf("id %s", m.Id)
		}
	}
	inFlight(t, c, n, request)
	after := statistics()
	was, is := before.InferenceStats, after.InferenceStats
	if d := after.InferenceCount - before.InferenceCount; d != 2*n || after.ExecutionCount-before.ExecutionCount != d {
		t.Errorf("%d inferences are counted, %d were asked for", d, 2*n)
	}
	for name, d := range map[string]struct {
		was, is *inferencepb.StatisticDuration
	}{
		"success": {was.Success, is.Success}, "queue": {was.Queue, is.Queue}, "compute_infer": {was.ComputeInfer, is.ComputeInfer},
	} {
		if d.is.GetCount()-d.was.GetCount() != 2*n || d.is.GetNs() < d.was.GetNs() {
			t.Errorf("%s: %v, then %v", name, d.was, d.is)
		}
	}
	if n := is.ComputeInfer.GetCount(); is.ComputeInput.GetCount() != n || is.ComputeOutput.GetCount() != n {
		t.Errorf("the benchmark gives up where what is computed differs in its counts: %v", is)
	}
	if is.Fail.GetCount() != was.Fail.GetCount() {
		t.Errorf("failures: %v", is.Fail)
	}
}

// inFlight sends all of n requests on one stream and then reads until each has ended.
func inFlight(t *testing.T, c cplusplus, n int, request func(id string) *inferencepb.ModelInferRequest) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stream, err := c.ModelStreamInfer(ctx)
	if err != nil {
		t.Fatal(err)
	}
	open := map[string]bool{}
	for i := range n {
		id := fmt.Sprint("s", i)
		if err := stream.Send(request(id)); err != nil {
			t.Fatal(err)
		}
		open[id] = true
	}
	for len(open) > 0 {
		m, err := stream.Recv()
		if err != nil || m.ErrorMessage != "" {
			t.Fatalf("%v %v", m, err)
		}
		outputs(m.InferResponse)
		last, ok := m.InferResponse.Parameters["triton_final_response"]
		if !ok || !open[m.InferResponse.Id] {
			t.Fatalf("%v while %v are open", m, slices.Collect(maps.Keys(open)))
		}
		if last.GetBoolParam() {
			delete(open, m.InferResponse.Id)
		}
	}
}

// What Triton's benchmark asks of a model of text, and of one of tensors.
func TestProfile(t *testing.T) {
	t.Run("text", func(t *testing.T) {
		profile(t, dial(t, mock(t).grpc), demo, func(id string) *inferencepb.ModelInferRequest { return prompt(id, "Which rivers cross Paris?", false) })
	})
	t.Run("tensors", func(t *testing.T) {
		const model = "example/echo"
		profile(t, dial(t, serve(t, "--engine", worker(t, model)).grpc), model, func(id string) *inferencepb.ModelInferRequest {
			return &inferencepb.ModelInferRequest{
				ModelName: model, Id: id,
				Inputs:           []*inferencepb.ModelInferRequest_InferInputTensor{{Name: "input", Datatype: "BYTES", Shape: []int64{2}}},
				RawInputContents: [][]byte{framed("", "x")},
				Parameters:       map[string]*inferencepb.InferParameter{"triton_enable_empty_final_response": boolean(true)},
			}
		})
	})
}
