// Package peer is the driver of the tier that lies in another process which
// speaks the wire protocol of Redis: a kvstore of ours, or any Redis server.
//
// The one idea: a value is two entries there, the bytes as they are and a short
// header with length, checksum and tag. The header is written last and deleted
// first, so that it stands for both, and both come back in one answer; bytes and
// header that are not each other's fail the checksum. Servers evict as they
// like; what is half gone is gone.
//
//	<key>kv_bytes   the value
//	<key>metadata   the header
//
// The names are those by which stores that know LMCache evict such pairs
// together.
package peer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/dynago/dynago/kvcache/store"
)

// Defaults of Options.
const (
	Lookup      = 50 * time.Millisecond
	Transfer    = 30 * time.Second
	MaxValue    = 512 << 20
	Connections = 16
)

const (
	bytesSuffix  = "kv_bytes"
	headerSuffix = "metadata"
	maxKey       = 4 << 10
)

// Options says where the peer is and how to use it.
type Options struct {
	Address string // HOST:PORT
	Prefix  string // of all keys there
	// User and Password are sent with AUTH if there is a password; without a user,
	// the password alone.
	User, Password string
	// Lookup bounds the time to connect, to look for a value, and to the first byte
	// of one that is read; Transfer all else. 0 means the defaults.
	Lookup, Transfer time.Duration
	// MaxValue bounds values; 0 means the default.
	MaxValue int64
	// Connections is how many are kept; more are made when they are needed. 0
	// means the default.
	Connections int
	// Dial makes connections; nil means those of net.Dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Now is the clock of entries and of the breaker; nil means time.Now.
	Now func() time.Time
}

// Store is a driver over a peer.
type Store struct {
	opts Options
	keys *store.Keys

	mu      sync.Mutex
	idle    []*conn
	breaker store.Breaker
	counts  Counts
	closed  bool
}

var (
	_ store.Driver   = (*Store)(nil)
	_ store.Retagger = (*Store)(nil)
)

// Counts says what went wrong since a store was made.
type Counts struct {
	// Failures counts exchanges that failed or came too late, Refused calls that
	// found the breaker open, Corrupt values that were not what was put.
	Failures, Refused, Corrupt int
	// Open says that the breaker is open.
	Open bool
}

// New returns a store over a peer. It does not connect, as the peer may come
// later.
func New(opts Options) (*Store, error) {
	if host, port, err := net.SplitHostPort(opts.Address); err != nil || host == "" || port == "" {
		return nil, fmt.Errorf("kvcache/peer: address %q: want HOST:PORT", opts.Address)
	}
	if opts.Lookup < 0 || opts.Transfer < 0 || opts.MaxValue < 0 || opts.Connections < 0 {
		return nil, fmt.Errorf("kvcache/peer: %v for a lookup, %v for a transfer, values of %d bytes, %d connections: none may be negative", opts.Lookup, opts.Transfer, opts.MaxValue, opts.Connections)
	}
	opts.Lookup = cmp.Or(opts.Lookup, Lookup)
	opts.Transfer = cmp.Or(opts.Transfer, Transfer)
	opts.MaxValue = cmp.Or(opts.MaxValue, MaxValue)
	opts.Connections = cmp.Or(opts.Connections, Connections)
	if opts.Dial == nil {
		opts.Dial = new(net.Dialer).DialContext
	}
	if opts.Now == nil {
		opts.Now = time.Now
	}
	return &Store{opts: opts, keys: store.NewKeys()}, nil
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
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for _, c := range s.idle {
		c.Close()
	}
	s.idle = nil
	return nil
}

// Put implements [store.Driver].
func (s *Store) Put(ctx context.Context, key string, value, tag []byte) error {
	if len(key) > maxKey || len(tag) > store.MaxTag || int64(len(value)) > s.opts.MaxValue {
		return fmt.Errorf("kvcache/peer: a key of %d bytes (at most %d), a tag of %d (%d), a value of %d (%d): %w",
			len(key), maxKey, len(tag), store.MaxTag, len(value), s.opts.MaxValue, store.ErrTooLarge)
	}
	h := header{size: int64(len(value)), sum: store.Sum(value), stored: s.opts.Now().UnixMilli(), tag: tag}
	unlock, err := s.keys.Lock(ctx, key)
	if err != nil {
		return err
	}
	defer unlock()
	name := s.opts.Prefix + key
	_, err = s.exchange(ctx, s.forChange(),
		// Should the connection break in between, there is no old header for new
		// bytes.
		command("DEL", name+headerSuffix),
		command("SET", name+bytesSuffix, value),
		command("SET", name+headerSuffix, h.encode()))
	if errors.Is(err, errFault) {
		err = errors.Join(err, s.remove(ctx, key)) // of what was refused in part
	}
	return about("putting", key, err)
}

// about says what was being done to key when err happened.
func about(doing, key string, err error) error {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return fmt.Errorf("kvcache/peer: %s %q: %w", doing, key, err)
}

