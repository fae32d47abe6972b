// Package sglang is a server that looks like SGLang from outside: its routes,
// its streams and its habits, over the scheduler of engine/mock.
//
// The one idea: the mock engine computes and this package misbehaves. Every
// habit that differs between versions, or that adapters have tripped over, is a
// switch in [Config].
package sglang

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/go-json-experiment/json"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/mock"
	"github.com/dynago/dynago/internal/fake/publish"
)

// Config says which server is imitated.
type Config struct {
	Mock mock.Config
	// Events is --kv-events-config, and its Page is --page-size where that is no
	// block of the mock engine; without an endpoint nothing is published.
	Events publish.Config
	// Incremental sends in each chunk what is new, as with
	// --incremental-streaming-output; else all so far.
	Incremental bool
	// TrimStop leaves the id that ended an answer out of its ids.
	TrimStop bool
	// OldNames has /get_server_info and /get_load in place of /server_info and
	// /v1/loads, and flushes by GET.
	OldNames bool
	// Priority is --enable-priority-scheduling; without it a request that has one
	// is refused. LowFirst is --schedule-low-priority-values-first.
	Priority, LowFirst bool
	// LoRA is --enable-lora; Adapters are loaded at its start.
	LoRA     bool
	Adapters []string
	// Sessions is --enable-session-radix-cache, Streaming --enable-streaming-session.
	Sessions, Streaming bool
	// Late is a build of late 2026: it describes itself, has more fields, and takes
	// no others. OldNames describes itself, too.
	Late bool
	// StrictThinking is --enable-strict-thinking.
	StrictThinking bool
	// Hierarchical is --enable-hierarchical-cache, Metrics --enable-metrics.
	Hierarchical, Metrics bool
	// EvictionPolicy is --radix-eviction-policy.
	EvictionPolicy string
	// GivenSeed is --random-seed: a restart does not draw another one.
	GivenSeed bool
	// MostRunning is --max-queued-requests, in requests that run or wait; 0: any.
	MostRunning int
	// Experts is --enable-return-routed-experts: what the end of an answer tells if it
	// is asked to.
	Experts string
	// Retract takes tokens of cumulative streams back now and then.
	Retract bool
	// Mode is --disaggregation-mode: "", prefill or decode; Bootstrap is then where
	// the two meet.
	Mode      string
	Bootstrap *Bootstrap
	// Key is what clients must send as bearer token; "": nothing.
	Key string
}

// Server is an http.Handler. It is safe for concurrent use.
type Server struct {
	cfg    Config
	engine *mock.Engine
	events *publish.Publisher // or nil
	mux    *http.ServeMux
	seed   atomic.Int64 // drawn anew at each start

	refused atomic.Int64 // turns of sessions

	mu       sync.Mutex
	running  map[string]*work // by rid
	sessions map[string]*session
	adapters []string
	aborted  []string
	paused   bool
	asleep   bool
	store    string // attached below the cache
	weights  string // their version
}

// work is a request that is being answered.
type work struct{ cancel context.CancelCauseFunc }

// Causes of requests that ended early: /abort_request, and another life.
var (
	errAborted = errors.New("aborted")
	errDied    = errors.New("died")
)

// defaultMaxNew is what max_new_tokens is when nobody says.
const defaultMaxNew = 128

// New returns a server. Only bad configuration is an error.
func New(cfg Config) (*Server, error) {
	e, err := mock.New(cfg.Mock)
	if err != nil {
		return nil, err
	}
	s := &Server{
		cfg: cfg, engine: e, mux: http.NewServeMux(),
		running: map[string]*work{}, sessions: map[string]*session{}, adapters: slices.Clone(cfg.Adapters), weights: "default",
	}
	s.seed.Store(1)
	if err := s.publish(); err != nil {
		return nil, err
	}
	info, load, flush := "GET /server_info", "GET /v1/loads", "POST /flush_cache"
	loads := s.loads
	if cfg.OldNames {
		info, load, flush, loads = "GET /get_server_info", "GET /get_load", "GET /flush_cache", s.oldLoad
	}
	for route, h := range map[string]http.HandlerFunc{
		info: s.info, load: loads, flush: s.flush,
		"POST /generate":            s.generate,
		"GET /health_generate":      s.healthGenerate,
		"POST /abort_request":       s.abort,
		"POST /open_session":        s.openSession,
		"POST /close_session":       s.closeSession,
		"GET /v1/models":            s.models,
		"GET /health":               s.health,
		"POST /pause_generation":    s.pause(true),
		"POST /continue_generation": s.pause(false),

		"POST /release_memory_occupation": s.sleep(true),
		"POST /resume_memory_occupation":  s.sleep(false),
	} {
		s.mux.HandleFunc(route, h)
	}
	for _, o := range []struct {
		has   bool
		route string
		h     http.HandlerFunc
	}{
		{cfg.LoRA, "POST /load_lora_adapter", s.loadAdapter},
		{cfg.LoRA, "POST /unload_lora_adapter", s.unloadAdapter},
		{cfg.Late || cfg.OldNames, "GET /openapi.json", s.describe},
		{cfg.Metrics, "GET /metrics", s.metrics},
		{cfg.Hierarchical, "/hicache/storage-backend", s.storage},
	} {
		if o.has {
			s.mux.HandleFunc(o.route, o.h)
		}
	}
	return s, nil
}

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if s.cfg.Key != "" && r.Header.Get("Authorization") != "Bearer "+s.cfg.Key {
		fail(w, http.StatusUnauthorized, "Unauthorized")
		return
	}
	s.mux.ServeHTTP(w, r)
}

