package disk

import (
	"bytes"
	"context"
	"fmt"

	"github.com/dynago/dynago/kvcache/store"
)

// Delete implements [store.Driver]. When it fails the key is gone, but may be
// there again after a restart.
func (s *Store) Delete(ctx context.Context, key string) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.calls.Done()
	unlock, err := s.keys.Lock(ctx, key)
	if err != nil {
		return err
	}
	defer unlock()
	if err := s.remove(key, nil); err != nil {
		return fmt.Errorf("kvcache/disk: deleting %q: %w", key, err)
	}
	return nil
}

// remove removes what lies under key, if it is only or only is nil. The caller
// has the lock of key.
func (s *Store) remove(key string, only *entry) error {
	s.mu.Lock()
	e := s.entries[key]
	if only != nil && e != only {
		s.mu.Unlock()
		return nil
	}
	if e != nil {
		delete(s.entries, key)
		s.stale = append(s.stale, e.slot)
	}
	s.mu.Unlock()

	// Also where nothing is found there may be a record whose erasure failed.
	err := s.eraseStale()
	if e != nil {
		s.letGo(e)
	}
	if err == nil && s.opts.Sync {
		err = s.records.Sync()
	}
	return err
}

// eraseStale erases the records that must not be found when the store is opened
// again. When it returns nil, those are erased that were stale when it was
// called. Where that fails it is tried again with the next change; until then
// their slots are not used.
func (s *Store) eraseStale() error {
	s.erasing.Lock()
	defer s.erasing.Unlock()
	for {
		s.mu.Lock()
		if len(s.stale) == 0 {
			s.mu.Unlock()
			return nil
		}
		at := s.stale[0]
		s.mu.Unlock()

		if _, err := s.records.WriteAt(make([]byte, slot), at*slot); err != nil {
			return unavailable(err)
		}
		s.mu.Lock()
		s.stale = s.stale[1:]
		s.free = append(s.free, at)
		s.mu.Unlock()
	}
}

// Retag implements [store.Retagger]: with a new record, so that there is no
// moment at which the entry has none.
func (s *Store) Retag(ctx context.Context, key string, tag []byte) error {
	if len(tag) > store.MaxTag {
		return fmt.Errorf("kvcache/disk: a tag of %d bytes: %w", len(tag), store.ErrTooLarge)
	}
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.calls.Done()
	unlock, err := s.keys.Lock(ctx, key)
	if err != nil {
		return err
	}
	defer unlock()

	e, next, err := s.reserveTag(key, bytes.Clone(tag))
	if err != nil {
		return err
	}
	err = s.writeRecord(next)
	s.mu.Lock()
	if err != nil {
		s.failed()
		s.stale = append(s.stale, next.slot)
	} else {
		s.stale = append(s.stale, e.slot)
		e.slot, e.record = next.slot, next.record
	}
	s.mu.Unlock()
	s.eraseStale()
	if err != nil {
		return fmt.Errorf("kvcache/disk: the tag of %q: %w", key, err)
	}
	return nil
}

// reserveTag returns what lies under key, and the same with another tag and a
// record of its own.
func (s *Store) reserveTag(key string, tag []byte) (e, next *entry, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e = s.entries[key]
	if e == nil {
		return nil, nil, store.ErrNotFound
	}
	next = &entry{record: e.record}
	next.tag = tag
	return e, next, s.takeSlot(next)
}
