// Package sglang attaches a stock SGLang server by its URL: token ids go to
// /generate and come back from it, what the server is comes from /server_info,
// and how busy it is from whichever of its three load routes it has.
//
// The one idea: believe what the server shows and not what its version
// promises. A chunk is cumulative or a piece by what it says itself, a route is
// there until it answers that it is not, and a restart is seen by what a server
// draws anew at each start.
package sglang

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/httpapi"
	"github.com/dynago/dynago/engine/live"
)

// Config says where a server is, and what of it is known beforehand. The zero
// value of all but HTTP will do: the server tells.
type Config struct {
	HTTP httpapi.Config
	// Model is the name that the server's model gets in the card.
	Model         string
	ContextLength uint32
	// BlockSize is a multiple of the server's page size.
	BlockSize uint32
	// PriorityEnabled says whether the server heeds priorities; nil asks it.
	PriorityEnabled *bool
	// MaxLogprobs bounds the alternatives of a position, each of which the server
	// spells out; 0 means 20.
	MaxLogprobs uint32
	// BootstrapHost is where decode servers reach this one, if it is for prefill
	// and does not tell. SmallRooms keeps the numbers of rooms below 2^31.
	BootstrapHost string
	SmallRooms    bool
	// ExtraBody is an object of members that requests have besides, or nil.
	ExtraBody json.RawMessage
	// Events is where the server publishes what its caches do, if it does not tell.
	Events live.Published
	// Every is the time between two looks at the server; 0 means 500 ms.
	Every time.Duration
	// Log hears of what an operator could do something about; nil: nobody does.
	Log *slog.Logger
}

const (
	defaultEvery       = 500 * time.Millisecond
	defaultMaxLogprobs = 20
	jitter             = 0.1
	saltPrefix         = "dynamo-cache-salt:"
)

// Engine is one server. It is safe for concurrent use. Its only goroutines are
// calls for which nobody waits, and legs that outlive their client; [Engine.Close]
// ends them.
type Engine struct {
	cfg  Config
	http *httpapi.Client
	log  *slog.Logger

	life   context.Context // ends with Close
	end    context.CancelCauseFunc
	closed sync.Once
	alone  sync.WaitGroup // what runs for nobody
	gate   sync.Mutex     // held to begin such a thing, and to close
	dying  sync.Map       // request id → chan struct{}, closed when its abort was sent

	facts  atomic.Pointer[facts]  // what the server told last; nil: nothing yet
	up     atomic.Bool            // it took requests when it was last asked
	doubt  atomic.Bool            // a stream was lost: it may have been started anew
	parked atomic.Pointer[string] // why it is to get no requests
	starts atomic.Uint64          // how often it was found again after it had been away
	wipes  atomic.Uint64          // how often it was told to forget what it had cached
	odd    atomic.Bool            // it was said that its streams are not what it says

	sessions sessions
	feed     *live.Feed
	inFlight inFlight
}

var (
	_ engine.Engine        = (*Engine)(nil)
	_ engine.Sessioner     = (*Engine)(nil)
	_ engine.Controller    = (*Engine)(nil)
	_ engine.Disaggregator = (*Engine)(nil)
)

// New returns an engine. It dials nothing; only bad configuration is an error.
func New(cfg Config) (*Engine, error) {
	client, err := httpapi.New(cfg.HTTP)
	if err != nil {
		return nil, err
	}
	if _, err := httpapi.Extra(cfg.ExtraBody, "input_ids", "rid", "stream", "sampling_params"); err != nil {
		return nil, fmt.Errorf("sglang: extra body: %w", err)
	}
	if cfg.Every < 0 {
		return nil, errors.New("sglang: the time between two looks is negative")
	}
	if cfg.Every == 0 {
		cfg.Every = defaultEvery
	}
	if cfg.Events.Endpoint != "" {
		if _, err := cfg.Events.Endpoints(cfg.HTTP.URL, 0, 1); err != nil {
			return nil, fmt.Errorf("sglang: %w", err)
		}
	}
	if cfg.MaxLogprobs == 0 {
		cfg.MaxLogprobs = defaultMaxLogprobs
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	e := &Engine{cfg: cfg, http: client, log: cfg.Log}
	e.life, e.end = context.WithCancelCause(context.Background())
	e.feed = live.NewFeed(e.open)
	return e, nil
}

// Close ends running streams with engine_shutdown. It may be called any number
// of times.
func (e *Engine) Close() error {
	e.closed.Do(func() {
		e.gate.Lock()
		e.end(engine.Errorf(engine.EngineShutdown, "the engine was closed"))
		e.gate.Unlock()
		e.alone.Wait()
		e.feed.Close()
		e.http.Close()
	})
	return nil
}

// within returns a context that ends with ctx or with the engine.
func (e *Engine) within(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(e.life, func() { cancel(context.Cause(e.life)) })
	return ctx, func() { stop(); cancel(nil) }
}

// aloneTimeout ends a call for which nobody waits.
const aloneTimeout = 2 * time.Second

// behind makes a call for which nobody waits.
func (e *Engine) behind(call func(context.Context)) {
	e.gate.Lock()
	defer e.gate.Unlock()
	if e.life.Err() != nil {
		return
	}
	e.alone.Go(func() {
		ctx, cancel := context.WithTimeout(e.life, aloneTimeout)
		defer cancel()
		call(ctx)
	})
}

// abort tells the server to forget a request. Closing the connection says so
// too, but a proxy in between may keep it from the server.
func (e *Engine) abort(id string) {
	body, err := json.Marshal(map[string]string{"rid": id})
	if err != nil {
		return
	}
	sent := make(chan struct{})
	e.dying.Store(id, sent)
	e.behind(func(ctx context.Context) {
		defer close(sent)
		defer e.dying.CompareAndDelete(id, sent)
		e.http.Post(ctx, "/abort_request", nil, body) //nolint:errcheck // the closed connection says the same
	})
}

// awaitAbort waits until none is under way that would hit a request of this id.
func (e *Engine) awaitAbort(ctx context.Context, id string) {
	if sent, ok := e.dying.Load(id); ok {
		select {
		case <-sent.(chan struct{}):
		case <-ctx.Done():
		}
	}
}

// hold keeps Close from returning while a leg begins, until what it returns is
// called.
func (e *Engine) hold() (release func()) {
	e.gate.Lock()
	defer e.gate.Unlock()
	if e.life.Err() != nil {
		return func() {}
	}
	e.alone.Add(1)
	return sync.OnceFunc(e.alone.Done)
}

// linger says how long a leg goes on without its client: one that computes the
// prompt to its end, as long as the other server would wait for it, and one that
// waits for a prompt until it has it.
func (e *Engine) linger(phase engine.Phase) engine.Outliving[engine.Delta] {
	o := engine.Outliving[engine.Delta]{Life: e.life, Group: &e.alone, Most: 300 * time.Second}
	if phase == engine.PhaseDecode {
		o.Enough, o.Most = func(engine.Delta) bool { return true }, 30*time.Second
	}
	return o
}

// features returns what the server can do, as far as is known.
func (e *Engine) features() (f engine.Features, known bool) {
	if facts := e.facts.Load(); facts != nil && facts.card != nil {
		return facts.card.Features, true
	}
	return nil, false
}
