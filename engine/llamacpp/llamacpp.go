// Package llamacpp is the adapter of llama-server, the HTTP server of llama.cpp:
// token ids go to POST /completion, and the ids of its stream come back. The
// server has no KV events, priorities or salts; its slots each remember one
// prompt, so routers keep a record of their own for it.
//
// The one idea: the server streams text and mentions ids beside it. It leaves
// out the ids of an unfinished character, so the adapter counts what the server
// says it made, and spells again what is missing. The server knows no stop ids
// either: the adapter looks for them and hangs up.
package llamacpp

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
	// Model is the name in the card; empty: what the server calls itself.
	Model   string
	Aliases []string
	// ContextLength bounds prompt and output together; 0: that of the server's
	// slots.
	ContextLength uint32
	// BlockSize is in how many tokens prefixes are counted for this server, which
	// has no blocks of its own; 0: 64.
	BlockSize uint32
	// Interval is the time from one look at the server to the next; 0: 500 ms.
	Interval time.Duration
	// PinSessions sends the requests of a session to one slot. They find their
	// cache there, and wait for it even where another slot is free.
	PinSessions bool
	// ExtraBody is an object whose members go with every request.
	ExtraBody json.RawMessage
}

const (
	defaultInterval  = 500 * time.Millisecond
	defaultBlockSize = 64
)

// Engine is one attached server. It has no goroutines.
type Engine struct {
	cfg    Config
	client *httpapi.Client
	extra  map[string]json.RawMessage
	life   life
	sight  engine.Sight
	closed atomic.Bool
}

var (
	_ engine.Engine     = (*Engine)(nil)
	_ engine.Controller = (*Engine)(nil)
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
	if cfg.BlockSize == 0 {
		cfg.BlockSize = defaultBlockSize
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

// Events yields nothing but an error: the server has none, and the card says so.
func (e *Engine) Events(context.Context, []kv.Cursor) iter.Seq2[kv.Batch, error] {
	return func(yield func(kv.Batch, error) bool) {
		yield(kv.Batch{}, engine.Errorf(engine.Unsupported, "llama-server has no KV events"))
	}
}

// own are the members of a body on which the adapter itself stands.
var own = []string{"prompt", "stream", "return_tokens", "return_progress", "n_predict", "stop", "n", "n_cmpl", "response_fields"}
