// Package vllm attaches a stock vLLM server by its URL. Token ids go in and come
// out: over /inference/v1/generate where the build has it, else over
// /v1/completions in token mode; what the build understands is found out, not
// configured.
//
// The one idea: everything that is known of the server belongs to one life of its
// process. [Engine.Card] looks again and again; a request is made for the life that
// was seen last, and a process that was started anew begins another one.
package vllm

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"iter"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/httpapi"
	"github.com/dynago/dynago/engine/live"
)

// Config says how a server is reached, and what it does not tell of itself. The
// zero value of all but URL will do.
type Config struct {
	URL    string
	Key    string // bearer token
	Header http.Header
	TLS    *tls.Config
	// Model is the served name that is wanted; empty for the first one listed.
	Model string
	// Role says which leg of requests the server is for, Disagg how it hands blocks
	// over; each is found out where the server tells.
	Role   engine.Role
	Disagg Disagg
	// ContextLength, BlockSize and TotalBlocks are for what the server does not
	// tell, or tells wrongly: they are believed before it.
	ContextLength, BlockSize uint32
	TotalBlocks              uint64
	// DPStart and DPSize are the ranks behind the URL; size 0: as found out.
	DPStart, DPSize uint32
	// Priority says that the server was started with --scheduling-policy
	// priority, CachedTokens with --enable-prompt-tokens-details, ThinkingBudget
	// with a reasoning parser. Each is found out, too, where the server tells.
	Priority, CachedTokens, ThinkingBudget bool
	// Events is where the server publishes what its caches do.
	Events Events
	// EOS are the ids that end a sequence.
	EOS []uint32
	// Every is the time between two looks at the server; 0 = half a second.
	Every time.Duration
	// Log hears of what no request tells; nil: nobody does.
	Log *slog.Logger
}

const (
	defaultEvery = 500 * time.Millisecond
	jitter       = 0.1
)

// Engine is one server. It starts nothing until it is asked.
type Engine struct {
	config Config
	client *httpapi.Client

	look   sync.Mutex // one look at a time
	seen   observation
	now    atomic.Pointer[life]
	cached atomic.Bool // an answer has told of cached tokens
	met    sync.Map    // addresses where blocks are handed over, and were told of
	peers  peers

	feed       *live.Feed
	closed     context.Context
	end        context.CancelCauseFunc
	ending     sync.Mutex // no work begins in the background once the engine ends
	background sync.WaitGroup
}

var (
	_ engine.Engine        = (*Engine)(nil)
	_ engine.Controller    = (*Engine)(nil)
	_ engine.Disaggregator = (*Engine)(nil)
)

// New returns an engine. Only a configuration that cannot be right is an error.
func New(c Config) (*Engine, error) {
	client, err := httpapi.New(httpapi.Config{URL: c.URL, Key: c.Key, Header: c.Header, TLS: c.TLS})
	if err != nil {
		return nil, fmt.Errorf("vllm: %w", err)
	}
	c.Every = cmp.Or(c.Every, defaultEvery)
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Disagg.Style != "" && !slices.Contains(Styles, c.Disagg.Style) {
		return nil, fmt.Errorf("vllm: disagg style %q: want one of %s", c.Disagg.Style, strings.Join(Styles, ", "))
	}
	switch c.Role {
	case engine.Aggregated, engine.Prefill, engine.Decode:
	default:
		return nil, fmt.Errorf("vllm: role %q: want aggregated, prefill or decode", c.Role)
	}
	if c.Events.Endpoint != "" {
		if _, err := c.Events.endpoints(c.URL, c.DPStart, c.DPSize); err != nil {
			return nil, fmt.Errorf("vllm: %w", err)
		}
	}
	e := &Engine{config: c, client: client}
	e.feed = live.NewFeed(e.open)
	e.closed, e.end = context.WithCancelCause(context.Background())
	e.cached.Store(c.CachedTokens)
	e.now.Store(&life{status: engine.Status{
		Epoch: uint64(time.Now().UnixNano()), State: engine.Loading, Reason: "the server has not been asked yet",
	}})
	return e, nil
}

// Close ends all requests and what is being told, and drops idle connections. It
// may be called any number of times.
func (e *Engine) Close() error {
	e.ending.Lock()
	e.end(closedError())
	e.ending.Unlock()
	e.background.Wait()
	e.feed.Close()
	e.client.Close()
	return nil
}

// Card yields what the server is: at once after the first look, and then whenever
// a look finds something else.
func (e *Engine) Card(ctx context.Context) iter.Seq2[engine.Status, error] {
	return func(yield func(engine.Status, error) bool) {
		ctx, cancel := e.until(ctx)
		defer cancel()
		var told engine.Status
		for st, err := range engine.Poll(ctx, e.config.Every, jitter, e.observe) {
			if err == nil && st == told {
				continue
			}
			told = st
			if !yield(st, err) || err != nil {
				return
			}
		}
	}
}

// Load yields a reading of the server's metrics with every look. What could not
// be read is unknown.
func (e *Engine) Load(ctx context.Context) iter.Seq2[engine.Load, error] {
	return func(yield func(engine.Load, error) bool) {
		ctx, cancel := e.until(ctx)
		defer cancel()
		for l := range engine.Poll(ctx, e.config.Every, jitter, e.readLoad) {
			if !yield(l, nil) {
				return
			}
		}
	}
}

func (e *Engine) readLoad(ctx context.Context) (engine.Load, error) {
	c := e.now.Load().status.Card
	if c == nil {
		c = &engine.Card{DPStart: e.config.DPStart, DPSize: e.config.DPSize}
	}
	page, err := e.client.Get(ctx, "/metrics")
	if err != nil {
		return readings(nil).load(c), nil
	}
	return readMetrics(page).load(c), nil
}

// later does something in the background, and says whether it will: not for an
// engine that is closed.
func (e *Engine) later(f func()) bool {
	e.ending.Lock()
	defer e.ending.Unlock()
	if e.closed.Err() != nil {
		return false
	}
	e.background.Go(f)
	return true
}

// until ends with ctx and with the engine.
func (e *Engine) until(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(e.closed, cancel)
	return ctx, func() { stop(); cancel() }
}
