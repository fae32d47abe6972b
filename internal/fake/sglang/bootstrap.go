package sglang

import (
	"context"
	"sync"
)

// Bootstrap is where the legs of requests meet. The servers of both roles share
// one.
type Bootstrap struct {
	mu    sync.Mutex
	rooms map[meeting]chan struct{} // closed when that leg has come
}

type meeting struct {
	room uint64
	mode string
}

// leg returns what is closed when a leg has come. The lock must be held.
func (b *Bootstrap) leg(m meeting) chan struct{} {
	if b.rooms == nil {
		b.rooms = map[meeting]chan struct{}{}
	}
	if b.rooms[m] == nil {
		b.rooms[m] = make(chan struct{})
	}
	return b.rooms[m]
}

// arrive says that a leg has come. A room is for one request.
func (b *Bootstrap) arrive(room uint64, mode string) (ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.leg(meeting{room, mode})
	select {
	case <-c:
		return false
	default:
		close(c)
		return true
	}
}

// await waits for the other leg, and says whether it has come.
func (b *Bootstrap) await(ctx context.Context, room uint64, mode string) bool {
	other := map[string]string{"prefill": "decode", "decode": "prefill"}[mode]
	b.mu.Lock()
	c := b.leg(meeting{room, other})
	b.mu.Unlock()
	select {
	case <-c:
		return true
	case <-ctx.Done():
		return false
	}
}
