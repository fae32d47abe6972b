package selection

import (
	"context"
	"iter"
	"sync"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/kvevent"
)

// external is a worker to which others send the requests. It has a card, which
// changes when its registration does, and the events of its caches.
type external struct {
	mu      sync.Mutex
	status  engine.Status
	changed chan struct{} // closed at the next change of status
	feed    *feed
}

// feed is where the events come from, until another takes its place.
type feed struct {
	source *kvevent.Source // nil: the worker tells none
	over   context.Context
	end    context.CancelFunc
}

func newFeed(s *kvevent.Source) *feed {
	f := &feed{source: s}
	f.over, f.end = context.WithCancel(context.Background())
	return f
}

func newExternal(card *engine.Card, source *kvevent.Source) *external {
	return &external{
		status:  engine.Status{Epoch: 1, Revision: 1, State: engine.Ready, Card: card},
		changed: make(chan struct{}),
		feed:    newFeed(source),
	}
}

// become replaces the card; what ran there and what is known of its caches stays.
// With another source of events they are read anew.
func (e *external) become(card *engine.Card, source *kvevent.Source, sameSource bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.status.Card = card
	e.status.Revision++
	close(e.changed)
	e.changed = make(chan struct{})
	if !sameSource {
		e.feed.end()
		e.feed = newFeed(source)
	}
}

func (e *external) now() (engine.Status, <-chan struct{}, *feed) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.status, e.changed, e.feed
}

// stats returns what was heard of the worker's events, by rank.
func (e *external) stats() []kvevent.SourceStats {
	_, _, f := e.now()
	if f.source == nil {
		return nil
	}
	return f.source.Stats()
}

// Card implements engine.Engine.
func (e *external) Card(ctx context.Context) iter.Seq2[engine.Status, error] {
	return func(yield func(engine.Status, error) bool) {
		for ctx.Err() == nil {
			status, changed, _ := e.now()
			if !yield(status, nil) {
				return
			}
			select {
			case <-changed:
			case <-ctx.Done():
				yield(engine.Status{}, engine.CauseOf(ctx, ctx.Err()))
				return
			}
		}
	}
}

// Events implements engine.Engine. They end when the worker publishes them
// elsewhere.
func (e *external) Events(ctx context.Context, from []kv.Cursor) iter.Seq2[kv.Batch, error] {
	return func(yield func(kv.Batch, error) bool) {
		_, _, f := e.now()
		if f.source == nil {
			yield(kv.Batch{}, engine.Errorf(engine.Unsupported, "the worker tells no KV events"))
			return
		}
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(f.over, cancel)()
		for b, err := range f.source.Events(ctx, from) {
			if !yield(b, err) {
				return
			}
		}
	}
}

// Load implements engine.Engine: what runs there is known from the books alone.
func (e *external) Load(ctx context.Context) iter.Seq2[engine.Load, error] {
	return func(yield func(engine.Load, error) bool) {
		<-ctx.Done()
		yield(engine.Load{}, engine.CauseOf(ctx, ctx.Err()))
	}
}

// Generate implements engine.Engine, and refuses.
func (e *external) Generate(context.Context, *engine.Request) iter.Seq2[engine.Delta, error] {
	return func(yield func(engine.Delta, error) bool) {
		yield(engine.Delta{}, engine.Errorf(engine.Unsupported, "the dispatcher sends requests to this worker itself"))
	}
}

// Close ends the events.
func (e *external) Close() error {
	_, _, f := e.now()
	f.end()
	return nil
}
