package frontend

import (
	"cmp"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/dynago/dynago/internal/wire"

	"github.com/dynago/dynago/anthropic"
	"github.com/dynago/dynago/openai"
	"github.com/dynago/dynago/pipeline"
)

// listModels lists the names that can be asked for now, aliases included.
func (s *Server) listModels(w http.ResponseWriter, r *http.Request) {
	x := exchangeOf(r)
	var list []openai.Model
	models := s.Backend.Models()
	for _, m := range models {
		if !m.Ready {
			continue
		}
		for _, name := range slices.Concat([]string{m.ID}, m.Aliases, m.Adapters) {
			list = append(list, s.modelOf(name, m, x.arrived.Unix()))
		}
	}
	list = append(list, s.listed(models, x.arrived.Unix())...)
	if x.messages {
		s.respond(w, http.StatusOK, anthropic.AppendModels(nil, messagesModels(list))) //nolint:errcheck // the client has gone, and nothing is left to do
		return
	}
	s.respond(w, http.StatusOK, openai.AppendModels(nil, list)) //nolint:errcheck // the client has gone, and nothing is left to do
}

func (s *Server) modelOf(name string, m pipeline.ModelInfo, created int64) openai.Model {
	return openai.Model{
		ID: name, Created: created, OwnedBy: s.OwnedBy,
		ContextWindow:   cmp.Or(s.ContextWindow, m.ContextLength),
		MaxOutputTokens: s.MaxOutputTokens,
	}
}

// showModel answers for one model, whose id may have slashes, or tells whether
// it is ready if the path ends so.
func (s *Server) showModel(w http.ResponseWriter, r *http.Request) {
	id, x := r.PathValue("id"), exchangeOf(r)
	m, ok := s.lookup(id)
	if !ok {
		if base, isProbe := strings.CutSuffix(id, "/ready"); isProbe {
			s.modelReady(w, r, base)
			return
		}
		s.refuseModel(w, x, id)
		return
	}
	if !m.Ready {
		e := s.notReady()
		e.Param = "model"
		e.Message = "Model `" + clip(id) + "` is not ready to serve requests yet. The deployment may still be starting up or is not fully provisioned. Please retry shortly."
		s.refuseTo(w, x, e)
		return
	}
	shown := s.modelOf(id, m, x.arrived.Unix())
	if x.messages {
		s.respond(w, http.StatusOK, anthropic.AppendModel(nil, messagesModel(shown))) //nolint:errcheck // the client has gone, and nothing is left to do
		return
	}
	s.respond(w, http.StatusOK, openai.AppendModel(nil, shown)) //nolint:errcheck // the client has gone, and nothing is left to do
}

type readiness struct {
	Model      string                 `json:"model"`
	Ready      bool                   `json:"ready"`
	Reason     string                 `json:"reason,omitzero"`
	Namespaces map[string]inNamespace `json:"namespaces"`
}

type inNamespace struct {
	Ready   bool                  `json:"ready"`
	Reason  string                `json:"reason,omitzero"`
	Present []string              `json:"present"`
	Missing []string              `json:"missing_worker_types"`
	Types   map[string]workerType `json:"worker_types"`
}

type workerType struct {
	Workers int        `json:"workers"`
	Needs   [][]string `json:"needs"`
}

// modelReady tells whether a registered model can serve; with ?probe=1 by its
// status as well.
func (s *Server) modelReady(w http.ResponseWriter, r *http.Request, id string) {
	m, ok := s.lookup(id)
	if !ok {
		s.refuseModel(w, exchangeOf(r), id)
		return
	}
	here := inNamespace{Ready: m.Ready, Reason: m.Reason, Present: []string{}, Missing: []string{}, Types: map[string]workerType{}}
	for role, r := range m.Roles {
		name := cmp.Or(string(role), "aggregated")
		t := workerType{Workers: r.Workers, Needs: [][]string{}}
		for _, need := range r.Needs {
			t.Needs = append(t.Needs, []string{string(need)})
		}
		here.Present, here.Types[name] = append(here.Present, name), t
	}
	slices.Sort(here.Present)
	for _, role := range m.Missing {
		here.Missing = append(here.Missing, string(role))
	}
	reason := m.Reason
	if len(m.Missing) > 0 {
		reason = "no namespace has all required worker types live"
	}
	code := http.StatusOK
	if probe, _ := strconv.ParseBool(r.URL.Query().Get("probe")); probe && !m.Ready {
		code = http.StatusServiceUnavailable
	}
	s.object(w, code, readiness{Model: m.ID, Ready: m.Ready, Reason: reason, Namespaces: map[string]inNamespace{"dynamo": here}})
}

func (s *Server) lookup(name string) (pipeline.ModelInfo, bool) {
	name = s.resolve(name)
	models := s.Backend.Models()
	for _, m := range models {
		if m.ID == name || slices.Contains(m.Aliases, name) {
			return m, true
		}
	}
	for _, m := range models {
		if slices.Contains(m.Adapters, name) {
			return m, true
		}
	}
	return pipeline.ModelInfo{}, false
}

// refuseModel tells that there is no such model, in the client's words.
func (s *Server) refuseModel(w http.ResponseWriter, x *exchange, id string) {
	if x.messages {
		s.refuseMessages(w, unknown(id), id)
		return
	}
	s.refuse(w, unknown(id))
}

func unknown(model string) *wire.Error {
	return &wire.Error{
		Status: http.StatusNotFound, Message: "The model `" + clip(model) + "` does not exist",
		Param: "model", Code: wire.CodeModelNotFound,
	}
}
