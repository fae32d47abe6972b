// Package frontend is the HTTP server that harnesses talk to: routes, intake,
// limits, keys, health, life cycle, metrics page. It knows no model and no
// worker, only a [Backend] that turns requests into events.
//
// The one idea: all APIs are answered by one function. An API brings a small
// codec that decodes a body into chat requests and encodes events; the way in
// between (stage gate, body, ids, metrics, streaming or folding, cancellation,
// errors, the log line) exists once, in answer.go.
package frontend

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/dynago/dynago/anthropic"
	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/internal/sse"
	"github.com/dynago/dynago/nvext"
	"github.com/dynago/dynago/openai"
	"github.com/dynago/dynago/openai/responses"
	"github.com/dynago/dynago/openai/responses/store"
	"github.com/dynago/dynago/pipeline"
	"github.com/dynago/dynago/router"
	"github.com/dynago/dynago/selection"
	"github.com/dynago/dynago/span"
)

// Backend serves requests; [pipeline.Pipeline] is one. It is used from many
// goroutines at once.
type Backend interface {
	// Run serves the requests of one client call and merges their answers:
	// choice i of request k has the number k*n+i.
	Run(ctx context.Context, requests ...*pipeline.Request) iter.Seq2[chat.Event, error]
	// Models lists what is served, ready or not.
	Models() []pipeline.ModelInfo
	// Card returns what a worker tells of a model, by its primary name; nil if nobody
	// has told of it.
	Card(model string) *engine.Card
	// Workers lists who serves.
	Workers() []pipeline.WorkerInfo
	// Caches tells what the index of KV blocks holds, and how well it knows each
	// target that has answered.
	Caches() pipeline.CacheInfo
	// Flow tells where requests are on their way to workers.
	Flow() *pipeline.Flow
	// Dropped tells what parsers had to drop.
	Dropped() []pipeline.DropCount
	// Tokenize returns the ids of a request's prompt and the context length of
	// its model, 0 if unknown.
	Tokenize(r *chat.Request, generationPrompt bool) ([]uint32, int, error)
	// Detokenize returns the text of ids.
	Detokenize(model string, ids []uint32) (string, error)
}

// Timing is when a stream acts on its own: how long its status line waits, how
// often a silent one gives a sign of life, how long a client may take.
type Timing = sse.Timing

// DefaultTiming returns the timing of a server without settings.
func DefaultTiming() Timing { return sse.Defaults }

