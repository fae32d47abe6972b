//go:build unix

package main

import (
	"context"
	"fmt"
	"regexp"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	pb "github.com/dynago/dynago/internal/gen/inferencepb"
)

// kserved starts a whole system with gRPC, and a client of it.
func kserved(t *testing.T, args ...string) (*program, pb.GRPCInferenceServiceClient) {
	t.Helper()
	p := serve(t, append([]string{"--kserve-grpc-server", "--grpc-port", "0", "--grpc-metrics-port", fmt.Sprint(freePorts(t, 1)), "--speedup-ratio", "0"}, args...)...)
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
