package rpc

import (
	"context"

	pb "github.com/dynago/dynago/internal/gen/inferencepb"
)

// Call answers a call without a wire.
func (s *Server) Call(ctx context.Context, in *pb.ModelInferRequest) (*pb.ModelInferResponse, error) {
	ctx, err := s.admit(ctx, pb.GRPCInferenceService_ModelInfer_FullMethodName)
	if err != nil {
		return nil, err
	}
	return service{Server: s}.ModelInfer(ctx, in)
}