// Config is how a server behaves. The zero value of a field that has a default
// means that default.
type Config struct {
	Backend Backend
	Logger  *slog.Logger // default: none

	// BodyLimit bounds a request body after decompression, in bytes; default
	// 192 MiB.
	BodyLimit int64
	// OverloadStatus is the status for "all busy"; default 529.
	OverloadStatus int
	// Timing is when a stream acts on its own; Timing.Write also bounds how long
	// a client may take to accept a unary answer. Default
	// [DefaultTiming].
	Timing *Timing
	// HeaderTimeout bounds the wait for a request's header, ReadTimeout that for
	// its body, IdleTimeout that for the next request on a connection; defaults
	// 10 s, 60 s, 120 s.
	HeaderTimeout, ReadTimeout, IdleTimeout time.Duration

	// Keys, if not nil, are wanted on every route.
	Keys *Keys
	// Tenants bound what the owners of keys may ask for, by their names.
	Tenants map[string]*nvext.Caps
	// MetadataHeader begins the names of headers that are for workers; default
	// [DefaultMetadataHeader].
	MetadataHeader string
	// UploadPrefixes are the places to which clients may let workers upload what they
	// have captured; nil: none.
	UploadPrefixes []UploadPrefix
	// SeparateAdmin moves the metrics page to [Server.AdminHandler].
	SeparateAdmin bool
	// NoAdmin removes all admin routes; the metrics page stays.
	NoAdmin bool

	// HTTP2, if not nil, takes clear-text connections that open with the preface of
	// HTTP/2, which is given back by their first read.
	HTTP2 func(net.Conn)
	// Thresholds, if not nil, can be read and changed by operators.
	Thresholds Thresholds
	// KServe serves the protocol of KServe and Triton, below /v2.
	KServe bool
	// Tensors, if not nil, runs calls of models that take tensors.
	Tensors Tensors
	// TensorNVExt takes the extension object out of the parameters of calls of tensors,
	// where it is one of the worker's like any other otherwise.
	TensorNVExt bool
	// Roster, if not nil, can be changed by operators.
	Roster Roster
	// Prefetcher, if not nil, lets agents have blocks brought up ahead of a request.
	Prefetcher Prefetcher
	// Caretaker, if not nil, lets operators look after caches.
	Caretaker Caretaker
	// Inventory, if not nil, lets operators see what is bound and pinned.
	Inventory Inventory
	// Peers, if not nil, lets other frontends tell where sessions are bound.
	Peers Peers
	// Spans, if not nil, makes ids of spans and is told of calls; ProbeSpans lets it be
	// told of requests for health, metrics and models, too.
	Spans      *span.Tracer
	ProbeSpans bool
	// Tracing, if not nil, is told of requests.
	Tracing *Tracing
	// Journal, if not nil, can be read by operators.
	Journal *router.Journal
	// Collectors are shown on the metrics page besides what the server knows.
	Collectors []prometheus.Collector
	// Selection, if not nil, lets operators and dispatchers ask the router itself.
	Selection *selection.Service

	// OpenAI is how OpenAI bodies are read and written, and Anthropic those of
	// Messages.
	OpenAI    openai.Options
	Anthropic anthropic.Options
	// Responses is how bodies of Responses are read and written.
	Responses responses.Options
	// ResponsesStore, if not nil, keeps responses, for other requests to go on
	// from. Without one, Responses.NoStore is set.
	ResponsesStore *store.Store
	// MaxBackground bounds the responses that are made while no client waits;
	// default 256.
	MaxBackground int
	// SocketIdle is how long a WebSocket may wait for its next request; default
	// 30 minutes.
	SocketIdle time.Duration
	// NoMessages removes the routes of Messages.
	NoMessages bool
	// Aliases are further names of models; the first that matches a name that no
	// model has counts.
	Aliases []Alias
	// OwnedBy is told in the model list; default "dynago".
	OwnedBy string
	// ContextWindow and MaxOutputTokens replace numbers in the model list alone;
	// 0 leaves them.
	ContextWindow, MaxOutputTokens int

	// Paths replaces default paths of routes, by the names of [PathNames].
	Paths map[string]string
	// MetricsPrefix is put before the names of request metrics; default
	// "dynamo_frontend".
	MetricsPrefix string
	// Buckets replaces the bounds of histograms; see [BucketNames].
	Buckets map[string]Buckets
	// MigrationLimit is told by a gauge.
	MigrationLimit int
	// Version is told in the API description.
	Version string
}

func (c *Config) defaults() {
	set(&c.Logger, slog.New(slog.DiscardHandler))
	set(&c.BodyLimit, 192<<20)
	set(&c.OverloadStatus, 529)
	set(&c.HeaderTimeout, 10*time.Second)
	set(&c.ReadTimeout, 60*time.Second)
	set(&c.IdleTimeout, 120*time.Second)
	set(&c.OwnedBy, "dynago")
	set(&c.MaxBackground, 256)
	set(&c.SocketIdle, 30*time.Minute)
	c.Responses.NoStore = c.Responses.NoStore || c.ResponsesStore == nil
	set(&c.MetadataHeader, DefaultMetadataHeader)
	set(&c.MetricsPrefix, "dynamo_frontend")
	set(&c.Version, "dev")
	if c.Timing == nil {
		t := DefaultTiming()
		c.Timing = &t
	}
}

