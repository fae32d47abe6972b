package remote

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/reflection"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/remote/workerpb"
)

// ServerConfig says how an engine is served. All but Engine may be zero.
type ServerConfig struct {
	Engine engine.Engine
	// Worker is the id that all frontends are to know the worker by, below 2^53; 0:
	// each makes one from the address it dials.
	Worker uint64
	// Requests bounds those that run at once, 0: nothing does; and Queue those that
	// wait for their turn then. Whoever finds no place is refused.
	Requests, Queue int
	// Authorize says whether a bearer token is good; nil: nobody is asked for one.
	Authorize func(key string) bool
	TLS       *tls.Config
	// Reflection lets anybody ask what the service looks like.
	Reflection bool
	// Heartbeat is how often the worker gives a sign of life; 0: every 2 s.
	Heartbeat time.Duration
	// Window and ConnWindow are the flow-control windows to begin with, in bytes; 0:
	// those of the library.
	Window, ConnWindow int32
	// Spans tells of generations; nil: nobody asks.
	Spans *engine.Spans
	Log   *slog.Logger
}

// Server is a worker as frontends see it. It follows its engine from the start, so
// that any number of frontends cost the engine one reader of its card and its load.
type Server struct {
	workerpb.UnimplementedWorkerServer
	config ServerConfig
	engine engine.Engine
	log    *slog.Logger
	grpc   *grpc.Server
	health *health.Server
	board  *board
	gate   gate
	shelf  shelf

	life    context.Context // ends with the server
	end     context.CancelFunc
	running context.Context // of requests; ends with a cause when they are cut
	cut     context.CancelCauseFunc
	readers sync.WaitGroup

	mu       sync.Mutex
	told     engine.Status // by the engine
	draining atomic.Bool
	refusing atomic.Bool
	close    sync.Once
}

// NewServer makes a server and begins to follow the engine, which stays the
// caller's.
func NewServer(c ServerConfig) *Server {
	c.Heartbeat = cmp.Or(c.Heartbeat, defaultHeartbeat)
	s := &Server{
		config: c, engine: c.Engine, log: c.Log, health: health.NewServer(),
		board: newBoard(engine.Status{
			Worker: c.Worker, Epoch: uint64(time.Now().UnixNano()), State: engine.Loading, Reason: "the engine has not told yet what it is",
		}),
		gate: gate{limit: c.Requests, queue: c.Queue},
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	s.life, s.end = context.WithCancel(context.Background())
	s.running, s.cut = context.WithCancelCause(context.Background())
	s.grpc = grpc.NewServer(s.options()...)
	workerpb.RegisterWorkerServer(s.grpc, s)
	healthpb.RegisterHealthServer(s.grpc, s.health)
	s.health.SetServingStatus(healthName, healthpb.HealthCheckResponse_NOT_SERVING)
	if c.Reflection {
		reflection.Register(s.grpc)
	}
	s.readers.Go(s.follow)
	return s
}

func (s *Server) options() []grpc.ServerOption {
	c := &s.config
	most := maxMessage
	if _, ok := engine.As[engine.Tensorer](s.engine); ok {
		most = maxTensorMessage
	}
	list := []grpc.ServerOption{
		grpc.MaxRecvMsgSize(most), grpc.MaxSendMsgSize(most),
		// Half-open frontends are found by us; how often they ask is their matter.
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 20 * time.Second, Timeout: 10 * time.Second}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
		grpc.UnaryInterceptor(s.serveCall), grpc.StreamInterceptor(s.serveStream),
	}
	if c.TLS != nil {
		list = append(list, grpc.Creds(credentials.NewTLS(c.TLS)))
	}
	if c.Window > 0 {
		list = append(list, grpc.InitialWindowSize(c.Window))
	}
	if c.ConnWindow > 0 {
		list = append(list, grpc.InitialConnWindowSize(c.ConnWindow))
	}
	return list
}

// Serve answers on a listener until the server is closed or drained.
func (s *Server) Serve(l net.Listener) error {
	if err := s.grpc.Serve(l); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		return fmt.Errorf("worker on %s: %w", l.Addr(), err)
	}
	return nil
}

// Counts tell of requests: how many run and wait for room, and how many have begun since
// the start, or were refused because there was no room.
type Counts struct {
	Running, Waiting int
	Begun, Refused   uint64
}

// Counts returns the present ones.
func (s *Server) Counts() Counts { return s.gate.counts() }

// Ready says whether the worker takes requests.
func (s *Server) Ready() bool { return s.board.status().State == engine.Ready }

// Drain tells frontends that the worker leaves. For as long as grace newcomers are
// still served, since not all may have heard of it; then they are refused, and what
// runs may end by itself until ctx is done. What is left then is ended with
// engine_shutdown, so that it goes on elsewhere, and the server closes. The error is
// that of ctx if requests were cut.
func (s *Server) Drain(ctx context.Context, grace time.Duration) error {
	s.draining.Store(true)
	s.present()
	wait(ctx, grace)
	s.refusing.Store(true)
	err := s.gate.empty(ctx)
	if err != nil {
		s.log.Warn("requests are cut: they have not ended in time")
	}
	s.Close()
	return err
}

