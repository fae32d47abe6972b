// Package store is what the tiers of a KV cache that hold bytes have in common:
// a driver keeps values under keys, in memory, on a disk, in an object store or
// at a peer, and the tags that travel with them.
//
// The one idea: a value comes back whole and as it was put, or not at all. A
// driver checks length and XXH3 of what it read, removes what fails, and says
// which of a few errors it was; to whoever asks, each of them is a miss, and
// the tokens are computed anew. What is evicted, and when, is decided above: a
// driver that has no room says ErrFull, and is told what to delete.
package store

import (
	"context"
	"errors"
	"iter"
	"sync/atomic"
	"time"

	"github.com/zeebo/xxh3"
)

// MaxTag is the length in bytes that a tag may have. A retention record has 40.
const MaxTag = 64

// Errors that drivers wrap, to be asked for with errors.Is. For a reader all of
// them are misses; they differ in what to do about it.
var (
	// ErrNotFound: there is no such key.
	ErrNotFound = errors.New("no such key")
	// ErrFull: there is no room. Deleting entries makes some; as values lie in
	// one piece, more may have to go than the value is long.
	ErrFull = errors.New("no room")
	// ErrTooLarge: the key, the tag or the value is longer than the driver can
	// ever hold.
	ErrTooLarge = errors.New("too large")
	// ErrCorrupt: what was read is not what was put. The entry is gone.
	ErrCorrupt = errors.New("not what was stored")
	// ErrUnavailable: what lies below fails, or failed so recently that it was
	// not tried. The value of a Put is dropped.
	ErrUnavailable = errors.New("unavailable")
	// ErrClosed: the driver has been closed.
	ErrClosed = errors.New("closed")
)

// Driver keeps values under keys. All methods may be called at once from any
// number of goroutines, and give up when their context ends; of two calls that
// change one key at once, either may come first.
type Driver interface {
	// Put stores a copy of value under key, and tag beside it, in place of what
	// was there. Once it returns nil the value is found, and is found after a
	// restart as far as the driver promises that; when it fails, the key has what
	// it had before, or nothing.
	Put(ctx context.Context, key string, value, tag []byte) error
	// Get returns what lies under key, checked. The caller releases it.
	Get(ctx context.Context, key string) (*Value, error)
	// Stat returns what Get would, without the value, which is not checked.
	Stat(ctx context.Context, key string) (Entry, error)
	// Delete removes key. To delete what is not there is no error.
	Delete(ctx context.Context, key string) error
	// Scan yields all entries, those stored first first as far as the driver
	// knows. Entries that come or go meanwhile may be missing.
	Scan(ctx context.Context) iter.Seq2[Entry, error]
	// Close gives back what the driver holds. Values got before stay valid.
	Close() error
}

// Retagger is a driver that can replace the tag of an entry in place.
type Retagger interface {
	Retag(ctx context.Context, key string, tag []byte) error
}

// Filler is a driver that lets a value be written where it will lie.
type Filler interface {
	// Fill is a Put of size bytes that fill writes into b, and returns the checksum
	// of. B begins at a page of 4 KiB, and has the capacity of whole pages, if size
	// is a page or more. The value is returned as by Get. An error of fill is
	// returned as it is, and the key has what it had before.
	Fill(ctx context.Context, key string, size int64, tag []byte, fill func(b []byte) (sum uint64, err error)) (*Value, error)
}

// Mover is a driver that gives a value another key, and another tag, without
// copying it.
type Mover interface {
	// Move lets what lies under from lie under to, in place of what was there. It is
	// returned as by Get, unchecked.
	Move(ctx context.Context, from, to string, tag []byte) (*Value, error)
}

// Loader is a driver that can read a value to where the caller wants it.
type Loader interface {
	// Load is a Get that reads the value into b, and returns its checksum. It fails
	// with ErrTooLarge if the value is not as long as b. It is quick if b begins at
	// a page of 4 KiB, and has the capacity of whole pages.
	Load(ctx context.Context, key string, b []byte) (sum uint64, err error)
}

// Measured is a driver that knows how much it holds, and of how much it can.
type Measured interface {
	Usage() Usage
}

// Usage is what a driver holds.
type Usage struct {
	Entries int
	// Used counts bytes as the driver spends them, rounding included, against
	// Capacity.
	Used, Capacity int64
}

// Entry describes one value.
type Entry struct {
	Key    string
	Size   int64     // bytes of the value
	Tag    []byte    // not to be changed
	Stored time.Time // to the millisecond; of objects, as their server says
}

// Value is an entry with its bytes, which stay as they are until it is
// released, whatever happens to the key.
type Value struct {
	Entry
	Bytes []byte // not to be changed

	release  func()
	released atomic.Bool
}

// NewValue returns a value; release, if not nil, is called once, when the value
// is released.
func NewValue(e Entry, bytes []byte, release func()) *Value {
	return &Value{Entry: e, Bytes: bytes, release: release}
}

// Release gives the value's memory back; Bytes must not be used any more. It
// panics when called twice, since the memory may be another value's by then.
func (v *Value) Release() {
	if v.released.Swap(true) {
		panic("store: value of " + v.Key + " released twice")
	}
	if v.release != nil {
		v.release()
	}
}

// Sum is the checksum that drivers keep of values.
func Sum(value []byte) uint64 { return xxh3.Hash(value) }
