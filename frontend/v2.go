package frontend

import (
	"net/http"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"google.golang.org/protobuf/proto"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/internal/gen/inferencepb"
	"github.com/dynago/dynago/internal/wire"
	"github.com/dynago/dynago/kserve"
)

// KServe v2 over REST: what a server and its models are. What models answer is in
// v2infer.go.

const v2Prefix = "/v2"

// v2Routes are the routes of KServe v2. Names of models may hold slashes, so one
// pattern stands for all routes of models, and [v2PathOf] tells these apart.
func (s *Server) v2Routes() []route {
	if !s.KServe {
		return nil
	}
	return []route{
		{"GET", "", v2Prefix, s.v2Server},
		{"GET", "", v2Prefix + "/health/live", s.v2Live},
		{"GET", "", v2Prefix + "/health/ready", s.v2Ready},
		{"GET", "", v2Models + "{path...}", s.v2Model},
		{"POST", "", v2Models + "{path...}", s.v2Model},
		{"POST", "", v2Prefix + "/repository/index", s.v2Index},

		// Clients of Triton know these, and are told that they are not served.
		{"POST", "", v2Prefix + "/repository/models/{path...}", s.v2Lacks("Loading and unloading of models")},
		{"GET", "", v2Prefix + "/systemsharedmemory/{path...}", s.v2Lacks("Shared memory")},
		{"POST", "", v2Prefix + "/systemsharedmemory/{path...}", s.v2Lacks("Shared memory")},
		{"GET", "", v2Prefix + "/cudasharedmemory/{path...}", s.v2Lacks("Shared memory")},
		{"POST", "", v2Prefix + "/cudasharedmemory/{path...}", s.v2Lacks("Shared memory")},
		{"GET", "", v2Prefix + "/trace/setting", s.v2Lacks("TraceSetting")},
		{"POST", "", v2Prefix + "/trace/setting", s.v2Lacks("TraceSetting")},
		{"GET", "", v2Prefix + "/logging", s.v2Lacks("LogSettings")},
		{"POST", "", v2Prefix + "/logging", s.v2Lacks("LogSettings")},
	}
}

// v2Lacks refuses what Triton has and is not served here.
func (s *Server) v2Lacks(what string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		s.v2Refuse(w, engine.Errorf(engine.Unsupported, "%s is not supported by this server", what))
	}
}

func (s *Server) v2Server(w http.ResponseWriter, _ *http.Request) {
	s.v2Message(w, kserve.ServerMetadata(s.Version, true))
}

// v2Live and v2Ready answer false with 400, which is what Triton's clients expect.
func (s *Server) v2Live(w http.ResponseWriter, _ *http.Request) {
	s.v2Health(w, "live", s.stage.get() != Stopping)
}

func (s *Server) v2Ready(w http.ResponseWriter, _ *http.Request) {
	ready := s.stage.get() == Ready && slices.ContainsFunc(s.v2List(), func(m kserve.Model) bool { return m.Ready })
	s.v2Health(w, "ready", ready)
}

func (s *Server) v2Health(w http.ResponseWriter, what string, yes bool) {
	code := http.StatusOK
	if !yes {
		code = http.StatusBadRequest
	}
	s.object(w, code, map[string]bool{what: yes})
}

// v2List lists the models that clients of KServe see.
func (s *Server) v2List() (list []kserve.Model) {
	for _, m := range s.Backend.Models() {
		if kserve.KindOf(m.Card) != kserve.Hidden {
			list = append(list, kserve.Model{Name: m.ID, Card: m.Card, Ready: m.Ready, Reason: m.Reason})
		}
	}
	return list
}

