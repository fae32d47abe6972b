package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"net"

	"google.golang.org/grpc"

	"github.com/dynago/dynago/internal/gen/inferencepb"
)

// echo is the service with nothing behind it: its answers are those of a model that
// gives back what it is sent.
type echo struct {
	inferencepb.UnimplementedGRPCInferenceServiceServer
}

// serve answers calls until the program is killed.
func serve(out io.Writer) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	s := grpc.NewServer(grpc.MaxRecvMsgSize(math.MaxInt32), grpc.MaxSendMsgSize(math.MaxInt32))
	inferencepb.RegisterGRPCInferenceServiceServer(s, echo{})
	fmt.Fprintln(out, l.Addr())
	return s.Serve(l)
}

func (echo) ModelInfer(_ context.Context, r *inferencepb.ModelInferRequest) (*inferencepb.ModelInferResponse, error) {
	a := &inferencepb.ModelInferResponse{
		ModelName: r.ModelName, ModelVersion: "1", Id: r.Id, RawOutputContents: r.RawInputContents,
		Parameters: map[string]*inferencepb.InferParameter{"processed": {ParameterChoice: &inferencepb.InferParameter_BoolParam{BoolParam: true}}},
	}
	for _, in := range r.Inputs {
		a.Outputs = append(a.Outputs, &inferencepb.ModelInferResponse_InferOutputTensor{Name: in.Name, Datatype: in.Datatype, Shape: in.Shape})
	}
	return a, nil
}
