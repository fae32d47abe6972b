package s3

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/dynago/dynago/kvcache/store"
)

// left is the age at which bytes without `.meta` are taken for those of a writer who
// has died: twice what his lock was good for, as clocks differ.
const left = 2 * Lease

// Sweep removes what writers who died have left behind, and returns how many
// objects these were: locks whose time is up, and old bytes that no `.meta` stands
// for. It lists the bucket twice, remembers eight bytes of each key, and touches no
// objects that others have put there.
func (s *Store) Sweep(ctx context.Context) (removed int, err error) {
	if err := s.allow(ctx); err != nil {
		return 0, err
	}
	whole, err := s.whole(ctx)
	if err != nil {
		return 0, err
	}
	for name, err := range s.names(ctx) {
		if err != nil {
			return removed, err
		}
		over, err := s.leftBehind(ctx, name, whole)
		if err == nil && over {
			removed++
			err = s.remove(ctx, name)
		}
		if err != nil {
			return removed, fmt.Errorf("kvcache/s3: sweeping %q: %w", name, err)
		}
	}
	return removed, nil
}

// whole returns hashes of the keys that have a `.meta`, in order.
func (s *Store) whole(ctx context.Context) ([]uint64, error) {
	var keys []uint64
	for name, err := range s.names(ctx) {
		if err != nil {
			return nil, err
		}
		if key, ok := s.keyOf(name); ok {
			keys = append(keys, store.Sum([]byte(key)))
		}
	}
	slices.Sort(keys)
	return keys, nil
}

// leftBehind reports whether an object is nobody's any more.
func (s *Store) leftBehind(ctx context.Context, name string, whole []uint64) (bool, error) {
	rest := strings.TrimPrefix(name, s.opts.Prefix)
	if lock, ok := strings.CutSuffix(rest, lockSuffix); ok {
		key, ok := s.decode(lock)
		if !ok {
			return false, nil
		}
		l, is, _, err := s.readLock(ctx, key)
		return is && !s.opts.Now().Before(l.Deadline), there(err)
	}
	key, ok := s.decode(rest[strings.LastIndexByte(rest, '/')+1:])
	if !ok || !s.isShard(name, key) {
		return false, nil
	}
	if _, found := slices.BinarySearch(whole, store.Sum([]byte(key))); found {
		return false, nil
	}
	old, err := s.old(ctx, name)
	if err != nil || !old {
		return false, there(err)
	}
	// Perhaps it was completed since.
	if _, err = s.lookup(ctx, key, s.opts.Transfer); errors.Is(err, store.ErrNotFound) {
		return true, nil
	}
	return false, err
}

// isShard reports whether name is that of an object with bytes of key.
func (s *Store) isShard(name, key string) bool {
	for i := range s.opts.Shards {
		if s.shard(s.name(key), i) == name {
			return true
		}
	}
	return false
}

// old reports whether an object was put by one of us, and long ago.
func (s *Store) old(ctx context.Context, name string) (old bool, err error) {
	err = s.ask(ctx, s.opts.Transfer, func(ctx context.Context) error {
		o, err := s.bucket.stat(ctx, name)
		if err == nil {
			_, err = readMeta(o)
			old = s.opts.Now().Sub(o.stored) > left
		}
		return err
	})
	return old && err == nil, err
}

// there takes it for no error that an object has gone, or is none of ours.
func there(err error) error {
	if errors.Is(err, errNoObject) {
		return nil
	}
	return err
}
