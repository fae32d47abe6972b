package trtllm

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"reflect"
	"slices"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/dynago/dynago/engine"
)

const (
	cardEvery = 500 * time.Millisecond
	// lostAfter is how long a server may be away and still be the same one, if it
	// does not tell when it began.
	lostAfter = 10 * time.Second
)

// life is what is known of the server's present life.
type life struct {
	epoch    uint64
	read     reading   // the last one
	seen     time.Time // when it last answered
	revision uint64
	card     *engine.Card
	about    *about // nil: to be asked for
}

// about is what a server tells of its program. It is long, and stays the same as
// long as the process does.
type about struct {
	version  string
	fields   fields
	legs     fields // of disaggregated_params
	meeting  []byte // where a decode server meets this one while it computes, or nil
	controls []string
}

// renew begins another life.
func (l *life) renew() { l.epoch = max(l.epoch+1, uint64(time.Now().UnixNano())) }

// Card implements [engine.Engine]: it asks twice a second, and yields what has
// changed.
func (e *Engine) Card(ctx context.Context) iter.Seq2[engine.Status, error] {
	return func(yield func(engine.Status, error) bool) {
		var last engine.Status
		for s, err := range engine.Poll(ctx, cardEvery, 0.1, e.status) {
			if err != nil {
				yield(engine.Status{}, err)
				return
			}
			if reflect.DeepEqual(s, last) {
				continue
			}
			last = s
			if !yield(s, nil) {
				return
			}
		}
	}
}

// status asks the server what it is. Who says that it is not well is loading, or is
// leaving if it was ready; only refused credentials are an error.
func (e *Engine) status(ctx context.Context) (engine.Status, error) {
	if e.closed.Load() {
		return e.tell(engine.Failed, "the engine is closed", nil, nil), nil
	}
	card, now, err := e.discover(ctx)
	switch {
	case errors.Is(err, errUseless):
		return e.tell(engine.Failed, err.Error(), nil, nil), nil
	case engine.KindOf(err) == engine.Denied && err != nil:
		return engine.Status{}, err
	case engine.KindOf(err) == engine.Unavailable && e.up.Load() && err != nil:
		return e.sight.Saw(e.tell(engine.Draining, "TensorRT-LLM says that it is not well or is shutting down", nil, nil)), nil
	case engine.Silent(err):
		s := e.sight.Missed(err)
		if s.State == engine.Dead {
			e.up.Store(false)
		}
		return e.tell(s.State, s.Reason, nil, nil), nil
	case err != nil:
		e.up.Store(false)
		return e.sight.Saw(e.tell(engine.Loading, "TensorRT-LLM is not ready: "+err.Error(), nil, nil)), nil
	}
	e.up.Store(true)
	return e.sight.Saw(e.tell(engine.Ready, "", card, now)), nil
}

// tell turns a finding into a status, and notices another life of the server.
func (e *Engine) tell(state engine.State, reason string, card *engine.Card, read reading) engine.Status {
	e.mu.Lock()
	defer e.mu.Unlock()
	l, now := &e.life, time.Now()
	if l.epoch == 0 {
		l.epoch, l.seen = uint64(now.UnixNano()), now
	}
	if card == nil {
		l.about = nil
	} else {
		if l.card != nil && read.another(l.read, now.Sub(l.seen)) {
			l.renew()
			l.about = nil
			e.asleep.Store(false)
			e.reticent.Store(false)
		}
		l.read, l.seen = read, now
		if l.card == nil || !reflect.DeepEqual(l.card, card) {
			l.card = card
			l.revision++
		}
	}
	if card != nil && e.asleep.Load() {
		state, reason = engine.Loading, "the server sleeps; wake it"
	}
	s := engine.Status{Epoch: l.epoch, Revision: l.revision, State: state, Reason: reason, Card: l.card}
	if err := e.feed.Become(s); err != nil {
		e.log.Warn("KV events cannot be read", "error", err)
	}
	return s
}

// stale says whether a request is for a life that has ended.
func (e *Engine) stale(r *engine.Request) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return r.Epoch != 0 && e.life.epoch != 0 && r.Epoch != e.life.epoch
}

// errUseless marks what waiting does not mend.
var errUseless = errors.New("this server cannot be used")

