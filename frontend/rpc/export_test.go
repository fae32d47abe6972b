package rpc

import (
	"context"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/tap"

	pb "github.com/dynago/dynago/internal/gen/inferencepb"
)

// Call answers a call without a wire.
func (s *Server) Call(ctx context.Context, in *pb.ModelInferRequest) (*pb.ModelInferResponse, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	ctx, err := s.admit(ctx, &tap.Info{FullMethodName: pb.GRPCInferenceService_ModelInfer_FullMethodName, Header: md})
	if err != nil {
		return nil, err
	}
	return service{Server: s}.ModelInfer(ctx, in)
}
