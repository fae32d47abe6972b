// Package vllm is the wire of a vLLM server without the server: the routes that
// attaching to one needs, with the rules by which it refuses and the shapes in
// which it answers, over the scheduler of engine/mock.
//
// The one idea: a [Server] is a build. What differs from build to build and from
// one command line to another is in its [Config], so that an adapter can be held to
// all of them. It knows tokens alone; where a server would give text, it gives the
// numbers of the ids.
package vllm

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/dynago/dynago/engine/mock"
	"github.com/dynago/dynago/internal/fake/publish"
)

// Config says what build a server is, and with which flags it was started.
type Config struct {
	Mock mock.Config
	// Version is that of the build; empty for 0.31.0. From 0.32 on, the route for tokens
	// tells ids of log probabilities as numbers, and requests can always be given up by
	// their ids.
	Version string
	// NoGenerate is a build without /inference/v1/generate, or a late one that was
	// started without --enable-scale-out; NoTokenIDs is one whose completions do not
	// know return_token_ids.
	NoGenerate, NoTokenIDs bool
	// NoDocs is --disable-fastapi-docs: there is no /openapi.json.
	NoDocs bool
	// PromptTokensDetails is --enable-prompt-tokens-details, Priority is
	// --scheduling-policy priority, TokensOnly is --tokens-only, Dev is
	// VLLM_SERVER_DEV_MODE, LoRA is --enable-lora with updates at run time.
	PromptTokensDetails, Priority, TokensOnly, Dev, LoRA bool
	// Events is --kv-events-config; without an endpoint nothing is published. A
	// server in development mode tells where.
	Events publish.Config
	// Sources is a build with /kv_event_sources, which tells it, too.
	Sources bool
	// Reasoning is --reasoning-parser, without which budgets for thoughts are
	// refused.
	Reasoning bool
	// OldErrors is a build that tells of errors at the top of its answers;
	// NoZeroCached one that leaves the number of cached tokens out where it is 0.
	OldErrors, NoZeroCached bool
	// NoSleepMetric is a build whose metrics do not tell whether it sleeps.
	NoSleepMetric bool
	// Experts is --enable-return-routed-experts: what the last piece of an answer tells.
	Experts string
	// Adapters are loaded from the start.
	Adapters []string
	// Transfer is how it hands blocks to other servers.
	Transfer Transfer
}

// Server is an http.Handler. Its methods may be called from any goroutine.
type Server struct {
	config Config
	mock   *mock.Engine
	events *publish.Publisher // or nil
	mux    *http.ServeMux
	paths  []string

	rest     rest
	dead     atomic.Bool
	resets   atomic.Int64
	pulls    atomic.Int64
	unnamed  atomic.Int64 // requests without an id
	store    store
	mu       sync.Mutex
	adapters []string
	running  map[string]context.CancelFunc // by request id, for aborts
	aborted  []string
	bodies   [][]byte // of generations, in order
	told     []string // of controls, in order
}

// New returns a server whose engine is ready, or will be.
func New(c Config) (*Server, error) {
	c.Version = cmp.Or(c.Version, "0.31.0")
	m, err := mock.New(c.Mock)
	if err != nil {
		return nil, fmt.Errorf("fake vLLM: %w", err)
	}
	s := &Server{config: c, mock: m, mux: http.NewServeMux(), adapters: slices.Clone(c.Adapters), running: map[string]context.CancelFunc{}}
	if err := s.publish(); err != nil {
		return nil, err
	}
	s.store.kept, s.store.coming = map[string]*kept{}, map[string]chan struct{}{}
	s.route("GET", "/health", s.health)
	s.route("GET", "/version", s.version)
	s.route("GET", "/v1/models", s.models)
	s.route("GET", "/metrics", s.metrics)
	s.route("POST", "/v1/completions", s.completions)
	if !c.NoGenerate {
		s.route("POST", "/inference/v1/generate", s.generate)
	}
	switch {
	case s.late() && c.NoGenerate:
		s.mux.HandleFunc("/inference/v1/", func(w http.ResponseWriter, _ *http.Request) {
			s.refuse(w, http.StatusForbidden, "PermissionDeniedError", "Scale-out endpoints are disabled. Restart vllm serve with --enable-scale-out to enable them.")
		})
	case s.late():
		s.route("POST", "/inference/v1/abort_requests", s.abort)
	}
	s.routeTexts()
	if c.TokensOnly {
		s.route("POST", "/abort_requests", s.abort)
	}
	if c.Sources {
		s.route("GET", "/kv_event_sources", s.sources)
	}
	if c.Dev {
		s.routeControls()
	}
	if c.LoRA {
		s.route("POST", "/v1/load_lora_adapter", s.loadAdapter)
		s.route("POST", "/v1/unload_lora_adapter", s.unloadAdapter)
	}
	if !c.NoDocs {
		s.route("GET", "/openapi.json", s.openapi)
	}
	if c.Transfer.Connector != "" {
		s.mux.HandleFunc("POST "+readPath+"{key}", s.read)
		s.mux.HandleFunc("GET /query", s.query)
	}
	s.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		if slices.Contains(s.paths, r.URL.Path) {
			write(w, http.StatusMethodNotAllowed, map[string]any{"detail": "Method Not Allowed"})
			return
		}
		write(w, http.StatusNotFound, map[string]any{"detail": "Not Found"})
	})
	return s, nil
}

// late says whether this is a build of 0.32 or behind it.
func (s *Server) late() bool {
	var major, minor int
	fmt.Sscanf(s.config.Version, "%d.%d", &major, &minor) //nolint:errcheck // zeros are early
	return major > 0 || minor >= 32
}

func (s *Server) route(method, path string, h http.HandlerFunc) {
	s.paths = append(s.paths, path)
	s.mux.HandleFunc(method+" "+path, h)
}

// ServeHTTP answers as the server would.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

// Restart is a crash and a new start of the process: connections break, the cache
// is empty, the adapters are those of the command line.
func (s *Server) Restart() {
	s.mu.Lock()
	s.adapters = slices.Clone(s.config.Adapters)
	s.mu.Unlock()
	s.rest.begin("")
	s.dead.Store(false)
	s.store.clear()
	s.mock.Restart()
}

// Kill lets the engine core die under its server, which stays and is unhealthy.
func (s *Server) Kill() { s.dead.Store(true) }

// Close ends what runs.
func (s *Server) Close() error {
	s.store.clear()
	if s.events != nil {
		s.events.Close() //nolint:errcheck // it has nothing to say
	}
	return s.mock.Close()
}

// Aborted returns the ids that were given up by name.
func (s *Server) Aborted() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.aborted)
}

// Running returns how many requests run or wait.
func (s *Server) Running() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.running)
}

// Bodies returns what was posted for generation, in order.
func (s *Server) Bodies() [][]byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.bodies)
}
