package frontend

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/dynago/dynago/fleet"
	"github.com/dynago/dynago/internal/wire"
	"github.com/dynago/dynago/openai"
)

// Roster is who serves, as operators may change it.
type Roster interface {
	// Attach lets one more worker join, as a text says it that could stand behind
	// --engine. The error is for the operator.
	Attach(text string) (id uint64, err error)
	// Drain keeps new requests from a worker, Resume ends that, and Detach removes the
	// worker once those that run have ended. None waits; false is an unknown id.
	Drain(id uint64) bool
	Resume(id uint64) bool
	Detach(id uint64) bool
	// Reload reads again who is to serve, and says what that changes. With an error,
	// which is for the operator, what could not be read stays as it was.
	Reload() (fleet.Change, error)
	// Sources tells where workers come from.
	Sources() []fleet.SourceState
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
		{"POST", "", "/admin/workers/reload", s.changing(s.reloadWorkers)},
		{"POST", "", "/admin/workers/{id}/drain", s.changing(s.changeWorker(s.Roster.Drain))},
		{"POST", "", "/admin/workers/{id}/resume", s.changing(s.changeWorker(s.Roster.Resume))},
		{"DELETE", "", "/admin/workers/{id}", s.changing(s.changeWorker(s.Roster.Detach))},
	}
}

// member is a worker on the wire.
type member struct {
	ID       uint64 `json:"worker_id"`
	Name     string `json:"worker"`
	Engine   string `json:"engine,omitempty"`
	Model    string `json:"model,omitempty"`
	Role     string `json:"role,omitempty"`
	State    string `json:"state"`
	Reason   string `json:"reason,omitempty"`
	Refused  string `json:"refused_for,omitempty"` // the field in which its card differs
	Restarts uint64 `json:"restarts"`
}

// origin is where workers come from, on the wire.
type origin struct {
	Name    string `json:"source"`
	Workers int    `json:"workers"`
	Changes uint64 `json:"changes"`
	Errors  uint64 `json:"errors"`
	Fault   string `json:"fault,omitempty"` // why it tells nothing new
}

// listWorkers answers GET /admin/workers.
func (s *Server) listWorkers(w http.ResponseWriter, _ *http.Request) {
	answer := struct {
		Workers []member `json:"workers"`
		Sources []origin `json:"sources"`
	}{[]member{}, []origin{}}
	for _, m := range s.Backend.Workers() {
		answer.Workers = append(answer.Workers, member{m.ID, m.Name, m.Engine, m.Model, string(m.Role), m.State, m.Reason, m.Refused, m.Restarts})
	}
	for _, o := range s.Roster.Sources() {
		answer.Sources = append(answer.Sources, origin(o))
	}
	s.object(w, http.StatusOK, answer)
}

// reloadWorkers answers POST /admin/workers/reload.
func (s *Server) reloadWorkers(w http.ResponseWriter, _ *http.Request) {
	change, err := s.Roster.Reload()
	if err != nil {
		s.refuse(w, refusal(http.StatusBadRequest, "%s", err))
		return
	}
	s.object(w, http.StatusOK, change)
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

// workersDescription is what the OpenAPI document tells of these routes.
func workersDescription() openai.Description {
	const id = `[{"name":"id","in":"path","required":true,"description":"a worker_id","schema":{"type":"integer"}}]`
	const guarded = "The server listens to other machines, and this route changes it"
	unknown := map[int]string{http.StatusForbidden: guarded, http.StatusNotFound: "There is no such worker"}
	wrong := map[int]string{http.StatusBadRequest: "What is to be attached makes no sense, and nothing changes", http.StatusForbidden: guarded}
	about := func(method, path, name, summary string) openai.Operation {
		return openai.Operation{
			Method: method, Path: "/admin/workers/{id}" + path, ID: name, Summary: summary,
			Params: id, Answer: schemaRef("WorkerID"), Status: http.StatusAccepted, Refusals: unknown,
		}
	}
	return openai.Description{
		Operations: []openai.Operation{
			{
				Method: "get", Path: "/admin/workers", ID: "listWorkers", Summary: "List the workers, and where they come from",
				Answer: schemaRef("WorkerList"), Refusals: map[int]string{},
			},
			{
				Method: "post", Path: "/admin/workers", ID: "addWorker", Summary: "Attach a server, as behind --engine",
				Body:  json.RawMessage(`{"type":"string","examples":["vllm=http://10.0.0.3:8000"]}`),
				Media: "text/plain", Answer: schemaRef("WorkerID"), Status: http.StatusCreated, Refusals: wrong,
			},
			{
				Method: "post", Path: "/admin/workers/reload", ID: "reloadWorkers", Summary: "Read the lists of workers again",
				Answer: schemaRef("WorkerChange"), Refusals: wrong,
			},
			about("post", "/drain", "drainWorker", "Keep new requests from a worker"),
			about("post", "/resume", "resumeWorker", "End that"),
			about("delete", "", "removeWorker", "Drain a worker, and remove it once nothing runs there"),
		},
		Schemas: map[string]string{
			"WorkerID":     `{"type":"object","required":["worker_id"],"properties":{"worker_id":{"type":"integer"}}}`,
			"WorkerList":   `{"type":"object","required":["workers","sources"],"properties":{"workers":{"type":"array","items":{"type":"object","required":["worker_id","worker","state","restarts"],"properties":{"worker_id":{"type":"integer"},"worker":{"type":"string"},"engine":{"type":"string"},"model":{"type":"string"},"role":{"type":"string"},"state":{"type":"string"},"reason":{"type":"string"},"refused_for":{"type":"string"},"restarts":{"type":"integer"}}}},"sources":{"type":"array","items":{"type":"object","required":["source","workers","changes","errors"],"properties":{"source":{"type":"string"},"workers":{"type":"integer"},"changes":{"type":"integer"},"errors":{"type":"integer"},"fault":{"type":"string"}}}}}}`,
			"WorkerChange": `{"type":"object","required":["added","removed","changed","kept"],"properties":{"added":{"type":"array","items":{"type":"string"}},"removed":{"type":"array","items":{"type":"string"}},"changed":{"type":"array","items":{"type":"string"}},"kept":{"type":"integer"}}}`,
		},
	}
}
