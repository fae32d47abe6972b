package disk

import (
	"context"
	"errors"
	"fmt"

	"github.com/dynago/dynago/kvcache/store"
)

// Get implements [store.Driver]. An entry that cannot be read, or is not what
// was put, is removed.
func (s *Store) Get(ctx context.Context, key string) (v *store.Value, err error) {
	err = s.get(ctx, key, func(r *record) error {
		bytes, release := r.inline, func() {}
		if len(r.runs) > 0 {
			bytes, release = buffer(int(r.pages() * page))
		}
		if err := s.read(ctx, r, bytes); err != nil {
			release()
			return err
		}
		v = store.NewValue((&entry{record: *r}).described(), bytes[:r.size], release)
		return nil
	})
	return v, err
}

// Load implements [store.Loader], as Get does.
func (s *Store) Load(ctx context.Context, key string, b []byte) (sum uint64, err error) {
	err = s.get(ctx, key, func(r *record) error {
		n := int(r.pages() * page)
		sum = r.sum
		switch {
		case int64(len(b)) != r.size:
			return fmt.Errorf("a value of %d bytes where there is room for %d: %w", r.size, len(b), store.ErrTooLarge)
		case n == 0:
			copy(b, r.inline)
			return s.read(ctx, r, b)
		case isAligned(b) && cap(b) >= n:
			return s.read(ctx, r, b[:n])
		}
		aside, release := buffer(n)
		defer release()
		err := s.read(ctx, r, aside)
		copy(b, aside)
		return err
	})
	return sum, err
}

// get lets read have what lies under key, and removes the entry if it fails.
func (s *Store) get(ctx context.Context, key string, read func(*record) error) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.calls.Done()
	e, r := s.hold(key)
	if e == nil {
		return store.ErrNotFound
	}
	defer s.letGo(e)

	err := read(&r)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, store.ErrTooLarge):
		return fmt.Errorf("kvcache/disk: reading %q: %w", key, err)
	}
	unlock, ended := s.keys.Lock(ctx, key)
	if ended != nil {
		return ended
	}
	defer unlock()
	s.mu.Lock()
	if errors.Is(err, store.ErrCorrupt) {
		s.counts.Corrupt++
	} else {
		s.counts.ReadFailures++
	}
	s.mu.Unlock()
	err = errors.Join(err, s.remove(key, e))
	return fmt.Errorf("kvcache/disk: reading %q: %w", key, err)
}

// hold returns what lies under key with one more reader, and its record as it
// is now.
func (s *Store) hold(key string) (*entry, record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entries[key]
	if e == nil {
		return nil, record{}
	}
	e.refs++
	return e, e.record
}

// read reads the pages of r into bytes, and checks the value.
func (s *Store) read(ctx context.Context, r *record, bytes []byte) error {
	at := 0
	for _, run := range r.runs {
		if err := ctx.Err(); err != nil {
			return err
		}
		part := bytes[at : at+int(run.Units)*page]
		at += len(part)
		if n, err := s.values.ReadAt(part, int64(run.Start)*page); n < len(part) {
			return unavailable(fmt.Errorf("%d of %d bytes: %w", n, len(part), err))
		}
	}
	if store.Sum(bytes[:r.size]) != r.sum {
		return store.ErrCorrupt
	}
	return nil
}
