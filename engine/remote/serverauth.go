package remote

import (
	"context"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/dynago/dynago/engine"
)

// healthPrefix begins the calls for which nobody needs a key.
const healthPrefix = "/grpc.health.v1.Health/"

func (s *Server) authorizeCall(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	if err := s.authorize(ctx, info.FullMethod); err != nil {
		trailer, st := statusOf(err)
		grpc.SetTrailer(ctx, trailer) //nolint:errcheck // the status tells as much
		return nil, st
	}
	return handle(ctx, req)
}

func (s *Server) authorizeStream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
	if err := s.authorize(stream.Context(), info.FullMethod); err != nil {
		return fail(stream, err)
	}
	return handle(srv, stream)
}

func (s *Server) authorize(ctx context.Context, method string) error {
	if s.config.Authorize == nil || strings.HasPrefix(method, healthPrefix) {
		return nil
	}
	md, _ := metadata.FromIncomingContext(ctx)
	scheme, key, _ := strings.Cut(one(md, "authorization"), " ")
	if strings.EqualFold(scheme, "bearer") && s.config.Authorize(strings.TrimSpace(key)) {
		return nil
	}
	return engine.Errorf(engine.Denied, "the worker wants a bearer token that is in its file of keys")
}
