package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"

	"github.com/dynago/dynago/frontend"
	"github.com/dynago/dynago/frontend/rpc"
)

// kserveSettings say whether and how the protocol of KServe and Triton is served.
type kserveSettings struct {
	GRPC         bool   `name:"kserve-grpc-server" env:"DYN_KSERVE_GRPC_SERVER" negatable:"" help:"Serve KServe v2 over gRPC as well, as clients of Triton use it, and over HTTP below /v2."`
	REST         bool   `name:"kserve-rest" env:"DYN_KSERVE_REST" negatable:"" help:"Serve KServe v2 over HTTP below /v2; comes with --kserve-grpc-server."`
	Port         *int   `name:"grpc-port" env:"DYN_GRPC_PORT" range:"0..65535" placeholder:"PORT" help:"Listen for gRPC on this port; 0 takes a free one. Otherwise 8001, and the HTTP port takes gRPC, too."`
	SidePort     *int   `name:"grpc-metrics-port" env:"DYN_GRPC_METRICS_PORT" range:"0..65535" placeholder:"PORT" help:"Serve metrics, health and models on this port besides, where scrapers of other gRPC frontends look for them; otherwise 8788."`
	MaxMessage   int    `name:"grpc-max-message-bytes" env:"DYN_GRPC_MAX_MESSAGE_BYTES" default:"2147483647" range:"1..2147483647" placeholder:"BYTES" help:"Largest gRPC message, both ways."`
	Inflight     int    `name:"grpc-stream-max-inflight" env:"DYN_GRPC_STREAM_MAX_INFLIGHT" default:"128" range:"1..65536" placeholder:"N" help:"Requests of one ModelStreamInfer that run at once; 1 is one after the other."`
	ErrorMode    string `name:"grpc-stream-error-mode" env:"DYN_GRPC_STREAM_ERROR_MODE" default:"message" choice:"message,status" help:"How a request of ModelStreamInfer fails before its first response: by a message, or by the status of the stream, which ends."`
	TensorNVExt  bool   `name:"grpc-tensor-nvext" env:"DYN_GRPC_TENSOR_NVEXT" negatable:"" help:"Take the parameter nvext of calls of tensors for the extension object: the router heeds it, and workers get it apart from the parameters."`
	Reflection   bool   `name:"grpc-reflection" env:"DYN_GRPC_REFLECTION" default:"true" negatable:"" help:"Tell gRPC clients that ask what the services look like."`
	StreamWindow int32  `name:"grpc-initial-stream-window-size" env:"DYN_GRPC_INITIAL_STREAM_WINDOW_SIZE" default:"0" range:"0..2147483647" placeholder:"BYTES" help:"Flow-control window of a gRPC stream; 0 finds one by measuring."`
	ConnWindow   int32  `name:"grpc-initial-connection-window-size" env:"DYN_GRPC_INITIAL_CONNECTION_WINDOW_SIZE" default:"0" range:"0..2147483647" placeholder:"BYTES" help:"The same of a connection."`
}

// Ports that clients and scrapers look at without being told.
const (
	grpcPort = 8001
	sidePort = 8788
)

// kserveServer serves KServe over gRPC, with what stands beside it. Without
// --kserve-grpc-server it serves nothing.
type kserveServer struct {
	settings *kserveSettings
	identity *identity    // nil: all is sent in clear
	grpc     net.Listener // nil: the port was taken
	side     net.Listener // nil: the port was taken
	handed   *rpc.Handed  // nil: the HTTP port takes no gRPC
	server   *rpc.Server
}

// open opens the ports. Those that nobody has asked for may be taken.
func (s *kserveSettings) open(host string, http net.Listener, id *identity, log *slog.Logger) (*kserveServer, error) {
	k := &kserveServer{settings: s, identity: id}
	if !s.GRPC {
		return k, nil
	}
	var err error
	if s.Port == nil && id == nil {
		k.handed = rpc.NewHanded(http.Addr())
	}
	if k.handed == nil || http.Addr().(*net.TCPAddr).Port != grpcPort {
		if k.grpc, err = ask(host, s.Port, grpcPort, "--grpc-port", log); err != nil {
			return nil, err
		}
	}
	side := s.SidePort
	if side != nil && *side == 0 {
		side = nil // as if it were not given
	}
	if k.side, err = ask(host, side, sidePort, "--grpc-metrics-port", log); err != nil {
		k.close()
		return nil, err
	}
	if k.side != nil {
		k.side = id.over(k.side)
	}
	return k, nil
}

// ask opens the port that was named, or else the usual one. That one may be taken: the
// log says so, and there is no listener.
func ask(host string, port *int, usual int, flag string, log *slog.Logger) (net.Listener, error) {
	if port != nil {
		return listen(host, *port, flag)
	}
	l, err := listen(host, usual, flag)
	if taken, ok := errors.AsType[portTaken](err); ok {
		log.Warn("a port of KServe is not served: " + string(taken))
		return nil, nil
	}
	return l, err
}

// take returns what the HTTP server does with connections that speak gRPC.
func (k *kserveServer) take() func(net.Conn) {
	if k.handed == nil {
		return nil
	}
	return k.handed.Give
}

// serve begins to serve. What fails later is sent to failed.
func (k *kserveServer) serve(front *frontend.Server, failed chan<- error, log *slog.Logger) {
	s := k.settings
	if !s.GRPC {
		return
	}
	var cert *tls.Config
	if k.identity != nil {
		cert = k.identity.server("h2")
	}
	k.server = rpc.New(rpc.Config{
		Frontend: front, TLS: cert, Logger: log, Version: versionName(), REST: true,
		Reflection: s.Reflection, MaxMessage: s.MaxMessage, Inflight: s.Inflight, Errors: rpc.ErrorMode(s.ErrorMode),
		StreamWindow: s.StreamWindow, ConnWindow: s.ConnWindow, Patience: front.Timing.Write,
	})
	if k.grpc != nil {
		go func() { failed <- k.server.Serve(k.grpc) }()
	}
	if k.handed != nil {
		go func() { failed <- k.server.Serve(k.handed) }()
	}
	if k.side != nil {
		go func() { failed <- front.ServeSide(k.side) }()
	}
}

// announce prints where to reach it.
func (k *kserveServer) announce(out io.Writer) {
	switch {
	case k.grpc != nil:
		fmt.Fprintf(out, "  kserve   %s (gRPC)\n", strings.TrimPrefix(baseURL(k.grpc), "http://"))
	case k.handed != nil:
		fmt.Fprintln(out, "  kserve   gRPC on the same port")
	}
}

// leave tells clients that the server is about to go, which the HTTP server drains for
// both.
func (k *kserveServer) leave() {
	if k.server != nil {
		k.server.Leave()
	}
}

// close ends it, and gives back the ports.
func (k *kserveServer) close() {
	if k.server != nil {
		k.server.Close()
	}
	for _, l := range []net.Listener{k.grpc, k.side} {
		if l != nil {
			l.Close() //nolint:errcheck // nothing is left to do
		}
	}
}
