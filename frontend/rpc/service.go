package rpc

import (
	"context"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/dynago/dynago/engine"
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
	call, err := s.open(ctx, in, false)
	if err != nil {
		return nil, statusOf(err)
	}
	var out *pb.ModelInferResponse
	for r, failure := range call.Responses() {
		if err = failure; err == nil {
			if out, err = kserve.ToProto(r, raw(in)); err != nil {
				err = call.Spoilt(err)
			}
		}
	}
	switch {
	case ctx.Err() != nil:
		return nil, ended(ctx)
	case err != nil:
		return nil, statusOf(err)
	}
	call.Tell(func(name, value string) {
		grpc.SetHeader(ctx, metadata.Pairs(name, value)) //nolint:errcheck // it fails where nobody listens
	})
	return out, nil
}

// raw says whether a call has its tensors as bytes, and so wants its answer.
func raw(in *pb.ModelInferRequest) bool { return len(in.GetRawInputContents()) > 0 }

// open understands a call. Several says that it comes by a stream.
func (s *Server) open(ctx context.Context, in *pb.ModelInferRequest, several bool) (*frontend.Inference, error) {
	v := visitorOf(ctx)
	return s.Frontend.Open(ctx, &frontend.Arrival{
		Header: v.header, Method: methodOf(ctx), Tenant: v.tenant, Model: in.GetModelName(), Several: several, Overload: overload,
		Text: func() (*kserve.Completion, error) {
			if err := checkFinal(in, several); err != nil {
				return nil, err
			}
			return kserve.CompletionFromProto(in, s.Frontend.OpenAI)
		},
		Tensors: func() (*kserve.Request, error) {
			if err := checkFinal(in, several); err != nil {
				return nil, err
			}
			return kserve.FromProto(in)
		},
	})
}

// methodOf returns the full name of the procedure that was called.
func methodOf(ctx context.Context) string {
	name, _ := grpc.Method(ctx)
	return strings.TrimPrefix(name, "/")
}

// checkFinal checks what a call of a stream says of its end.
func checkFinal(in *pb.ModelInferRequest, several bool) error {
	p := in.GetParameters()[emptyFinal]
	if _, ok := p.GetParameterChoice().(*pb.InferParameter_BoolParam); ok || p == nil || !several {
		return nil
	}
	return engine.Errorf(engine.InvalidArgument, "Failed to parse request: parameter '%s' must be a bool_param", emptyFinal)
}
