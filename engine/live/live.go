// Package live joins what an engine tells of its caches to what it tells of
// itself. An adapter finds out by polling that its engine has another life, other
// ranks or another size of blocks; its sockets know nothing of that.
//
// The one idea: a [Feed] is told every status of the engine. A new life voids what
// the present source has told; ranks or blocks of another kind need another
// source. Whoever reads the events sees gaps and snapshots, or the end of the
// sequence, and never events of two kinds of caches in one sequence.
package live

import (
	"context"
	"iter"
	"slices"
	"sync"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/kv"
)

// Source yields the events of one engine. Those of package kvevent are sources.
type Source interface {
	Events(ctx context.Context, from []kv.Cursor) iter.Seq2[kv.Batch, error]
	// Restarted says that the engine's process is another one than before. It
	// does not wait.
	Restarted()
}

// Shape is what a source has to know of an engine's caches.
type Shape struct {
	First, Size uint32 // the ranks [First, First+Size)
	BlockSize   uint32 // in tokens, never 0
	Eagle       bool   // blocks are hashed by windows, see [engine.SchemeXXH3Eagle]
}

// ShapeOf returns that of a card.
func ShapeOf(c *engine.Card) Shape {
	return Shape{First: c.DPStart, Size: c.Ranks(), BlockSize: c.BlockSize, Eagle: c.HashScheme == engine.SchemeXXH3Eagle}
}

// Feed is the events of an engine over all its lives. Its methods may be called
// from any goroutine.
type Feed struct {
	open func(Shape) (Source, error)

	mu     sync.Mutex
	epoch  uint64
	shape  Shape
	source Source
	failed error              // why there is no source for the shape
	ctx    context.Context    // ends with the source
	end    context.CancelFunc // nil before the first source and after Close
}

// NewFeed returns a feed that has no source yet. What open returns is given up
// by ending the loop over its events.
func NewFeed(open func(Shape) (Source, error)) *Feed { return &Feed{open: open} }

// Become tells what the engine is now. Without a card, or with one that has no
// [engine.FeatureEvents], nothing changes but the life. An error is that of
// opening a source; it is told once for each shape, and by Events until the shape
// is another one.
func (f *Feed) Become(s engine.Status) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	restarted := f.epoch != 0 && s.Epoch != f.epoch
	f.epoch = s.Epoch
	told := s.Card != nil && s.Card.Features.Has(engine.FeatureEvents)
	if told && (f.end == nil || ShapeOf(s.Card) != f.shape) {
		f.drop()
		f.shape = ShapeOf(s.Card)
		f.ctx, f.end = context.WithCancel(context.Background())
		f.source, f.failed = f.open(f.shape)
		return f.failed
	}
	if restarted && f.source != nil {
		f.source.Restarted()
	}
	return nil
}

// Events yields what the caches tell, as [engine.Engine] says, until ctx ends or
// the caches have become of another shape; then the sequence ends without an
// error, and the next one is of the new shape.
func (f *Feed) Events(ctx context.Context, from []kv.Cursor) iter.Seq2[kv.Batch, error] {
	return func(yield func(kv.Batch, error) bool) {
		f.mu.Lock()
		source, err, life := f.source, f.failed, f.ctx
		f.mu.Unlock()
		switch {
		case err != nil:
			yield(kv.Batch{}, err)
			return
		case source == nil:
			yield(kv.Batch{}, engine.Errorf(engine.Unavailable, "it is not known yet how the engine tells of its caches"))
			return
		}
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(life, cancel)()
		for b, err := range source.Events(ctx, slices.Clone(from)) {
			if life.Err() != nil || !yield(b, err) {
				return
			}
		}
	}
}

// Close ends all sequences. A feed that is told a status later lives again.
func (f *Feed) Close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.drop()
}

func (f *Feed) drop() {
	if f.end != nil {
		f.end()
	}
	f.source, f.failed, f.ctx, f.end = nil, nil, nil, nil
}
