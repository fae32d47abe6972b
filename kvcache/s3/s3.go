// Package s3 is the driver of the tier that lies in an object store which many
// share: any server of the S3 API.
//
// The one idea: an empty object beside the bytes says that they are all there.
// A writer takes a lock, which is an object that only one can create, puts the
// bytes, then the empty object `.meta`, and removes the lock; a reader who finds
// no `.meta` finds nothing. The lock bears a deadline, after which anybody may
// take it, so that a writer who dies holds nobody up for long.
//
//	<key>           the value; of a value in several shards <rank>/<key>
//	<key>.meta      empty; length, checksum and tag are its metadata
//	<key>.lock      {"instance_id", "acquired_at", "deadline"}
//
// The store may be slow, or away. A lookup takes at most 50 ms, and after five
// failures in a row nothing is asked but one try every five seconds: for the
// engines above that is a miss.
package s3

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/dynago/dynago/kvcache/store"
)

// Defaults of Options.
const (
	Lookup   = 50 * time.Millisecond
	Transfer = 30 * time.Second
	MaxValue = 1 << 30
	// Lease is for how long a lock is good.
	Lease = 300 * time.Second
)

// Options says where the bucket is and how to use it.
type Options struct {
	// Endpoint is the server's URL: https://s3.example.com or
	// http://127.0.0.1:9000. Buckets are named in paths.
	Endpoint string
	Bucket   string // must exist
	Prefix   string // of all names of objects
	Region   string // "" means us-east-1
	// AccessKey and SecretKey are empty where nobody needs to sign.
	AccessKey, SecretKey string
	// Instance names this writer in locks; "" means a random name.
	Instance string
	// Shards is in how many objects of equal length each value lies, one to a rank
	// of the engine's; 0 means 1.
	Shards int
	// Lookup bounds each question of a reader whether something is there, Transfer
	// each transfer of bytes and each question of a writer; 0 means the defaults.
	Lookup, Transfer time.Duration
	// MaxValue bounds values; 0 means the default.
	MaxValue int64
	// Transport makes the requests; nil means one with connections of its own.
	Transport http.RoundTripper
	// Now is the clock of deadlines and of the breaker; nil means time.Now.
	Now func() time.Time
}

// Store is a driver over a bucket.
type Store struct {
	opts   Options
	bucket bucket
	keys   *store.Keys

	mu      sync.Mutex
	breaker store.Breaker
	counts  Counts
	closed  atomic.Bool
}

var (
	_ store.Driver   = (*Store)(nil)
	_ store.Retagger = (*Store)(nil)
)

// Counts says what went wrong since a store was made.
type Counts struct {
	// Failures counts requests that failed or came too late, Refused calls that
	// found the breaker open, Corrupt values that were not what was put, Busy
	// values that were dropped because somebody else was writing the same key.
	Failures, Refused, Corrupt, Busy int
	// Open says that the breaker is open.
	Open bool
}

// New returns a store over a bucket. It asks nothing of the server, which may
// come later.
func New(opts Options) (*Store, error) {
	opts.Region = cmp.Or(opts.Region, "us-east-1")
	opts.Instance = cmp.Or(opts.Instance, uuid.NewString())
	opts.Shards = cmp.Or(opts.Shards, 1)
	opts.Lookup = cmp.Or(opts.Lookup, Lookup)
	opts.Transfer = cmp.Or(opts.Transfer, Transfer)
	opts.MaxValue = cmp.Or(opts.MaxValue, MaxValue)
	if opts.Now == nil {
		opts.Now = time.Now
	}
	if opts.Shards < 1 || opts.Lookup < 0 || opts.Transfer < 0 || opts.MaxValue < 0 {
		return nil, fmt.Errorf("kvcache/s3: %d shards, %v for a lookup, %v for a transfer, values of %d bytes: none may be negative", opts.Shards, opts.Lookup, opts.Transfer, opts.MaxValue)
	}
	b, err := dial(opts)
	if err != nil {
		return nil, fmt.Errorf("kvcache/s3: %w", err)
	}
	return &Store{opts: opts, bucket: b, keys: store.NewKeys()}, nil
}

// Counts returns what went wrong so far.
func (s *Store) Counts() Counts {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.counts
	c.Open = s.breaker.Open()
	return c
}

// Close implements [store.Driver].
func (s *Store) Close() error {
	if !s.closed.Swap(true) {
		s.bucket.close()
	}
	return nil
}

