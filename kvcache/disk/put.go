package disk

import (
	"bytes"
	"context"
	"fmt"

	"github.com/dynago/dynago/kvcache/extent"
	"github.com/dynago/dynago/kvcache/store"
)

// stretch is how much of a value is copied to aligned memory and written at a
// time.
const stretch = 4 << 20

// Put implements [store.Driver]. After a failure of the disk it drops values
// for a while; where the disk has no more room the store lives in what it has,
// and asks for more from time to time.
func (s *Store) Put(ctx context.Context, key string, value, tag []byte) error {
	if len(key) > maxKey || len(tag) > store.MaxTag || int64(len(value)) > s.opts.Capacity/page*page {
		return fmt.Errorf("kvcache/disk: a key of %d bytes (at most %d), a tag of %d (%d), a value of %d (%d): %w",
			len(key), maxKey, len(tag), store.MaxTag, len(value), s.opts.Capacity/page*page, store.ErrTooLarge)
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

	e := &entry{refs: 1, record: record{
		key: key, tag: bytes.Clone(tag), stored: s.now().UnixMilli(),
		size: int64(len(value)), sum: store.Sum(value),
	}}
	if fitsInline(key, len(value)) {
		e.inline = append([]byte{}, value...)
	}
	if err := s.reserve(e); err != nil {
		return err
	}
	if err := s.write(ctx, e, value); err != nil {
		s.abandon(e, ctx.Err() == nil)
		return fmt.Errorf("kvcache/disk: writing %q: %w", key, err)
	}
	s.publish(e)
	return nil
}

// reserve finds pages and a record for e.
func (s *Store) reserve(e *entry) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	if !s.writing.Ready(now) {
		s.counts.Refused++
		return fmt.Errorf("kvcache/disk: the disk failed, for %v nothing is written: %w", s.writing.Pause(now), store.ErrUnavailable)
	}
	if e.inline == nil {
		if err := s.takePages(e, uint32(pagesOf(e.size))); err != nil {
			return err
		}
	}
	if err := s.takeSlot(e); err != nil {
		s.givePages(e)
		return err
	}
	return nil
}

// takePages finds pages for e, of those that are free or by asking for more.
func (s *Store) takePages(e *entry, pages uint32) error {
	for {
		runs, ok := s.space.TakeParts(pages, maxParts)
		if ok {
			e.runs = runs
			s.used += int64(pages) * page
			return nil
		}
		have, most := int64(s.space.Units()), s.opts.Capacity/page
		if have == most {
			return store.ErrFull
		}
		more := min(most-have, max(pagesOf(s.opts.Step), int64(pages)))
		err := s.grow(s.values, &s.growing[0], (have+more)*page, int64(pages) <= have)
		if err != nil {
			return err
		}
		s.space.Extend(uint32(more))
	}
}

// grow asks for a file of so many bytes. If that fails, and evicting can make
// the room that is wanted, the store is full; else the value is dropped.
func (s *Store) grow(f file, pause *store.Backoff, size int64, evictable bool) error {
	now := s.now()
	err := fmt.Errorf("the disk had no room, for %v it is not asked", pause.Pause(now))
	if pause.Ready(now) {
		if err = f.Grow(size); err == nil {
			pause.Succeeded()
			return nil
		}
		pause.Failed(now)
		s.counts.WriteFailures++
	}
	if evictable {
		return store.ErrFull
	}
	s.counts.Refused++
	return fmt.Errorf("kvcache/disk: %w: %w", store.ErrUnavailable, err)
}

// takeSlot finds a record for e, and numbers it.
func (s *Store) takeSlot(e *entry) error {
	if len(s.free) == 0 {
		more := min(max(s.slots, 64), 2048)
		if err := s.grow(s.records, &s.growing[1], (s.slots+more)*slot, len(s.entries) > 0); err != nil {
			return err
		}
		for i := s.slots + more - 1; i >= s.slots; i-- {
			s.free = append(s.free, i)
		}
		s.slots += more
	}
	e.slot = s.free[len(s.free)-1]
	s.free = s.free[:len(s.free)-1]
	s.seq++
	e.seq = s.seq
	if e.put == 0 {
		e.put = e.seq
	}
	return nil
}

// write writes the value, then the record.
func (s *Store) write(ctx context.Context, e *entry, value []byte) error {
	for _, run := range e.runs {
		part := value[:min(len(value), int(run.Units)*page)]
		value = value[len(part):]
		if err := s.writeRun(ctx, run, part); err != nil {
			return err
		}
	}
	if s.opts.Sync && len(e.runs) > 0 {
		if err := s.values.Sync(); err != nil {
			return unavailable(err)
		}
	}
	return s.writeRecord(e)
}

// writeRun writes part to the pages of run, and zeros after it to their end.
func (s *Store) writeRun(ctx context.Context, run extent.Run, part []byte) error {
	at := int64(run.Start) * page
	if whole := len(part) / page * page; isAligned(part) && whole > 0 {
		if _, err := s.values.WriteAt(part[:whole], at); err != nil {
			return unavailable(err)
		}
		at, part = at+int64(whole), part[whole:]
	}
	if len(part) == 0 {
		return nil
	}
	buf, release := buffer(min(int(pagesOf(int64(len(part))))*page, stretch))
	defer release()
	for len(part) > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		n := copy(buf, part)
		end := int(pagesOf(int64(n))) * page
		clear(buf[n:end])
		if _, err := s.values.WriteAt(buf[:end], at); err != nil {
			return unavailable(err)
		}
		at, part = at+int64(end), part[n:]
	}
	return nil
}

// writeRecord writes e's record.
func (s *Store) writeRecord(e *entry) error {
	if _, err := s.records.WriteAt(e.encode()[:], e.slot*slot); err != nil {
		return unavailable(err)
	}
	if s.opts.Sync {
		if err := s.records.Sync(); err != nil {
			return unavailable(err)
		}
	}
	return nil
}

func unavailable(err error) error { return fmt.Errorf("%w: %w", store.ErrUnavailable, err) }

// publish makes e what is found, and lets go of what was.
func (s *Store) publish(e *entry) {
	s.mu.Lock()
	s.writing.Succeeded()
	old := s.entries[e.key]
	s.entries[e.key] = e
	if old != nil {
		s.stale = append(s.stale, old.slot)
	}
	s.mu.Unlock()
	if old != nil {
		s.eraseStale()
		s.letGo(old)
	}
}

// abandon lets go of an entry that could not be written, be it that the disk is
// broken or that nobody wants it any more. Its record may be on the disk in
// part, in whole or not at all.
func (s *Store) abandon(e *entry, broken bool) {
	s.mu.Lock()
	if broken {
		s.failed()
	}
	s.stale = append(s.stale, e.slot)
	s.mu.Unlock()
	s.eraseStale()
	s.letGo(e)
}

// failed is told that a write failed. The caller has the lock.
func (s *Store) failed() {
	s.counts.WriteFailures++
	s.writing.Failed(s.now())
}

// letGo drops one hold on e, whose pages are free once nobody has one.
func (s *Store) letGo(e *entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.refs--; e.refs == 0 {
		s.givePages(e)
	}
}

// givePages frees the pages of e. The caller has the lock.
func (s *Store) givePages(e *entry) {
	for _, run := range e.runs {
		s.space.Give(run)
	}
	s.used -= e.pages() * page
}
