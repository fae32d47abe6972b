package publish

import (
	"context"
	"net"
	"sync"
	"time"
)

// stand is where the sockets of a rank listen. It keeps the addresses from one life
// to the next: a port given up for a moment is one that somebody else may be given.
type stand struct {
	held map[string]net.Listener // by address; nil: none yet
}

// listen is for [zmtp.Options.Listen]. At an address that is held, who listened
// there before has closed what he got.
func (s *stand) listen(ctx context.Context, network, address string) (net.Listener, error) {
	l, ok := s.held[address]
	if !ok {
		var err error
		if l, err = new(net.ListenConfig).Listen(ctx, network, address); err != nil {
			return nil, err
		}
		if s.held == nil {
			s.held = map[string]net.Listener{}
		}
		s.held[address] = l
	}
	deadline(l, time.Time{})
	return &lease{Listener: l}, nil
}

// close gives the addresses up.
func (s *stand) close() {
	for _, l := range s.held {
		l.Close() //nolint:errcheck // nobody listens any more
	}
	s.held = nil
}

// lease is a listener for one life. Closing it ends what waits at it, and no more.
type lease struct {
	net.Listener
	once sync.Once
}

func (l *lease) Close() error {
	l.once.Do(func() { deadline(l.Listener, time.Unix(1, 0)) })
	return nil
}

// deadline is until when a listener accepts; zero for ever. Those of TCP and of
// paths have one.
func deadline(l net.Listener, until time.Time) {
	l.(interface{ SetDeadline(time.Time) error }).SetDeadline(until) //nolint:errcheck // it is open
}
