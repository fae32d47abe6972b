// Package trtllm attaches to a stock TensorRT-LLM server (trtllm-serve) by its
// URL: token ids go in and come out over /v1/completions with detokenize:false,
// the one route that has ids both ways.
//
// The one idea: the server answers 400 to any member of a request that it does
// not know, so that nothing is sent which its own schema does not list. What that
// takes away is taken from the card first, and nobody asks for it.
package trtllm

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/httpapi"
	"github.com/dynago/dynago/engine/live"
)

// Config says where the server is, and what it does not tell itself.
type Config struct {
	httpapi.Config
	// Model is the name to serve; empty: the first one that the server lists.
	Model string
	// ContextLength bounds prompt and output together, in tokens. The server does
	// not tell it: with 0 its card leaves it open, and nothing is refused here for
	// its length.
	ContextLength uint32
	// BlockSize is the number of tokens in a block (tokens_per_block), and Ranks
	// that of attention-DP ranks; 0: what the server tells, and one.
	BlockSize, Ranks uint32
	// LoadEvery is how often the load is asked for; 0: every 500 ms.
	LoadEvery time.Duration
	// Role is the part of requests that the server does. As [engine.Prefill] or
	// [engine.Decode] it needs a cache transceiver.
	Role engine.Role
	// GenerationFirst lets both legs of a request begin at once, as servers do whose
	// schedule_style is generation_first; else the decode leg begins when the prefill
	// leg has ended. It is for servers of role [engine.Prefill].
	GenerationFirst bool
	// Events says that the server keeps its KV events: its
	// kv_cache_config.event_buffer_max_size is above 0. Nobody else may read them.
	Events bool
	// PriorityEnabled says that the server's waiting queue follows priorities.
	PriorityEnabled bool
	// Adapters are those that the server may load, by request.
	Adapters []Adapter
	// ExtraBody is an object of members that requests have besides, or nil: those of
	// the server's that are not set here.
	ExtraBody json.RawMessage
	// Log hears of what an operator could do something about; nil: nobody does.
	Log *slog.Logger
}

// Styles of the order of two legs, as servers name them.
const (
	ContextFirst    = "context_first"
	GenerationFirst = "generation_first"
)

// Styles are all of them.
var Styles = []string{ContextFirst, GenerationFirst}

// Adapter is a LoRA adapter as the server finds it.
type Adapter struct {
	Name string `json:"lora_name"`
	ID   int32  `json:"lora_int_id"` // another one for each adapter
	Path string `json:"lora_path"`   // on the server's machine
}

// Engine is one server. Its only goroutines are legs that outlive their client,
// which [Engine.Close] ends.
type Engine struct {
	config Config
	client *httpapi.Client
	log    *slog.Logger
	closed atomic.Bool
	asleep atomic.Bool
	sight  engine.Sight
	up     atomic.Bool           // it took requests when it was last asked
	about  atomic.Pointer[about] // the program that the server is

	alone context.Context // ends with Close
	end   context.CancelFunc
	gate  sync.Mutex // held to begin a leg, and to close
	outer sync.WaitGroup
	// iterations are what a server tells of that has no Prometheus page.
	iterations iterations
	reticent   atomic.Bool // it does not answer when it is asked for them
	// legs numbers the pairs of legs that begin here, node tells them from those
	// of others.
	legs atomic.Uint64
	node uint64

	feed *live.Feed

	mu   sync.Mutex
	life life
}

var (
	_ engine.Engine        = (*Engine)(nil)
	_ engine.Disaggregator = (*Engine)(nil)
	_ engine.Controller    = (*Engine)(nil)
)

// New returns an engine. It dials nothing; only a bad configuration is an error.
func New(c Config) (*Engine, error) {
	client, err := httpapi.New(c.Config)
	if err != nil {
		return nil, err
	}
	if _, err := httpapi.Extra(c.ExtraBody, ours...); err != nil {
		return nil, fmt.Errorf("trtllm: extra body: %w", err)
	}
	if c.LoadEvery <= 0 {
		c.LoadEvery = 500 * time.Millisecond
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	e := &Engine{config: c, client: client, log: c.Log, node: rand.Uint64()}
	e.alone, e.end = context.WithCancel(context.Background())
	e.about.Store(&about{fields: oldest, legs: legFields})
	e.feed = live.NewFeed(e.source)
	return e, nil
}

// Close ends legs that have outlived their client, closes idle connections and
// refuses what is new. It may be called any number of times.
func (e *Engine) Close() error {
	e.gate.Lock()
	e.closed.Store(true)
	e.end()
	e.gate.Unlock()
	e.outer.Wait()
	e.feed.Close()
	e.client.Close()
	return nil
}
