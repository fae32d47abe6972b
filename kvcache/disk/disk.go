// Package disk is the driver of the tier that lies on a local disk, and is
// still there after a restart.
//
// The one idea: bytes first, then one record that names them. Values lie in
// pages of one preallocated file that is read and written past the page cache;
// a second file has a record of 512 bytes for each: key, pages, length,
// checksums, a number that only grows. Nothing is changed in place. What is
// written lies on free pages and under a free record until the record is
// complete, and the record that it replaces is erased after that. So wherever a
// process or a machine stops, the records whose checksum is right are entries
// that were put; of two that claim one key or one page the younger is true, and
// bytes that never reached the disk fail their checksum when they are read.
//
//	records  │ erased │ key a, 2 pages from 7, XXH3 … │ key b, in the record │ …
//	                         │
//	values   │ … │ 7 ▓▓▓▓ │ 8 ▓▓░░ │ … preallocated, in steps, up to the capacity
package disk

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/dynago/dynago/kvcache/extent"
	"github.com/dynago/dynago/kvcache/store"
)

const (
	// page is the unit in which values lie, what O_DIRECT wants things to be
	// aligned to.
	page = 4 << 10
	// maxParts is how many runs of pages one value may lie in.
	maxParts = 16
)

// Options says where a store lies and what it promises.
type Options struct {
	// Dir is a directory of the store's own; it is made if it is missing.
	Dir string
	// Capacity bounds the bytes of the values, rounded to pages; records, of 512
	// bytes, come on top. A store that is opened with less than before drops what
	// no longer has a place.
	Capacity int64
	// Step is how many bytes are preallocated at a time; 0 means 256 MiB.
	Step int64
	// Sync makes Put and Delete wait until the disk has what they did. Without
	// it, they survive the end of the process, and a loss of power takes back the
	// last ones.
	Sync bool
	// Buffered goes through the page cache. Otherwise O_DIRECT is used where the
	// file system can.
	Buffered bool
	// Now is the clock of entries and pauses; nil means time.Now.
	Now func() time.Time
}

// Store is a driver over a directory.
type Store struct {
	opts            Options
	values, records file
	unlock          func() error
	now             func() time.Time
	keys            *store.Keys
	erasing         sync.Mutex

	mu      sync.Mutex
	space   *extent.Space
	entries map[string]*entry
	used    int64 // bytes of pages that entries lie in, or did while they are read
	slots   int64 // records that the file has room for
	free    []int64
	stale   []int64 // slots that hold records that are to be erased first
	seq     uint64
	writing store.Backoff
	growing [2]store.Backoff // of values and of records
	counts  Counts
	calls   sync.WaitGroup // those that use the files
	closed  bool
}

var (
	_ store.Driver   = (*Store)(nil)
	_ store.Loader   = (*Store)(nil)
	_ store.Retagger = (*Store)(nil)
	_ store.Measured = (*Store)(nil)
)

// Counts says what went wrong since a store was opened.
type Counts struct {
	// Kept and Dropped count the records found when it was opened: those whose
	// entries are there again, and those that were superseded, or whose pages are
	// gone or another's. Torn counts records that were no records.
	Kept, Dropped, Torn int
	// WriteFailures counts values that were dropped because the disk failed or
	// had no room, Refused those that were dropped in a pause after that.
	WriteFailures, Refused int
	// ReadFailures counts entries that could not be read, Corrupt those that
	// were read and were not what was put. They are gone.
	ReadFailures, Corrupt int
}

// entry is a value that is found, or was removed while it is read.
type entry struct {
	record
	slot int64
	refs int // readers, and one while it is found
}

// described returns what others see of e.
func (e *entry) described() store.Entry {
	return store.Entry{Key: e.key, Size: e.size, Tag: e.tag, Stored: time.UnixMilli(e.stored)}
}

