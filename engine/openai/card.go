package openai

import (
	"cmp"
	"context"
	"iter"
	"reflect"

	"github.com/go-json-experiment/json"

	"github.com/dynago/dynago/engine"
)

// Card yields what the server is, and every change of it.
func (e *Engine) Card(ctx context.Context) iter.Seq2[engine.Status, error] {
	return func(yield func(engine.Status, error) bool) {
		var told engine.Status
		for st := range engine.Poll(ctx, e.cfg.Interval, 0.1, e.look) {
			if e.closed.Load() {
				yield(engine.Status{Epoch: e.epoch, State: engine.Failed, Reason: "the engine is closed", Card: told.Card}, nil)
				return
			}
			if st.Card == nil || reflect.DeepEqual(st.Card, told.Card) {
				st.Card, st.Revision = told.Card, told.Revision
			} else {
				st.Revision = told.Revision + 1
			}
			if told.Epoch != 0 && st == told {
				continue
			}
			if told = st; !yield(st, nil) {
				return
			}
		}
	}
}

// look asks the server for its models. That it does not answer is an answer, too.
func (e *Engine) look(ctx context.Context) (engine.Status, error) {
	st := engine.Status{Epoch: e.epoch}
	var list struct {
		Data []listed `json:"data"`
	}
	text, err := e.client.Get(ctx, "/v1/models")
	if err == nil {
		err = json.Unmarshal(text, &list)
	}
	if err != nil {
		st.Reason = "the server does not list its models: " + err.Error()
		return st, nil
	}
	for _, m := range list.Data {
		if e.cfg.Model == "" || m.ID == e.cfg.Model {
			e.model.Store(&m.ID)
			st.State, st.Card = engine.Ready, e.card(&m)
			return st, nil
		}
	}
	st.Reason = "the server lists no model"
	if e.cfg.Model != "" {
		st.Reason = "the server does not list the model " + e.cfg.Model
	}
	return st, nil
}

// listed is a model as servers list it.
type listed struct {
	ID      string `json:"id"`
	Owner   string `json:"owned_by"`
	Context uint32 `json:"max_model_len"` // some tell it
}

func (e *Engine) card(m *listed) *engine.Card {
	return &engine.Card{
		Model:         m.ID,
		Aliases:       e.cfg.Aliases,
		Engine:        cmp.Or(m.Owner, "openai"),
		Accepts:       []engine.Input{engine.InputChat},
		ContextLength: cmp.Or(e.cfg.ContextLength, m.Context),
		DPSize:        1,
		MaxSeqs:       e.cfg.MaxSeqs,
		Features: engine.Features{
			engine.FeatureWantsChat, engine.FeatureSeed, engine.FeatureStopStrings,
			engine.FeatureGuidedJSON, engine.FeatureGuidedObject,
		},
		ToolParser: "none", ReasoningParser: "none", // its answers are parsed
	}
}
