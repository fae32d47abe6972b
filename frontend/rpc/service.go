package rpc

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dynago/dynago/frontend"
	pb "github.com/dynago/dynago/internal/gen/inferencepb"
	"github.com/dynago/dynago/kserve"
)

// service is the service itself.
type service struct {
	pb.UnimplementedGRPCInferenceServiceServer
	*Server
}

// ModelInfer answers one call with one response.
func (s service) ModelInfer(ctx context.Context, in *pb.ModelInferRequest) (*pb.ModelInferResponse, error) {
	s.calls.Add(1)
	defer s.calls.Done()
	call, err := s.open(ctx, in, false)
	if err != nil {
		return nil, statusOf(err)
	}
	r, err := call.Response()
	switch {
	case ctx.Err() != nil:
		return nil, ended(ctx)
	case err != nil:
		return nil, statusOf(err)
	}
	out, err := kserve.ToProto(r, len(in.GetRawInputContents()) > 0)
	if err != nil {
		return nil, status.Errorf(codes.Internal, "Failed to parse response: %s", message(err))
	}
	return out, nil
}

// open understands a call.
func (s *Server) open(ctx context.Context, in *pb.ModelInferRequest, several bool) (*frontend.Inference, error) {
	v := visitorOf(ctx)
	return s.Frontend.Open(ctx, &frontend.Arrival{
		Header: v.header, Tenant: v.tenant, Model: in.GetModelName(), Several: several, Overload: overload,
		Text:    func() (*kserve.Completion, error) { return kserve.CompletionFromProto(in, s.Frontend.OpenAI) },
		Tensors: func() (*kserve.Request, error) { return kserve.FromProto(in) },
	})
}