// v2Index lists models; the body may ask for those that are ready. One of Triton's
// clients calls a body that is not there text.
func (s *Server) v2Index(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength == 0 {
		r.Header.Del("Content-Type")
	}
	body, err := s.body(w, r)
	if err != nil {
		s.v2Refuse(w, err)
		return
	}
	var asked struct {
		Ready      bool   `json:"ready"`
		Repository string `json:"repository_name"`
	}
	if len(body) > 0 {
		if err := json.Unmarshal(body, &asked); err != nil {
			s.v2Refuse(w, refusal(http.StatusBadRequest, `Failed to parse request: expected an object such as {"ready":true}`))
			return
		}
	}
	index, err := kserve.Index(s.v2List(), &inferencepb.RepositoryIndexRequest{RepositoryName: asked.Repository, Ready: asked.Ready})
	if err != nil {
		s.v2Refuse(w, err)
		return
	}
	s.respond(w, http.StatusOK, kserve.AppendProtos(nil, index.GetModels())) //nolint:errcheck // the client has gone, and nothing is left to do
}

// v2Model answers for one model, and for all that there are if the path names none.
func (s *Server) v2Model(w http.ResponseWriter, r *http.Request) {
	at, ok := v2PathOf(r.URL.EscapedPath(), func(name string) bool { return s.Backend.Card(name) != nil })
	if !ok {
		s.v2Refuse(w, refusal(http.StatusNotFound, "Route not found: %s %s", clip(r.Method), clip(r.URL.Path)))
		return
	}
	if allow := at.method(); r.Method != allow && (r.Method != http.MethodHead || allow != http.MethodGet) {
		w.Header().Set("Allow", allow)
		s.v2Refuse(w, refusal(http.StatusMethodNotAllowed, "Method not allowed: %s %s takes %s", clip(r.Method), clip(r.URL.Path), allow))
		return
	}
	switch at.verb {
	case v2Infer, v2Generate, v2GenerateStream:
		s.v2Call(w, r, at)
	case v2ModelReady:
		s.v2ModelReady(w, at)
	case v2Stats:
		s.v2Statistics(w, at)
	case v2Config:
		config, err := kserve.Config(at.model, s.Backend.Card(at.model))
		s.v2Answer(w, config, err)
	default:
		metadata, err := kserve.Metadata(at.model, s.Backend.Card(at.model))
		s.v2Answer(w, metadata, err)
	}
}

// v2ModelReady answers false with 400, as the health routes do. That a model is
// unknown is no error here.
func (s *Server) v2ModelReady(w http.ResponseWriter, at v2Path) {
	ready := s.stage.get() == Ready && slices.ContainsFunc(s.v2List(), func(m kserve.Model) bool { return m.Name == at.model && m.Ready })
	code := http.StatusOK
	if !ready {
		code = http.StatusBadRequest
	}
	s.object(w, code, struct {
		Name  string `json:"name"`
		Ready bool   `json:"ready"`
	}{at.model, ready})
}

// v2Answer answers with a message, or the error in its place.
func (s *Server) v2Answer(w http.ResponseWriter, m proto.Message, err error) {
	if err != nil {
		s.v2Refuse(w, err)
		return
	}
	s.v2Message(w, m)
}

func (s *Server) v2Message(w http.ResponseWriter, m proto.Message) {
	s.respond(w, http.StatusOK, kserve.AppendProto(nil, m)) //nolint:errcheck // the client has gone, and nothing is left to do
}

// v2Refuse answers with an error in the shape of KServe.
func (s *Server) v2Refuse(w http.ResponseWriter, err error) {
	e := wire.ErrorOf(err, s.OverloadStatus)
	setBackoff(w.Header(), e)
	s.respond(w, e.Status, v2AppendError(nil, e)) //nolint:errcheck // the client has gone, and nothing is left to do
}

func v2AppendError(dst []byte, e *wire.Error) []byte {
	return append(wire.AppendString(append(dst, `{"error":`...), e.Message), '}')
}

// speaksKServe says whether a request is one of KServe, by its path.
func (s *Server) speaksKServe(r *http.Request) bool {
	rest, ok := strings.CutPrefix(r.URL.Path, v2Prefix)
	return s.KServe && ok && (rest == "" || rest[0] == '/')
}
