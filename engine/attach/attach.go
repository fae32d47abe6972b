// Package attach makes engines of what an operator writes about servers: a kind,
// an address, and whatever a server does not tell of itself.
//
// The one idea: nothing is asked of a server before its card is. An [Engine] is
// there from the start, whether its server is or not; which kind it is, where its
// model's files lie and whether they can be read are found out by the one loop
// over its cards, so that a server that comes up late comes up like any other.
package attach

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/httpapi"
	"github.com/dynago/dynago/kv"
)

// Config says what an engine is attached with, beyond its [Spec].
type Config struct {
	// ModelPath is where the model's files are if the spec does not say it; empty:
	// where the server says, if that is on this machine.
	ModelPath string
	// Known is where the files of some models are, by their names, if nothing else
	// says it.
	Known map[string]string
	// Check is asked of every new card before its worker may become ready. With an
	// error the worker has failed, for that reason. It may take its time.
	Check func(*engine.Card) error
	Adapter
}

const (
	defaultEvery = time.Second
	jitter       = 0.1
)

// Engine is one attached server. It has no goroutines of its own. Optional
// interfaces are those of its adapter: see [engine.As].
type Engine struct {
	spec   *Spec
	config Config
	client *httpapi.Client // nil for a worker of dynago
	epoch  uint64          // until the adapter tells one
	life   context.Context
	end    context.CancelFunc

	mu      sync.Mutex
	adapter engine.Engine // nil until the kind is known
	kind    string
	closed  bool
}

var _ engine.Engine = (*Engine)(nil)

// New returns an engine. It dials nothing; only a spec that cannot be right is an
// error.
func New(s *Spec, c Config) (*Engine, error) {
	client, err := s.asked()
	if err != nil {
		return nil, err
	}
	e := &Engine{spec: s, config: c, client: client, epoch: uint64(time.Now().UnixNano())}
	e.life, e.end = context.WithCancel(context.Background())
	if s.Kind == Auto {
		return e, nil
	}
	if _, err := e.become(s.Kind); err != nil {
		return nil, err
	}
	return e, nil
}

// become makes the adapter, unless there is one.
func (e *Engine) become(kind string) (engine.Engine, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.adapter != nil {
		return e.adapter, nil
	}
	if e.closed {
		return nil, engine.Errorf(engine.EngineShutdown, "the engine is closed")
	}
	if err := e.spec.fits(kind); err != nil {
		return nil, err
	}
	adapter, err := e.spec.open(kind, e.config.Adapter)
	if err != nil {
		return nil, err
	}
	e.adapter, e.kind = adapter, kind
	return adapter, nil
}

// Unwrap returns the adapter, or nil while the kind of the server is unknown.
func (e *Engine) Unwrap() engine.Engine {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.adapter
}

// Close closes the adapter. It may be called any number of times.
func (e *Engine) Close() error {
	e.end()
	if e.client != nil {
		e.client.Close()
	}
	e.mu.Lock()
	e.closed = true
	adapter := e.adapter
	e.mu.Unlock()
	return closeAdapter(adapter)
}

