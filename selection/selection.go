// Package selection is the router as a service: what an agent framework needs
// to build its own dispatcher on ours, over HTTP and in any language. It keeps a
// catalog of workers that others dispatch to, listens to their caches, says where
// a prompt should go and what every worker would have cost, and keeps the books
// of what was sent where.
//
// The one idea: a worker that is registered here becomes a worker of a fleet like
// any other, only that it cannot generate. So the service has no routing of its
// own: the router that serves requests in one process answers here as well, and
// the same handler stands in front of a fleet whose workers do generate.
//
//	dispatcher ── POST /workers ───────────▶ catalog ──▶ fleet ──▶ router
//	           ── POST /select_and_reserve ─▶ "worker 7, rank 0, at this endpoint"
//	           ── the request itself ──────▶ worker 7 ── KV events ──▶ router
//	           ── DELETE /reservations/id ──▶ it is done
package selection

import (
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/dynago/dynago/fleet"
	"github.com/dynago/dynago/router"
	"github.com/dynago/dynago/span"
)

// Config is what a service stands on and how it behaves. Zero values of the
// bounds mean their defaults.
type Config struct {
	Fleet  *fleet.Fleet
	Router *router.Router
	Logger *slog.Logger // nil discards

	// KVEvents says that workers must tell where they publish the events of their
	// caches.
	KVEvents bool

	// OwnWorkers says that the fleet's workers serve the requests of this process,
	// and that none can be registered beside them.
	OwnWorkers bool

	// SelectionTTL is how long a selection can be booked later, 120 s by default.
	// At most MostSelections of them are kept (4096), and SelectionBytes of what
	// they hold (256 MiB).
	SelectionTTL   time.Duration
	MostSelections int
	SelectionBytes int
	// MostWorkers bounds the catalog; default 4096.
	MostWorkers int
	// Spans, if not nil, makes ids of spans and is told of selections and bookings.
	// RouterMode is how the router chooses; "" is by cache.
	Spans      *span.Tracer
	RouterMode string
	// Collectors are shown on the metrics page besides.
	Collectors []prometheus.Collector
	// BodyLimit bounds the body of a request in bytes; default 8 MiB.
	BodyLimit int64
	// Now tells the time; nil is time.Now.
	Now func() time.Time
}

func (c *Config) defaults() {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	orElse(&c.SelectionTTL, 120*time.Second)
	orElse(&c.MostSelections, 4096)
	orElse(&c.SelectionBytes, 256<<20)
	orElse(&c.MostWorkers, 4096)
	orElse(&c.BodyLimit, 8<<20)
}

func orElse[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Service answers the operations of a router. Its methods may be called from any
// goroutine.
type Service struct {
	Config
	catalog catalog
	metrics *metrics

	mu      sync.Mutex
	pending pending // guarded by mu
}

// New returns a service. It owns neither fleet nor router.
func New(c Config) (*Service, error) {
	if c.Fleet == nil || c.Router == nil {
		return nil, errors.New("selection: want a fleet and its router")
	}
	c.defaults()
	s := &Service{Config: c}
	s.catalog.service = s
	s.catalog.records = make(map[uint64]*registered)
	s.pending = newPending(c.SelectionTTL, c.MostSelections, c.SelectionBytes)
	var err error
	s.metrics, err = newMetrics(s)
	return s, err
}

// Operation is one route of the service.
type Operation struct {
	Method, Path string
	// Changes says that it changes something: the catalog or the books.
	Changes bool
	Serve   http.HandlerFunc
}

// Operations lists the routes, for whoever mounts them under a path of its own.
// Serve expects the parts of the path in braces as values of the request's path.
func (s *Service) Operations() []Operation {
	return []Operation{
		{"GET", "/workers", false, s.listWorkers},
		{"POST", "/workers", true, s.upsertWorker},
		{"PATCH", "/workers/{worker_id}", true, s.patchWorker},
		{"DELETE", "/workers/{worker_id}", true, s.deleteWorker},
		{"POST", "/select", false, s.serveSelect},
		{"POST", "/select_and_reserve", true, s.selectAndReserve},
		{"POST", "/reservations", true, s.reserve},
		{"POST", "/reservations/{id}/prefill_complete", true, s.prefillComplete},
		{"POST", "/reservations/{id}/output_block", true, s.outputBlock},
		{"DELETE", "/reservations/{id}", true, s.free},
		{"GET", "/loads", false, s.loads},
		{"POST", "/potential_loads", false, s.potentialLoads},
		{"POST", "/overlap_scores", false, s.overlapScores},
		{"GET", "/dump", false, s.dump},
		{"GET", "/health", false, s.health},
		{"GET", "/ready", false, s.ready},
	}
}

// Handler serves all operations at the root, and /metrics beside them.
func (s *Service) Handler() http.Handler {
	mux, paths := http.NewServeMux(), http.NewServeMux()
	known := make(map[string]bool)
	for _, o := range s.Operations() {
		mux.HandleFunc(o.Method+" "+o.Path, s.measured(o))
		if !known[o.Path] {
			known[o.Path] = true
			paths.HandleFunc(o.Path, func(w http.ResponseWriter, _ *http.Request) {
				fail(w, http.StatusMethodNotAllowed, "method not allowed")
			})
		}
	}
	mux.Handle("GET /metrics", s.metrics.page())
	// What is left has no such path, or has it under another method.
	paths.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		fail(w, http.StatusNotFound, "route not found")
	})
	mux.Handle("/", paths)
	return mux
}
