// Package ollama is the adapter of Ollama. Conversations go to its own /api/chat,
// prompts without messages to /api/generate, and the lines of an answer come back
// as events: it takes no token ids and gives none.
//
// The one idea: a prompt that does not fit is refused and never cut. Ollama cuts
// what is longer than the context it has loaded a model with, and says nothing of
// it; so every request says how long the context is to be, and that nothing may
// be left out.
package ollama

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"sync/atomic"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/httpapi"
	"github.com/dynago/dynago/kv"
)

// Config says which server is attached, and how. The zero value of all but URL
// will do.
type Config struct {
	httpapi.Config
	// Model is one of the models that are installed; empty: the only one, or the
	// only one that is loaded.
	Model   string
	Aliases []string
	// ContextLength is what the model is loaded with; 0: what its own parameters
	// say, else what it is loaded with now, else all that it was made for.
	ContextLength uint32
	// MaxSeqs is OLLAMA_NUM_PARALLEL, which the server does not tell; 0: unknown.
	MaxSeqs uint32
	// KeepAlive is how long the model stays loaded behind a request, for ever if
	// it is negative; nil: as the server does it.
	KeepAlive *time.Duration
	// Interval is the time from one look at the server to the next; 0: 2 s.
	Interval time.Duration
	// ExtraBody is an object whose members go with every request. Its options are
	// added to those of the request, and do not replace them.
	ExtraBody json.RawMessage
}

const defaultInterval = 2 * time.Second

// Engine is one model of an attached server. It has no goroutines.
type Engine struct {
	cfg     Config
	client  *httpapi.Client
	extra   fields
	life    life
	sight   engine.Sight
	running atomic.Int64
	closed  atomic.Bool
}

var (
	_ engine.Engine     = (*Engine)(nil)
	_ engine.ChatEngine = (*Engine)(nil)
	_ engine.Controller = (*Engine)(nil)
)

// New makes an adapter. It dials nothing; only a bad configuration is an error.
func New(cfg Config) (*Engine, error) {
	client, err := httpapi.New(cfg.Config)
	if err != nil {
		return nil, err
	}
	extra, err := fieldsOf(cfg.ExtraBody)
	if err != nil {
		return nil, fmt.Errorf("engine %s: extra_body: %w", cfg.URL, err)
	}
	if cfg.Interval == 0 {
		cfg.Interval = defaultInterval
	}
	e := &Engine{cfg: cfg, client: client, extra: extra}
	e.life.begin(time.Now())
	return e, nil
}

// Close makes the engine refuse what is new and closes idle connections. It may
// be called any number of times.
func (e *Engine) Close() error {
	e.closed.Store(true)
	e.client.Close()
	return nil
}

// Generate yields nothing but an error: the server takes no ids, and the card
// says so.
func (e *Engine) Generate(context.Context, *engine.Request) iter.Seq2[engine.Delta, error] {
	return func(yield func(engine.Delta, error) bool) {
		yield(engine.Delta{}, engine.Errorf(engine.Unsupported, "Ollama takes no token ids"))
	}
}

// Events yields nothing but an error: the server has none, and the card says so.
func (e *Engine) Events(context.Context, []kv.Cursor) iter.Seq2[kv.Batch, error] {
	return func(yield func(kv.Batch, error) bool) {
		yield(kv.Batch{}, engine.Errorf(engine.Unsupported, "Ollama has no KV events"))
	}
}

// Load yields how many requests from here the server has, at each interval: those
// behind the first MaxSeqs wait. What others send is unknown.
func (e *Engine) Load(ctx context.Context) iter.Seq2[engine.Load, error] {
	return engine.Poll(ctx, e.cfg.Interval, 0.1, func(context.Context) (engine.Load, error) {
		l := engine.UnknownLoad(0)
		l.Running = e.running.Load()
		if most := int64(e.cfg.MaxSeqs); most > 0 {
			l.Waiting = max(0, l.Running-most)
			l.Running -= l.Waiting
		}
		return engine.Load{Ranks: []engine.RankLoad{l}}, nil
	})
}

// Control does what the card lists: sleep takes the model out of memory, and wake
// loads it before a request has to wait for that.
func (e *Engine) Control(ctx context.Context, name string, _ json.RawMessage) (json.RawMessage, error) {
	at := e.life.place()
	b := members{"model": at.model, "stream": false}
	switch name {
	case engine.ControlSleep:
		b["keep_alive"] = 0
	case engine.ControlWake:
		b["options"] = members{"num_ctx": at.context}
		e.keep(b)
	default:
		return nil, engine.Errorf(engine.Unsupported, "Ollama has no control %q", name)
	}
	body, err := b.text()
	if err != nil {
		return nil, err
	}
	_, err = e.client.Post(ctx, generates, nil, body)
	return nil, err
}