// Card yields why the server is not known yet, and from then on what its adapter
// tells, with the places of the model's files. A server that was found out is asked
// again what it is before it serves again: another program may have its address.
func (e *Engine) Card(ctx context.Context) iter.Seq2[engine.Status, error] {
	return func(yield func(engine.Status, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(e.life, cancel)()
		l := &listener{e: e, yield: yield}
		for ; ctx.Err() == nil; l.crowd.pause(ctx) {
			adapter := e.Unwrap()
			if adapter == nil {
				if adapter = e.find(ctx, yield); adapter == nil {
					return
				}
			}
			if !l.hear(ctx, adapter) {
				return
			}
			switch {
			case e.unsure(l.told):
				e.ask(ctx, adapter)
			case l.last.fault != nil:
				pause(ctx, mendable*e.every())
			}
		}
	}
}

// listener is one who wants to know the cards of an engine.
type listener struct {
	e     *Engine
	yield func(engine.Status, error) bool
	last  completed
	told  engine.Status
	crowd crowd
}

// hear tells what an adapter tells, until it is to be looked again what the server
// is; then it returns true.
func (l *listener) hear(ctx context.Context, adapter engine.Engine) (again bool) {
	for s, err := range adapter.Card(ctx) {
		if err != nil {
			l.yield(s, err)
			return false
		}
		s = l.crowd.watch(l.e.complete(ctx, s, &l.last), time.Now())
		if s != l.told {
			if l.told = s; !l.yield(s, nil) {
				return false
			}
		}
		if l.e.unsure(s) || l.last.fault != nil || l.crowd.resting(time.Now()) {
			return true
		}
	}
	return ctx.Err() == nil && l.e.Unwrap() != adapter
}

func serves(s engine.State) bool {
	return s == engine.Ready || s == engine.Draining || s == engine.Suspect
}

// unsure says whether the server may be of another kind by now.
func (e *Engine) unsure(s engine.Status) bool { return e.spec.Kind == Auto && !serves(s.State) }

// ask asks after a while what the server is, until it tells, and gives up an adapter
// if it is of another kind now.
func (e *Engine) ask(ctx context.Context, adapter engine.Engine) {
	pause(ctx, e.every())
	for kind, err := range engine.Poll(ctx, e.every(), jitter, func(ctx context.Context) (string, error) { return Detect(ctx, e.client) }) {
		e.mu.Lock()
		another := err == nil && kind != e.kind && e.adapter == adapter && !e.closed
		if another {
			e.adapter, e.kind = nil, ""
		}
		e.mu.Unlock()
		if another {
			closeAdapter(adapter) //nolint:errcheck // its server is gone
		}
		if err == nil {
			return
		}
	}
}

// mendable is how many looks go by before a card that was found faulty is judged
// anew: the server may have been too busy to say where its model is, or the model's
// files may come later.
const mendable = 5

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

func (e *Engine) every() time.Duration { return cmp.Or(e.spec.Every, defaultEvery) }

func closeAdapter(adapter engine.Engine) error {
	if c, ok := adapter.(interface{ Close() error }); ok {
		return c.Close()
	}
	return nil
}

// find asks the server what it is until it tells, and returns its adapter; nil
// where nobody wants to know any more.
func (e *Engine) find(ctx context.Context, yield func(engine.Status, error) bool) (found engine.Engine) {
	told := engine.Status{}
	probe := func(ctx context.Context) (engine.Engine, error) {
		kind, err := Detect(ctx, e.client)
		if err != nil {
			return nil, &undetected{err}
		}
		return e.become(kind)
	}
	for adapter, err := range engine.Poll(ctx, e.every(), jitter, probe) {
		if err == nil {
			return adapter
		}
		s := engine.Status{Epoch: e.epoch, State: engine.Failed, Reason: err.Error()}
		if u, ok := err.(*undetected); ok {
			s.State, s.Reason = engine.Loading, "the kind of the server is not known yet: "+u.err.Error()
		}
		if s == told {
			continue
		}
		if told = s; !yield(s, nil) {
			return nil
		}
	}
	return nil
}

// undetected is an error that time may mend.
type undetected struct{ err error }

func (u *undetected) Error() string { return u.err.Error() }

// completed is the last card of an adapter and what was made of it.
type completed struct {
	in, out *engine.Card
	fault   error
}

// complete adds to a card what the adapter does not know, and judges it.
func (e *Engine) complete(ctx context.Context, s engine.Status, last *completed) engine.Status {
	if s.Card == nil {
		return s
	}
	if s.Card != last.in || last.fault != nil {
		card := *s.Card
		card.Files = slices.Clone(card.Files) // whoever checks it signs them
		if card.Accept(engine.InputTokens) {
			if path := e.files(ctx, &card); path != "" {
				card.Files = files(path)
			}
		}
		e.spec.amend(&card)
		*last = completed{in: s.Card, out: &card}
		if e.config.Check != nil {
			last.fault = e.config.Check(&card)
		}
	}
	s.Card = last.out
	if last.fault != nil && s.State == engine.Ready {
		s.State, s.Reason = engine.Failed, last.fault.Error()
	}
	return s
}

// Generate runs one request on the server.
func (e *Engine) Generate(ctx context.Context, r *engine.Request) iter.Seq2[engine.Delta, error] {
	if a := e.Unwrap(); a != nil {
		return a.Generate(ctx, r)
	}
	return unknown[engine.Delta]()
}

// Events yields what the server's caches do.
func (e *Engine) Events(ctx context.Context, from []kv.Cursor) iter.Seq2[kv.Batch, error] {
	if a := e.Unwrap(); a != nil {
		return a.Events(ctx, from)
	}
	return unknown[kv.Batch]()
}

// Load yields readings of the server's load.
func (e *Engine) Load(ctx context.Context) iter.Seq2[engine.Load, error] {
	if e.spec.NoLoad {
		return func(func(engine.Load, error) bool) { <-ctx.Done() }
	}
	if a := e.Unwrap(); a != nil {
		return a.Load(ctx)
	}
	return unknown[engine.Load]()
}

// unknown is the answer of a server whose kind is not known.
func unknown[T any]() iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none T
		yield(none, engine.Errorf(engine.Unavailable, "the kind of the server is not known yet"))
	}
}

// String names the engine for people.
func (s *Spec) String() string { return fmt.Sprintf("%s %s", s.Kind, s.URL) }
