package frontend

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/go-json-experiment/json"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/router"
)

// Thresholds are what workers may have to do before they count as busy;
// [router.Router] keeps them.
type Thresholds interface {
	// AllThresholds returns those of each model that has some.
	AllThresholds() []router.ModelThresholds
	// Thresholds returns those of a model.
	Thresholds(model string) router.Thresholds
	// SetThresholds changes those of a model that are not nil, takes away those that
	// are named, and returns what holds then.
	SetThresholds(model string, t router.Thresholds, unset ...string) (router.Thresholds, error)
}

// busyRoutes are the routes by which thresholds are read and changed.
func (s *Server) busyRoutes() []route {
	if s.Thresholds == nil {
		return nil
	}
	return []route{
		{"GET", "", "/busy_threshold", s.listThresholds},
		{"POST", "", "/busy_threshold", s.setThresholds},
	}
}

// thresholds are those of one model on the wire; null is none.
type thresholds struct {
	Model             string   `json:"model"`
	DecodeBlocks      *float64 `json:"active_decode_blocks_threshold"`
	PrefillTokens     *uint64  `json:"active_prefill_tokens_threshold"`
	PrefillTokensFrac *float64 `json:"active_prefill_tokens_threshold_frac"`
}

func onWire(model string, t router.Thresholds) thresholds {
	return thresholds{model, t.ActiveDecodeBlocks, t.ActivePrefillTokens, t.ActivePrefillTokensFrac}
}

// thresholdChange is the body of a change, or, if it changes nothing, of a
// question.
type thresholdChange struct {
	Model             string   `json:"model"`
	DecodeBlocks      *float64 `json:"active_decode_blocks_threshold"`
	PrefillTokens     *uint64  `json:"active_prefill_tokens_threshold"`
	PrefillTokensFrac *float64 `json:"active_prefill_tokens_threshold_frac"`
	Unset             []string `json:"unset"` // names
}

// listThresholds answers GET /busy_threshold.
func (s *Server) listThresholds(w http.ResponseWriter, _ *http.Request) {
	list := []thresholds{}
	for _, m := range s.Thresholds.AllThresholds() {
		list = append(list, onWire(m.Model, m.Thresholds))
	}
	s.tell(w, http.StatusOK, map[string]any{"thresholds": list})
}

// setThresholds answers POST /busy_threshold.
func (s *Server) setThresholds(w http.ResponseWriter, r *http.Request) {
	body, err := s.body(w, r)
	if err != nil {
		s.refuse(w, err)
		return
	}
	var c thresholdChange
	if err := json.Unmarshal(body, &c); err != nil {
		s.tellError(w, http.StatusUnprocessableEntity, readable(err))
		return
	}
	if c.Model == "" {
		s.tellError(w, http.StatusUnprocessableEntity, "model: is required and must not be empty")
		return
	}
	asked := router.Thresholds{
		ActiveDecodeBlocks: c.DecodeBlocks, ActivePrefillTokens: c.PrefillTokens, ActivePrefillTokensFrac: c.PrefillTokensFrac,
	}
	if asked == (router.Thresholds{}) && len(c.Unset) == 0 {
		s.tell(w, http.StatusOK, onWire(c.Model, s.Thresholds.Thresholds(c.Model)))
		return
	}
	after, err := s.Thresholds.SetThresholds(c.Model, asked, c.Unset...)
	switch e, _ := errors.AsType[*engine.Error](err); {
	case err == nil:
		s.Logger.Info("busy thresholds changed", "model", c.Model, "by", exchangeOf(r).id)
		s.tell(w, http.StatusOK, onWire(c.Model, after))
	case e != nil && e.Kind == engine.NotFound:
		s.tellError(w, http.StatusNotFound, e.Message)
	case e != nil && e.Kind == engine.InvalidArgument:
		s.tellError(w, http.StatusBadRequest, e.Message)
	default:
		s.refuse(w, err)
	}
}

// readable says in one line what is wrong with a JSON body.
func readable(err error) string {
	e, ok := errors.AsType[*json.SemanticError](err)
	if !ok {
		return "malformed JSON"
	}
	member, _, _ := strings.Cut(strings.TrimPrefix(string(e.JSONPointer), "/"), "/")
	want, ok := map[string]string{
		"model":                           "a string",
		"unset":                           "an array of strings",
		router.ThresholdPrefillTokens:     "a whole number, 0 or more",
		router.ThresholdDecodeBlocks:      "a number",
		router.ThresholdPrefillTokensFrac: "a number",
	}[member]
	if !ok {
		return "expected an object"
	}
	return member + ": expected " + want
}

// tell answers with a value as JSON.
func (s *Server) tell(w http.ResponseWriter, status int, value any) {
	body, err := json.Marshal(value)
	if err != nil {
		s.refuse(w, fmt.Errorf("encode an answer: %w", err))
		return
	}
	s.respond(w, status, body) //nolint:errcheck // the client has gone, and nothing is left to do
}

// tellError answers in the shape of routes that are older than OpenAI's.
func (s *Server) tellError(w http.ResponseWriter, status int, message string) {
	s.tell(w, status, map[string]string{"error": message})
}
