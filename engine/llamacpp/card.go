package llamacpp

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/httpapi"
)

// life is what is known of the server as it runs now.
type life struct {
	mu sync.Mutex
	at place
	// made is how many tokens the server has counted; fewer than before tell of
	// another life.
	made  float64
	ready bool // it was seen ready in this life
	// card was made when /props told what props holds. The rest of a server stays
	// as it is as long as that does.
	card   *engine.Card
	props  props
	gone   bool // since then it was dead, or loading
	asleep bool // the model is not in memory until somebody asks for something
}

// place is what requests are checked against.
type place struct {
	epoch    uint64
	context  uint32
	slots    uint32
	adapters []adapter
}

// adapter is a LoRA adapter of the server.
type adapter struct {
	id   int
	name string
}

func (p *place) has(name string) bool {
	for _, a := range p.adapters {
		if a.name == name {
			return true
		}
	}
	return false
}

// begin gives the server another epoch.
func (l *life) begin(now time.Time) {
	l.at.epoch = max(l.at.epoch+1, uint64(now.UnixNano()))
	l.made, l.ready, l.gone, l.card = 0, false, false, nil
}

func (l *life) place() place {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.at
}

// counted tells of the server's counter of tokens.
func (l *life) counted(made float64, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if made < l.made {
		l.begin(now)
	}
	l.made = made
}

// missed tells that the server was dead, or loading: it has another life now.
func (l *life) missed() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.gone = l.ready
}

// known returns the card and the epoch of a server that is what it was, or nil. One
// that falls asleep forgets what it had cached.
func (l *life) known(p props, now time.Time) (*engine.Card, uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	fell := p.Sleeping && !l.asleep
	l.asleep, p.Sleeping = p.Sleeping, false
	if l.gone || l.props != p || l.card == nil {
		return nil, 0
	}
	if fell {
		l.at.epoch = max(l.at.epoch+1, uint64(now.UnixNano()))
	}
	return l.card, l.at.epoch
}

// blocks returns how many the server has room for; 0: it is not known.
func (l *life) blocks() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.card == nil {
		return 0
	}
	return int64(l.card.TotalBlocks)
}

func (l *life) sleeps() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.asleep
}

// settle tells what the server is, and returns its epoch.
// A mark that each start of a server makes anew tells of another life.
func (l *life) settle(c *engine.Card, at place, p props, now time.Time) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.gone || l.card != nil && l.props.Marker != p.Marker {
		l.begin(now)
	}
	at.epoch, p.Sleeping = l.at.epoch, false
	l.at, l.ready, l.card, l.props = at, true, c, p
	return at.epoch
}

// Card yields what the server is, and every change of it. It looks again at each
// interval.
func (e *Engine) Card(ctx context.Context) iter.Seq2[engine.Status, error] {
	return engine.Watch(ctx, e.cfg.Interval, e.look)
}

// look asks the server what it is. That it does not answer is an answer, too.
func (e *Engine) look(ctx context.Context) engine.Status {
	if e.closed.Load() {
		return engine.Status{Epoch: e.life.place().epoch, State: engine.Failed, Reason: "the engine is closed"}
	}
	st, err := e.ask(ctx)
	switch {
	case err == nil:
		return e.sight.Saw(st)
	case !engine.Silent(err):
		return e.sight.Saw(e.unwell(err))
	}
	st = e.sight.Missed(err)
	if st.State == engine.Dead {
		e.life.missed()
	}
	st.Epoch = e.life.place().epoch
	return st
}

// ask returns what the server tells of itself.
func (e *Engine) ask(ctx context.Context) (st engine.Status, err error) {
	if _, err := e.client.Get(ctx, "/health"); err != nil {
		return st, err
	}
	var p props
	if err := e.get(ctx, "/props", &p); err != nil {
		return st, err
	}
	if p.Role == "router" {
		return engine.Status{Epoch: e.life.place().epoch, Reason: "the server only starts other servers: attach those, or one that was started with a model"}, nil
	}
	st.State = engine.Ready
	if p.Sleeping {
		st.Reason = "the server sleeps: the next request has to wait until it has loaded its model"
	} else if text, err := e.client.Get(ctx, "/metrics"); err == nil {
		e.life.counted(counter(text), time.Now())
	}
	if st.Card, st.Epoch = e.life.known(p, time.Now()); st.Card != nil {
		return st, nil
	}
	card, at, err := e.discover(ctx, &p)
	if err != nil {
		return st, err
	}
	st.Card, st.Epoch = card, e.life.settle(card, at, p, time.Now())
	return st, nil
}

// unwell is the status of a server that answers with a failure.
func (e *Engine) unwell(err error) engine.Status {
	told, _ := errors.AsType[*engine.Error](err)
	if told != nil && told.Kind == engine.Unavailable {
		e.life.missed()
	}
	st := engine.Status{Epoch: e.life.place().epoch, State: engine.Loading, Reason: "the server does not answer as it should: " + err.Error()}
	if told != nil && told.FromEngine && told.Message != "" {
		st.Reason = "the server says: " + told.Message
	}
	return st
}

// props is what GET /props tells, as far as it is of use.
type props struct {
	Slots    uint32 `json:"total_slots"`
	Model    string `json:"model_path"`
	Alias    string `json:"model_alias"`
	Build    string `json:"build_info"`
	EOS      string `json:"eos_token"`
	Marker   string `json:"media_marker"` // another one in each life, where it is not fixed
	Role     string `json:"role"`
	Sleeping bool   `json:"is_sleeping"`
	Defaults struct {
		Context uint32 `json:"n_ctx"`
	} `json:"default_generation_settings"`
}

