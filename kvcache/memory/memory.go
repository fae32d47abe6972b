// Package memory is the driver of the tier that lies in main memory, and forgets
// everything when the process ends.
//
// The one idea: values lie in one arena that is mapped once, outside of Go's
// heap, so that a hundred gigabytes of cache neither are collected nor double.
// A reader gets the bytes where they lie, and holds them; what is deleted
// meanwhile can no longer be found, and its place is free once the last reader
// has let go. Small values stay on the heap, where they split no runs.
package memory

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"iter"
	"math"
	"sync"
	"time"

	"github.com/dynago/dynago/kvcache/extent"
	"github.com/dynago/dynago/kvcache/store"
)

const (
	// unit is what the arena is divided into; shorter values stay on the heap.
	unit = 4 << 10
	// overhead is what an entry is taken to cost besides its key and bytes, with
	// the longest tag, since a tag may grow where nothing can be evicted.
	overhead = 256 + store.MaxTag
	// maxKey bounds keys.
	maxKey = 64 << 10
)

// Options says what a store is to be like.
type Options struct {
	// Capacity is how many bytes it holds, what entries cost included.
	Capacity int64
	// Unchecked leaves out the checksums, which cost about 0.1 ms a MiB and find
	// memory that forgets.
	Unchecked bool
}

// Store is a driver over one arena.
type Store struct {
	opts  Options
	arena []byte

	mu      sync.Mutex
	space   *extent.Space
	entries map[string]*entry
	used    int64
	seq     uint64
	holds   int // values got and not released, and one while the store is open
	closed  bool
}

var (
	_ store.Driver   = (*Store)(nil)
	_ store.Filler   = (*Store)(nil)
	_ store.Retagger = (*Store)(nil)
	_ store.Measured = (*Store)(nil)
	_ store.Mover    = (*Store)(nil)
)

// entry is a value that is found, or was deleted while it is read. Its bytes
// never change.
type entry struct {
	store.Entry
	seq   uint64
	sum   uint64
	bytes []byte
	run   extent.Run // nothing for those on the heap
	refs  int        // readers, and one while it is found
}

// New returns an empty store. Memory is taken from the system as it fills.
func New(opts Options) (*Store, error) {
	units := (opts.Capacity + unit - 1) / unit
	if opts.Capacity < 1 || units > math.MaxUint32 {
		return nil, fmt.Errorf("kvcache/memory: a capacity of %d bytes: want 1 to %d", opts.Capacity, int64(math.MaxUint32)*unit)
	}
	arena, err := newArena(int(units) * unit)
	if err != nil {
		return nil, fmt.Errorf("kvcache/memory: mapping %d bytes: %w", opts.Capacity, err)
	}
	return &Store{opts: opts, arena: arena, space: extent.New(uint32(units)), entries: map[string]*entry{}, holds: 1}, nil
}

// Put implements [store.Driver].
func (s *Store) Put(ctx context.Context, key string, value, tag []byte) error {
	v, err := s.Fill(ctx, key, int64(len(value)), tag, func(b []byte) (sum uint64, err error) {
		if !s.opts.Unchecked {
			sum = store.Sum(value)
		}
		copy(b, value)
		return sum, nil
	})
	if err != nil {
		return err
	}
	v.Release()
	return nil
}

// Fill implements [store.Filler].
func (s *Store) Fill(ctx context.Context, key string, size int64, tag []byte, fill func(b []byte) (sum uint64, err error)) (*store.Value, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	e := &entry{
		Entry: store.Entry{Key: key, Size: size, Tag: bytes.Clone(tag), Stored: time.Now().Truncate(time.Millisecond)},
		refs:  2,
	}
	if len(key) > maxKey || len(tag) > store.MaxTag || e.cost() > s.opts.Capacity {
		return nil, fmt.Errorf("kvcache/memory: a key of %d bytes, a tag of %d, a value of %d: %w", len(key), len(tag), size, store.ErrTooLarge)
	}
	if err := s.reserve(e); err != nil {
		return nil, err
	}
	var err error
	e.sum, err = fill(e.bytes)

	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		err = store.ErrClosed
	}
	if err != nil {
		e.refs = 1
		s.drop(e)
		return nil, err
	}
	s.seq++
	e.seq = s.seq
	if old := s.entries[key]; old != nil {
		s.drop(old)
	}
	s.entries[key] = e
	return s.held(e, e.Entry), nil
}

