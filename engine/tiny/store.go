package tiny

import (
	"container/list"
	"context"
	"errors"
	"sync"

	"github.com/dynago/dynago/kvcache/store"
)

// recent is a store that several engines share in one process. A driver alone keeps
// what it has until somebody deletes it, and none of the engines knows what the others
// still want; so what has been asked for longest ago makes room here.
type recent struct {
	store.Driver

	mu    sync.Mutex
	order list.List // of keys; the one asked for last is in front
	at    map[string]*list.Element
}

func newRecent(d store.Driver) *recent { return &recent{Driver: d, at: map[string]*list.Element{}} }

// Put implements [store.Driver].
func (r *recent) Put(ctx context.Context, key string, value, tag []byte) error {
	for {
		err := r.Driver.Put(ctx, key, value, tag)
		if err == nil {
			r.touch(key)
			return nil
		}
		oldest, ok := r.oldest(key)
		if !ok || !errors.Is(err, store.ErrFull) {
			return err
		}
		if err := r.Delete(ctx, oldest); err != nil {
			return err
		}
	}
}

// Get implements [store.Driver].
func (r *recent) Get(ctx context.Context, key string) (*store.Value, error) {
	v, err := r.Driver.Get(ctx, key)
	if err == nil {
		r.touch(key)
	}
	return v, err
}

// Delete implements [store.Driver].
func (r *recent) Delete(ctx context.Context, key string) error {
	r.mu.Lock()
	if e := r.at[key]; e != nil {
		r.order.Remove(e)
		delete(r.at, key)
	}
	r.mu.Unlock()
	return r.Driver.Delete(ctx, key)
}

func (r *recent) touch(key string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e := r.at[key]; e != nil {
		r.order.MoveToFront(e)
		return
	}
	r.at[key] = r.order.PushFront(key)
}

// oldest returns the key that was asked for longest ago, other than one.
func (r *recent) oldest(but string) (key string, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for e := r.order.Back(); e != nil; e = e.Prev() {
		if key = e.Value.(string); key != but {
			return key, true
		}
	}
	return "", false
}