// discover makes the card of a server that tells these properties.
func (e *Engine) discover(ctx context.Context, p *props) (*engine.Card, place, error) {
	name, err := e.model(ctx, p)
	if err != nil {
		return nil, place{}, err
	}
	adapters, err := e.adapters(ctx)
	if err != nil {
		return nil, place{}, err
	}
	eos, err := e.eos(ctx, p.EOS)
	if err != nil {
		return nil, place{}, err
	}
	at := place{context: p.Defaults.Context, slots: p.Slots, adapters: adapters}
	if n := e.cfg.ContextLength; n > 0 && (at.context == 0 || n < at.context) {
		at.context = n
	}
	c := &engine.Card{
		Model:         cmp.Or(e.cfg.Model, name),
		Aliases:       e.cfg.Aliases,
		Engine:        strings.TrimSpace("llama.cpp " + p.Build),
		Accepts:       []engine.Input{engine.InputTokens},
		ContextLength: at.context,
		BlockSize:     e.cfg.BlockSize,
		DPSize:        1,
		// Each slot keeps the last prompt that it had, as long as it may be. A server
		// whose slots share one context keeps less, and does not tell.
		TotalBlocks: uint64(p.Slots) * uint64(p.Defaults.Context) / uint64(e.cfg.BlockSize),
		MaxSeqs:     p.Slots,
		MaxLogprobs: maxLogprobs,
		Features: engine.Features{
			engine.FeatureSeed, engine.FeatureLogitBias, engine.FeatureStopIDs, engine.FeatureLogprobs, engine.FeatureCachedTokens,
			engine.FeatureGuidedJSON, engine.FeatureGuidedObject, engine.FeatureGuidedRegex, engine.FeatureGuidedChoice, engine.FeatureGuidedGrammar,
		},
		EOS: eos,
	}
	for _, a := range adapters {
		c.Adapters = append(c.Adapters, a.name)
	}
	if len(adapters) > 0 {
		c.Features = append(c.Features, engine.FeatureLoRA)
	}
	if e.resets(ctx) {
		c.Controls = []string{engine.ControlReset}
	}
	return c, at, nil
}

// maxLogprobs is how many alternatives may be asked for. The server has no limit
// of its own; this one is what APIs allow.
const maxLogprobs = 20

// model returns what the server calls its model: the name under which it lists
// it, or that of its file.
func (e *Engine) model(ctx context.Context, p *props) (string, error) {
	if p.Alias != "" {
		return p.Alias, nil
	}
	var list struct {
		Data []struct {
			ID string `json:"id"`
		} `json:"data"`
	}
	err := e.get(ctx, "/v1/models", &list)
	name := p.Model
	switch {
	case err == nil && len(list.Data) > 0:
		name = list.Data[0].ID
	case err != nil && engine.KindOf(err) != engine.Unsupported:
		return "", err
	}
	return strings.TrimSuffix(path.Base(strings.ReplaceAll(name, `\`, "/")), ".gguf"), nil
}

// adapters lists what the server has loaded; none where it has no such route.
func (e *Engine) adapters(ctx context.Context) ([]adapter, error) {
	var list []struct {
		ID   int    `json:"id"`
		Path string `json:"path"`
	}
	err := e.get(ctx, "/lora-adapters", &list)
	if err != nil && !optional(err) {
		return nil, err
	}
	var out []adapter
	for _, a := range list {
		name := path.Base(strings.ReplaceAll(a.Path, `\`, "/"))
		out = append(out, adapter{a.ID, strings.TrimSuffix(name, ".gguf")})
	}
	return out, nil
}

// eos returns the id that ends a sequence: the server tells its text alone.
func (e *Engine) eos(ctx context.Context, text string) ([]uint32, error) {
	if text == "" {
		return nil, nil
	}
	ids, err := e.spell(ctx, text, true)
	switch {
	case err != nil && !optional(err):
		return nil, err
	case err != nil || len(ids) != 1:
		return nil, nil // no single id has that text
	}
	return ids, nil
}

// optional says that a server lacks a route, or was started without it.
func optional(err error) bool {
	kind := engine.KindOf(err)
	return kind == engine.Unsupported || kind == engine.NotFound
}

// tokenize returns the ids of a plain text.
func (e *Engine) tokenize(ctx context.Context, text string) ([]uint32, error) {
	return e.spell(ctx, text, false)
}

func (e *Engine) spell(ctx context.Context, text string, special bool) ([]uint32, error) {
	body, err := json.Marshal(map[string]any{"content": text, "add_special": false, "parse_special": special}, json.Deterministic(true), httpapi.Lenient)
	if err != nil {
		return nil, err
	}
	answer, err := e.client.Post(ctx, "/tokenize", nil, body)
	if err != nil {
		return nil, err
	}
	var out struct {
		Tokens []uint32 `json:"tokens"`
	}
	if err := json.Unmarshal(answer, &out, httpapi.Lenient); err != nil {
		return nil, &engine.Error{Kind: engine.Internal, Op: "read /tokenize", FromEngine: true, Err: err}
	}
	return out.Tokens, nil
}

func (e *Engine) get(ctx context.Context, path string, out any) error {
	text, err := e.client.Get(ctx, path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, out, httpapi.Lenient); err != nil {
		return &engine.Error{Kind: engine.Internal, Op: "read " + path, FromEngine: true, Err: err}
	}
	return nil
}