// Move implements [store.Mover].
func (s *Store) Move(ctx context.Context, from, to string, tag []byte) (*store.Value, error) {
	if len(to) > maxKey || len(tag) > store.MaxTag {
		return nil, fmt.Errorf("kvcache/memory: a key of %d bytes, a tag of %d: %w", len(to), len(tag), store.ErrTooLarge)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	e, err := s.find(from)
	if err = cmp.Or(ctx.Err(), err); err != nil {
		return nil, err
	}
	if old := s.entries[to]; old != nil && old != e {
		s.drop(old)
	}
	delete(s.entries, from)
	s.used -= e.cost()
	e.Key, e.Tag = to, bytes.Clone(tag)
	s.used += e.cost()
	s.seq++
	e.seq = s.seq
	s.entries[to] = e
	e.refs++
	return s.held(e, e.Entry), nil
}

// reserve finds the place of e's bytes.
func (s *Store) reserve(e *entry) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return store.ErrClosed
	}
	if s.used+e.cost() > s.opts.Capacity {
		return store.ErrFull
	}
	if e.Size < unit {
		e.bytes = make([]byte, e.Size)
	} else {
		run, ok := s.space.Take(uint32((e.Size + unit - 1) / unit))
		if !ok {
			return store.ErrFull
		}
		e.run = run
		from := int64(run.Start) * unit
		e.bytes = s.arena[from : from+e.Size : from+int64(run.Units)*unit]
	}
	s.used += e.cost()
	s.holds++
	return nil
}

// cost is what e counts as against the capacity.
func (e *entry) cost() int64 {
	size := e.Size
	if size >= unit {
		size = (size + unit - 1) / unit * unit
	}
	return size + overhead + int64(len(e.Key))
}

// drop lets go of e, and frees its place if nobody else holds it.
func (s *Store) drop(e *entry) {
	if e.refs--; e.refs > 0 {
		return
	}
	if e.run.Units > 0 {
		s.space.Give(e.run)
	}
	s.used -= e.cost()
	s.letGo()
}

// letGo gives the arena back with the last hold on it.
func (s *Store) letGo() {
	if s.holds--; s.holds == 0 {
		if err := freeArena(s.arena); err != nil {
			panic(fmt.Sprintf("kvcache/memory: unmapping the arena: %v", err))
		}
	}
}

// Get implements [store.Driver]. The bytes are the store's own.
func (s *Store) Get(ctx context.Context, key string) (*store.Value, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	e, described, err := s.hold(key)
	if err != nil {
		return nil, err
	}
	if !s.opts.Unchecked && store.Sum(e.bytes) != e.sum {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.drop(e)
		if s.entries[key] == e {
			delete(s.entries, key)
			s.drop(e)
		}
		return nil, fmt.Errorf("kvcache/memory: value of %q: %w", key, store.ErrCorrupt)
	}
	return s.held(e, described), nil
}

// held returns e as one that a reader has, who drops it.
func (s *Store) held(e *entry, described store.Entry) *store.Value {
	return store.NewValue(described, e.bytes[:e.Size:e.Size], func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.drop(e)
	})
}

// hold returns what lies under key with one more reader, and what it is now.
func (s *Store) hold(key string) (*entry, store.Entry, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, err := s.find(key)
	if err != nil {
		return nil, store.Entry{}, err
	}
	e.refs++
	return e, e.Entry, nil
}

// find returns what lies under key.
func (s *Store) find(key string) (*entry, error) {
	if s.closed {
		return nil, store.ErrClosed
	}
	if e := s.entries[key]; e != nil {
		return e, nil
	}
	return nil, store.ErrNotFound
}

// Stat implements [store.Driver].
func (s *Store) Stat(ctx context.Context, key string) (store.Entry, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, err := s.find(key)
	if err = cmp.Or(ctx.Err(), err); err != nil {
		return store.Entry{}, err
	}
	return e.Entry, nil
}

// Delete implements [store.Driver].
func (s *Store) Delete(ctx context.Context, key string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return store.ErrClosed
	}
	if e := s.entries[key]; e != nil {
		delete(s.entries, key)
		s.drop(e)
	}
	return nil
}

// Retag implements [store.Retagger].
func (s *Store) Retag(ctx context.Context, key string, tag []byte) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if len(tag) > store.MaxTag {
		return fmt.Errorf("kvcache/memory: a tag of %d bytes: %w", len(tag), store.ErrTooLarge)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	e, err := s.find(key)
	if err != nil {
		return err
	}
	e.Tag = bytes.Clone(tag)
	return nil
}

// Scan implements [store.Driver], in the order of the Puts.
func (s *Store) Scan(ctx context.Context) iter.Seq2[store.Entry, error] {
	return func(yield func(store.Entry, error) bool) {
		var listing store.Listing
		s.mu.Lock()
		closed := s.closed
		for _, e := range s.entries {
			listing.Add(e.seq, e.Entry)
		}
		s.mu.Unlock()

		if closed {
			yield(store.Entry{}, store.ErrClosed)
			return
		}
		listing.Each(ctx)(yield)
	}
}

// Usage implements [store.Measured]. What was deleted counts as long as it is
// read.
func (s *Store) Usage() store.Usage {
	s.mu.Lock()
	defer s.mu.Unlock()
	return store.Usage{Entries: len(s.entries), Used: s.used, Capacity: s.opts.Capacity}
}

// Close implements [store.Driver]. The arena goes with the last value that is
// released.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	for key, e := range s.entries {
		delete(s.entries, key)
		s.drop(e)
	}
	s.letGo()
	return nil
}
