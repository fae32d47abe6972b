// Package rpc is KServe's service over gRPC, as clients of Triton use it: the service
// itself, health, reflection, and what surrounds calls (keys, limits, TLS, drain).
//
// The one idea: a call becomes a visit of the HTTP server's own house. What stands in
// metadata is read as headers, by the code that reads headers; permits, records,
// logs and the way down are [frontend.Server.Open]'s. What remains here is gRPC: how
// messages and statuses look, and how many calls share one stream.
package rpc

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	_ "google.golang.org/grpc/encoding/gzip" // clients may compress
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"

	"github.com/dynago/dynago/frontend"
	"github.com/dynago/dynago/internal/gen/inferencepb"
)

// ErrorMode says how a call of a stream fails before its first response.
type ErrorMode string

// The modes. A client can choose ErrorStatus for a stream of its own by the metadata
// triton_grpc_error.
const (
	ErrorMessage ErrorMode = "message" // by a message; the stream goes on
	ErrorStatus  ErrorMode = "status"  // by the status of the stream, which ends
)

// Config says how the service is served. All but Frontend may be zero.
type Config struct {
	Frontend *frontend.Server
	Logger   *slog.Logger // default: none
	// Version is told in the metadata of the server.
	Version string
	// REST says that the same protocol is served over HTTP, with its binary extension.
	REST bool
	TLS  *tls.Config
	// Reflection lets anybody who may call ask what the services look like.
	Reflection bool
	// MaxMessage bounds a message both ways, in bytes; default 2147483647.
	MaxMessage int
	// Inflight bounds the calls of one stream that run at once; default 128.
	Inflight int
	// Errors is how calls of streams fail; default [ErrorMessage].
	Errors ErrorMode
	// StreamWindow and ConnWindow are the flow-control windows, in bytes; 0: the
	// library finds them by measuring.
	StreamWindow, ConnWindow int32
	// Patience is how long a client may take to accept one response of a stream; 0:
	// for ever.
	Patience time.Duration
}

// Server serves KServe's service. Its methods may be called from any goroutine.
type Server struct {
	Config
	grpc *grpc.Server

	leaving chan struct{} // closed when the server drains
	leave   sync.Once
	closing chan struct{} // closed when it closes
	close   sync.Once
}

// New makes a server. It listens nowhere yet; see [Server.Serve].
func New(c Config) *Server {
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	c.MaxMessage = cmp.Or(c.MaxMessage, math.MaxInt32)
	c.Inflight = cmp.Or(c.Inflight, 128)
	c.Errors = cmp.Or(c.Errors, ErrorMessage)
	s := &Server{Config: c, leaving: make(chan struct{}), closing: make(chan struct{})}
	s.grpc = grpc.NewServer(s.options()...)
	inferencepb.RegisterGRPCInferenceServiceServer(s.grpc, service{Server: s})
	healthpb.RegisterHealthServer(s.grpc, health{Server: s})
	if c.Reflection {
		reflection.Register(s.grpc)
	}
	return s
}

// mostCalls bounds the calls that run at once on one connection, in number. Clients
// keep further ones back.
const mostCalls = 10_000

// keptStacks is how many calls find a goroutine that has run one before. To let the
// stack of a new one grow to what a call needs takes a third of a small call's time;
// those beyond have new ones.
const keptStacks = 32

// mostMetadata bounds what comes before a call, in bytes: several times what calls may
// say there, and nothing that it hurts to keep for each of many.
const mostMetadata = 256 << 10

func (s *Server) options() []grpc.ServerOption {
	list := []grpc.ServerOption{
		grpc.MaxRecvMsgSize(s.MaxMessage), grpc.MaxSendMsgSize(s.MaxMessage), grpc.MaxConcurrentStreams(mostCalls),
		// Half-open clients are found by us; those that ask often are not sent away.
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: time.Minute, Timeout: 20 * time.Second}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 10 * time.Second, PermitWithoutStream: true}),
		grpc.MaxHeaderListSize(mostMetadata), grpc.InTapHandle(s.admit),
		grpc.UnaryInterceptor(s.serveCall), grpc.StreamInterceptor(s.serveStream),
		grpc.NumStreamWorkers(keptStacks), grpc.ForceServerCodecV2(newCodec()),
	}
	if d := s.Frontend.HeaderTimeout; d > 0 {
		list = append(list, grpc.ConnectionTimeout(d)) // to say who one is takes no longer here than there
	}
	if s.TLS != nil {
		list = append(list, grpc.Creds(credentials.NewTLS(s.TLS)))
	}
	return append(list, windows(s.StreamWindow, s.ConnWindow)...)
}

// otherWindow is the window that the library had begun with, if one was not set and
// setting the other had not made both small.
const otherWindow = 1 << 20

// windows sets flow-control windows. One that is set turns the library's own finding
// off for both, so that the other is set, too.
func windows(stream, conn int32) []grpc.ServerOption {
	if stream == 0 && conn == 0 {
		return nil
	}
	return []grpc.ServerOption{
		grpc.StaticStreamWindowSize(cmp.Or(stream, otherWindow)),
		grpc.StaticConnWindowSize(cmp.Or(conn, otherWindow)),
	}
}

// Serve answers on a listener until the server is closed. It returns nil then.
func (s *Server) Serve(l net.Listener) error {
	if err := s.grpc.Serve(l); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		return fmt.Errorf("gRPC on %s: %w", l.Addr(), err)
	}
	return nil
}

// Leave says that the server is about to be closed: health tells so, streams end with
// their last call, and new calls are refused as soon as the frontend drains.
func (s *Server) Leave() { s.leave.Do(func() { close(s.leaving) }) }

// grace is how long answers that are complete may take to be sent.
const grace = 2 * time.Second

// Close ends the server. Whoever wants calls to end by themselves drains the frontend
// before, which has their permits.
func (s *Server) Close() {
	s.Leave()
	s.close.Do(func() { close(s.closing) })
	late := time.AfterFunc(grace, s.grpc.Stop)
	defer late.Stop()
	s.grpc.GracefulStop()
}

func (s *Server) draining() bool {
	select {
	case <-s.leaving:
		return true
	default:
		return false
	}
}
