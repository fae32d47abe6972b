package peer

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/dynago/dynago/kvcache/store"
)

// conn is a connection on which nothing is under way.
type conn struct {
	net.Conn
	r *bufio.Reader
}

// patience is for how long an exchange is waited for: until its answers begin, and
// from there to their end, 0 = the same time.
type patience struct{ first, rest time.Duration }

// How long is waited for what.
func (s *Store) forHeader() patience { return patience{first: s.opts.Lookup} }
func (s *Store) forValue() patience  { return patience{s.opts.Lookup, s.opts.Transfer} }
func (s *Store) forChange() patience { return patience{first: s.opts.Transfer} }

// exchange sends commands and returns their answers. A connection that was kept
// may have been closed meanwhile; then a new one is tried.
func (s *Store) exchange(ctx context.Context, wait patience, commands ...net.Buffers) ([]reply, error) {
	if err := s.allow(ctx); err != nil {
		return nil, err
	}
	c := s.kept()
	replies, err := s.tell(ctx, c, wait, commands)
	if late := net.Error(nil); c != nil && err != nil && ctx.Err() == nil && !errors.Is(err, errFault) && (!errors.As(err, &late) || !late.Timeout()) {
		replies, err = s.tell(ctx, nil, wait, commands)
	}
	if err != nil && ctx.Err() != nil {
		return nil, ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil || errors.Is(err, store.ErrFull) {
		s.breaker.Succeeded()
		return replies, err
	}
	s.counts.Failures++
	s.breaker.Failed(s.opts.Now())
	return nil, fmt.Errorf("%w: %w", store.ErrUnavailable, err)
}

// allow reports whether the peer may be asked.
func (s *Store) allow(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return store.ErrClosed
	}
	if !s.breaker.Allow(s.opts.Now()) {
		s.counts.Refused++
		return fmt.Errorf("%s does not answer, it is asked again every %v: %w", s.opts.Address, store.BreakerPause, store.ErrUnavailable)
	}
	return nil
}

// kept returns a connection that was kept, or nil.
func (s *Store) kept() *conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.idle) == 0 {
		return nil
	}
	c := s.idle[len(s.idle)-1]
	s.idle = s.idle[:len(s.idle)-1]
	return c
}

// tell is one exchange on c, or on a new connection if c is nil. The connection
// is kept if all answers came.
func (s *Store) tell(ctx context.Context, c *conn, wait patience, commands []net.Buffers) ([]reply, error) {
	if c == nil {
		var err error
		if c, err = s.dial(ctx); err != nil {
			return nil, err
		}
	}
	replies, err := s.converse(ctx, c, wait, commands)
	if err != nil && !errors.Is(err, errFault) {
		c.Close()
		return nil, err
	}
	s.keep(c)
	return replies, err
}

// errFault is an answer that is an error.
var errFault = errors.New("the peer refuses")

// converse sends commands and reads all their answers.
func (s *Store) converse(ctx context.Context, c *conn, wait patience, commands []net.Buffers) ([]reply, error) {
	stop := context.AfterFunc(ctx, func() { c.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if err := c.SetDeadline(time.Now().Add(wait.first)); err != nil {
		return nil, err
	}
	var all net.Buffers
	for _, cmd := range commands {
		all = append(all, cmd...)
	}
	if _, err := all.WriteTo(c); err != nil {
		return nil, err
	}
	if _, err := c.r.Peek(1); err != nil {
		return nil, unexpected(err)
	}
	if wait.rest > 0 {
		if err := c.SetDeadline(time.Now().Add(wait.rest)); err != nil {
			return nil, err
		}
	}
	if ctx.Err() != nil { // its deadline was replaced, perhaps
		return nil, ctx.Err()
	}
	replies, refused := make([]reply, len(commands)), error(nil)
	left := budget(s.opts.MaxValue + slack)
	for i := range commands {
		r, err := readReply(c.r, &left, 0)
		if err != nil {
			return nil, err
		}
		if f, ok := r.(fault); ok && refused == nil {
			refused = fmt.Errorf("%w: %s", errFault, f)
			if strings.HasPrefix(string(f), "OOM") {
				refused = fmt.Errorf("%w: %w: %s", errFault, store.ErrFull, f)
			}
		}
		replies[i] = r
	}
	if !stop() {
		return nil, ctx.Err() // the deadline of this connection may change any moment
	}
	return replies, refused
}

// dial returns a new connection, on which the server knows who we are.
func (s *Store) dial(ctx context.Context) (*conn, error) {
	within, cancel := context.WithTimeout(ctx, s.opts.Lookup)
	defer cancel()
	n, err := s.opts.Dial(within, "tcp", s.opts.Address)
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: n, r: bufio.NewReaderSize(n, maxLine)}
	if s.opts.Password == "" {
		return c, nil
	}
	auth := command("AUTH", s.opts.Password)
	if s.opts.User != "" {
		auth = command("AUTH", s.opts.User, s.opts.Password)
	}
	if _, err := s.converse(ctx, c, s.forHeader(), []net.Buffers{auth}); err != nil {
		c.Close()
		return nil, fmt.Errorf("AUTH: %w", err)
	}
	return c, nil
}

// keep keeps c for the next exchange, or closes it if there are enough.
func (s *Store) keep(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || len(s.idle) >= s.opts.Connections || c.SetDeadline(time.Time{}) != nil {
		c.Close()
		return
	}
	s.idle = append(s.idle, c)
}
