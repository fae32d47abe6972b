package s3

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/dynago/dynago/kvcache/store"
)

const (
	// maxLock is how much of a lock is read.
	maxLock = 4 << 10
	// farewell bounds the time that a writer who was told to stop takes for that.
	farewell = time.Second
)

// acquire takes the lock of key, or fails if another instance has it.
func (s *Store) acquire(ctx context.Context, key string) error {
	err := s.writeLock(ctx, key, condition{absent: true})
	if errors.Is(err, errCondition) {
		err = s.takeOver(ctx, key)
	}
	if errors.Is(err, errCondition) || errors.Is(err, errNoObject) {
		return s.busy(key, "another")
	}
	return err
}

// takeOver takes a lock that is there: one of our own, one whose time is up, or
// one that makes no sense.
func (s *Store) takeOver(ctx context.Context, key string) error {
	l, ok, etag, err := s.readLock(ctx, key)
	if err != nil {
		return err
	}
	if ok && l.Instance == s.opts.Instance {
		return nil
	}
	if ok && s.opts.Now().Before(l.Deadline) {
		return s.busy(key, l.Instance)
	}
	return s.writeLock(ctx, key, condition{etag: etag})
}

// readLock returns the lock of key, if it makes sense.
func (s *Store) readLock(ctx context.Context, key string) (l lease, ok bool, etag string, err error) {
	var text []byte
	err = s.ask(ctx, s.opts.Transfer, func(ctx context.Context) error {
		o, r, err := s.bucket.get(ctx, s.name(key)+lockSuffix)
		if err != nil {
			return err
		}
		defer r.Close()
		etag = o.etag
		text, err = io.ReadAll(io.LimitReader(r, maxLock))
		return err
	})
	if err == nil {
		l, ok = readLease(text)
	}
	return l, ok, etag, err
}

func (s *Store) busy(key, who string) error {
	s.count(func(c *Counts) { c.Busy++ })
	return fmt.Errorf("kvcache/s3: instance %s is writing %q: %w", who, key, store.ErrUnavailable)
}

// writeLock writes a lock of ours.
func (s *Store) writeLock(ctx context.Context, key string, when condition) error {
	now := s.opts.Now().UTC()
	text, err := json.Marshal(lease{Instance: s.opts.Instance, Acquired: now, Deadline: now.Add(Lease)})
	if err != nil {
		return fmt.Errorf("kvcache/s3: the lock of %q: %w", key, err)
	}
	return s.ask(ctx, s.opts.Transfer, func(ctx context.Context) error {
		return s.bucket.put(ctx, s.name(key)+lockSuffix, text, nil, when)
	})
}

// release gives the lock of key back, also for a writer who was told to stop and
// waits for nothing long. Should it fail, that is counted, and the lock ends in
// time.
func (s *Store) release(ctx context.Context, key string) {
	limit := s.opts.Transfer
	if ctx.Err() != nil {
		limit = min(limit, farewell)
	}
	s.ask(context.WithoutCancel(ctx), limit, func(ctx context.Context) error {
		return s.bucket.remove(ctx, s.name(key)+lockSuffix)
	})
}