// Close ends all that runs, with engine_shutdown, and returns when nothing is left.
// It may be called any number of times.
func (s *Server) Close() {
	s.close.Do(func() {
		s.refusing.Store(true)
		s.cut(engine.Errorf(engine.EngineShutdown, "the worker is shutting down"))
		patience, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		s.gate.empty(patience) //nolint:errcheck // who has not ended by then loses the connection
		s.end()
		s.board.close()
		s.readers.Wait()
		s.health.Shutdown()
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			s.grpc.GracefulStop()
		}()
		select {
		case <-stopped:
		case <-patience.Done():
			s.grpc.Stop()
			<-stopped
		}
	})
}

// follow posts what the engine tells of itself until the server ends.
func (s *Server) follow() {
	var loads lifeReader
	defer loads.stop()
	for {
		reason := "the engine has stopped telling what it is"
		for st, err := range s.engine.Card(s.life) {
			if err != nil {
				reason = err.Error()
				break
			}
			if serves := st.State == engine.Ready || st.State == engine.Draining; !serves || st.Epoch != loads.epoch {
				loads.stop()
			}
			s.tell(st)
			if st.State == engine.Ready || st.State == engine.Draining {
				loads.start(s.life, st.Epoch, s.readLoad)
			}
		}
		loads.stop()
		if s.life.Err() != nil {
			return
		}
		s.mu.Lock()
		st := s.told
		s.mu.Unlock()
		if st.Epoch == 0 {
			st.Epoch = s.board.status().Epoch
		}
		st.State, st.Reason = engine.Failed, reason
		s.tell(st)
		if !wait(s.life, askAgain) {
			return
		}
	}
}

// lifeReader is a goroutine that runs for one life of the engine.
type lifeReader struct {
	epoch uint64
	quit  context.CancelFunc // nil while none runs
	done  sync.WaitGroup
}

func (r *lifeReader) start(ctx context.Context, epoch uint64, run func(context.Context)) {
	if r.quit != nil {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	r.epoch, r.quit = epoch, cancel
	r.done.Go(func() { run(ctx) })
}

func (r *lifeReader) stop() {
	if r.quit != nil {
		r.quit()
		r.done.Wait()
		r.quit = nil
	}
}

func (s *Server) readLoad(ctx context.Context) {
	for {
		for l, err := range s.engine.Load(ctx) {
			if err != nil {
				if ctx.Err() == nil {
					s.log.Warn("the engine tells no load", "error", err, "retry", askAgain)
				}
				break
			}
			s.board.postLoad(l, time.Now())
		}
		if !wait(ctx, askAgain) {
			return
		}
	}
}

// tell posts a status of the engine.
func (s *Server) tell(st engine.Status) {
	s.mu.Lock()
	if st.State != s.told.State || st.Epoch != s.told.Epoch {
		s.log.Info("engine is "+st.State.String(), "epoch", st.Epoch, "reason", st.Reason)
	}
	s.told = st
	s.mu.Unlock()
	s.present()
}

// present posts what the worker is: what the engine tells, with the worker's own
// part in it.
func (s *Server) present() {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.told
	if st.Epoch == 0 { // the engine has told nothing yet
		st = s.board.status()
	}
	if s.config.Worker != 0 {
		st.Worker = s.config.Worker
	}
	if s.draining.Load() && st.State != engine.Failed {
		st.State, st.Reason = engine.Draining, "the worker is shutting down"
	}
	st.Card = s.shelf.card(st.Card, s.log)
	s.board.post(st)
	serving := healthpb.HealthCheckResponse_NOT_SERVING
	if st.State == engine.Ready {
		serving = healthpb.HealthCheckResponse_SERVING
	}
	s.health.SetServingStatus(healthName, serving)
}

// fail ends a call with an error of known kind.
func fail(stream grpc.ServerStream, err error) error {
	trailer, st := statusOf(err)
	stream.SetTrailer(trailer)
	return st
}

// admit lets a request in for which there is room, and which is meant for this life
// of the worker. Its context ends also when requests are cut. The caller must call
// leave.
func (s *Server) admit(ctx context.Context, epoch uint64) (_ context.Context, leave func(), err error) {
	if err := s.current(epoch); err != nil {
		return nil, nil, err
	}
	if s.refusing.Load() {
		return nil, nil, engine.Errorf(engine.Unavailable, "the worker is shutting down")
	}
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(s.running, func() { cancel(context.Cause(s.running)) })
	free, err := s.gate.enter(ctx)
	if err != nil {
		stop()
		cancel(nil)
		return nil, nil, err
	}
	return ctx, func() {
		stop()
		cancel(nil)
		free()
	}, nil
}

// current refuses what is meant for another life.
func (s *Server) current(epoch uint64) error {
	if now := s.board.status().Epoch; epoch != 0 && epoch != now {
		return engine.Errorf(engine.Stale, "this was meant for epoch %d of the worker, which lives epoch %d", epoch, now)
	}
	return nil
}

// Pieces of metadata about spans: generation is the id that the worker's is to have,
// predecessor names the one which a request goes on from, in the form of traceparent.
const (
	generation  = "x-dynago-span"
	predecessor = "x-dynago-predecessor"
)

// tracing returns the W3C trace context of a call.
func tracing(ctx context.Context) engine.Trace {
	md, _ := metadata.FromIncomingContext(ctx)
	return engine.Trace{Parent: one(md, "traceparent"), State: one(md, "tracestate"), Span: one(md, generation), From: one(md, predecessor)}
}
