// Package openai is the adapter of servers that speak chat completions and
// nothing deeper: the whole conversation goes out, and the events of an answer
// come back. What such a server does between the two (template, tokens, parsing)
// is its own.
//
// The one idea: what cannot be said in chat completions is refused before it is
// sent, and the stream that comes back is made to keep the order of our events,
// whatever order its pieces had.
package openai

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
	// URL is the address before /v1.
	httpapi.Config
	// Model is what the server calls the model; empty: the first that it lists.
	Model   string
	Aliases []string
	// ContextLength is how long a conversation and its answer may be; 0: what the
	// server tells, if it does.
	ContextLength uint32
	// MaxSeqs is how many requests the server works on at once; 0: unknown.
	MaxSeqs uint32
	// Interval is the time from one look at the server to the next; 0: 2 s.
	Interval time.Duration
	// ExtraBody is an object whose members go with every request.
	ExtraBody json.RawMessage
}

const defaultInterval = 2 * time.Second

// Engine is one attached server. It has no goroutines.
type Engine struct {
	cfg     Config
	client  *httpapi.Client
	extra   map[string]json.RawMessage
	life    life
	sight   engine.Sight
	at      atomic.Pointer[place]
	running atomic.Int64
	closed  atomic.Bool
}

// place is what of the server requests have to know.
type place struct {
	model   string // as the server calls it
	context uint32 // 0: unknown
}

var (
	_ engine.Engine     = (*Engine)(nil)
	_ engine.ChatEngine = (*Engine)(nil)
)

// New makes an adapter. It dials nothing; only a bad configuration is an error.
func New(cfg Config) (*Engine, error) {
	client, err := httpapi.New(cfg.Config)
	if err != nil {
		return nil, err
	}
	extra, err := httpapi.Extra(cfg.ExtraBody, own...)
	if err != nil {
		return nil, fmt.Errorf("engine %s: extra_body: %w", cfg.URL, err)
	}
	if cfg.Interval == 0 {
		cfg.Interval = defaultInterval
	}
	e := &Engine{cfg: cfg, client: client, extra: extra, life: life{epoch: uint64(time.Now().UnixNano())}}
	e.at.Store(&place{model: cfg.Model, context: cfg.ContextLength})
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
		yield(engine.Delta{}, engine.Errorf(engine.Unsupported, "a server of chat completions takes no token ids"))
	}
}

// Events yields nothing but an error: the server has none, and the card says so.
func (e *Engine) Events(context.Context, []kv.Cursor) iter.Seq2[kv.Batch, error] {
	return func(yield func(kv.Batch, error) bool) {
		yield(kv.Batch{}, engine.Errorf(engine.Unsupported, "a server of chat completions has no KV events"))
	}
}

// Load yields how many requests run from here, at each interval. What others
// send is unknown.
func (e *Engine) Load(ctx context.Context) iter.Seq2[engine.Load, error] {
	return engine.Poll(ctx, e.cfg.Interval, 0.1, func(context.Context) (engine.Load, error) {
		l := engine.UnknownLoad(0)
		l.Running = e.running.Load()
		return engine.Load{Ranks: []engine.RankLoad{l}}, nil
	})
}