// allow reports whether the server may be asked.
func (s *Store) allow(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if s.closed.Load() {
		return store.ErrClosed
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.breaker.Allow(s.opts.Now()) {
		s.counts.Refused++
		return fmt.Errorf("kvcache/s3: %s does not answer, it is asked again every %v: %w", s.opts.Endpoint, store.BreakerPause, store.ErrUnavailable)
	}
	return nil
}

// ask makes one request within limit, and tells the breaker how it went. An
// answer that says no is an answer.
func (s *Store) ask(ctx context.Context, limit time.Duration, request func(context.Context) error) error {
	within, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := request(within)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return s.judge(err)
}

// judge tells the breaker how a request went.
func (s *Store) judge(err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil || errors.Is(err, errNoObject) || errors.Is(err, errCondition) {
		s.breaker.Succeeded()
		return err
	}
	s.counts.Failures++
	s.breaker.Failed(s.opts.Now())
	return fmt.Errorf("%w: %w", store.ErrUnavailable, err)
}

// Stat implements [store.Driver].
func (s *Store) Stat(ctx context.Context, key string) (store.Entry, error) {
	if err := s.allow(ctx); err != nil {
		return store.Entry{}, err
	}
	m, err := s.lookup(ctx, key, s.opts.Lookup)
	if err != nil {
		return store.Entry{}, err
	}
	return m.entry(key), nil
}

// lookup returns what `.meta` says of key.
func (s *Store) lookup(ctx context.Context, key string, limit time.Duration) (m meta, err error) {
	err = s.ask(ctx, limit, func(ctx context.Context) error {
		o, err := s.bucket.stat(ctx, s.name(key)+metaSuffix)
		if err == nil {
			m, err = readMeta(o)
		}
		return err
	})
	if errors.Is(err, errNoObject) {
		return meta{}, store.ErrNotFound
	}
	if err != nil && ctx.Err() == nil {
		err = fmt.Errorf("kvcache/s3: looking for %q: %w", key, err)
	}
	return m, err
}

// scanWidth is how many objects are looked at at once.
const scanWidth = 16

// Scan implements [store.Driver], in the order of names. It asks the server for
// each entry, and is meant for the start.
func (s *Store) Scan(ctx context.Context) iter.Seq2[store.Entry, error] {
	return func(yield func(store.Entry, error) bool) {
		if err := s.allow(ctx); err != nil {
			yield(store.Entry{}, err)
			return
		}
		var keys []string
		for name, err := range s.names(ctx) {
			if err != nil {
				yield(store.Entry{}, err)
				return
			}
			if key, ok := s.keyOf(name); ok {
				keys = append(keys, key)
			}
			if len(keys) == scanWidth {
				if !s.describe(ctx, keys, yield) {
					return
				}
				keys = keys[:0]
			}
		}
		s.describe(ctx, keys, yield)
	}
}

// names yields the names of all objects, in order. A listing that stands still for
// longer than a transfer may take is a failure.
func (s *Store) names(ctx context.Context) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		within, cancel := context.WithCancel(ctx)
		defer cancel()
		late := time.AfterFunc(s.opts.Transfer, cancel)
		defer late.Stop()
		var failure error
		for name, err := range s.bucket.list(within, s.opts.Prefix) {
			if failure = err; err != nil {
				break
			}
			late.Stop()
			if !yield(name, nil) {
				return
			}
			late.Reset(s.opts.Transfer)
		}
		if failure = cmp.Or(failure, within.Err()); ctx.Err() != nil {
			yield("", ctx.Err())
		} else if err := s.judge(failure); err != nil {
			yield("", fmt.Errorf("kvcache/s3: listing: %w", err))
		}
	}
}

// describe yields the entries of keys, as far as they are there, and reports
// whether to go on.
func (s *Store) describe(ctx context.Context, keys []string, yield func(store.Entry, error) bool) bool {
	metas, errs := make([]meta, len(keys)), make([]error, len(keys))
	var wg sync.WaitGroup
	for i, key := range keys {
		wg.Go(func() {
			errs[i] = s.ask(ctx, s.opts.Transfer, func(ctx context.Context) error {
				o, err := s.bucket.stat(ctx, s.name(key)+metaSuffix)
				if err == nil {
					metas[i], err = readMeta(o)
				}
				return err
			})
		})
	}
	wg.Wait()
	for i, key := range keys {
		if errors.Is(errs[i], errNoObject) {
			continue
		}
		if errs[i] != nil {
			yield(store.Entry{}, fmt.Errorf("kvcache/s3: looking at %q: %w", key, errs[i]))
			return false
		}
		if !yield(metas[i].entry(key), nil) {
			return false
		}
	}
	return true
}

// name returns the name of key's object, without a rank. Bytes that servers
// treat in ways of their own, and the dots of our suffixes, are written as =XX.
func (s *Store) name(key string) string {
	const hex = "0123456789ABCDEF"
	var b strings.Builder
	b.WriteString(s.opts.Prefix)
	for i := range len(key) {
		switch c := key[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', strings.IndexByte(":@_-", c) >= 0:
			b.WriteByte(c)
		default:
			b.Write([]byte{'=', hex[c>>4], hex[c&15]})
		}
	}
	return b.String()
}

// keyOf returns the key of which name is the `.meta`.
func (s *Store) keyOf(name string) (string, bool) {
	name, ok := strings.CutSuffix(strings.TrimPrefix(name, s.opts.Prefix), metaSuffix)
	if !ok {
		return "", false
	}
	return s.decode(name)
}

// decode returns the key that is written as name, behind the prefix.
func (s *Store) decode(name string) (string, bool) {
	var b strings.Builder
	for i := 0; i < len(name); i++ {
		if name[i] != '=' {
			b.WriteByte(name[i])
			continue
		}
		if i+2 >= len(name) {
			return "", false
		}
		hi, lo := strings.IndexByte("0123456789ABCDEF", name[i+1]), strings.IndexByte("0123456789ABCDEF", name[i+2])
		if hi < 0 || lo < 0 {
			return "", false
		}
		b.WriteByte(byte(hi<<4 | lo))
		i += 2
	}
	key := b.String()
	return key, s.name(key) == s.opts.Prefix+name
}

// shard returns the name of the object of rank i, of a key whose name is name.
func (s *Store) shard(name string, i int) string {
	if s.opts.Shards == 1 {
		return name
	}
	return fmt.Sprintf("%s%d/%s", s.opts.Prefix, i, strings.TrimPrefix(name, s.opts.Prefix))
}