// discover asks for all that a card holds.
func (e *Engine) discover(ctx context.Context) (*engine.Card, reading, error) {
	if _, err := e.client.Get(ctx, "/health"); err != nil {
		return nil, nil, err
	}
	model, err := e.model(ctx)
	if err != nil {
		return nil, nil, err
	}
	about := e.ask(ctx)
	f := about.fields
	for _, name := range []string{"prompt", "stream", "stream_options", "max_tokens", "detokenize", "stop_token_ids"} {
		if !f.has(name) {
			return nil, nil, fmt.Errorf("%w: its %s has no %s, so that ids cannot go both ways", errUseless, completions, name)
		}
	}
	e.about.Store(about)
	now, err := e.prometheus(ctx)
	if err != nil && engine.KindOf(err) != engine.Unsupported {
		return nil, nil, err
	}
	c := &engine.Card{
		Model: model, Engine: "tensorrt_llm " + about.version, Role: e.config.Role, Accepts: []engine.Input{engine.InputTokens},
		ContextLength: e.config.ContextLength, BlockSize: e.config.BlockSize, HashScheme: engine.SchemeXXH3, DPSize: max(1, e.config.Ranks),
		Features: e.features(f), Controls: about.controls,
	}
	if size, ok := now.number(tokensPerBlock); ok && c.BlockSize == 0 {
		c.BlockSize = uint32(size)
	}
	if blocks, ok := now.number(maxBlocks); ok {
		c.TotalBlocks = uint64(blocks)
	}
	e.iterations.size(c)
	if e.listens(c) {
		c.Features = append(c.Features, engine.FeatureEvents)
		slices.Sort(c.Features)
	}
	if e.config.Role != engine.Aggregated {
		c.Disagg.Style = "context"
	}
	if e.config.Role == engine.Prefill && e.config.GenerationFirst && about.meeting == nil {
		return nil, nil, fmt.Errorf("%w: it tells no ctx_info_endpoint, at which decode servers meet it while it computes; give no disagg.style", errUseless)
	}
	for _, a := range e.config.Adapters {
		c.Adapters = append(c.Adapters, a.Name)
	}
	return c, now, nil
}

// ask asks what the program is, once for each process.
func (e *Engine) ask(ctx context.Context) *about {
	e.mu.Lock()
	known := e.life.about
	e.mu.Unlock()
	if known != nil {
		return known
	}
	a := &about{version: e.version(ctx), fields: oldest, legs: legFields}
	if e.config.Role == engine.Prefill {
		a.meeting = e.meeting(ctx)
	}
	document, err := e.client.Get(ctx, "/openapi.json")
	if err != nil {
		return a // early versions and others that do not tell; asked again
	}
	told := describe(document)
	if told.fields != nil {
		a.fields = told.fields
	}
	if told.legs != nil {
		a.legs = told.legs
	}
	for name, route := range routes {
		if slices.Contains(told.paths, route) {
			a.controls = append(a.controls, name)
		}
	}
	slices.Sort(a.controls)
	e.mu.Lock()
	e.life.about = a
	e.mu.Unlock()
	return a
}

// features are what the server's own fields and the configuration allow.
func (e *Engine) features(f fields) engine.Features {
	list := engine.Features{engine.FeatureStopIDs, engine.FeatureCachedTokens}
	for _, x := range []struct {
		field string
		also  bool
		what  engine.Feature
	}{
		{"seed", true, engine.FeatureSeed},
		{"logit_bias", true, engine.FeatureLogitBias},
		{"min_tokens", true, engine.FeatureMinTokens},
		{"logprobs", true, engine.FeatureLogprobs},
		{"thinking_token_budget", true, engine.FeatureThinkingBudget},
		{"priority", e.config.PriorityEnabled, engine.FeaturePriority},
		{"lora_request", len(e.config.Adapters) > 0, engine.FeatureLoRA},
		{"disaggregated_params", e.config.Role != engine.Aggregated, engine.FeatureHandoff},
	} {
		if x.also && f.has(x.field) {
			list = append(list, x.what)
		}
	}
	if f.has("response_format") {
		for _, feature := range forms {
			list = append(list, feature)
		}
	}
	slices.Sort(list)
	return list
}

// version is for people only.
func (e *Engine) version(ctx context.Context) string {
	text, err := e.client.Get(ctx, "/version")
	var v struct {
		Version string `json:"version"`
	}
	if err != nil || json.Unmarshal(text, &v) != nil || v.Version == "" {
		return "of unknown version"
	}
	return v.Version
}

// model returns the name to serve, if the server has it.
func (e *Engine) model(ctx context.Context) (string, error) {
	text, err := e.client.Get(ctx, "/v1/models")
	if err != nil {
		return "", err
	}
	var list struct {
		Data []struct {
			ID string `json:"id"`
		} `json:"data"`
	}
	if err := json.Unmarshal(text, &list); err != nil || len(list.Data) == 0 {
		return "", errors.New("/v1/models lists no model")
	}
	i := 0
	if e.config.Model != "" {
		i = slices.IndexFunc(list.Data, func(m struct {
			ID string `json:"id"`
		},
		) bool {
			return m.ID == e.config.Model
		})
	}
	if i < 0 {
		return "", fmt.Errorf("%w: it serves %s and no model %s", errUseless, list.Data[0].ID, e.config.Model)
	}
	return list.Data[i].ID, nil
}
