package ollama

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/httpapi"
)

// life is what is known of the model as it is loaded now. It ends when the model
// becomes another one, when the server does not answer for a while, and when the
// model leaves the memory: its cache is empty then.
type life struct {
	mu     sync.Mutex
	at     place
	digest string
	loaded bool // it was seen in memory in this life
	gone   bool // it was dead since
	card   *engine.Card
}

// place is what requests are made and checked with.
type place struct {
	epoch   uint64
	model   string // as the server calls it
	context uint32
	// can are the abilities that the server tells of; nil: it tells of none.
	can []string
	// preset are the parameters that the model brings, by name.
	preset map[string][]string
}

// able says whether the model has an ability, as far as the server tells.
func (p *place) able(ability string) bool { return p.can == nil || slices.Contains(p.can, ability) }

// begin gives the model another epoch.
func (l *life) begin(now time.Time) {
	l.at.epoch = max(l.at.epoch+1, uint64(now.UnixNano()))
	l.loaded, l.gone = false, false
}

func (l *life) place() place {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.at
}

// missed tells that the server was dead: what it had in memory may be gone.
func (l *life) missed() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.gone = l.card != nil
}

// seen tells of a model that is installed, and whether it is loaded. It returns
// the card and the epoch if the model is the one that is known, or no card.
func (l *life) seen(digest string, loaded bool, now time.Time) (*engine.Card, uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.gone || l.loaded && !loaded {
		l.begin(now)
	}
	l.loaded = loaded
	if l.card == nil || l.digest != digest {
		return nil, 0
	}
	return l.card, l.at.epoch
}

// settle tells what the model is, and returns its epoch.
func (l *life) settle(c *engine.Card, p place, digest string, now time.Time) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.card != nil && l.digest != digest {
		loaded := l.loaded
		l.begin(now)
		l.loaded = loaded
	}
	p.epoch = l.at.epoch
	l.at, l.card, l.digest = p, c, digest
	return p.epoch
}

// Card yields what the model is, and every change of it. It looks again at each
// interval.
func (e *Engine) Card(ctx context.Context) iter.Seq2[engine.Status, error] {
	return engine.Watch(ctx, e.cfg.Interval, e.look)
}

// look asks the server what it has. That it does not answer is an answer, too.
func (e *Engine) look(ctx context.Context) engine.Status {
	st, err := e.ask(ctx)
	if engine.Silent(err) {
		if st = e.sight.Missed(err); st.State == engine.Dead {
			e.life.missed()
		}
		st.Epoch = e.life.place().epoch
		return st
	}
	if err != nil {
		st = engine.Status{Epoch: e.life.place().epoch, Reason: "Ollama is not ready: " + err.Error()}
	}
	return e.sight.Saw(st)
}

// ask returns what the server tells of the model.
func (e *Engine) ask(ctx context.Context) (engine.Status, error) {
	st := engine.Status{Epoch: e.life.place().epoch}
	if e.closed.Load() {
		st.State, st.Reason = engine.Failed, "the engine is closed"
		return st, nil
	}
	var installed, loaded struct {
		Models []listed `json:"models"`
	}
	err := e.get(ctx, "/api/tags", &installed)
	if err == nil {
		err = e.get(ctx, "/api/ps", &loaded)
	}
	if err != nil {
		return st, err
	}
	m, err := e.choose(installed.Models, loaded.Models)
	if err != nil {
		return st, err
	}
	inMemory := slices.IndexFunc(loaded.Models, func(l listed) bool { return l.called(m.Name) })
	if st.Card, st.Epoch = e.life.seen(m.Digest, inMemory >= 0, time.Now()); st.Card != nil {
		st.State = engine.Ready
		return st, nil
	}
	context := uint32(0)
	if inMemory >= 0 {
		context = loaded.Models[inMemory].Context
	}
	card, at, err := e.discover(ctx, m, context)
	if err != nil {
		return st, err
	}
	st.State, st.Card = engine.Ready, card
	st.Epoch = e.life.settle(card, at, m.Digest, time.Now())
	return st, nil
}

// listed is a model as the server lists it: installed, or in memory.
type listed struct {
	Name    string `json:"name"`
	Digest  string `json:"digest"`
	Context uint32 `json:"context_length"` // of one in memory
}

// called says whether a model goes by a name: the tag latest need not be said.
func (m *listed) called(name string) bool { return plain(m.Name) == plain(name) }

func plain(name string) string { return strings.TrimSuffix(name, ":latest") }

