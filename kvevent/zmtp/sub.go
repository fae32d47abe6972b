package zmtp

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"slices"
)

// Sub is a SUB socket: it reads what publishers send under the prefixes that it
// subscribed to. Its methods may be called from any goroutine.
type Sub struct {
	*socket
	prefixes [][]byte // with repetitions, under the socket's lock
}

// NewSub returns a socket without connections and subscriptions.
func NewSub(o Options) *Sub {
	s := &Sub{socket: newSocket("SUB", o)}
	s.join = func(p *Peer) {
		for _, prefix := range s.prefixes {
			p.out.command(appendSubscription(nil, p.welcome.minor, true, prefix))
		}
	}
	return s
}

// Subscribe asks every publisher, present and future, for messages whose first
// part begins with the prefix; empty for all messages. Messages of which several
// subscriptions speak come once.
func (s *Sub) Subscribe(prefix string) error {
	return s.change(true, []byte(prefix))
}

// Unsubscribe takes back one subscription. Messages on their way still come.
func (s *Sub) Unsubscribe(prefix string) error {
	return s.change(false, []byte(prefix))
}

func (s *Sub) change(on bool, prefix []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ErrClosed
	}
	if len(prefix) > maxPrefix {
		return fmt.Errorf("zmtp: a prefix of %d bytes; at most %d are possible", len(prefix), maxPrefix)
	}
	if on {
		s.prefixes = append(s.prefixes, prefix)
	} else {
		i := slices.IndexFunc(s.prefixes, func(p []byte) bool { return bytes.Equal(p, prefix) })
		if i < 0 {
			return nil
		}
		s.prefixes = slices.Delete(s.prefixes, i, i+1)
	}
	for _, p := range s.peers {
		frames := appendSubscription(nil, p.welcome.minor, on, prefix)
		if p.welcome.minor >= 1 {
			frames = appendPing(frames, confirm)
		}
		p.out.command(frames)
	}
	return nil
}

// Messages yields what comes over all connections: messages, and the changes of
// the connections. It ends with one error, when ctx ends or the socket is
// closed. Where the loop was left, the next one goes on; only one loop runs at a
// time. While none runs, or the loop is slow, connections are read no further
// than a few buffers, and publishers drop what they cannot send.
func (s *Sub) Messages(ctx context.Context) iter.Seq2[Message, error] {
	return s.inbox.messages(ctx)
}
