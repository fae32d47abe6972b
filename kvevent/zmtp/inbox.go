package zmtp

import (
	"context"
	"errors"
	"iter"
	"sync"
)

// Sizes of the buffers that are read into. They grow with what arrives at a
// time; those that had to hold a larger message are not kept.
const (
	firstChunk = 4 << 10
	usualChunk = 256 << 10
	keptChunk  = 2 << 20
)

// chunksPerPeer bounds the buffers of a connection that lie between its reader
// and the loop. When all are full it is no longer read, and TCP slows its peer
// down, and no other.
const chunksPerPeer = 4

// chunk is a buffer of a connection.
type chunk struct {
	buf  []byte
	n    int           // bytes read
	home chan<- *chunk // where it goes when it has been read out
}

// grow makes room for more bytes: as many as are needed, but never more than
// as many again as have really come.
func (c *chunk) grow(need int) {
	size := max(min(need, 2*len(c.buf)), c.n+1)
	c.buf = append(make([]byte, 0, size), c.buf[:c.n]...)[:size]
}

// release gives the chunk back to its connection.
func (c *chunk) release() {
	if cap(c.buf) > keptChunk {
		c.buf = nil
	}
	c.home <- c // has room for all
}

// delivery is what a connection hands over: a change, or a chunk of messages.
type delivery struct {
	event Event
	peer  *Peer
	err   error
	chunk *chunk
}

// inbox is where the connections of a socket meet its loop.
type inbox struct {
	in     chan delivery
	closed <-chan struct{}

	loop  sync.Mutex // held by the loop
	open  delivery   // what the loop is in
	rest  []byte     // what it has not seen of the chunk
	parts [][]byte   // of the latest message
}

func newInbox(closed <-chan struct{}) *inbox {
	return &inbox{in: make(chan delivery, 16), closed: closed}
}

// deliver waits until the loop has room.
func (b *inbox) deliver(ctx context.Context, d delivery) error {
	select {
	case b.in <- d:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// messages yields what is delivered, until ctx ends or the socket is closed.
func (b *inbox) messages(ctx context.Context) iter.Seq2[Message, error] {
	return func(yield func(Message, error) bool) {
		if !b.loop.TryLock() {
			yield(Message{}, errors.New("zmtp: another loop reads the messages of this socket"))
			return
		}
		defer b.loop.Unlock()
		for {
			select {
			case <-ctx.Done():
				yield(Message{}, context.Cause(ctx))
				return
			default:
			}
			if m, ok := b.next(); ok {
				if !yield(m, nil) {
					return
				}
				continue
			}
			select {
			case d := <-b.in:
				if d.event == Data {
					b.open, b.rest = d, d.chunk.buf[:d.chunk.n]
				} else if !yield(Message{Event: d.event, Peer: d.peer, Err: d.err}, nil) {
					return
				}
			case <-ctx.Done():
			case <-b.closed:
				yield(Message{}, ErrClosed)
				return
			}
		}
	}
}

// next returns the next message of the open chunk, or gives the chunk back.
// Commands among the messages have been obeyed already.
func (b *inbox) next() (Message, bool) {
	b.parts = b.parts[:0]
	for len(b.rest) > 0 {
		var flags byte
		var body []byte
		flags, body, b.rest = cut(b.rest)
		if flags&flagCommand != 0 {
			continue
		}
		b.parts = append(b.parts, body)
		if flags&flagMore == 0 {
			return Message{Peer: b.open.peer, Parts: b.parts}, true
		}
	}
	if b.open.chunk != nil {
		b.open.chunk.release()
		b.open = delivery{}
	}
	return Message{}, false
}
