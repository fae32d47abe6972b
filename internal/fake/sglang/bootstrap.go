package sglang

import (
	"context"
	"errors"
	"sync"
	"time"
)

// Bootstrap is where the legs of requests meet. The servers of both roles share
// one.
type Bootstrap struct {
	// Patience is how long a decode leg waits for a prompt; 0: for ever. The real
	// one waits for minutes, also where the prefill leg has been given up.
	Patience time.Duration

	mu    sync.Mutex
	rooms map[uint64]*room
	used  map[uint64]bool // rooms in which a request was
}

// room is where the legs of one request meet.
type room struct {
	prefill, decode bool
	computed, come  chan struct{} // closed when the prompt is there, and the decode leg
	inside          int
}

// FakeHost is the host in whose rooms nobody is waited for: requests that warm up a
// server name it.
const FakeHost = "2.2.2.2"

var errRoomTaken = errors.New("the room is taken")

// enter lets a leg in. A room is for one request.
func (b *Bootstrap) enter(number uint64, mode string) (*room, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.rooms == nil {
		b.rooms, b.used = map[uint64]*room{}, map[uint64]bool{}
	}
	r := b.rooms[number]
	if r == nil {
		if b.used[number] {
			return nil, errRoomTaken
		}
		r = &room{computed: make(chan struct{}), come: make(chan struct{})}
		b.rooms[number], b.used[number] = r, true
	}
	mine := &r.prefill
	if mode == "decode" {
		mine = &r.decode
	}
	if *mine {
		return nil, errRoomTaken
	}
	*mine = true
	r.inside++
	if mode == "decode" {
		close(r.come)
	}
	return r, nil
}

// leave lets a leg out. A room stays as long as somebody is inside, or a prompt is
// held that nobody has fetched.
func (b *Bootstrap) leave(number uint64, mode string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := b.rooms[number]
	if r.inside--; r.inside == 0 {
		delete(b.rooms, number)
	}
}

// Inside tells how many legs are in rooms: none, once all requests are over.
func (b *Bootstrap) Inside() (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range b.rooms {
		n += r.inside
	}
	return n
}

var errTransfer = errors.New("KVTransferError: the prompt did not come")

// fetch waits for the prompt of a decode leg.
func (b *Bootstrap) fetch(ctx context.Context, r *room) error {
	late := make(<-chan time.Time)
	if b.Patience > 0 {
		late = time.After(b.Patience)
	}
	select {
	case <-r.computed:
		return nil
	case <-late:
		return errTransfer
	case <-ctx.Done():
		return ctx.Err()
	}
}

// keep holds a prompt until the decode leg has come for it.
func (b *Bootstrap) keep(ctx context.Context, r *room) error {
	close(r.computed)
	select {
	case <-r.come:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
