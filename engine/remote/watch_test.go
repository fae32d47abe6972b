package remote_test

import (
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/enginetest"
	"github.com/dynago/dynago/engine/mock"
	"github.com/dynago/dynago/engine/remote"
	"github.com/dynago/dynago/engine/remote/workerpb"
)

func different(got, want any) string { return cmp.Diff(want, got) }

// A worker that falls silent gets nothing new, and is dead in the end: what runs
// there is lost.
func TestSilence(t *testing.T) {
	var quiet atomic.Bool
	e := meet(t, &rogue{
		describe: func(s workerpb.Worker_DescribeServer) error {
			for m := ready(); ; m.Card = nil {
				m.HeartbeatMs = uint32(beat.Milliseconds())
				if !quiet.Load() {
					if err := s.Send(m); err != nil {
						return err
					}
				}
				select {
				case <-s.Context().Done():
					return nil
				case <-time.After(beat / 2):
				}
			}
		},
		generate: func(_ *workerpb.GenerateRequest, s workerpb.Worker_GenerateServer) error {
			if err := s.Send(ids(1)); err != nil {
				return err
			}
			<-s.Context().Done()
			return nil
		},
	})
	lost := make(chan error, 1)
	var states []string
	await(t, e, func(s engine.Status) bool {
		states = append(states, s.State.String())
		switch s.State {
		case engine.Ready:
			go func() {
				for d, err := range e.Generate(t.Context(), &engine.Request{TokenIDs: []uint32{1}, Stop: engine.Stop{MaxTokens: 9}}) {
					if err != nil {
						lost <- err
						continue
					}
					if len(d.TokenIDs) > 0 {
						quiet.Store(true)
					}
				}
			}()
		case engine.Dead:
			if s.Card == nil || s.Epoch != 7 {
				t.Errorf("a dead worker is forgotten: %+v", s)
			}
			return true
		}
		return false
	})
	if got := strings.Join(states, " "); got != "loading ready suspect dead" {
		t.Errorf("states %s", got)
	}
	if err := <-lost; engine.KindOf(err) != engine.Disconnected {
		t.Errorf("a stream of a dead worker ended with %v, want disconnected", err)
	}
}

// A connection that comes back finds the same life, or another one, as the worker
// says.
func TestComesBack(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	up := func(l net.Listener, epoch uint64) *grpc.Server {
		s := grpc.NewServer()
		workerpb.RegisterWorkerServer(s, &rogue{describe: func(s workerpb.Worker_DescribeServer) error {
			m := ready()
			m.Epoch = epoch
			if err := s.Send(m); err != nil {
				return err
			}
			<-s.Context().Done()
			return nil
		}})
		go s.Serve(l) //nolint:errcheck // it ends with the test
		return s
	}
	again := func() net.Listener {
		l, err := net.Listen("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	server := up(l, 7)
	e := dial(t, remote.Config{URL: "grpc://" + address})
	epochs, lives := []uint64{7, 7, 8}, 0
	await(t, e, func(s engine.Status) bool {
		switch {
		case s.State == engine.Dead:
			server = up(again(), epochs[lives])
		case s.State == engine.Ready:
			if s.Epoch != epochs[lives] {
				t.Errorf("life %d has epoch %d, want %d", lives, s.Epoch, epochs[lives])
			}
			if lives++; lives == len(epochs) {
				return true
			}
			go server.Stop()
		}
		return false
	})
	server.Stop()
}

// Nobody there, nobody who answers, and somebody else: the reason says it.
func TestNobodyThere(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gone := l.Addr().String()
	l.Close()
	other := grpc.NewServer()
	l, err = net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go other.Serve(l) //nolint:errcheck // it ends with the test
	t.Cleanup(other.Stop)
	for _, tt := range []struct {
		name, address, says string
		state               engine.State
		kind                engine.ErrorKind
	}{
		{"nobody", gone, "connection refused", engine.Loading, engine.CannotConnect},
		{"another service", l.Addr().String(), "unknown service", engine.Failed, engine.Unsupported},
		{"one that refuses", host(t, &rogue{
			describe: func(workerpb.Worker_DescribeServer) error { return status.Error(codes.PermissionDenied, "go away") },
			generate: func(*workerpb.GenerateRequest, workerpb.Worker_GenerateServer) error {
				return status.Error(codes.PermissionDenied, "go away")
			},
		}), "go away", engine.Failed, engine.Denied},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := dial(t, remote.Config{URL: "grpc://" + tt.address})
			s := await(t, e, func(s engine.Status) bool { return strings.Contains(s.Reason, tt.says) })
			if s.State != tt.state || s.Epoch == 0 {
				t.Errorf("%+v, want %s", s, tt.state)
			}
			if _, _, err := answerOf(t, e, nil); engine.KindOf(err) != tt.kind {
				t.Errorf("a request: %v, want %s", err, tt.kind)
			}
		})
	}
}

// Only a worker that is ready can fall silent: who loads may be busy.
func TestLoadingMayBeSilent(t *testing.T) {
	loaded := make(chan struct{})
	e := meet(t, &rogue{describe: func(s workerpb.Worker_DescribeServer) error {
		m := ready()
		m.State, m.HeartbeatMs = workerpb.State_STATE_LOADING, 10
		if err := s.Send(m); err != nil {
			return err
		}
		<-loaded
		m.State, m.HeartbeatMs = workerpb.State_STATE_READY, 60_000
		if err := s.Send(m); err != nil {
			return err
		}
		<-s.Context().Done()
		return nil
	}})
	time.AfterFunc(150*time.Millisecond, func() { close(loaded) }) // 15 intervals
	await(t, e, func(s engine.Status) bool {
		if s.State == engine.Suspect || s.State == engine.Dead {
			t.Fatalf("%+v", s)
		}
		return s.State == engine.Ready
	})
}

// One that is silent for much longer is asked again: it may have become another one.
func TestLoadingIsNotForEver(t *testing.T) {
	var calls atomic.Int32
	e := meet(t, &rogue{describe: func(s workerpb.Worker_DescribeServer) error {
		m := ready()
		if calls.Add(1) == 1 {
			m.State, m.HeartbeatMs = workerpb.State_STATE_LOADING, 10
		}
		if err := s.Send(m); err != nil {
			return err
		}
		<-s.Context().Done()
		return nil
	}})
	await(t, e, inState(engine.Ready))
}

// Connections over which nothing comes any more, and which nobody has closed, are not
// waited for: new ones are made, also for requests.
func TestHalfOpen(t *testing.T) {
	_, address := listen(t, remote.ServerConfig{Engine: echoing(t), Heartbeat: beat})
	p := enginetest.NewProxy(t, strings.TrimPrefix(address, "grpc://"))
	e := dial(t, remote.Config{URL: "grpc://" + p.Addr().String()})
	states := []string{}
	await(t, e, func(s engine.Status) bool {
		states = append(states, s.State.String())
		if s.State != engine.Ready {
			return false
		}
		if len(states) > 2 {
			return true
		}
		if _, _, err := answerOf(t, e, nil); err != nil { // so that there is a connection for requests
			t.Error(err)
		}
		p.Freeze()
		return false
	})
	if got := strings.Join(states, " "); got != "loading ready suspect dead ready" {
		t.Errorf("states %s", got)
	}
	if _, _, err := answerOf(t, e, nil); err != nil {
		t.Errorf("a request afterwards: %v", err)
	}
}

// echoing is any engine that answers.
func echoing(t *testing.T) engine.Engine {
	t.Helper()
	m, err := mock.New(mock.Config{Model: "m", Args: args()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}
