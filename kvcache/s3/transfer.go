package s3

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/dynago/dynago/kvcache/store"
)

// Get implements [store.Driver]. A value that is not what was put is removed,
// unless it is another by then.
func (s *Store) Get(ctx context.Context, key string) (*store.Value, error) {
	if err := s.allow(ctx); err != nil {
		return nil, err
	}
	m, err := s.lookup(ctx, key, s.opts.Lookup)
	if err != nil {
		return nil, err
	}
	// A value that is replaced while it is read is read once more.
	for again := true; ; again = false {
		body, err := s.download(ctx, key, m)
		if err == nil {
			return store.NewValue(m.entry(key), body, nil), nil
		}
		if !errors.Is(err, store.ErrCorrupt) {
			return nil, err
		}
		now, err := s.lookup(ctx, key, s.opts.Lookup)
		switch {
		case err != nil:
			return nil, err
		case again && !now.same(m):
			m = now
		case now.same(m):
			s.count(func(c *Counts) { c.Corrupt++ })
			return nil, errors.Join(fmt.Errorf("kvcache/s3: value of %q: %w", key, store.ErrCorrupt), s.Delete(ctx, key))
		default:
			return nil, fmt.Errorf("kvcache/s3: %q is being written: %w", key, store.ErrUnavailable)
		}
	}
}

func (s *Store) count(with func(*Counts)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	with(&s.counts)
}

// download returns the bytes that m describes, checked. Bytes that are missing
// are corrupt ones.
func (s *Store) download(ctx context.Context, key string, m meta) ([]byte, error) {
	if m.size > s.opts.MaxValue || m.size%int64(s.opts.Shards) != 0 {
		return nil, fmt.Errorf("kvcache/s3: %q is said to have %d bytes in %d shards: %w", key, m.size, s.opts.Shards, store.ErrTooLarge)
	}
	body, name := make([]byte, m.size), s.name(key)
	err := s.eachShard(ctx, body, func(ctx context.Context, i int, part []byte) error {
		return s.ask(ctx, s.opts.Transfer, func(ctx context.Context) error {
			o, r, err := s.bucket.get(ctx, s.shard(name, i))
			if err != nil {
				return err
			}
			defer r.Close()
			if o.size != int64(len(part)) {
				return errNoObject
			}
			_, err = io.ReadFull(r, part)
			return err
		})
	})
	switch {
	case errors.Is(err, errNoObject):
		return nil, store.ErrCorrupt
	case err != nil && ctx.Err() == nil:
		return nil, fmt.Errorf("kvcache/s3: reading %q: %w", key, err)
	case err != nil:
		return nil, ctx.Err()
	case store.Sum(body) != m.sum:
		return nil, store.ErrCorrupt
	}
	return body, nil
}

