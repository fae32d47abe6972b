package remote

import (
	"context"
	"runtime/debug"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/dynago/dynago/engine"
)

// healthPrefix begins the calls for which nobody needs a key.
const healthPrefix = "/grpc.health.v1.Health/"

// serveCall and serveStream stand before every call.
func (s *Server) serveCall(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (answer any, err error) {
	if err := s.authorize(ctx, info.FullMethod); err != nil {
		return nil, failCall(ctx, err)
	}
	defer s.guard(func(e error) { err = failCall(ctx, e) })
	return handle(ctx, req)
}

func (s *Server) serveStream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) (err error) {
	if err := s.authorize(stream.Context(), info.FullMethod); err != nil {
		return fail(stream, err)
	}
	defer s.guard(func(e error) { err = fail(stream, e) })
	return handle(srv, stream)
}

// guard makes a fault of ours or of the engine's end one call, and not the worker and
// all that runs there.
func (s *Server) guard(fail func(error)) {
	if v := recover(); v != nil {
		s.log.Error("a call panicked", "panic", v, "stack", string(debug.Stack()))
		fail(engine.Errorf(engine.Internal, "the worker failed at this request"))
	}
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
