package zmtp

import (
	"context"
	"net"
	"sync"
)

// signal wakes everybody who waits for a change.
type signal struct {
	mu sync.Mutex
	ch chan struct{} // nil while nobody waits
}

// wait returns what is closed at the next change. Take it before looking.
func (s *signal) wait() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ch == nil {
		s.ch = make(chan struct{})
	}
	return s.ch
}

func (s *signal) broadcast() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ch != nil {
		close(s.ch)
		s.ch = nil
	}
}

// outbox holds what waits to be written to one peer: messages up to the high
// water mark, each in its form on the wire, and commands. A message counts until
// the connection has taken it.
type outbox struct {
	maxMessages, maxBytes int
	changed               *signal       // there is room, or the peer is gone
	work                  chan struct{} // there is something to write

	mu       sync.Mutex
	commands []byte
	messages [][]byte
	count    int // messages, with those being written
	bytes    int
	gone     bool
}

func newOutbox(o *Options, changed *signal) *outbox {
	return &outbox{maxMessages: o.HighWater, maxBytes: o.QueueBytes, changed: changed, work: make(chan struct{}, 1)}
}

// offer takes a message if it has room. It never waits.
func (o *outbox) offer(wire []byte) (ok bool, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.gone {
		return false, ErrGone
	}
	if o.count > 0 && (o.count >= o.maxMessages || o.bytes+len(wire) > o.maxBytes) {
		return false, nil
	}
	o.messages = append(o.messages, wire)
	o.count++
	o.bytes += len(wire)
	o.wake()
	return true, nil
}

// command adds frames that go before every message.
func (o *outbox) command(frames []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.commands = append(o.commands, frames...)
	o.wake()
}

// pending is the size of the commands that wait.
func (o *outbox) pending() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.commands)
}

// wake tells the writer; the caller holds the lock.
func (o *outbox) wake() {
	select {
	case o.work <- struct{}{}:
	default:
	}
}

// leave says that the peer is gone: whoever waits for room learns it.
func (o *outbox) leave() {
	o.mu.Lock()
	o.gone, o.messages, o.commands = true, nil, nil
	o.mu.Unlock()
	o.changed.broadcast()
}

// writeBatch is how much is written at a time. Less would cost a system call
// each; more would hold back room that is there.
const writeBatch = 64 << 10

// write writes what comes in to the connection until ctx ends or writing fails.
func (o *outbox) write(ctx context.Context, conn net.Conn) error {
	var scratch []byte
	for {
		select {
		case <-o.work:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		for {
			var batch [][]byte
			scratch, batch = o.take(scratch[:0])
			if len(scratch) == 0 && len(batch) == 0 {
				break
			}
			var err error
			if scratch, err = writeAll(conn, scratch, batch); err != nil {
				return err
			}
			o.written(batch)
		}
	}
}

// take moves commands to scratch and takes a batch of messages.
func (o *outbox) take(scratch []byte) ([]byte, [][]byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	scratch = append(scratch, o.commands...)
	o.commands = o.commands[:0]
	n, size := 0, 0
	for n < len(o.messages) && size < writeBatch {
		size += len(o.messages[n])
		n++
	}
	batch := o.messages[:n:n]
	o.messages = o.messages[n:]
	if len(o.messages) == 0 {
		o.messages = nil
	}
	return scratch, batch
}

// written makes room for as many messages.
func (o *outbox) written(batch [][]byte) {
	if len(batch) == 0 {
		return
	}
	o.mu.Lock()
	for i, wire := range batch {
		o.bytes -= len(wire)
		batch[i] = nil
	}
	o.count -= len(batch)
	o.mu.Unlock()
	o.changed.broadcast()
}

// writeAll writes small messages together, behind what scratch holds, and large
// ones as they are. It returns scratch, for its room.
func writeAll(conn net.Conn, scratch []byte, batch [][]byte) ([]byte, error) {
	for _, wire := range batch {
		if len(wire) < writeBatch/4 {
			scratch = append(scratch, wire...)
			continue
		}
		for _, b := range [][]byte{scratch, wire} {
			if err := writeSome(conn, b); err != nil {
				return nil, err
			}
		}
		scratch = scratch[:0]
	}
	return scratch, writeSome(conn, scratch)
}

func writeSome(conn net.Conn, b []byte) error {
	if len(b) == 0 {
		return nil
	}
	_, err := conn.Write(b)
	return err
}
