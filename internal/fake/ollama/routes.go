package ollama

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

type object map[string]any

func (s *Server) routes() {
	s.mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "Ollama is running") }) //nolint:errcheck // the client has gone then
	s.mux.HandleFunc("GET /api/version", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, object{"version": s.cfg.Version})
	})
	s.mux.HandleFunc("GET /api/tags", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, object{"models": s.installed()})
	})
	s.mux.HandleFunc("GET /api/ps", s.ps)
	s.mux.HandleFunc("POST /api/show", s.show)
	s.mux.HandleFunc("POST /api/chat", func(w http.ResponseWriter, r *http.Request) { s.generate(w, r, true) })
	s.mux.HandleFunc("POST /api/generate", func(w http.ResponseWriter, r *http.Request) { s.generate(w, r, false) })
	s.mux.HandleFunc("GET /v1/models", s.models)
	s.mux.HandleFunc("POST /v1/chat/completions", s.compatible(true))
	s.mux.HandleFunc("POST /v1/completions", s.compatible(false))
}

func answer(w http.ResponseWriter, status int, v any) {
	text, err := json.Marshal(v, json.Deterministic(true), jsontext.AllowInvalidUTF8(true))
	if err != nil {
		panic(err) // it is made here
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	w.Write(text) //nolint:errcheck // the client has gone then
}

func refuse(w http.ResponseWriter, status int, format string, args ...any) {
	answer(w, status, object{"error": fmt.Sprintf(format, args...)})
}

// read decodes a body, or refuses it.
func read(w http.ResponseWriter, r *http.Request, v any) bool {
	text, err := io.ReadAll(r.Body)
	if err == nil {
		err = unmarshal(text, v)
	}
	if err != nil {
		refuse(w, http.StatusBadRequest, "%v", err)
	}
	return err == nil
}

func unmarshal(text []byte, v any) error {
	return json.Unmarshal(text, v, jsontext.AllowInvalidUTF8(true))
}

// tagged is a name with its tag.
func tagged(name string) string {
	if strings.Contains(name, ":") {
		return name
	}
	return name + ":latest"
}

func (s *Server) has(name string) bool {
	all := append([]string{s.cfg.Mock.Model}, s.cfg.Others...)
	return slices.ContainsFunc(all, func(m string) bool { return tagged(m) == tagged(name) })
}

func (s *Server) installed() []object {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := []object{{"name": tagged(s.cfg.Mock.Model), "model": tagged(s.cfg.Mock.Model), "digest": s.digest, "size": 1}}
	for i, name := range s.cfg.Others {
		list = append(list, object{"name": tagged(name), "model": tagged(name), "digest": "sha256:other-" + strconv.Itoa(i), "size": 1})
	}
	return list
}

func (s *Server) ps(w http.ResponseWriter, _ *http.Request) {
	list := []object{}
	if n := s.memory.now(); n > 0 {
		first := s.installed()[0]
		first["context_length"], first["size_vram"] = n, 1
		list = append(list, first)
	}
	answer(w, http.StatusOK, object{"models": list})
}

func (s *Server) show(w http.ResponseWriter, r *http.Request) {
	var q struct {
		Model string `json:"model"`
	}
	if !read(w, r, &q) {
		return
	}
	if !s.has(q.Model) {
		refuse(w, http.StatusNotFound, "model '%s' not found", q.Model)
		return
	}
	told := object{
		"parameters": s.cfg.Parameters, "template": "{{ .Prompt }}",
		"model_info": object{"general.architecture": "fake", "fake.context_length": s.cfg.Made},
	}
	if !s.cfg.Bare {
		told["capabilities"] = s.cfg.Capabilities
	}
	answer(w, http.StatusOK, told)
}

// duration is a time as requests say it: a number of seconds, or a text.
type duration struct {
	set bool
	d   time.Duration
}

// UnmarshalJSON reads either form. What is below zero is for ever.
func (d *duration) UnmarshalJSON(text []byte) (err error) {
	d.set = true
	var v any
	if err := json.Unmarshal(text, &v); err != nil {
		return err
	}
	switch v := v.(type) {
	case float64:
		d.d = time.Duration(v * float64(time.Second))
	case string:
		d.d, err = time.ParseDuration(v)
	default:
		err = errors.New("keep_alive: want a number of seconds, or a text such as 5m")
	}
	return err
}
