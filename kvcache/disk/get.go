package disk

import (
	"context"
	"errors"
	"fmt"

	"github.com/dynago/dynago/kvcache/store"
)

// Get implements [store.Driver]. An entry that cannot be read, or is not what
// was put, is removed.
func (s *Store) Get(ctx context.Context, key string) (*store.Value, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.calls.Done()
	e, r := s.hold(key)
	if e == nil {
		return nil, store.ErrNotFound
	}
	defer s.letGo(e)

	v, err := s.read(ctx, &r)
	if err == nil {
		return v, nil
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	lock := s.key(key)
	lock.Lock()
	defer lock.Unlock()
	s.mu.Lock()
	if errors.Is(err, store.ErrCorrupt) {
		s.counts.Corrupt++
	} else {
		s.counts.ReadFailures++
	}
	s.mu.Unlock()
	err = errors.Join(err, s.remove(key, e))
	return nil, fmt.Errorf("kvcache/disk: reading %q: %w", key, err)
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

// read returns the value that r describes, checked.
func (s *Store) read(ctx context.Context, r *record) (*store.Value, error) {
	bytes, release := r.inline, func() {}
	if len(r.runs) > 0 {
		bytes, release = buffer(int(r.pages() * page))
	}
	at := 0
	for _, run := range r.runs {
		if err := ctx.Err(); err != nil {
			release()
			return nil, err
		}
		part := bytes[at : at+int(run.Units)*page]
		at += len(part)
		if n, err := s.values.ReadAt(part, int64(run.Start)*page); n < len(part) {
			release()
			return nil, unavailable(fmt.Errorf("%d of %d bytes: %w", n, len(part), err))
		}
	}
	bytes = bytes[:r.size]
	if store.Sum(bytes) != r.sum {
		release()
		return nil, store.ErrCorrupt
	}
	return store.NewValue((&entry{record: *r}).described(), bytes, release), nil
}
