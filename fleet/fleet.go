// Package fleet knows who is there: which workers, in which state, with which
// card and load. It listens to each of them and hands on what their caches tell.
//
// The one idea: a worker is followed, never asked. One goroutine per worker
// ranges over its cards, and while it serves two more range over its load and
// its KV events. Everything else reads the latest of what they saw, without
// waiting: a [Fleet.Snapshot] is a slice that never changes, and a [Worker]
// answers from memory. Where time is not real there is nobody to follow: a
// [Reporter] is told instead, and everything else is the same.
package fleet

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/kv"
)

// DefaultInhibit is how long a worker that failed a request is left alone.
const DefaultInhibit = 5 * time.Second

// Config says how a fleet behaves. The zero value is good.
type Config struct {
	// Logger gets what an operator should know; nil discards it.
	Logger *slog.Logger
	// Inhibit is how long a worker is left alone after a failure that was its
	// own. 0 is [DefaultInhibit], less than 0 never.
	Inhibit time.Duration
}

// Entry is a worker that is to join.
type Entry struct {
	// Name is stable over restarts and unique: the engine's URL, or "mock-0".
	Name string
	// Engine belongs to the fleet once [Fleet.Add] has taken it. If it is an
	// io.Closer it is closed when the worker leaves.
	Engine engine.Engine
	// ID is below 2^53. 0 takes [ID] of the name.
	ID uint64
}

// Sink hears what the caches of the fleet tell. Calls for one worker come one
// at a time and in order, those of different workers at the same time. A Sink
// must not block; of the fleet it may only read.
type Sink interface {
	// Apply tells changes of one rank. If b.Gap is set, all that was told of t
	// before is void. What arrives is complete: duplicates are gone, and holes
	// and new lives of the cache have become gaps.
	Apply(t kv.Target, b kv.Batch)
	// RemoveWorker says that nothing told of this worker holds any more: it has
	// left, failed, or lives a new life.
	RemoveWorker(id uint64)
}

// Fleet is a changing set of workers. Its methods may be called from any
// goroutine.
type Fleet struct {
	log     *slog.Logger
	inhibit time.Duration
	start   time.Time

	workers atomic.Pointer[[]*Worker] // by id, ascending; never changed in place
	version atomic.Uint64
	marked  atomic.Int64 // until when some worker is marked at the latest; 0: none is

	mu      sync.Mutex
	sinks   []Sink
	joined  uint64 // workers so far
	changed chan struct{}
	closed  bool
	leaving sync.WaitGroup     // workers that are no longer in the list, and still at work
	parting map[uint64]*Worker // those among them that had an id last
}

// New returns a fleet without workers.
func New(c Config) *Fleet {
	f := &Fleet{
		log:     c.Logger,
		inhibit: cmp.Or(c.Inhibit, DefaultInhibit),
		start:   time.Now(),
		changed: make(chan struct{}),
		parting: make(map[uint64]*Worker),
	}
	if f.log == nil {
		f.log = slog.New(slog.DiscardHandler)
	}
	f.workers.Store(new([]*Worker))
	return f
}

// Subscribe makes s hear all KV events of workers that join from now on. It is
// an error if some have joined already, because s would have missed what they
// told.
func (f *Fleet) Subscribe(s Sink) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.Snapshot()) > 0 {
		return errors.New("fleet: subscribe: workers have joined already")
	}
	f.sinks = append(f.sinks, s)
	return nil
}

