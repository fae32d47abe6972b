package remote_test

import (
	"errors"
	"net"
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
	m, err := mock.New(mock.Config{Model: "m", Args: a, Source: mock.SourceRandom, EOS: []uint32{2}})
	if err != nil {
		t.Fatal(err)
	}
	c.Engine = m
	server, address := listen(t, c)
	s := &served{dial(t, remote.Config{URL: address}), server, m}
	t.Cleanup(func() { s.Close() })
	return s
}

func TestConformance(t *testing.T) {
	fresh := func(a mock.Args) func(*testing.T) engine.Engine {
		return func(t *testing.T) engine.Engine {
			return serve(t, a, remote.ServerConfig{Heartbeat: 200 * time.Millisecond})
		}
	}
	enginetest.Run(t, enginetest.Subject{
		New: fresh(args()), Slow: fresh(slowArgs()),
		Restart: func(e engine.Engine) { e.(*served).mock.Restart() },
		Drain:   func(e engine.Engine) { e.(*served).mock.Drain() },
		Skips:   []string{"26-loss"},
	})
}