// eachShard calls do for the shards of value at once, and returns the first
// error, upon which the others are cancelled.
func (s *Store) eachShard(ctx context.Context, value []byte, do func(ctx context.Context, i int, part []byte) error) error {
	n := len(value) / s.opts.Shards
	if s.opts.Shards == 1 {
		return do(ctx, 0, value)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	for i := range s.opts.Shards {
		wg.Go(func() {
			if err := do(ctx, i, value[i*n:(i+1)*n]); err != nil {
				cancel(err)
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}

// Put implements [store.Driver]. A value that is there already is not sent
// again; while somebody else writes the key, the value is dropped. With several
// shards, the value has the same length in each.
func (s *Store) Put(ctx context.Context, key string, value, tag []byte) error {
	const maxName = 900 // servers take names of 1024 bytes
	name := s.name(key)
	if len(name) > maxName || len(tag) > store.MaxTag || int64(len(value)) > s.opts.MaxValue {
		return fmt.Errorf("kvcache/s3: a name of %d bytes (at most %d), a tag of %d (%d), a value of %d (%d): %w",
			len(name), maxName, len(tag), store.MaxTag, len(value), s.opts.MaxValue, store.ErrTooLarge)
	}
	if len(value)%s.opts.Shards != 0 {
		return fmt.Errorf("kvcache/s3: a value of %d bytes does not make %d shards: %w", len(value), s.opts.Shards, store.ErrTooLarge)
	}
	if err := s.allow(ctx); err != nil {
		return err
	}
	unlock, err := s.keys.Lock(ctx, key)
	if err != nil {
		return err
	}
	defer unlock()

	m := meta{size: int64(len(value)), sum: store.Sum(value), tag: tag}
	if _, done, err := s.present(ctx, key, m); done || err != nil {
		return err
	}
	if err := s.acquire(ctx, key); err != nil {
		return err
	}
	defer s.release(ctx, key)
	// Whoever had the lock before may have completed something since.
	there, done, err := s.present(ctx, key, m)
	if done || err != nil {
		return err
	}
	return s.upload(ctx, key, value, m, there)
}

// present reports whether something lies under key, and whether it is the value
// that m describes, with its tag, now at the latest.
func (s *Store) present(ctx context.Context, key string, m meta) (there, done bool, err error) {
	old, err := s.lookup(ctx, key, s.opts.Transfer)
	if errors.Is(err, store.ErrNotFound) {
		return false, false, nil
	}
	if err != nil || old.size != m.size || old.sum != m.sum {
		return true, false, err
	}
	if bytes.Equal(old.tag, m.tag) {
		return true, true, nil
	}
	old.tag = m.tag
	return true, true, s.writeMeta(ctx, key, old, condition{etag: old.etag})
}

// upload puts the bytes of key, then `.meta`, which it removes first if
// replacing.
func (s *Store) upload(ctx context.Context, key string, value []byte, m meta, replacing bool) error {
	name := s.name(key)
	if replacing {
		if err := s.remove(ctx, name+metaSuffix); err != nil {
			return fmt.Errorf("kvcache/s3: replacing %q: %w", key, err)
		}
	}
	err := s.eachShard(ctx, value, func(ctx context.Context, i int, part []byte) error {
		return s.ask(ctx, s.opts.Transfer, func(ctx context.Context) error {
			return s.bucket.put(ctx, s.shard(name, i), part, m.write(), condition{})
		})
	})
	if err != nil {
		return fmt.Errorf("kvcache/s3: writing %q: %w", key, err)
	}
	return s.writeMeta(ctx, key, m, condition{})
}

// writeMeta makes the `.meta` of key.
func (s *Store) writeMeta(ctx context.Context, key string, m meta, when condition) error {
	err := s.ask(ctx, s.opts.Transfer, func(ctx context.Context) error {
		return s.bucket.put(ctx, s.name(key)+metaSuffix, nil, m.write(), when)
	})
	if errors.Is(err, errCondition) || errors.Is(err, errNoObject) {
		return fmt.Errorf("kvcache/s3: %q changed meanwhile: %w", key, store.ErrUnavailable)
	}
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("kvcache/s3: completing %q: %w", key, err)
	}
	return err
}

// remove removes an object, if it is there.
func (s *Store) remove(ctx context.Context, name string) error {
	err := s.ask(ctx, s.opts.Transfer, func(ctx context.Context) error { return s.bucket.remove(ctx, name) })
	if errors.Is(err, errNoObject) {
		return nil
	}
	return err
}

// Delete implements [store.Driver]: `.meta` first, so that nobody finds a value
// of which a part is gone.
func (s *Store) Delete(ctx context.Context, key string) error {
	if err := s.allow(ctx); err != nil {
		return err
	}
	unlock, err := s.keys.Lock(ctx, key)
	if err != nil {
		return err
	}
	defer unlock()
	name := s.name(key)
	if err := s.remove(ctx, name+metaSuffix); err != nil {
		return fmt.Errorf("kvcache/s3: deleting %q: %w", key, err)
	}
	for i := range s.opts.Shards {
		if err := s.remove(ctx, s.shard(name, i)); err != nil {
			return fmt.Errorf("kvcache/s3: deleting %q: %w", key, err)
		}
	}
	return nil
}

// Retag implements [store.Retagger]: `.meta` is written anew.
func (s *Store) Retag(ctx context.Context, key string, tag []byte) error {
	if len(tag) > store.MaxTag {
		return fmt.Errorf("kvcache/s3: a tag of %d bytes: %w", len(tag), store.ErrTooLarge)
	}
	if err := s.allow(ctx); err != nil {
		return err
	}
	unlock, err := s.keys.Lock(ctx, key)
	if err != nil {
		return err
	}
	defer unlock()
	m, err := s.lookup(ctx, key, s.opts.Transfer)
	if err != nil {
		return err
	}
	m.tag = tag
	return s.writeMeta(ctx, key, m, condition{etag: m.etag})
}