// Open opens the store in opts.Dir with what is left of it, or a new one. The
// directory is the store's alone until it is closed.
func Open(ctx context.Context, opts Options) (*Store, error) {
	if opts.Capacity < page || opts.Capacity/page > math.MaxUint32 {
		return nil, fmt.Errorf("kvcache/disk: a capacity of %d bytes: want %d to %d", opts.Capacity, page, int64(math.MaxUint32)*page)
	}
	_, missing := os.Stat(opts.Dir)
	if err := os.MkdirAll(opts.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("kvcache/disk: %w", err)
	}
	unlock, err := lock(filepath.Join(opts.Dir, "lock"))
	if err != nil {
		return nil, fmt.Errorf("kvcache/disk: %w", err)
	}
	values, err := openFile(filepath.Join(opts.Dir, "values.v1"), !opts.Buffered)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("kvcache/disk: %w", err), unlock())
	}
	records, err := openFile(filepath.Join(opts.Dir, "records.v1"), false)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("kvcache/disk: %w", err), values.Close(), unlock())
	}
	var s *Store
	if opts.Sync {
		err = syncDir(opts.Dir)
	}
	if opts.Sync && missing != nil {
		err = errors.Join(err, syncDir(filepath.Dir(opts.Dir)))
	}
	if err == nil {
		s, err = over(ctx, opts, values, records)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("kvcache/disk: %s: %w", opts.Dir, err), values.Close(), records.Close(), unlock())
	}
	s.unlock = unlock
	return s, nil
}

// over returns a store over two files, with what they hold.
func over(ctx context.Context, opts Options, values, records file) (*Store, error) {
	s := &Store{
		opts: opts, values: values, records: records,
		unlock:  func() error { return nil },
		now:     opts.Now,
		keys:    store.NewKeys(),
		entries: map[string]*entry{},
	}
	if s.now == nil {
		s.now = time.Now
	}
	if s.opts.Step <= 0 {
		s.opts.Step = 256 << 20
	}
	return s, s.recover(ctx)
}

// enter reports whether the files may be used; the caller calls s.calls.Done.
func (s *Store) enter(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return store.ErrClosed
	}
	s.calls.Add(1)
	return nil
}

// Stat implements [store.Driver].
func (s *Store) Stat(ctx context.Context, key string) (store.Entry, error) {
	if err := ctx.Err(); err != nil {
		return store.Entry{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return store.Entry{}, store.ErrClosed
	}
	e := s.entries[key]
	if e == nil {
		return store.Entry{}, store.ErrNotFound
	}
	return e.described(), nil
}

// Scan implements [store.Driver], in the order of the Puts, those of earlier
// lives included. It reads nothing.
func (s *Store) Scan(ctx context.Context) iter.Seq2[store.Entry, error] {
	return func(yield func(store.Entry, error) bool) {
		var listing store.Listing
		s.mu.Lock()
		closed := s.closed
		for _, e := range s.entries {
			listing.Add(e.put, e.described())
		}
		s.mu.Unlock()

		if closed {
			yield(store.Entry{}, store.ErrClosed)
			return
		}
		listing.Each(ctx)(yield)
	}
}

// Usage implements [store.Measured]: pages, of what Capacity allows.
func (s *Store) Usage() store.Usage {
	s.mu.Lock()
	defer s.mu.Unlock()
	return store.Usage{Entries: len(s.entries), Used: s.used, Capacity: s.opts.Capacity}
}

// Counts returns what went wrong so far.
func (s *Store) Counts() Counts {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counts
}

// Close implements [store.Driver]: it waits for calls that have begun, and
// writes what the system still has to the disk.
func (s *Store) Close() error {
	s.mu.Lock()
	already := s.closed
	s.closed = true
	s.mu.Unlock()
	s.calls.Wait()
	if already {
		return nil
	}
	err := errors.Join(s.eraseStale(), s.values.Sync(), s.records.Sync(), s.values.Close(), s.records.Close(), s.unlock())
	if err != nil {
		return fmt.Errorf("kvcache/disk: closing %s: %w", s.opts.Dir, err)
	}
	return nil
}
