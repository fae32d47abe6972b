// Package trtllm is trtllm-serve as those see it who talk to it: its routes over
// a mock engine, with its strictness. Any member that it does not know is a 400,
// answers have ids only with detokenize:false, and a pair of legs meets by
// numbers larger than a float64 holds.
//
// The one idea: what is computed, cached and counted is the mock engine's; here
// is nothing but the way the server says it.
package trtllm

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/mock"
)

// Config says what server it is.
type Config struct {
	Model  string
	Engine *mock.Engine // the caller's to close
	// AbortLatency is how long the server computes on for a client that has gone.
	// The real one looks once a second.
	AbortLatency time.Duration
	// Old leaves out what early versions do not have: fields of requests and their
	// description, and the Prometheus page.
	Old bool
	// Described keeps the description in an Old one: the fields that it has are told.
	Described bool
	// EventBuffer is how many KV events are kept until somebody asks; older ones
	// are dropped. 0: none are kept.
	EventBuffer int
	// Quiet is how long nothing may have happened before the server says what has,
	// events and rounds alike: 2 s in most builds, late ones do not wait. What it has
	// gathered for a client that leaves is lost.
	Quiet time.Duration
	// Transceiver is where legs meet. Servers of one pair share it; nil: none.
	Transceiver *Transceiver
	// ContextEndpoint is where decode servers meet this one while it computes; empty:
	// its schedule_style is context_first.
	ContextEndpoint string
	// NoPrometheus is a server without return_perf_metrics: what it tells of its
	// rounds is at /metrics, once.
	NoPrometheus bool
	// Key is what clients must send as bearer token; "": nothing.
	Key string
}

// Server is an http.Handler. It is safe for concurrent use.
type Server struct {
	config Config
	mux    *http.ServeMux
	began  atomic.Int64 // Unix nanoseconds
	asleep atomic.Bool
	told   atomic.Bool // how it idles

	mu      sync.Mutex
	running map[*reply]context.CancelCauseFunc
	served  int64
	last    []byte // body of the last completion that was asked for

	events buffer
}

// New returns a server.
func New(c Config) *Server {
	s := &Server{config: c, mux: http.NewServeMux()}
	s.began.Store(time.Now().UnixNano())
	s.mux.HandleFunc("GET /health", s.health)
	s.mux.HandleFunc("GET /version", s.version)
	s.mux.HandleFunc("GET /v1/models", s.models)
	s.mux.HandleFunc("POST /v1/completions", s.completions)
	s.mux.HandleFunc("POST /kv_cache_events", s.drain)
	if s.events.most = c.EventBuffer; c.EventBuffer > 0 {
		card := c.card()
		s.events.size, s.events.blocks = int(card.BlockSize), int(card.TotalBlocks)
		c.Engine.Hear(s.events.hear)
	}
	s.mux.HandleFunc("POST /release_memory", s.memory(true))
	s.mux.HandleFunc("POST /resume_memory", s.memory(false))
	s.mux.HandleFunc("GET /server_info", s.info)
	s.mux.HandleFunc("GET /metrics", s.iterations)
	if !c.Old || c.Described {
		s.mux.HandleFunc("GET /openapi.json", s.describe)
	}
	if !c.Old && !c.NoPrometheus {
		s.mux.HandleFunc("GET /prometheus/metrics", s.metrics)
	}
	return s
}

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if s.config.Key != "" && r.Header.Get("Authorization") != "Bearer "+s.config.Key {
		refuse(w, http.StatusUnauthorized, "Unauthorized")
		return
	}
	s.mux.ServeHTTP(w, r)
}

// card returns the mock engine's.
func (c *Config) card() *engine.Card {
	for st := range c.Engine.Card(context.Background()) {
		return st.Card
	}
	return &engine.Card{}
}

// Close is for those who close everything: a server holds nothing.
func (s *Server) Close() {}

// Restart is a crash and a new start: streams break off, the cache is empty, and
// the process began later than before.
func (s *Server) Restart() {
	s.mu.Lock()
	s.served = 0
	for a, cancel := range s.running {
		cancel(errDied)
		delete(s.running, a)
	}
	s.mu.Unlock()
	s.asleep.Store(false)
	s.began.Add(int64(time.Second))
	s.config.Engine.Restart()
}

// errDied is the cause of requests that end with the process.
var errDied = errors.New("died")

// note keeps a request that is being answered.
func (s *Server) note(a *reply, cancel context.CancelCauseFunc) (forget func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running == nil {
		s.running = map[*reply]context.CancelCauseFunc{}
	}
	s.running[a] = cancel
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.running, a)
	}
}

// Running returns how many requests are being answered.
func (s *Server) Running() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.running)
}

// Last returns the body of the last completion that was asked for.
func (s *Server) Last() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
}

// status returns what the mock engine tells of itself now.
func (s *Server) status(r *http.Request) engine.Status {
	for st := range s.config.Engine.Card(r.Context()) {
		return st
	}
	return engine.Status{}
}

func (s *Server) health(w http.ResponseWriter, r *http.Request) {
	if st := s.status(r); st.State != engine.Ready {
		refuse(w, http.StatusServiceUnavailable, "LLM is shutting down or not yet up: "+st.Reason)
	}
}

