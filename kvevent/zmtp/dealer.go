package zmtp

import (
	"context"
	"iter"
)

// Dealer is a DEALER socket: it sends messages to its peers in turn, and reads
// what they send. Its methods may be called from any goroutine.
type Dealer struct {
	*socket
	turn int // under the socket's lock
}

// NewDealer returns a socket without connections.
func NewDealer(o Options) *Dealer {
	return &Dealer{socket: newSocket("DEALER", o)}
}

// Send queues a message for the next peer that has room, and waits for one while
// there is none. A message whose connection ends before it was written is lost;
// the stream then says [Lost]. The parts are the caller's again when it returns.
func (d *Dealer) Send(ctx context.Context, parts ...[]byte) error {
	if err := d.check(parts); err != nil {
		return err
	}
	wire := encode(parts)
	for {
		changed := d.changed.wait()
		if sent, err := d.offer(wire); sent || err != nil {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-d.ctx.Done():
			return ErrClosed
		}
	}
}

// offer tries each peer once.
func (d *Dealer) offer(wire []byte) (sent bool, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return false, ErrClosed
	}
	for range d.peers {
		d.turn = (d.turn + 1) % len(d.peers)
		if ok, err := d.peers[d.turn].out.offer(wire); ok && err == nil {
			d.stats.sent.Add(1)
			return true, nil
		}
	}
	return false, nil
}

// Messages yields what comes over all connections, as [Sub.Messages] does.
func (d *Dealer) Messages(ctx context.Context) iter.Seq2[Message, error] {
	return d.inbox.messages(ctx)
}
