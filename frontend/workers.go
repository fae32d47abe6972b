package frontend

import (
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/dynago/dynago/internal/wire"
)

// Roster is who serves, as operators may change it.
type Roster interface {
	// Attach lets one more worker join, as a text says it that could stand behind
	// --engine. The error is for the operator.
	Attach(text string) (id uint64, err error)
	// Drain keeps new requests from a worker, and Detach besides removes it once
	// those that run have ended. Neither waits for that; false is an unknown id.
	Drain(id uint64) bool
	Detach(id uint64) bool
}

// mostWorkerText bounds what is said of a worker, in bytes.
const mostWorkerText = 64 << 10

// workerRoutes are the routes by which workers are listed, added and taken away.
func (s *Server) workerRoutes() []route {
	if s.Roster == nil {
		return nil
	}
	return []route{
		{"GET", "", "/admin/workers", s.listWorkers},
		{"POST", "", "/admin/workers", s.changing(s.addWorker)},
		{"POST", "", "/admin/workers/{id}/drain", s.changing(s.changeWorker(s.Roster.Drain))},
		{"DELETE", "", "/admin/workers/{id}", s.changing(s.changeWorker(s.Roster.Detach))},
	}
}

// member is a worker on the wire.
type member struct {
	ID     uint64 `json:"worker_id"`
	Name   string `json:"worker"`
	Model  string `json:"model,omitempty"`
	Role   string `json:"role,omitempty"`
	State  string `json:"state"`
	Reason string `json:"reason,omitempty"`
}

// listWorkers answers GET /admin/workers.
func (s *Server) listWorkers(w http.ResponseWriter, _ *http.Request) {
	list := []member{}
	for _, m := range s.Backend.Workers() {
		list = append(list, member{m.ID, m.Name, m.Model, string(m.Role), m.State, m.Reason})
	}
	s.object(w, http.StatusOK, map[string][]member{"workers": list})
}

// addWorker answers POST /admin/workers, whose body is the text itself.
func (s *Server) addWorker(w http.ResponseWriter, r *http.Request) {
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, mostWorkerText))
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		s.refuse(w, refusal(http.StatusRequestEntityTooLarge, "The text is longer than %d bytes", mostWorkerText))
		return
	} else if err != nil {
		return // the client has gone
	}
	id, err := s.Roster.Attach(strings.TrimSpace(string(text)))
	if err != nil {
		s.refuse(w, refusal(http.StatusBadRequest, "%s", err))
		return
	}
	s.object(w, http.StatusCreated, map[string]uint64{"worker_id": id})
}

// changeWorker answers a request about one worker, which goes on by itself.
func (s *Server) changeWorker(change func(id uint64) bool) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		id, err := strconv.ParseUint(r.PathValue("id"), 10, 64)
		if err != nil || !change(id) {
			s.refuse(w, &wire.Error{
				Status: http.StatusNotFound, Code: "worker_not_found",
				Message: "There is no worker " + strconv.Quote(r.PathValue("id")) + ": want a worker_id of GET /admin/workers",
			})
			return
		}
		s.object(w, http.StatusAccepted, map[string]uint64{"worker_id": id})
	}
}
