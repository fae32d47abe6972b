package sglang

import (
	"fmt"
	"io"
	"net/http"
	"reflect"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

func (s *Server) flush(w http.ResponseWriter, _ *http.Request) {
	if s.Running() > 0 || !s.engine.Forget() {
		http.Error(w, "Flush cache failed: requests are running.", http.StatusBadRequest)
		return
	}
	w.Write([]byte("Cache flushed.\n")) //nolint:errcheck // nobody is left to tell
}

// pause stops the admission of requests, or lets it go on. A paused server takes
// requests and does not answer.
func (s *Server) pause(on bool) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		s.mu.Lock()
		s.paused = on
		s.mu.Unlock()
		tell(w, http.StatusOK, map[string]string{"status": "ok"})
	}
}

// sleep releases the memory of weights and cache, or takes it back. Nobody may ask
// for what is so already.
func (s *Server) sleep(on bool) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		s.mu.Lock()
		same := s.asleep == on
		s.asleep = on
		s.mu.Unlock()
		if same {
			fail(w, http.StatusBadRequest, "memory is as it was asked to be")
			return
		}
		if on {
			s.engine.Forget()
		}
		tell(w, http.StatusOK, nil)
	}
}

// stuck says whether requests are taken and not answered.
func (s *Server) stuck() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.paused || s.asleep
}

// SetWeights is what an update of the weights does: they have another version, and
// what was cached is dropped.
func (s *Server) SetWeights(version string) {
	s.mu.Lock()
	s.weights = version
	s.mu.Unlock()
	s.engine.Forget()
}

func (s *Server) abort(w http.ResponseWriter, r *http.Request) {
	var body struct {
		RID string `json:"rid"`
		All bool   `json:"abort_all"`
	}
	if err := json.UnmarshalRead(r.Body, &body); err != nil {
		fail(w, http.StatusUnprocessableEntity, err.Error())
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.aborted = append(s.aborted, body.RID)
	for id, w := range s.running {
		if body.All || id == body.RID {
			w.cancel(errAborted)
			delete(s.running, id)
		}
	}
}

// Aborted tells which requests it was told to forget, in order.
func (s *Server) Aborted() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.aborted)
}

func (s *Server) loaded(adapter string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Contains(s.adapters, adapter)
}

type adapterBody struct {
	Name   string `json:"lora_name"`
	Path   string `json:"lora_path"`
	Pinned bool   `json:"pinned"`
}

func (s *Server) loadAdapter(w http.ResponseWriter, r *http.Request) {
	var body adapterBody
	if err := json.UnmarshalRead(r.Body, &body); err != nil || body.Name == "" || body.Path == "" {
		fail(w, http.StatusUnprocessableEntity, "lora_name and lora_path: Field required")
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Contains(s.adapters, body.Name) {
		s.adapters = append(s.adapters, body.Name)
	}
	tell(w, http.StatusOK, map[string]any{"success": true, "loaded_adapters": s.adapters})
}

func (s *Server) unloadAdapter(w http.ResponseWriter, r *http.Request) {
	var body adapterBody
	if err := json.UnmarshalRead(r.Body, &body); err != nil || body.Name == "" {
		fail(w, http.StatusUnprocessableEntity, "lora_name: Field required")
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.adapters = slices.DeleteFunc(s.adapters, func(a string) bool { return a == body.Name })
	tell(w, http.StatusOK, map[string]any{"success": true, "loaded_adapters": s.adapters})
}

// storage tells of the store below the cache, attaches one and detaches it.
func (s *Server) storage(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Backend string `json:"hicache_storage_backend"`
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch r.Method {
	case http.MethodPut:
		if err := json.UnmarshalRead(r.Body, &body); err != nil || body.Backend == "" {
			fail(w, http.StatusUnprocessableEntity, "hicache_storage_backend: Field required")
			return
		}
		s.store = body.Backend
	case http.MethodDelete:
		s.store = ""
	}
	tell(w, http.StatusOK, map[string]any{"hicache_storage_backend": s.store})
}

// fields are the members of requests that the build has.
func (s *Server) fields() (names []string) {
	for f := range reflect.TypeFor[generateBody]().Fields() {
		since := f.Tag.Get("since")
		if s.cfg.Late || since == "" || since == "0.5.14" && !s.cfg.OldNames {
			names = append(names, f.Tag.Get("json"))
		}
	}
	return names
}

// parse reads a request. A late build takes no member that it does not know, and
// others do not see it.
func (s *Server) parse(body io.Reader) (*generateBody, error) {
	var members map[string]jsontext.Value
	if err := json.UnmarshalRead(body, &members); err != nil {
		return nil, err
	}
	names := s.fields()
	for name := range members {
		if slices.Contains(names, name) {
			continue
		}
		if s.cfg.Late {
			return nil, fmt.Errorf("%s: Extra inputs are not permitted", name)
		}
		delete(members, name)
	}
	text, err := json.Marshal(members)
	if err != nil {
		return nil, err
	}
	b := new(generateBody)
	return b, json.Unmarshal(text, b)
}

func (s *Server) describe(w http.ResponseWriter, _ *http.Request) {
	properties := map[string]any{}
	for _, name := range s.fields() {
		properties[name] = map[string]any{}
	}
	tell(w, http.StatusOK, map[string]any{
		"paths":      map[string]any{"/generate": map[string]any{}},
		"components": map[string]any{"schemas": map[string]any{"GenerateReqInput": map[string]any{"properties": properties}}},
	})
}

func (s *Server) metrics(w http.ResponseWriter, r *http.Request) {
	block := int64(s.cfg.Mock.Args.BlockSize)
	for _, l := range s.load(r.Context()).Ranks {
		for _, m := range []struct {
			name  string
			value int64
		}{
			{"num_running_reqs", l.Running},
			{"num_queue_reqs", l.Waiting},
			{"num_used_tokens", l.UsedBlocks * block},
			{"max_total_num_tokens", l.TotalBlocks * block},
			{"cached_tokens_total", l.PrefixHits},
			{"prompt_tokens_total", l.PrefixQueries},
		} {
			fmt.Fprintf(w, "sglang:%s{model_name=\"m\",engine_type=\"unified\",tp_rank=\"0\",pp_rank=\"0\",dp_rank=\"%d\"} %d.0\n", m.name, l.Rank, m.value)
		}
	}
}
