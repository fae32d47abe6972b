package openai

import (
	"cmp"
	"context"
	"iter"
	"sync"

	"github.com/go-json-experiment/json"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/httpapi"
)

// Card yields what the server is, and every change of it.
func (e *Engine) Card(ctx context.Context) iter.Seq2[engine.Status, error] {
	return engine.Watch(ctx, e.cfg.Interval, e.look)
}

// look asks the server for its models. That it does not answer is an answer, too.
func (e *Engine) look(ctx context.Context) engine.Status {
	st, err := e.ask(ctx)
	if engine.Silent(err) {
		if st = e.sight.Missed(err); st.State == engine.Dead {
			e.life.missed()
		}
		st.Epoch = e.life.now()
		return st
	}
	if err != nil {
		st = engine.Status{Epoch: e.life.now(), Reason: "the server does not list its models: " + err.Error()}
	}
	return e.sight.Saw(st)
}

// ask returns what the server tells.
func (e *Engine) ask(ctx context.Context) (engine.Status, error) {
	st := engine.Status{Epoch: e.life.now()}
	if e.closed.Load() {
		st.State, st.Reason = engine.Failed, "the engine is closed"
		return st, nil
	}
	var list struct {
		Data []listed `json:"data"`
	}
	text, err := e.client.Get(ctx, "/v1/models")
	if err == nil {
		err = json.Unmarshal(text, &list, httpapi.Lenient)
	}
	if err != nil {
		return st, err
	}
	for _, m := range list.Data {
		if e.cfg.Model == "" || m.ID == e.cfg.Model {
			st.State, st.Card, st.Epoch = engine.Ready, e.card(&m), e.life.seen()
			e.at.Store(&place{model: m.ID, context: st.Card.ContextLength})
			return st, nil
		}
	}
	st.Reason = "the server lists no model"
	if e.cfg.Model != "" {
		st.Reason = "the server does not list the model " + e.cfg.Model
	}
	return st, nil
}

// life is what is known of how long the server has been there: one that was dead
// has been started anew, with an empty cache.
type life struct {
	mu    sync.Mutex
	epoch uint64
	ready bool // it was seen ready in this life
	gone  bool // it was dead since
}

func (l *life) now() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.epoch
}

func (l *life) missed() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.gone = l.ready
}

// seen tells of a server that is ready, and returns its epoch.
func (l *life) seen() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.gone {
		l.epoch++
	}
	l.ready, l.gone = true, false
	return l.epoch
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
			engine.FeatureWantsChat, engine.FeatureSeed, engine.FeatureLogitBias, engine.FeatureStopStrings,
			engine.FeatureGuidedJSON, engine.FeatureGuidedObject,
		},
		ToolParser: "none", ReasoningParser: "none", // its answers are parsed
	}
}
