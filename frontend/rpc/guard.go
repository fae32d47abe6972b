package rpc

import (
	"context"
	"fmt"
	"net/http"
	"net/textproto"
	"runtime/debug"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"
)

// healthPrefix begins the calls for which nobody needs a key: who probes has none,
// and learns nothing.
const healthPrefix = "/grpc.health.v1.Health/"

// visitor is who calls: what came with the call, and whose key it had.
type visitor struct {
	header http.Header
	tenant string
}

type visitorKey struct{}

func visitorOf(ctx context.Context) *visitor { return ctx.Value(visitorKey{}).(*visitor) }

// admit finds out who calls, from what comes before the call itself: whoever has no key
// is sent away before anything of a message, which may be large, is read.
func (s *Server) admit(ctx context.Context, info *tap.Info) (context.Context, error) {
	if strings.HasPrefix(info.FullMethodName, healthPrefix) {
		return ctx, nil
	}
	v := &visitor{header: headers(info.Header)}
	var err error
	if v.tenant, err = s.Frontend.Authorize(v.header); err != nil {
		return ctx, statusOf(err)
	}
	return context.WithValue(ctx, visitorKey{}, v), nil
}

// headers returns metadata as the headers that it stands for. What is binary has no
// place in headers.
func headers(md metadata.MD) http.Header {
	h := make(http.Header, len(md))
	for name, values := range md {
		switch {
		case name[0] == ':', strings.HasSuffix(name, "-bin"):
		case name == "content-type", name == "user-agent", name == "grpc-accept-encoding":
		default:
			h[textproto.CanonicalMIMEHeaderKey(name)] = values
		}
	}
	return h
}

// serveCall and serveStream stand before every call.
func (s *Server) serveCall(ctx context.Context, in any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (_ any, err error) {
	defer s.recover(info.FullMethod, &err)
	ctx, stop := inTime(ctx)
	defer stop()
	return handle(ctx, in)
}

func (s *Server) serveStream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) (err error) {
	defer s.recover(info.FullMethod, &err)
	ctx, stop := inTime(stream.Context())
	defer stop()
	return handle(srv, timed{stream, ctx})
}

// mostAhead and partAhead say by how much the time of a call ends before the client's:
// by a part of it, and not by more than that.
const (
	mostAhead = 20 * time.Millisecond
	partAhead = 16
)

// inTime ends the time that a client gives its call a little early. When it is over the
// library resets the stream, and a client that hears of that before its own clock has
// struck takes it for a cancellation. What is said before is a status, which Triton
// sends as well.
func inTime(ctx context.Context) (context.Context, context.CancelFunc) {
	end, ok := ctx.Deadline()
	if !ok {
		return ctx, func() {}
	}
	return context.WithDeadline(ctx, end.Add(-min(time.Until(end)/partAhead, mostAhead)))
}

// timed is a stream that ends with a context of its own.
type timed struct {
	grpc.ServerStream
	ctx context.Context
}

func (s timed) Context() context.Context { return s.ctx }

// recover makes a fault of ours end one call, and not the server.
func (s *Server) recover(method string, err *error) {
	if p := recover(); p != nil {
		s.Logger.Error("panic", "route", method, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
		*err = status.Error(codes.Internal, "Internal server error")
	}
}
