package tiny_test

import (
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/enginetest"
	"github.com/dynago/dynago/engine/remote"
	"github.com/dynago/dynago/engine/tiny"
)

// served is an engine behind a socket, and all that is to be closed with it.
type served struct {
	*remote.Client
	server *remote.Server
	engine *tiny.Engine
	proxy  *enginetest.Proxy // before the server, of those whose connections can be cut
}

func (s *served) Close() error {
	s.server.Close()
	return errors.Join(s.Client.Close(), s.engine.Close())
}

func serve(t *testing.T, e engine.Engine) engine.Engine { return serveAs(t, e, remote.ServerConfig{}) }

func serveAs(t *testing.T, e engine.Engine, cfg remote.ServerConfig) engine.Engine {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	cfg.Engine, cfg.Heartbeat = e, 200*time.Millisecond
	server := remote.NewServer(cfg)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	client, err := remote.New(remote.Config{URL: "grpc://" + l.Addr().String()})
	if err != nil {
		t.Fatal(err)
	}
	s := &served{Client: client, server: server, engine: e.(*tiny.Engine)}
	t.Cleanup(func() {
		s.Close()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return s
}

// The whole contract, with a real socket between the engine and its caller.
func TestContractBehindSocket(t *testing.T) {
	s := subject()
	fresh, slow, restart, drain := s.New, s.Slow, s.Restart, s.Drain
	s.New = func(t *testing.T) engine.Engine { return serve(t, fresh(t)) }
	s.Slow = func(t *testing.T) engine.Engine {
		e := serve(t, slow(t)).(*served)
		e.proxy = enginetest.NewProxy(t, strings.TrimPrefix(e.Client.String(), "grpc://"))
		e.Client.Close()
		var err error
		if e.Client, err = remote.New(remote.Config{URL: "grpc://" + e.proxy.Addr().String()}); err != nil {
			t.Fatal(err)
		}
		return e
	}
	s.Cut = func(e engine.Engine) { e.(*served).proxy.Cut() }
	s.Full = func(t *testing.T) engine.Engine {
		return serveAs(t, slow(t), remote.ServerConfig{Requests: 1, Queue: 1})
	}
	s.Legs = func(t *testing.T) (prefill, decode engine.Engine) {
		prefill, decode = legs(t)
		return serve(t, prefill), serve(t, decode)
	}
	s.Restart = func(e engine.Engine) { restart(e.(*served).engine) }
	s.Drain = func(e engine.Engine) { drain(e.(*served).engine) }
	enginetest.Run(t, s)
}