func (s *Server) version(w http.ResponseWriter, _ *http.Request) {
	v := "1.3.0rc24"
	if s.config.Old {
		v = "1.2.0"
	}
	write(w, map[string]string{"version": v})
}

func (s *Server) models(w http.ResponseWriter, _ *http.Request) {
	write(w, map[string]any{"object": "list", "data": []any{
		map[string]any{"id": s.config.Model, "object": "model", "created": s.began.Load() / 1e9, "owned_by": "tensorrt_llm"},
	}})
}

func (s *Server) describe(w http.ResponseWriter, _ *http.Request) {
	properties := map[string]any{}
	for _, name := range known(s.config.Old) {
		properties[name] = map[string]any{}
	}
	legs := map[string]any{}
	for _, name := range legNames(s.config.Old) {
		legs[name] = map[string]any{}
	}
	write(w, map[string]any{"paths": map[string]any{
		"/v1/completions": map[string]any{}, "/release_memory": map[string]any{}, "/resume_memory": map[string]any{},
	}, "components": map[string]any{"schemas": map[string]any{
		"CompletionRequest":   map[string]any{"additionalProperties": false, "properties": properties},
		"DisaggregatedParams": map[string]any{"additionalProperties": false, "properties": legs},
	}}})
}

// memory releases or takes back what the model needs. The cache is not released
// with it: a mock engine has none to release.
func (s *Server) memory(sleep bool) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if s.asleep.Swap(sleep) == sleep {
			refuse(w, http.StatusInternalServerError, "memory is as it was asked to be")
			return
		}
		write(w, map[string]string{"status": "success"})
	}
}

func (s *Server) metrics(w http.ResponseWriter, r *http.Request) {
	var load engine.Load
	for l := range s.config.Engine.Load(r.Context()) {
		load = l
		break
	}
	var sum engine.RankLoad
	for _, l := range load.Ranks {
		sum.Running += l.Running
		sum.Waiting += l.Waiting
		sum.UsedBlocks += l.UsedBlocks
		sum.TotalBlocks += l.TotalBlocks
	}
	card := s.status(r).Card
	s.mu.Lock()
	served := s.served
	s.mu.Unlock()
	labels := fmt.Sprintf(`{engine_type="pytorch",model_name=%q}`, s.config.Model)
	for _, m := range []struct {
		name  string
		value float64
	}{
		{"trtllm_num_requests_running", float64(sum.Running)},
		{"trtllm_num_requests_waiting", float64(sum.Waiting)},
		{"trtllm_kv_cache_utilization", float64(sum.UsedBlocks) / float64(max(1, sum.TotalBlocks))},
		{"trtllm_kv_cache_max_blocks", float64(sum.TotalBlocks)},
		{"trtllm_kv_cache_tokens_per_block", float64(card.BlockSize)},
		{"trtllm_request_success_total", float64(served)},
	} {
		fmt.Fprintf(w, "# TYPE %s gauge\n%s%s %v\n", m.name, m.name, labels, m.value)
	}
	fmt.Fprintf(w, "process_start_time_seconds %s\n", strconv.FormatFloat(float64(s.began.Load())/1e9, 'f', 3, 64))
}

// iterations tells of the rounds since it was asked last: one, if anything runs.
func (s *Server) iterations(w http.ResponseWriter, r *http.Request) {
	s.wait(r)
	list := []any{}
	card := s.status(r).Card
	for l := range s.config.Engine.Load(r.Context()) {
		for _, l := range l.Ranks {
			if l.Running == 0 && s.told.Swap(true) {
				continue
			}
			list = append(list, map[string]any{
				"iter": 1, "numActiveRequests": l.Running, "numQueuedRequests": l.Waiting, "maxNumActiveRequests": card.MaxSeqs, "attentionDpRank": l.Rank,
				"kvCacheStats": map[string]any{
					"maxNumBlocks": l.TotalBlocks, "usedNumBlocks": l.UsedBlocks, "freeNumBlocks": l.TotalBlocks - l.UsedBlocks,
					"tokensPerBlock": card.BlockSize, "reusedBlocks": l.PrefixHits / int64(card.BlockSize), "missedBlocks": (l.PrefixQueries - l.PrefixHits) / int64(card.BlockSize),
				},
				"inflightBatchingStats": map[string]any{"numCtxTokens": l.WaitingTokens},
			})
		}
		break
	}
	write(w, list)
}

// wait waits for more, or until the client has gone.
func (s *Server) wait(r *http.Request) {
	if s.config.Quiet == 0 {
		return
	}
	select {
	case <-time.After(s.config.Quiet):
	case <-r.Context().Done():
	}
}

func write(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	json.MarshalWrite(w, v) //nolint:errcheck // the client has gone
}

// refuse answers with an error in the server's own shape.
func refuse(w http.ResponseWriter, status int, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	w.Write(fault(status, message)) //nolint:errcheck // the client has gone
}

func fault(status int, message string) []byte {
	kind := "BadRequestError"
	if status >= 500 {
		kind = "InternalServerError"
	}
	text, err := json.Marshal(map[string]any{"object": "error", "message": message, "type": kind, "param": nil, "code": status})
	if err != nil {
		panic(err) // a map of texts
	}
	return text
}