// Get implements [store.Driver]. What is not what was put is removed, unless it
// is being replaced.
func (s *Store) Get(ctx context.Context, key string) (*store.Value, error) {
	v, torn, err := s.read(ctx, key)
	if !torn {
		return v, about("getting", key, err)
	}
	// Perhaps it was read in the middle of a Put.
	unlock, err := s.keys.Lock(ctx, key)
	if err != nil {
		return nil, err
	}
	defer unlock()
	v, torn, err = s.read(ctx, key)
	if !torn {
		return v, about("getting", key, err)
	}
	s.mu.Lock()
	s.counts.Corrupt++
	s.mu.Unlock()
	return nil, about("getting", key, errors.Join(store.ErrCorrupt, s.remove(ctx, key)))
}

// read returns what lies under key. torn means that it is there and not whole.
func (s *Store) read(ctx context.Context, key string) (v *store.Value, torn bool, err error) {
	name := s.opts.Prefix + key
	replies, err := s.exchange(ctx, s.forValue(), command("MGET", name+headerSuffix, name+bytesSuffix))
	if err != nil {
		return nil, false, err
	}
	pair, ok := replies[0].(array)
	if !ok || len(pair) != 2 {
		return nil, false, fmt.Errorf("%w: an answer of %T", store.ErrUnavailable, replies[0])
	}
	head, there := pair[0].(bulk)
	if !there {
		return nil, false, store.ErrNotFound
	}
	h, ok := decodeHeader(head)
	body, there := pair[1].(bulk)
	if !ok || !there || int64(len(body)) != h.size || store.Sum(body) != h.sum {
		return nil, true, nil
	}
	return store.NewValue(h.entry(key), body, nil), false, nil
}

// Stat implements [store.Driver].
func (s *Store) Stat(ctx context.Context, key string) (store.Entry, error) {
	h, err := s.header(ctx, key)
	return h.entry(key), about("looking for", key, err)
}

// header returns the header of key.
func (s *Store) header(ctx context.Context, key string) (header, error) {
	replies, err := s.exchange(ctx, s.forHeader(), command("GET", s.opts.Prefix+key+headerSuffix))
	if err != nil {
		return header{}, err
	}
	head, there := replies[0].(bulk)
	if !there {
		return header{}, store.ErrNotFound
	}
	h, ok := decodeHeader(head)
	if !ok {
		return header{}, store.ErrNotFound
	}
	return h, nil
}

// Delete implements [store.Driver].
func (s *Store) Delete(ctx context.Context, key string) error {
	unlock, err := s.keys.Lock(ctx, key)
	if err != nil {
		return err
	}
	defer unlock()
	return about("deleting", key, s.remove(ctx, key))
}

func (s *Store) remove(ctx context.Context, key string) error {
	name := s.opts.Prefix + key
	_, err := s.exchange(ctx, s.forChange(), command("DEL", name+headerSuffix), command("DEL", name+bytesSuffix))
	return err
}

// Retag implements [store.Retagger].
func (s *Store) Retag(ctx context.Context, key string, tag []byte) error {
	if len(tag) > store.MaxTag {
		return fmt.Errorf("kvcache/peer: a tag of %d bytes: %w", len(tag), store.ErrTooLarge)
	}
	unlock, err := s.keys.Lock(ctx, key)
	if err != nil {
		return err
	}
	defer unlock()
	h, err := s.header(ctx, key)
	if err != nil {
		return about("tagging", key, err)
	}
	h.tag = tag
	_, err = s.exchange(ctx, s.forChange(), command("SET", s.opts.Prefix+key+headerSuffix, h.encode()))
	return about("tagging", key, err)
}

// Scan implements [store.Driver], in the server's order.
func (s *Store) Scan(ctx context.Context) iter.Seq2[store.Entry, error] {
	return func(yield func(store.Entry, error) bool) {
		seen := map[string]bool{} // a server may name a key twice
		for cursor := "0"; ; {
			replies, err := s.exchange(ctx, s.forChange(), command("SCAN", cursor, "MATCH", glob(s.opts.Prefix)+"*"+headerSuffix, "COUNT", "256"))
			if err != nil {
				yield(store.Entry{}, about("listing", s.opts.Prefix, err))
				return
			}
			next, names, ok := page(replies[0])
			if !ok {
				yield(store.Entry{}, about("listing", s.opts.Prefix, fmt.Errorf("%w: an answer that is no page", store.ErrUnavailable)))
				return
			}
			for _, name := range names {
				key, ok := strings.CutPrefix(name, s.opts.Prefix)
				key, header := strings.CutSuffix(key, headerSuffix)
				if !ok || !header || seen[key] {
					continue
				}
				seen[key] = true
				e, err := s.Stat(ctx, key)
				if errors.Is(err, store.ErrNotFound) {
					continue
				}
				if !yield(e, err) || err != nil {
					return
				}
			}
			if cursor = next; cursor == "0" {
				return
			}
		}
	}
}

// page reads an answer to SCAN.
func page(r reply) (cursor string, names []string, ok bool) {
	a, ok := r.(array)
	if !ok || len(a) != 2 {
		return "", nil, false
	}
	c, ok := a[0].(bulk)
	list, isList := a[1].(array)
	if !ok || !isList {
		return "", nil, false
	}
	for _, n := range list {
		if name, ok := n.(bulk); ok {
			names = append(names, string(name))
		}
	}
	return string(c), names, true
}

// glob returns a pattern that matches s alone.
func glob(s string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`).Replace(s)
}
