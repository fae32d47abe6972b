package remote_test

import (
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/enginetest"
	"github.com/dynago/dynago/engine/mock"
	"github.com/dynago/dynago/engine/remote"
)

// served is a client, and what is at the other end of its wire.
type served struct {
	*remote.Client
	server *remote.Server
	mock   *mock.Engine
}

func (s *served) Close() error {
	err := s.Client.Close()
	s.server.Close()
	return errors.Join(err, s.mock.Close())
}

func args() mock.Args {
	a := mock.DefaultArgs()
	a.BlockSize, a.NumGPUBlocks, a.SpeedupRatio = 16, 4096, 0
	return a
}

func slowArgs() mock.Args {
	a := args()
	a.SpeedupRatio, a.MaxNumSeqs, a.TimingModel, a.DecodeMS, a.PrefillMS = 1, 1, "constant", 2, 1
	return a
}

// listen serves an engine on a port of this machine, and returns its address.
func listen(t *testing.T, c remote.ServerConfig) (*remote.Server, string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := remote.NewServer(c)
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Close()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return s, "grpc://" + l.Addr().String()
}

func dial(t *testing.T, c remote.Config) *remote.Client {
	t.Helper()
	e, err := remote.New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

// serve puts a mock engine behind a real socket.
func serve(t *testing.T, a mock.Args, c remote.ServerConfig) *served {
	t.Helper()
	m, err := mock.New(mock.Config{Model: "m", Args: a, Source: mock.SourceRandom, EOS: []uint32{2}, Name: a.WorkerType})
	if err != nil {
		t.Fatal(err)
	}
	c.Engine = m
	server, address := listen(t, c)
	s := &served{dial(t, remote.Config{URL: address}), server, m}
	t.Cleanup(func() { s.Close() })
	return s
}

// wire is a client whose connections can be cut.
type wire struct {
	*served
	proxy *enginetest.Proxy
}

func (w *wire) Close() error { return errors.Join(w.served.Close(), w.proxy.Close()) }

// legArgs are those of an engine with one of two roles.
func legArgs(role string) mock.Args {
	a := args()
	a.WorkerType = role
	return a
}

// The whole contract, with a real socket between the engine and its caller.
func TestConformance(t *testing.T) {
	c := remote.ServerConfig{Heartbeat: 200 * time.Millisecond}
	legs := func(concurrent bool) func(*testing.T) (prefill, decode engine.Engine) {
		return func(t *testing.T) (engine.Engine, engine.Engine) {
			a := mock.Config{Model: "m", Args: legArgs("prefill"), Source: mock.SourceRandom, EOS: []uint32{2}, Name: "prefill"}
			if concurrent {
				l, err := net.Listen("tcp", "127.0.0.1:0")
				if err != nil {
					t.Fatal(err)
				}
				a.Bootstrap = l
			}
			m, err := mock.New(a)
			if err != nil {
				t.Fatal(err)
			}
			server, address := listen(t, remote.ServerConfig{Engine: m})
			p := &served{dial(t, remote.Config{URL: address}), server, m}
			t.Cleanup(func() { p.Close() })
			return p, serve(t, legArgs("decode"), c)
		}
	}
	enginetest.Run(t, enginetest.Subject{
		New: func(t *testing.T) engine.Engine { return serve(t, args(), c) },
		Slow: func(t *testing.T) engine.Engine {
			s := serve(t, slowArgs(), c)
			p := enginetest.NewProxy(t, strings.TrimPrefix(s.Client.String(), "grpc://"))
			s.Client = dial(t, remote.Config{URL: "grpc://" + p.Addr().String()})
			return &wire{s, p}
		},
		Full: func(t *testing.T) engine.Engine {
			return serve(t, slowArgs(), remote.ServerConfig{Requests: 1, Queue: 1})
		},
		Restart: func(e engine.Engine) { mockOf(e).Restart() },
		Drain:   func(e engine.Engine) { mockOf(e).Drain() },
		Cut:     func(e engine.Engine) { e.(*wire).proxy.Cut() },
		Legs:    legs(false), Meeting: legs(true),
		Skips: []string{"26-loss"}, // there is no way on which they could be lost
	})
}

func mockOf(e engine.Engine) *mock.Engine {
	if w, ok := e.(*wire); ok {
		return w.mock
	}
	return e.(*served).mock
}

// The part of it that a backend of tensors has.
func TestConformanceOfTensors(t *testing.T) {
	enginetest.Run(t, enginetest.Subject{
		New: func(t *testing.T) engine.Engine {
			_, address := listen(t, remote.ServerConfig{Engine: echoes{}})
			return dial(t, remote.Config{URL: address})
		},
	})
}