// Restart ends all connections and begins another life.
func (s *Server) Restart() {
	s.seed.Add(1)
	s.mu.Lock()
	clear(s.sessions)
	s.paused, s.asleep = false, false
	for id, w := range s.running {
		w.cancel(errDied)
		delete(s.running, id)
	}
	s.mu.Unlock()
	s.engine.Restart()
}

// Drain makes the server refuse what is new.
func (s *Server) Drain() { s.engine.Drain() }

// Close ends what runs.
func (s *Server) Close() error {
	if s.events != nil {
		s.events.Close() //nolint:errcheck // it has nothing to say
	}
	return s.engine.Close()
}

// Running tells how many requests are being answered.
func (s *Server) Running() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.running)
}

// state returns the engine's state.
func (s *Server) state(ctx context.Context) engine.Status {
	for st := range s.engine.Card(ctx) {
		return st
	}
	return engine.Status{State: engine.Failed}
}

func tell(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.MarshalWrite(w, v) //nolint:errcheck // nobody is left to tell
}

func fail(w http.ResponseWriter, status int, message string) {
	tell(w, status, map[string]any{"error": map[string]any{"message": message, "code": status}})
}

func (s *Server) health(w http.ResponseWriter, r *http.Request) {
	if st := s.state(r.Context()); st.State != engine.Ready {
		fail(w, http.StatusServiceUnavailable, st.Reason)
	}
}

// healthGenerate makes a token, and queues like any other request.
func (s *Server) healthGenerate(w http.ResponseWriter, _ *http.Request) {
	if s.Running() > 0 {
		fail(w, http.StatusServiceUnavailable, "no token in time")
	}
}

func (s *Server) info(w http.ResponseWriter, r *http.Request) {
	c := s.state(r.Context()).Card
	seed := s.seed.Load()
	if s.cfg.GivenSeed {
		seed = 42
	}
	s.mu.Lock()
	weights := s.weights
	s.mu.Unlock()
	flag, parts := s.eventsConfig(c.BlockSize, c.Ranks())
	tell(w, http.StatusOK, map[string]any{
		"kv_events_config": flag, "kv_events": parts,
		"weight_version": weights, "radix_eviction_policy": cmp.Or(s.cfg.EvictionPolicy, "lru"),
		"enable_streaming_session": s.cfg.Streaming, "enable_strict_thinking": s.cfg.StrictThinking,
		"enable_hierarchical_cache": s.cfg.Hierarchical, "enable_return_routed_experts": s.cfg.Experts != "",
		"version": "0.5.21", "model_path": "/models/" + c.Model, "served_model_name": c.Model,
		"random_seed": seed, "dp_size": c.DPSize, "page_size": s.page(c.BlockSize), "context_length": nil,
		"max_total_num_tokens": c.TotalBlocks * uint64(c.BlockSize), "max_running_requests": c.MaxSeqs * c.DPSize,
		"max_prefill_tokens": c.MaxBatchedTokens, "disaggregation_mode": cmp.Or(s.cfg.Mode, "null"),
		"host": "127.0.0.1", "dist_init_addr": "10.1.0.7:5000", "disaggregation_bootstrap_port": 8998,
		"enable_priority_scheduling": s.cfg.Priority, "schedule_low_priority_values_first": s.cfg.LowFirst,
		"incremental_streaming_output": s.cfg.Incremental, "enable_lora": s.cfg.LoRA, "lora_paths": nil,
		"enable_session_radix_cache": s.cfg.Sessions, "skip_tokenizer_init": false,
		"internal_states": []any{map[string]any{"last_gen_throughput": 0}},
	})
}

func (s *Server) models(w http.ResponseWriter, r *http.Request) {
	c := s.state(r.Context()).Card
	list := []any{
		map[string]any{"id": c.Model, "object": "model", "owned_by": "sglang", "root": c.Model, "max_model_len": c.ContextLength},
	}
	s.mu.Lock()
	for _, a := range s.adapters {
		list = append(list, map[string]any{"id": a, "object": "model", "owned_by": "sglang", "root": "/adapters/" + a, "parent": c.Model})
	}
	s.mu.Unlock()
	tell(w, http.StatusOK, map[string]any{"object": "list", "data": list})
}

// load returns the present reading.
func (s *Server) load(ctx context.Context) engine.Load {
	for l := range s.engine.Load(ctx) {
		return l
	}
	return engine.Load{}
}

func (s *Server) loads(w http.ResponseWriter, r *http.Request) {
	block := int64(s.cfg.Mock.Args.BlockSize)
	ranks := s.load(r.Context()).Ranks
	list := make([]map[string]any, len(ranks))
	for i, l := range ranks {
		list[i] = map[string]any{
			"dp_rank": l.Rank, "num_running_reqs": l.Running, "num_waiting_reqs": l.Waiting,
			"num_waiting_uncached_tokens": l.WaitingTokens, "num_total_reqs": l.Running + l.Waiting,
			"num_used_tokens": l.UsedBlocks * block, "max_total_num_tokens": l.TotalBlocks * block,
		}
	}
	tell(w, http.StatusOK, map[string]any{"dp_rank_count": len(ranks), "loads": list})
}

func (s *Server) oldLoad(w http.ResponseWriter, r *http.Request) {
	list := []map[string]any{}
	for _, l := range s.load(r.Context()).Ranks {
		list = append(list, map[string]any{
			"dp_rank": l.Rank, "num_reqs": l.Running + l.Waiting, "num_waiting_reqs": l.Waiting,
			"num_tokens": l.UsedBlocks * int64(s.cfg.Mock.Args.BlockSize),
		})
	}
	tell(w, http.StatusOK, list)
}
