package zmtp

import (
	"context"
	"iter"
)

// Pull is a PULL socket: it reads what any number of PUSH sockets send, and has
// nothing to say to them. Its methods may be called from any goroutine.
type Pull struct{ *socket }

// NewPull returns a socket without connections.
func NewPull(o Options) *Pull {
	return &Pull{newSocket("PULL", o)}
}

// Messages yields what comes over all connections, as [Sub.Messages] does. Peers
// that send faster than the loop reads wait, or drop what they have, as they are
// set; nothing that came is dropped here.
func (p *Pull) Messages(ctx context.Context) iter.Seq2[Message, error] {
	return p.inbox.messages(ctx)
}
