package fleet_test

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"sync"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/kv"
)

// fake is an engine that tells what a test sends it. An error sent ends the
// sequence with it, a nil without one.
type fake struct {
	cards, loads, events chan any

	mu     sync.Mutex
	opened [][]kv.Cursor // of each call of Events
	closed int
}

func newFake() *fake {
	return &fake{cards: make(chan any), loads: make(chan any), events: make(chan any)}
}

func (f *fake) Card(ctx context.Context) iter.Seq2[engine.Status, error] {
	return tell[engine.Status](ctx, f.cards)
}

func (f *fake) Load(ctx context.Context) iter.Seq2[engine.Load, error] {
	return tell[engine.Load](ctx, f.loads)
}

func (f *fake) Events(ctx context.Context, from []kv.Cursor) iter.Seq2[kv.Batch, error] {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.opened = append(f.opened, from)
	return tell[kv.Batch](ctx, f.events)
}

func (f *fake) Generate(context.Context, *engine.Request) iter.Seq2[engine.Delta, error] {
	return func(yield func(engine.Delta, error) bool) {
		yield(engine.Delta{}, engine.Errorf(engine.Unsupported, "not here"))
	}
}

func (f *fake) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed++
	return nil
}

func tell[T any](ctx context.Context, from chan any) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var zero T
		for {
			select {
			case <-ctx.Done():
				return
			case v := <-from:
				switch v := v.(type) {
				case nil:
					return
				case error:
					yield(zero, v)
					return
				case T:
					if !yield(v, nil) {
						return
					}
				}
			}
		}
	}
}

// ready is the status of a worker that serves, in one life.
func ready(epoch uint64) engine.Status {
	return engine.Status{Epoch: epoch, Revision: 1, State: engine.Ready, Card: &engine.Card{
		Model: "m", ContextLength: 1024, BlockSize: 4, DPSize: 1, Features: engine.Features{engine.FeatureEvents},
	}}
}

// recorder is a sink that writes down what it hears.
type recorder struct {
	mu    sync.Mutex
	lines []string
}

func (r *recorder) Apply(t kv.Target, b kv.Batch) {
	line := t.String()
	if b.Gap != "" {
		line += " gap=" + string(b.Gap)
	}
	for _, e := range b.Events {
		line += fmt.Sprintf(" %s", e.Kind)
		for _, b := range e.Blocks {
			line += fmt.Sprintf(" %d", b.Engine)
		}
	}
	r.write(line)
}

func (r *recorder) RemoveWorker(id uint64) { r.write(fmt.Sprintf("%d gone", id)) }

func (r *recorder) write(line string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, line)
}

// take returns the lines since the last call.
func (r *recorder) take() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	lines := slices.Clone(r.lines)
	r.lines = nil
	return lines
}

// batch is a batch of rank 0 that stores one block per number.
func batch(epoch, first, last uint64) kv.Batch {
	b := kv.Batch{Epoch: epoch, First: first, Last: last}
	for n := first; n <= last; n++ {
		b.Events = append(b.Events, kv.Event{Blocks: []kv.Block{{Engine: kv.EngineHash(n)}}})
	}
	return b
}