func set[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Server is the HTTP server. Its methods may be called from any goroutine.
type Server struct {
	Config
	stage   lifecycle
	names   modelNames
	metrics *metrics
	keeper  keeper
	// strangers are members of nvext that nobody here knows.
	strangers strangers
	handler   http.Handler
	admin     http.Handler
	side      http.Handler

	// base is the parent of all requests' contexts; stop ends them.
	base context.Context
	stop context.CancelCauseFunc

	kept    conns // connections that net/http does not know of
	mu      sync.Mutex
	servers []*http.Server
}

// New makes a server. It listens nowhere yet; see [Server.Serve].
func New(c Config) (*Server, error) {
	c.defaults()
	if c.Backend == nil {
		return nil, errors.New("frontend: no backend")
	}
	s := &Server{Config: c}
	s.names.backend = c.Backend
	s.keeper.store = c.ResponsesStore
	s.base, s.stop = context.WithCancelCause(context.Background())
	var err error
	if s.metrics, err = newMetrics(s); err != nil {
		return nil, fmt.Errorf("frontend: metrics: %w", err)
	}
	if s.handler, s.admin, s.side, err = s.routes(); err != nil {
		return nil, fmt.Errorf("frontend: routes: %w", err)
	}
	return s, nil
}

// Handler serves the public routes.
func (s *Server) Handler() http.Handler { return s.handler }

// AdminHandler serves the admin routes, the metrics page and the profiler, for
// a listener of their own.
func (s *Server) AdminHandler() http.Handler { return s.admin }

// Serve answers on l until [Server.Drain] has ended. It returns nil then.
func (s *Server) Serve(l net.Listener) error { return s.serve(l, s.handler) }

// ServeAdmin is Serve for the admin routes.
func (s *Server) ServeAdmin(l net.Listener) error { return s.serve(l, s.admin) }

// ServeSide is Serve for metrics, health and the list of models alone, where scrapers
// of other frontends look for them.
func (s *Server) ServeSide(l net.Listener) error { return s.serve(l, s.side) }

func (s *Server) serve(l net.Listener, h http.Handler) error {
	server := &http.Server{
		Handler:           h,
		ReadHeaderTimeout: s.HeaderTimeout,
		IdleTimeout:       s.IdleTimeout,
		// Handlers that take their time move this deadline before they write.
		WriteTimeout:   s.Timing.Write,
		MaxHeaderBytes: 64 << 10,
		ErrorLog:       slog.NewLogLogger(s.Logger.Handler(), slog.LevelDebug),
	}
	back := newReturns(l.Addr())
	ctx := context.WithValue(context.Background(), returnsKey{}, back)
	server.BaseContext = func(net.Listener) context.Context { return ctx }
	s.mu.Lock()
	if s.stage.get() == Stopping {
		s.mu.Unlock()
		l.Close()
		return nil
	}
	s.servers = append(s.servers, server)
	s.mu.Unlock()
	go server.Serve(back) //nolint:errcheck // it ends when the server does
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("frontend: serve %s: %w", l.Addr(), err)
	}
	return nil
}

// cutGrace is how long streams that are cut may take to say so.
const cutGrace = 2 * time.Second

// Drain ends the server. At once it is Draining: health checks fail and new
// requests are refused, while the listener stays open. When the last answer is
// written, or ctx is done, it is Stopping: what still runs is cut, and the
// listeners are closed. Drain returns the number of requests that it cut.
func (s *Server) Drain(ctx context.Context) int {
	s.stage.set(Draining)
	s.keeper.drain()
	s.stage.wait(ctx)
	s.stage.set(Stopping)
	cut := s.stage.busy()
	s.stop(engine.ErrShutdown)

	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), cutGrace)
	defer cancel()
	s.stage.wait(grace)
	s.kept.hangUp()
	s.keeper.hangUp()
	s.mu.Lock()
	servers := s.servers
	s.mu.Unlock()
	for _, server := range servers {
		// Connections whose answer is complete, but not yet sent, get a moment.
		if server.Shutdown(grace) != nil {
			server.Close()
		}
	}
	return cut
}

var _ io.Closer = (*Server)(nil)

// Close is a Drain without patience.
func (s *Server) Close() error {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	s.Drain(ctx)
	return nil
}
