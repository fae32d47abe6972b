package llama

import (
	"cmp"
	"fmt"
	"io"
	"net/http"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Build is the build that the server says it is.
const Build = "b9000-fake"

func (s *Server) routes() {
	s.mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, object{"status": "ok"})
	})
	s.mux.HandleFunc("GET /props", s.props)
	s.mux.HandleFunc("GET /slots", s.listSlots)
	s.mux.HandleFunc("POST /slots/{id}", s.slotAction)
	s.mux.HandleFunc("GET /metrics", s.metrics)
	s.mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, object{"object": "list", "data": []object{{"id": cmp.Or(s.cfg.Alias, s.cfg.Mock.Model), "object": "model", "owned_by": "llamacpp"}}})
	})
	s.mux.HandleFunc("GET /lora-adapters", s.adapters)
	s.mux.HandleFunc("POST /tokenize", s.tokenize)
	s.mux.HandleFunc("POST /detokenize", s.detokenize)
	s.mux.HandleFunc("POST /completion", s.complete)
	s.mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		refuse(w, http.StatusNotFound, "not_found_error", "File Not Found")
	})
}

type object map[string]any

func answer(w http.ResponseWriter, status int, v any) {
	text, err := json.Marshal(v, json.Deterministic(true), jsontext.AllowInvalidUTF8(true))
	if err != nil {
		panic(err) // it is made here
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	w.Write(text) //nolint:errcheck // the client has gone then
}

func refuse(w http.ResponseWriter, status int, kind, message string) {
	answer(w, status, object{"error": object{"code": status, "type": kind, "message": message}})
}

// read decodes a body, or refuses it.
func read(w http.ResponseWriter, r *http.Request, v any) bool {
	text, err := io.ReadAll(r.Body)
	if err == nil {
		err = json.Unmarshal(text, v, jsontext.AllowInvalidUTF8(true))
	}
	if err != nil {
		refuse(w, http.StatusBadRequest, "invalid_request_error", err.Error())
	}
	return err == nil
}

func (s *Server) props(w http.ResponseWriter, _ *http.Request) {
	p := object{
		"total_slots":                 s.cfg.Mock.Args.MaxNumSeqs,
		"model_path":                  "models/" + s.cfg.Mock.Model + ".gguf",
		"build_info":                  Build,
		"default_generation_settings": object{"n_ctx": s.context},
		"is_sleeping":                 s.asleep.Load(),
	}
	if s.cfg.Alias != "" {
		p["model_alias"] = s.cfg.Alias
	}
	if m := s.now().marker; m != "" {
		p["media_marker"] = m
	}
	if s.cfg.Router {
		p = object{"role": "router", "build_info": Build}
	}
	if len(s.cfg.Mock.EOS) > 0 {
		p["eos_token"] = eosText
	}
	answer(w, http.StatusOK, p)
}

func (s *Server) listSlots(w http.ResponseWriter, _ *http.Request) {
	if s.cfg.NoSlots {
		refuse(w, http.StatusNotImplemented, "not_supported_error", "This server does not support slots endpoint. Start it with `--slots`")
		return
	}
	busy, _ := s.now().slots.counts()
	list := make([]object, len(busy))
	for i, b := range busy {
		list[i] = object{"id": i, "n_ctx": s.context, "is_processing": b}
	}
	answer(w, http.StatusOK, list)
}

func (s *Server) slotAction(w http.ResponseWriter, r *http.Request) {
	id, err := strconv.Atoi(r.PathValue("id"))
	switch action := r.URL.Query().Get("action"); {
	case !s.cfg.SlotActions:
		refuse(w, http.StatusNotImplemented, "not_supported_error", "This server does not support slots action. Start it with `--slot-save-path`")
	case err != nil || id < 0 || id >= s.cfg.Mock.Args.MaxNumSeqs:
		refuse(w, http.StatusBadRequest, "invalid_request_error", "Invalid slot ID")
	case action != "erase":
		refuse(w, http.StatusBadRequest, "invalid_request_error", "Invalid action")
	default:
		n, err := s.now().slots.erase(r.Context(), id)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		answer(w, http.StatusOK, object{"id_slot": id, "n_erased": n})
	}
}

func (s *Server) metrics(w http.ResponseWriter, _ *http.Request) {
	if s.cfg.NoMetrics {
		refuse(w, http.StatusNotImplemented, "not_supported_error", "This server does not support metrics endpoint. Start it with `--metrics`")
		return
	}
	l := s.now()
	busy, waiting := l.slots.counts()
	running := 0
	for _, b := range busy {
		if b {
			running++
		}
	}
	w.Header().Set("Content-Type", "text/plain; version=0.0.4")
	for _, m := range []struct {
		name, kind string
		value      int64
	}{
		{"prompt_tokens_total", "counter", l.prompt.Load()},
		{"tokens_predicted_total", "counter", l.predicted.Load()},
		{"requests_processing", "gauge", int64(running)},
		{"requests_deferred", "gauge", int64(waiting)},
	} {
		fmt.Fprintf(w, "# TYPE llamacpp:%[1]s %[2]s\nllamacpp:%[1]s %[3]d\n", m.name, m.kind, m.value)
	}
	if s.cfg.OldUsage {
		fmt.Fprintf(w, "# TYPE llamacpp:kv_cache_usage_ratio gauge\nllamacpp:kv_cache_usage_ratio %v\n", l.slots.used(s.context))
	}
}

func (s *Server) adapters(w http.ResponseWriter, _ *http.Request) {
	list := make([]object, len(s.cfg.Adapters))
	for i, path := range s.cfg.Adapters {
		list[i] = object{"id": i, "path": path, "scale": 1.0}
	}
	answer(w, http.StatusOK, list)
}

func (s *Server) tokenize(w http.ResponseWriter, r *http.Request) {
	var q struct {
		Content string `json:"content"`
		Special bool   `json:"parse_special"`
	}
	if !read(w, r, &q) {
		return
	}
	ids := s.words.Encode(q.Content)
	if q.Special && q.Content == eosText && len(s.cfg.Mock.EOS) > 0 {
		ids = s.cfg.Mock.EOS[:1]
	}
	answer(w, http.StatusOK, object{"tokens": append([]uint32{}, ids...)})
}

func (s *Server) detokenize(w http.ResponseWriter, r *http.Request) {
	var q struct {
		Tokens []uint32 `json:"tokens"`
	}
	if !read(w, r, &q) {
		return
	}
	var text []byte
	for _, id := range q.Tokens {
		text = append(text, s.words.Spell(id)...)
	}
	answer(w, http.StatusOK, object{"content": string(text)})
}
