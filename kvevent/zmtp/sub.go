package zmtp

import (
	"context"
	"fmt"
	"iter"
)

// Sub is a SUB socket: it reads what publishers send under the prefixes that it
// subscribed to. Its methods may be called from any goroutine.
type Sub struct {
	*socket
	prefixes map[string]int // how often each, under the socket's lock
}

// NewSub returns a socket without connections and subscriptions.
func NewSub(o Options) *Sub {
	s := &Sub{socket: newSocket("SUB", o), prefixes: map[string]int{}}
	s.join = func(p *Peer) {
		for prefix := range s.prefixes {
			p.out.command(appendSubscription(nil, p.welcome.minor, true, []byte(prefix)))
		}
		p.out.command(p.probe(nil))
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
	// Publishers are told of the first and of the last of equal subscriptions:
	// libzmq does not count them.
	key := string(prefix)
	before := s.prefixes[key]
	if on {
		s.prefixes[key] = before + 1
	} else if before > 0 {
		s.prefixes[key] = before - 1
	}
	first, last := on && before == 0, !on && before == 1
	if last {
		delete(s.prefixes, key)
	}
	for _, p := range s.peers {
		var frames []byte
		if first || last {
			frames = appendSubscription(frames, p.welcome.minor, on, prefix)
		}
		p.out.command(p.probe(frames))
	}
	return nil
}

// Messages yields what comes over all connections: messages, and the changes of
// the connections. It ends with one error, when ctx ends or the socket is
// closed. Where the loop was left, the next one goes on; only one loop runs at a
// time. While none runs, or the loop is slow, connections are read no further
// than a few buffers, publishers drop what they cannot send, and a connection
// that is lost may not be made again.
func (s *Sub) Messages(ctx context.Context) iter.Seq2[Message, error] {
	return s.inbox.messages(ctx)
}
