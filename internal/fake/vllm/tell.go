package vllm

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"

	"github.com/dynago/dynago/engine"
)

func encode(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // everything here is made of plain values
	}
	return text
}

func write(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(encode(v)) // the client may have gone
}

// refuse answers with an error, in the shape of the build.
func (s *Server) refuse(w http.ResponseWriter, status int, kind, message string) {
	e := map[string]any{"message": message, "type": kind, "param": nil, "code": status}
	if s.config.OldErrors {
		e["object"] = "error"
		write(w, status, e)
		return
	}
	write(w, status, map[string]any{"error": e})
}

// status returns what the engine says of itself now.
func (s *Server) status(r *http.Request) engine.Status {
	for st := range s.mock.Card(r.Context()) {
		return st
	}
	return engine.Status{State: engine.Failed}
}

func (s *Server) health(w http.ResponseWriter, r *http.Request) {
	if s.dead.Load() || s.status(r).State == engine.Failed {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
}

func (s *Server) version(w http.ResponseWriter, _ *http.Request) {
	write(w, http.StatusOK, map[string]any{"version": s.config.Version})
}

func (s *Server) models(w http.ResponseWriter, _ *http.Request) {
	data := []any{map[string]any{"id": s.config.Mock.Model, "object": "model", "owned_by": "vllm", "root": s.config.Mock.Model, "parent": nil, "max_model_len": s.context()}}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range s.adapters {
		data = append(data, map[string]any{"id": name, "object": "model", "owned_by": "vllm", "root": "/adapters/" + name, "parent": s.config.Mock.Model, "max_model_len": nil})
	}
	write(w, http.StatusOK, map[string]any{"object": "list", "data": data})
}

// metrics is the page for Prometheus, as far as somebody reads it.
func (s *Server) metrics(w http.ResponseWriter, r *http.Request) {
	st := s.status(r)
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	p := func(format string, args ...any) { fmt.Fprintf(w, format+"\n", args...) }
	p("# TYPE process_start_time_seconds gauge")
	p("process_start_time_seconds %s", strconv.FormatFloat(float64(st.Epoch)/1e9, 'f', 9, 64))
	if !s.config.NoSleepMetric {
		awake := 1
		if s.rest.is(sleeping) {
			awake = 0
		}
		p("# TYPE vllm:engine_sleep_state gauge")
		p(`vllm:engine_sleep_state{engine="0",sleep_state="awake"} %d`, awake)
	}
	var load engine.Load
	for load = range s.mock.Load(r.Context()) {
		break
	}
	each := func(name, kind string, value func(engine.RankLoad) float64) {
		p("# TYPE vllm:%s %s", name, kind)
		for _, l := range load.Ranks {
			p(`vllm:%s{engine="%d",model_name=%q} %v`, name, l.Rank, s.config.Mock.Model, value(l))
		}
	}
	each("num_requests_running", "gauge", func(l engine.RankLoad) float64 { return float64(l.Running) })
	each("num_requests_waiting", "gauge", func(l engine.RankLoad) float64 { return float64(l.Waiting) })
	each("kv_cache_usage_perc", "gauge", func(l engine.RankLoad) float64 { return float64(l.UsedBlocks) / float64(l.TotalBlocks) })
	each("prefix_cache_hits_total", "counter", func(l engine.RankLoad) float64 { return float64(l.PrefixHits) })
	each("prefix_cache_queries_total", "counter", func(l engine.RankLoad) float64 { return float64(l.PrefixQueries) })
	if s.config.Transfer.Connector != "" {
		p("# TYPE vllm:nixl_num_kv_expired_reqs_total counter")
		p(`vllm:nixl_num_kv_expired_reqs_total{engine="0",model_name=%q} %d`, s.config.Mock.Model, s.Expired())
	}
	each("num_preemptions_total", "counter", func(l engine.RankLoad) float64 { return float64(l.Preemptions) })
	p("# TYPE vllm:cache_config_info gauge")
	for _, l := range load.Ranks {
		p(`vllm:cache_config_info{block_size="%d",cache_dtype="auto",engine="%d",num_gpu_blocks="%d"} 1`, s.config.Mock.Args.BlockSize, l.Rank, s.config.Mock.Args.NumGPUBlocks)
	}
}

// info is what a server in development mode tells of its configuration.
func (s *Server) info(w http.ResponseWriter, _ *http.Request) {
	policy := "fcfs"
	if s.config.Priority {
		policy = "priority"
	}
	args, reasoning := s.config.Mock.Args, ""
	if s.config.Reasoning {
		reasoning = "qwen3"
	}
	var transfer any
	if t := s.config.Transfer; t.Connector != "" {
		inner := []any{}
		for _, name := range t.Inner {
			inner = append(inner, map[string]any{"kv_connector": name, "kv_role": cmp.Or(t.Role, "kv_both")})
		}
		transfer = map[string]any{"kv_connector": t.Connector, "kv_role": cmp.Or(t.Role, "kv_both"), "engine_id": s.engineID(0), "kv_connector_extra_config": map[string]any{"connectors": inner}}
	}
	write(w, http.StatusOK, map[string]any{"vllm_config": map[string]any{
		"model_config":              map[string]any{"max_model_len": s.context(), "max_logprobs": mostLogprobs},
		"structured_outputs_config": map[string]any{"reasoning_parser": reasoning},
		"scheduler_config":          map[string]any{"policy": policy, "max_num_seqs": args.MaxNumSeqs, "max_num_batched_tokens": args.MaxNumBatchedTokens},
		"parallel_config":           map[string]any{"data_parallel_size": args.DPSize},
		"lora_config":               nil,
		"kv_transfer_config":        transfer,
		"kv_events_config":          s.eventsConfig(),
	}})
}

// openapi describes the routes, and the members of completions.
func (s *Server) openapi(w http.ResponseWriter, _ *http.Request) {
	paths := map[string]any{}
	for _, path := range s.paths {
		paths[path] = map[string]any{}
	}
	fields := map[string]any{}
	for _, name := range []string{"model", "prompt", "max_tokens", "cache_salt", "structured_outputs", "thinking_token_budget", "return_token_ids"} {
		if name != "return_token_ids" || !s.config.NoTokenIDs {
			fields[name] = map[string]any{}
		}
	}
	write(w, http.StatusOK, map[string]any{"openapi": "3.1.0", "paths": paths, "components": map[string]any{
		"schemas": map[string]any{"CompletionRequest": map[string]any{"properties": fields}},
	}})
}

func (s *Server) loadAdapter(w http.ResponseWriter, r *http.Request) {
	s.changeAdapter(w, r, func(name string) (int, string) {
		if slices.Contains(s.adapters, name) {
			return http.StatusBadRequest, fmt.Sprintf("The lora adapter '%s' has already been loaded.", name)
		}
		s.adapters = append(s.adapters, name)
		return http.StatusOK, ""
	})
}

func (s *Server) unloadAdapter(w http.ResponseWriter, r *http.Request) {
	s.changeAdapter(w, r, func(name string) (int, string) {
		i := slices.Index(s.adapters, name)
		if i < 0 {
			return http.StatusNotFound, fmt.Sprintf("The lora adapter '%s' cannot be found.", name)
		}
		s.adapters = slices.Delete(s.adapters, i, i+1)
		return http.StatusOK, ""
	})
}

func (s *Server) changeAdapter(w http.ResponseWriter, r *http.Request, change func(name string) (int, string)) {
	var asked struct {
		Name string `json:"lora_name"`
	}
	if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
		s.refuse(w, http.StatusBadRequest, "BadRequestError", err.Error())
		return
	}
	s.mu.Lock()
	status, problem := change(asked.Name)
	s.mu.Unlock()
	if problem != "" {
		s.refuse(w, status, "InvalidUserInput", problem)
		return
	}
	fmt.Fprintf(w, "Success: the lora adapter '%s' was changed.", asked.Name)
}
