package frontend

import (
	"net/http"
	"time"

	"github.com/dynago/dynago/internal/wire"

	"github.com/go-json-experiment/json"
)

// notReady is the answer to a request that comes while the server drains.
func (s *Server) notReady() *wire.Error {
	return &wire.Error{
		Status: http.StatusServiceUnavailable, Message: "Service is not ready",
		Code: wire.CodeOverloaded, RetryAfter: time.Second,
	}
}

func (s *Server) live(w http.ResponseWriter, _ *http.Request) {
	if s.stage.get() == Stopping {
		s.object(w, http.StatusServiceUnavailable, status{Status: "shutting_down", Message: "Service is shutting down"})
		return
	}
	s.object(w, http.StatusOK, status{Status: "live", Message: "Service is live"})
}

// ready is for load balancers: true when a request could be answered now.
func (s *Server) ready(w http.ResponseWriter, _ *http.Request) {
	if stage := s.stage.get(); stage != Ready {
		s.object(w, http.StatusServiceUnavailable, status{Status: "not_ready", Stage: stage.String(), Message: "Service is not ready"})
		return
	}
	for _, m := range s.Backend.Models() {
		if m.Ready {
			s.object(w, http.StatusOK, status{Status: "ready", Message: "Service is ready"})
			return
		}
	}
	s.object(w, http.StatusServiceUnavailable, status{Status: "not_ready", Stage: Ready.String(), Message: "No model is ready"})
}

type status struct {
	Status  string `json:"status"`
	Stage   string `json:"stage,omitzero"`
	Message string `json:"message"`
}

// healthy lists who serves, in the words of the reference's discovery.
type healthy struct {
	Status    string     `json:"status"`
	Endpoints []string   `json:"endpoints"`
	Instances []instance `json:"instances"`
}

type instance struct {
	Namespace string            `json:"namespace"`
	Component string            `json:"component"`
	Endpoint  string            `json:"endpoint"`
	ID        uint64            `json:"instance_id"`
	Transport map[string]string `json:"transport"`
	Model     string            `json:"model"`
	State     string            `json:"state"`
	Reason    string            `json:"reason,omitempty"` // why it is not ready
}

func (s *Server) health(w http.ResponseWriter, _ *http.Request) {
	if stage := s.stage.get(); stage != Ready {
		s.object(w, http.StatusServiceUnavailable, status{Status: "not_ready", Stage: stage.String(), Message: "Service is not ready"})
		return
	}
	h := healthy{Status: "healthy", Endpoints: []string{}, Instances: []instance{}}
	for _, worker := range s.Backend.Workers() {
		h.Endpoints = []string{"dyn://dynamo.backend.generate"}
		h.Instances = append(h.Instances, instance{
			Namespace: "dynamo", Component: "backend", Endpoint: "generate",
			ID: worker.ID, Transport: map[string]string{"address": worker.Name},
			Model: worker.Model, State: worker.State, Reason: worker.Reason,
		})
	}
	s.object(w, http.StatusOK, h)
}

// root answers what some clients ask before anything else.
func (s *Server) root(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodHead {
		w.WriteHeader(http.StatusOK)
		return
	}
	s.object(w, http.StatusOK, status{Status: "live", Message: "dynago serves /v1/chat/completions; see /docs"})
}

// object answers with a value as JSON.
func (s *Server) object(w http.ResponseWriter, code int, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		s.refuse(w, err)
		return
	}
	s.respond(w, code, body) //nolint:errcheck // the client has gone, and nothing is left to do
}
