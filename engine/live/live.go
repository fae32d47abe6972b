// Package live joins what an engine tells of its caches to what it tells of
// itself. An adapter finds out by polling that its engine has another life, other
// ranks or another size of blocks; its sockets know nothing of that.
//
// The one idea: a [Feed] is told every status of the engine, reads its events
// once, and keeps a journal of each rank, in which any number of readers have a
// place. A new life voids what was told; ranks or blocks of another kind need
// another source. A reader sees gaps and snapshots, or the end of the sequence,
// and never events of two kinds of caches in one sequence.
package live

import (
	"cmp"
	"context"
	"iter"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/kv"
)

// Source yields the events of one engine. Those of package kvevent are sources.
type Source interface {
	// Events is called once.
	Events(ctx context.Context, from []kv.Cursor) iter.Seq2[kv.Batch, error]
	// Restarted says that the engine's process is another one than before. It
	// does not wait. It is false if the source has found that out by itself, so that
	// what it has told since then is of the new process; otherwise what it had told
	// is void, and a gap follows for each rank of which it has told something.
	Restarted() (news bool)
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

	turn   sync.Mutex // held to exchange sources
	mu     sync.Mutex
	epoch  uint64
	shape  Shape
	failed error // why there is no source for the shape
	told   *told // by the present source; nil before the first and after Close
}

// told is what one source has told, and who reads it.
type told struct {
	source Source
	ctx    context.Context // ends with the source
	end    context.CancelFunc
	run    sync.WaitGroup // the loop over its events

	// Under the feed's lock.
	begun    bool // the loop runs
	journals map[uint32]*journal
	// stale are the ranks of which the source has told something of a process that
	// has ended, and not yet that it is void.
	stale   map[uint32]bool
	changed chan struct{} // closed when there is something new
}

// mostRanks bounds the ranks that are kept apart: those beyond are a mistake of the
// engine.
const mostRanks = 4096

// NewFeed returns a feed that has no source yet. A source is read from when
// somebody first wants its events, and given up by ending the loop over them.
func NewFeed(open func(Shape) (Source, error)) *Feed { return &Feed{open: open} }

// Become tells what the engine is now. Without a card, or with one that has no
// [engine.FeatureEvents], nothing changes but the life. An error is that of
// opening a source; it is told once for each shape, and by Events until the shape
// is another one.
func (f *Feed) Become(s engine.Status) error {
	f.turn.Lock()
	defer f.turn.Unlock()
	f.mu.Lock()
	restarted := f.epoch != 0 && s.Epoch != f.epoch
	f.epoch = s.Epoch
	tells := s.Card != nil && s.Card.Features.Has(engine.FeatureEvents)
	if !tells || f.told != nil && ShapeOf(s.Card) == f.shape || f.failed != nil && ShapeOf(s.Card) == f.shape {
		if restarted && f.told != nil {
			f.told.renew(f.epoch)
		}
		f.mu.Unlock()
		return nil
	}
	f.shape = ShapeOf(s.Card)
	f.mu.Unlock()

	f.drop()
	source, err := f.open(ShapeOf(s.Card))
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.failed = err; err != nil {
		return err
	}
	t := &told{source: source, journals: map[uint32]*journal{}, stale: map[uint32]bool{}, changed: make(chan struct{})}
	t.ctx, t.end = context.WithCancel(context.Background())
	for i := range min(f.shape.Size, mostRanks) {
		t.journals[f.shape.First+i] = newJournal(f.shape.First+i, f.epoch)
	}
	f.told = t
	return nil
}

// renew begins another life of the engine.
func (t *told) renew(epoch uint64) {
	news := t.source.Restarted()
	for rank, j := range t.journals {
		if news {
			t.stale[rank] = j.last > j.begun || j.whole || j.rebuilding
		}
		j.renew(epoch, !news)
	}
	t.ring()
}

// ring wakes those who wait for something new.
func (t *told) ring() {
	close(t.changed)
	t.changed = make(chan struct{})
}

// read keeps what the source tells, until it ends.
func (f *Feed) read(t *told) {
	for b, err := range t.source.Events(t.ctx, nil) {
		if err != nil {
			return
		}
		f.mu.Lock()
		t.take(b, f.epoch)
		f.mu.Unlock()
	}
}

func (t *told) take(b kv.Batch, epoch uint64) {
	j := t.journals[b.Rank]
	switch {
	case t.stale[b.Rank] && b.Gap == "":
		return // of the process that has ended
	case j == nil && len(t.journals) >= mostRanks:
		return
	case j == nil:
		j = newJournal(b.Rank, epoch)
		t.journals[b.Rank] = j
	}
	delete(t.stale, b.Rank)
	j.take(b)
	t.ring()
}

// markEvery is how long a sequence of events is silent at most.
const markEvery = 5 * time.Second

// Events yields what the caches tell, as [engine.Engine] says, until ctx ends or
// the caches have become of another shape; then the sequence ends without an
// error, and the next one is of the new shape. The batches are shared with other
// readers.
func (f *Feed) Events(ctx context.Context, from []kv.Cursor) iter.Seq2[kv.Batch, error] {
	return func(yield func(kv.Batch, error) bool) {
		t, err := f.join()
		if err != nil {
			yield(kv.Batch{}, err)
			return
		}
		places := map[uint32]*reader{}
		for _, c := range from {
			r := at(c)
			places[c.Rank] = &r
		}
		mark := time.NewTimer(markEvery)
		defer mark.Stop()
		for idle := false; ; {
			news, changed := f.news(t, places, idle)
			for _, b := range news {
				if ctx.Err() != nil || t.ctx.Err() != nil || !yield(b, nil) {
					return
				}
			}
			if len(news) > 0 {
				mark.Reset(markEvery)
			}
			idle = false
			select {
			case <-changed:
			case <-mark.C:
				idle = true
			case <-ctx.Done():
				return
			case <-t.ctx.Done():
				return
			}
		}
	}
}

// join returns what there is to read, and lets it be read from the engine.
func (f *Feed) join() (*told, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	t := f.told
	switch {
	case f.failed != nil:
		return nil, f.failed
	case t == nil:
		return nil, engine.Errorf(engine.Unavailable, "it is not known yet how the engine tells of its caches")
	case !t.begun:
		t.begun = true
		t.run.Go(func() { f.read(t) })
	}
	return t, nil
}

// news returns what is new for a reader, rank by rank, and when to look again. One
// who was idle hears how far the ranks are.
func (f *Feed) news(t *told, places map[uint32]*reader, idle bool) ([]kv.Batch, <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []kv.Batch
	for _, j := range slices.SortedFunc(maps.Values(t.journals), func(a, b *journal) int { return cmp.Compare(a.rank, b.rank) }) {
		r := places[j.rank]
		if r == nil {
			r = &reader{fresh: true}
			places[j.rank] = r
		}
		batches := j.read(r)
		if out = append(out, batches...); idle && len(batches) == 0 && j.last > 0 {
			out = append(out, j.mark())
		}
	}
	return out, t.changed
}

// Close ends all sequences, and returns when nothing is read any more. A feed that
// is told a status later lives again.
func (f *Feed) Close() {
	f.turn.Lock()
	defer f.turn.Unlock()
	f.drop()
}

// drop gives up the present source.
func (f *Feed) drop() {
	f.mu.Lock()
	t := f.told
	f.told, f.failed = nil, nil
	f.mu.Unlock()
	if t != nil {
		t.end()
		t.run.Wait()
	}
}
