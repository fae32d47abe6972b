package zmtp

import (
	"context"
	"iter"
)

// Router is a ROUTER socket: it reads messages of many peers and answers each
// over the connection that it came over. Peers are told apart by connection,
// not by identity: none can take the place of another by taking its name. Its
// methods may be called from any goroutine.
type Router struct{ *socket }

// NewRouter returns a socket without connections.
func NewRouter(o Options) *Router {
	return &Router{newSocket("ROUTER", o)}
}

// Send queues a message for a peer, and waits while that peer's queue is full;
// other peers do not wait for it. It fails with ErrGone once the connection has
// ended. The parts are the caller's again when it returns.
func (r *Router) Send(ctx context.Context, to *Peer, parts ...[]byte) error {
	if err := r.check(parts); err != nil {
		return err
	}
	wire := encode(parts)
	if to.out == nil {
		return ErrGone
	}
	for {
		changed := to.out.changed.wait()
		sent, err := to.out.offer(wire)
		if sent {
			r.stats.sent.Add(1)
		}
		if sent || err != nil {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-r.ctx.Done():
			return ErrClosed
		}
	}
}

// Messages yields what comes over all connections, as [Sub.Messages] does.
func (r *Router) Messages(ctx context.Context) iter.Seq2[Message, error] {
	return r.inbox.messages(ctx)
}