// choose returns the model that is meant. One that was found stays the one.
func (e *Engine) choose(installed, loaded []listed) (*listed, error) {
	want := cmp.Or(e.cfg.Model, e.life.place().model)
	if want == "" && len(installed) > 1 && len(loaded) == 1 {
		want = loaded[0].Name
	}
	var names []string
	for i := range installed {
		if m := &installed[i]; m.called(want) || want == "" && len(installed) == 1 {
			return m, nil
		}
		names = append(names, plain(installed[i].Name))
	}
	switch {
	case len(names) == 0:
		return nil, fmt.Errorf("the server has no model: run ollama pull with the name of one")
	case want == "":
		return nil, fmt.Errorf("the server has several models (%s): name one of them by the key model", strings.Join(names, ", "))
	}
	return nil, fmt.Errorf("the server has no model %s, but %s", want, strings.Join(names, ", "))
}

// discover makes the card of a model, which is in memory with a context of so many
// tokens; 0: it is not, or the server does not tell.
func (e *Engine) discover(ctx context.Context, m *listed, loaded uint32) (*engine.Card, place, error) {
	var version struct {
		Version string `json:"version"`
	}
	if err := e.get(ctx, "/api/version", &version); err != nil {
		return nil, place{}, err
	}
	var show struct {
		Parameters   string         `json:"parameters"`
		Capabilities []string       `json:"capabilities"`
		Info         map[string]any `json:"model_info"`
	}
	body, err := members{"model": m.Name}.text()
	if err != nil {
		return nil, place{}, err
	}
	text, err := e.client.Post(ctx, "/api/show", nil, body)
	if err == nil {
		err = json.Unmarshal(text, &show, httpapi.Lenient)
	}
	if err != nil {
		return nil, place{}, fmt.Errorf("the server does not tell what %s is: %w", m.Name, err)
	}
	at := place{model: m.Name, can: show.Capabilities, preset: parameters(show.Parameters)}
	if !at.able("completion") {
		return nil, place{}, fmt.Errorf("%s makes no texts: it is for %s", m.Name, strings.Join(at.can, ", "))
	}
	if at.context = e.contextLength(&at, loaded, show.Info); at.context == 0 {
		return nil, place{}, fmt.Errorf("the server does not tell how long the context of %s is: say so by the key context_length", m.Name)
	}
	c := &engine.Card{
		Model:         cmp.Or(e.cfg.Model, plain(m.Name)),
		Aliases:       e.cfg.Aliases,
		Engine:        strings.TrimSpace("ollama " + version.Version),
		Accepts:       []engine.Input{engine.InputChat},
		ContextLength: at.context,
		DPSize:        1,
		MaxSeqs:       e.cfg.MaxSeqs,
		Features: engine.Features{
			engine.FeatureWantsChat, engine.FeatureSeed, engine.FeatureStopStrings,
			engine.FeatureGuidedJSON, engine.FeatureGuidedObject,
		},
		Controls:   []string{engine.ControlSleep, engine.ControlWake},
		ToolParser: "none", ReasoningParser: "none", // its answers are parsed
	}
	return c, at, nil
}

// contextLength decides how long the context is to be. It is never longer than
// what the model was made for.
func (e *Engine) contextLength(at *place, loaded uint32, info map[string]any) uint32 {
	arch, _ := info["general.architecture"].(string)  //nolint:errcheck // "" has no length
	made, _ := info[arch+".context_length"].(float64) //nolint:errcheck // 0: unknown
	var preset uint32
	if values := at.preset["num_ctx"]; len(values) > 0 {
		n, err := strconv.ParseUint(values[0], 10, 31)
		if err == nil {
			preset = uint32(n)
		}
	}
	n := cmp.Or(e.cfg.ContextLength, preset, loaded)
	if made >= 1 && made < 1<<31 && (n == 0 || uint32(made) < n) {
		n = uint32(made)
	}
	return n
}

// parameters reads what a model brings of options: a name and a value a line. An
// option that is a list has a line for each.
func parameters(text string) map[string][]string {
	out := map[string][]string{}
	for line := range strings.Lines(text) {
		name, value, ok := strings.Cut(strings.TrimSpace(line), " ")
		if !ok {
			continue
		}
		value = strings.TrimSpace(value)
		if unquoted, err := strconv.Unquote(value); err == nil {
			value = unquoted
		}
		out[name] = append(out[name], value)
	}
	return out
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
