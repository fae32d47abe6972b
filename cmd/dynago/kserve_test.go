//go:build unix

package main

import (
	"context"
	"errors"
	"io"
	"maps"
	"regexp"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	pb "github.com/dynago/dynago/internal/gen/inferencepb"
)

// kserved starts a whole system with gRPC, and a client of it.
func kserved(t *testing.T, args ...string) (*program, pb.GRPCInferenceServiceClient) {
	t.Helper()
	p := serve(t, append([]string{"--kserve-grpc-server", "--grpc-port", "0", "--grpc-metrics-port", "0", "--speedup-ratio", "0"}, args...)...)
	m := regexp.MustCompile(`kserve +(\S+)`).FindStringSubmatch(p.banner)
	if m == nil {
		t.Fatalf("no address of gRPC in\n%s", p.banner)
	}
	return p, kserveClient(t, m[1])
}

func kserveClient(t *testing.T, address string) pb.GRPCInferenceServiceClient {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return pb.NewGRPCInferenceServiceClient(conn)
}

// completion is a call of a model of text.
func completion(id, text string, streaming bool) *pb.ModelInferRequest {
	return &pb.ModelInferRequest{
		ModelName: "dynago/demo", Id: id,
		Parameters: map[string]*pb.InferParameter{"max_tokens": {ParameterChoice: &pb.InferParameter_Int64Param{Int64Param: 8}}},
		Inputs: []*pb.ModelInferRequest_InferInputTensor{
			{Name: "text_input", Datatype: "BYTES", Shape: []int64{1}, Contents: &pb.InferTensorContents{BytesContents: [][]byte{[]byte(text)}}},
			{Name: "streaming", Datatype: "BOOL", Shape: []int64{1}, Contents: &pb.InferTensorContents{BoolContents: []bool{streaming}}},
		},
	}
}

func TestKServe(t *testing.T) {
	t.Parallel()
	_, client := kserved(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	out, err := client.ModelInfer(ctx, completion("job-7", "Name three rivers.", false))
	if err != nil {
		t.Fatal(err)
	}
	if out.Id != "job-7" || out.ModelName != "dynago/demo" || out.ModelVersion != "1" || len(out.Outputs) != 2 {
		t.Errorf("%v", out)
	}
	if text := out.Outputs[0].GetContents().GetBytesContents(); len(text) != 1 || len(text[0]) == 0 {
		t.Errorf("no text in %v", out)
	}
}

// A stream answers many calls; the flags say which response is the last of its call.
func TestKServeStream(t *testing.T) {
	t.Parallel()
	p, client := kserved(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	stream, err := client.ModelStreamInfer(ctx)
	if err != nil {
		t.Fatal(err)
	}
	pieces := completion("pieces", "Name three rivers.", true)
	pieces.Parameters["triton_enable_empty_final_response"] = &pb.InferParameter{ParameterChoice: &pb.InferParameter_BoolParam{BoolParam: true}}
	lost := completion("lost", "Name three rivers.", false)
	lost.ModelName = "nobody"
	for _, in := range []*pb.ModelInferRequest{pieces, completion("whole", "Name three rivers.", false), lost} {
		if err := stream.Send(in); err != nil {
			t.Fatal(err)
		}
	}
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	text, final := map[string]string{}, map[string]int{}
	for {
		out, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		r := out.GetInferResponse()
		if out.GetErrorMessage() != "" {
			text[r.GetId()] += out.GetErrorMessage()
		}
		for _, b := range r.GetOutputs()[:min(1, len(r.GetOutputs()))] {
			text[r.GetId()] += string(b.GetContents().GetBytesContents()[0])
		}
		flag, ok := r.GetParameters()["triton_final_response"]
		if !ok || final[r.GetId()] > 0 {
			t.Errorf("%v: no flag, or one after the last", r)
		}
		if flag.GetBoolParam() {
			final[r.GetId()]++
		}
	}
	if text["pieces"] == "" || text["whole"] == "" || text["lost"] != "Model 'nobody' not found" {
		t.Errorf("%q", text)
	}
	if want := map[string]int{"pieces": 1, "whole": 1, "lost": 1}; !maps.Equal(final, want) {
		t.Errorf("last responses %v, want %v", final, want)
	}
	if _, page := p.get(p.url + "/metrics"); !strings.Contains(page, `dynamo_frontend_requests_total{endpoint="completions",error_type="not_found",model="unknown_model",request_type="unary",status="error"} 1`) {
		t.Errorf("a model that is not there is not counted:\n%s", page)
	}
}
