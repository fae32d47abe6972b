package store

import (
	"context"
	"hash/maphash"
)

// Keys lets one change of a key happen at a time. Keys that share a lock by chance
// wait for each other, too.
type Keys struct {
	seed  maphash.Seed
	locks [64]chan struct{} // full while someone has it
}

// NewKeys returns locks of which nobody has one.
func NewKeys() *Keys {
	k := &Keys{seed: maphash.MakeSeed()}
	for i := range k.locks {
		k.locks[i] = make(chan struct{}, 1)
	}
	return k
}

// Lock waits until nobody else changes key, or ctx ends. Whoever has the lock calls
// unlock once.
func (k *Keys) Lock(ctx context.Context, key string) (unlock func(), err error) {
	lock := k.locks[maphash.String(k.seed, key)%uint64(len(k.locks))]
	select {
	case lock <- struct{}{}:
		return func() { <-lock }, nil
	default:
	}
	select {
	case lock <- struct{}{}:
		return func() { <-lock }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