// Add lets a worker join. It does not wait for the engine: until the worker's
// first card comes it is loading. A worker may come back while it is leaving;
// the new one begins when the old one has left.
func (f *Fleet) Add(e Entry) (*Worker, error) {
	if e.Engine == nil {
		return nil, fmt.Errorf("fleet: add %q: no engine", e.Name)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	w, err := f.joinLocked(e)
	if err != nil {
		return nil, err
	}
	w.start(slices.Clone(f.sinks))
	return w, nil
}

// joinLocked puts a worker into the list; nothing happens around it yet.
func (f *Fleet) joinLocked(e Entry) (*Worker, error) {
	if e.ID == 0 {
		e.ID = ID(e.Name)
	}
	if f.closed {
		return nil, fmt.Errorf("fleet: add %q: the fleet is closed", e.Name)
	}
	old := f.Snapshot()
	for _, w := range old {
		if w.name == e.Name || w.id == e.ID {
			return nil, fmt.Errorf("fleet: add %q (id %d): %q (id %d) is there already", e.Name, e.ID, w.name, w.id)
		}
	}
	w := newWorker(f, e)
	f.joined++
	w.seen = f.joined
	w.before = f.parting[w.id]
	list := append(slices.Clone(old), w)
	slices.SortFunc(list, func(a, b *Worker) int { return cmp.Compare(a.id, b.id) })
	f.workers.Store(&list)
	f.announceLocked()
	return w, nil
}

// Remove lets a worker leave at once: its streams are cancelled with
// [engine.ErrWorkerLost], and its engine is closed. It returns when all of that
// is done. An unknown id is ignored. To let streams finish, [Fleet.Drain] first.
func (f *Fleet) Remove(id uint64) {
	f.mu.Lock()
	old := f.Snapshot()
	i := slices.IndexFunc(old, func(w *Worker) bool { return w.id == id })
	if i < 0 {
		f.mu.Unlock()
		return
	}
	w := old[i]
	list := slices.Delete(slices.Clone(old), i, i+1)
	f.workers.Store(&list)
	f.judge()
	f.announceLocked()
	f.leaving.Add(1)
	f.parting[id] = w
	f.mu.Unlock()

	defer f.leaving.Done()
	if err := w.leave(engine.ErrWorkerLost); err != nil {
		f.log.Warn("engine did not close cleanly", "worker", w.name, "error", err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.parting[id] == w {
		delete(f.parting, id)
	}
}

// Drain keeps new requests from a worker; those that run go on. An unknown id
// is ignored.
func (f *Fleet) Drain(id uint64) { f.drain(id, true) }

// Resume ends a drain: the worker gets requests again.
func (f *Fleet) Resume(id uint64) { f.drain(id, false) }

func (f *Fleet) drain(id uint64, on bool) {
	if w := f.Worker(id); w != nil && w.draining.Swap(on) != on {
		f.announce()
	}
}

// Snapshot returns the workers in the order of their ids. The slice is never
// changed and must not be.
func (f *Fleet) Snapshot() []*Worker { return *f.workers.Load() }

// Worker returns the worker with this id, or nil.
func (f *Fleet) Worker(id uint64) *Worker {
	list := f.Snapshot()
	i, ok := slices.BinarySearchFunc(list, id, func(w *Worker, id uint64) int { return cmp.Compare(w.id, id) })
	if !ok {
		return nil
	}
	return list[i]
}

// Changed returns a channel that is closed at the next change: a worker joins or
// leaves, tells a new status, or is left alone for a while; the end of that while
// is not announced. Take the channel first, look then, wait last.
func (f *Fleet) Changed() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.changed
}

// Version is another number after each change that [Fleet.Changed] announces, so
// that what was found out about the workers need not be found out again while it
// is the same. Take it first, and look then.
func (f *Fleet) Version() uint64 { return f.version.Load() }

// Calm says that no worker is left alone after a failure, and none counts as
// overloaded. It may say so a little late.
func (f *Fleet) Calm() bool {
	until := f.marked.Load()
	if until == 0 {
		return true
	}
	return int64(time.Since(f.start)) >= until && f.marked.CompareAndSwap(until, 0)
}

// Close lets all workers leave, with [engine.ErrShutdown] as the cause for what
// still runs, and returns when no goroutine of the fleet is left.
func (f *Fleet) Close() error {
	f.mu.Lock()
	f.closed = true
	list := f.Snapshot()
	f.workers.Store(new([]*Worker))
	f.announceLocked()
	errs := make([]error, len(list))
	for i, w := range list {
		f.leaving.Go(func() {
			if err := w.leave(engine.ErrShutdown); err != nil {
				errs[i] = fmt.Errorf("fleet: close %s: %w", w.name, err)
			}
		})
	}
	f.mu.Unlock()
	f.leaving.Wait()
	return errors.Join(errs...)
}

func (f *Fleet) announce() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.announceLocked()
}

func (f *Fleet) announceLocked() {
	f.version.Add(1)
	close(f.changed)
	f.changed = make(chan struct{})
}

// closeEngine closes what can be closed.
func closeEngine(e engine.Engine) error {
	if c, ok := e.(io.Closer); ok {
		return c.Close()
	}
	return nil
}
