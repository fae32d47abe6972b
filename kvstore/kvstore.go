// Package kvstore is a store of KV-cache values that many engines share, as a
// server that any client of Redis can talk to.
//
// The one idea: it is a cache and no database. A value is there whole and as it
// was put, or it is a miss, and the store is free to turn the one into the other
// at any time, in the order in which the values are worth keeping. A value lies in
// one tier or in several, memory and what is below: it is written to all of them
// before its client is told, but for those that are told later, and so to leave a
// tier costs nothing. What was asked for a value lies beside it and is there again
// with it. What a client stores in two parts, as LMCache does, is one value: its
// parts go together, and the one that announces the other goes first.
//
//	client ── RESP ──▶ conn ──▶ space (namespace) ──▶ memory ──▶ disk ┄┄▶ external
//	                              │ quota, leases,      │          │           │
//	                              │ pairs, expiry       └── order: who leaves next
package kvstore

import (
	"cmp"
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/dynago/dynago/kvcache/store"
)

// DefaultLease is how long values that were read are not evicted.
const DefaultLease = 10 * time.Second

// Options says what a server is to be like. Only Driver must be given.
type Options struct {
	// Driver keeps the bytes in memory, and is the caller's to close, after Shutdown.
	// It is empty at first.
	Driver store.Driver
	// Below are tiers below that, the fastest first. They need not be empty: what an
	// earlier life has left in them is there again, with what was asked for it.
	Below []Tier
	// Changed, if not nil, is told of all that comes to a tier and leaves it, in
	// order. It must not wait, nor call the server.
	Changed func(Change)
	// Namespaces are who may use the store; nil means one, "default", of anyone.
	Namespaces []Namespace
	// PinBudget is the part of what a namespace may hold in memory that may be
	// pinned, 0 to 1. HardPins allows pins that nothing breaks.
	PinBudget float64
	HardPins  bool
	// Lease is how long what was read, or asked for, is kept from eviction as long
	// as anything else can go; 0 means DefaultLease, negative none.
	Lease time.Duration
	// MaxValues bounds how many values there are, in all tiers together, since what
	// is known of each takes about a kilobyte of memory that no capacity counts; 0
	// means 4 Mi. Beyond it values go as if there were no room.
	MaxValues int
	// MaxValue bounds values in bytes; 0 means MaxBulk. MaxConns bounds
	// connections; 0 means 1024.
	MaxValue int64
	MaxConns int
	// MaxPending bounds the memory, in bytes, of values that are being received,
	// over all connections, and of those that are sent and have no place in Driver;
	// 0 means 1 GiB. What comes beyond is refused, or is a miss.
	MaxPending int64
	// Stall is how long a client may take for 1 MiB of a request or an answer that
	// has begun, and to show a token where it needs one; 0 means 30 s.
	Stall time.Duration
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// Log tells of what goes wrong; nil means nobody.
	Log *slog.Logger
}

// Namespace is a set of keys of its own.
type Namespace struct {
	Name string
	// Token is what a client must show, by AUTH; "" lets everyone in.
	Token string
	// Quota bounds the bytes of its values; 0 means by the driver alone.
	Quota int64
	// Deny refuses what is beyond the quota, instead of evicting the namespace's
	// own values.
	Deny bool
}

// Server answers clients. Its methods may be called at once.
type Server struct {
	opts    Options
	cache   *cache
	began   time.Time
	traffic *traffic

	mu       sync.Mutex
	conns    map[*conn]struct{}
	lastConn int64
	accepted int64
	refused  int64
	closing  bool
	pending  int64 // bytes being received
	done     sync.WaitGroup
	listener []net.Listener
}

// New returns a server of an empty store.
func New(o Options) (*Server, error) {
	if o.Driver == nil {
		return nil, errors.New("kvstore: no driver")
	}
	if o.MaxValue < 0 || o.MaxValue > MaxBulk {
		return nil, fmt.Errorf("kvstore: values of up to %d bytes: want at most %d", o.MaxValue, MaxBulk)
	}
	if o.MaxValues < 0 {
		return nil, fmt.Errorf("kvstore: %d values: want at least 1, or 0 for 4 Mi", o.MaxValues)
	}
	if o.PinBudget < 0 || o.PinBudget > 1 {
		return nil, fmt.Errorf("kvstore: a pin budget of %v: want 0 to 1", o.PinBudget)
	}
	if o.Namespaces == nil {
		o.Namespaces = []Namespace{{Name: "default"}}
	}
	if err := errors.Join(checkNamespaces(o.Namespaces), checkTiers(o.Below)); err != nil {
		return nil, err
	}
	o.MaxValue = cmp.Or(o.MaxValue, MaxBulk)
	o.MaxValues = cmp.Or(o.MaxValues, 4<<20)
	o.MaxConns = cmp.Or(o.MaxConns, 1024)
	o.MaxPending = cmp.Or(o.MaxPending, 1<<30)
	o.Stall = cmp.Or(o.Stall, 30*time.Second)
	o.Lease = max(cmp.Or(o.Lease, DefaultLease), 0)
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	c := newCache(o)
	if err := c.recover(context.Background()); err != nil {
		return nil, err
	}
	c.startCouriers()
	return &Server{opts: o, cache: c, began: o.Now(), traffic: newTraffic(), conns: map[*conn]struct{}{}}, nil
}

func checkNamespaces(all []Namespace) error {
	for i, n := range all {
		switch same := func(m Namespace) bool { return m.Name == n.Name }; {
		case n.Name == "":
			return errors.New("kvstore: a namespace without a name")
		case slices.ContainsFunc([]byte(n.Name), func(b byte) bool { return b <= ' ' || b > '~' }):
			return fmt.Errorf("kvstore: namespace %q: want a name of printable ASCII without spaces", n.Name)
		case slices.ContainsFunc(all[:i], same):
			return fmt.Errorf("kvstore: namespace %q is given twice", n.Name)
		case n.Quota < 0:
			return fmt.Errorf("kvstore: namespace %q: a quota of %d bytes", n.Name, n.Quota)
		case n.Deny && n.Quota == 0:
			return fmt.Errorf("kvstore: namespace %q: nothing to deny without a quota", n.Name)
		}
		if n.Token != "" && slices.ContainsFunc(all[:i], func(m Namespace) bool { return m.Token == n.Token }) {
			return fmt.Errorf("kvstore: namespace %q: another one has the same token", n.Name)
		}
	}
	return nil
}

func checkTiers(below []Tier) error {
	names := []string{MemoryTier}
	for _, t := range below {
		switch {
		case t.Driver == nil || t.Name == "":
			return fmt.Errorf("kvstore: tier %q: want a name and a driver", t.Name)
		case slices.Contains(names, t.Name):
			return fmt.Errorf("kvstore: two tiers are named %q", t.Name)
		case t.Capacity < 0 || t.PinBudget < 0 || t.PinBudget > 1:
			return fmt.Errorf("kvstore: tier %q: a capacity of %d bytes and a pin budget of %v: want no less than 0, and 0 to 1", t.Name, t.Capacity, t.PinBudget)
		}
		names = append(names, t.Name)
	}
	if len(names) > maxTiers {
		return fmt.Errorf("kvstore: %d tiers: want at most %d", len(names), maxTiers)
	}
	return nil
}

// open returns the namespace of clients that have shown no token, if any.
func (s *Server) open() *space {
	for i, n := range s.opts.Namespaces {
		if n.Token == "" {
			return s.cache.named[i]
		}
	}
	return nil
}

// admit returns the namespace that a token opens. A name, if not "" and not that
// of Redis's first user, must be the namespace's.
func (s *Server) admit(name, token string) *space {
	var found *space
	for i, n := range s.opts.Namespaces {
		named := name == "" || name == "default" || name == n.Name
		if n.Token != "" && subtle.ConstantTimeCompare([]byte(n.Token), []byte(token)) == 1 && named {
			found = s.cache.named[i]
		}
	}
	return found
}

// Serve answers the clients that l accepts until the server is shut down, and
// then returns nil.
func (s *Server) Serve(l net.Listener) error {
	s.mu.Lock()
	s.listener = append(s.listener, l)
	closing := s.closing
	s.mu.Unlock()
	if closing {
		l.Close() //nolint:errcheck // nobody was served by it
		return nil
	}
	for {
		nc, err := l.Accept()
		switch {
		case err == nil:
			s.take(nc)
		case s.ends():
			return nil
		case scarce(err):
			s.opts.Log.Warn("a client has to wait: the system has no room for its connection", "error", err)
			time.Sleep(acceptPause)
		default:
			return fmt.Errorf("kvstore: accepting connections: %w", err)
		}
	}
}

// acceptPause is how long no connection is accepted after the system had no room
// for one.
const acceptPause = 100 * time.Millisecond

// scarce says whether there is no room for a connection just now, or the client
// has gone before it was accepted: nothing that a server should end for.
func scarce(err error) bool {
	return slices.ContainsFunc([]error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.ECONNABORTED}, func(known error) bool { return errors.Is(err, known) })
}

// Serving says whether clients are accepted: Serve was called, and Shutdown was
// not.
func (s *Server) Serving() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.listener) > 0 && !s.closing
}

// ends says whether Shutdown was called.
func (s *Server) ends() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closing
}

// take serves one connection, or says why not.
func (s *Server) take(nc net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing || len(s.conns) >= s.opts.MaxConns {
		s.refused++
		go func() {
			defer nc.Close()                                                      //nolint:errcheck // nothing was promised
			nc.SetWriteDeadline(time.Now().Add(time.Second))                      //nolint:errcheck // as is said below
			nc.Write([]byte("-ERR max number of clients reached, try later\r\n")) //nolint:errcheck // a courtesy
		}()
		return
	}
	s.lastConn++
	s.accepted++
	c := newConn(s, nc, s.lastConn)
	s.conns[c] = struct{}{}
	s.done.Go(func() {
		defer func() {
			nc.Close() //nolint:errcheck // all that was to be written was flushed
			s.mu.Lock()
			defer s.mu.Unlock()
			delete(s.conns, c)
		}()
		c.serve()
	})
}

// Shutdown stops accepting, lets the requests that were read be answered, and lets
// the lower tiers have what they have not got yet. When ctx ends it cuts off
// clients, and copies nothing more.
func (s *Server) Shutdown(ctx context.Context) error {
	err := s.drain(ctx)
	s.cache.close(ctx)
	return err
}

func (s *Server) drain(ctx context.Context) error {
	s.mu.Lock()
	s.closing = true
	for _, l := range s.listener {
		l.Close() //nolint:errcheck // it is not used again
	}
	for c := range s.conns {
		c.net.SetReadDeadline(time.Unix(1, 0)) //nolint:errcheck // a closed one needs none
	}
	s.mu.Unlock()

	over := make(chan struct{})
	go func() {
		s.done.Wait()
		close(over)
	}()
	select {
	case <-over:
		return nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	for c := range s.conns {
		c.net.Close() //nolint:errcheck // it is cut off
	}
	s.mu.Unlock()
	<-over
	return fmt.Errorf("kvstore: cutting off clients: %w", context.Cause(ctx))
}

// receive accounts for n bytes more of values in flight, or fewer, and reports
// whether there is room for them.
func (s *Server) receive(n int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n > 0 && s.pending+n > s.opts.MaxPending {
		return false
	}
	s.pending += n
	return true
}

// spare reports whether much of what receive allows is left.
func (s *Server) spare() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pending <= s.opts.MaxPending/2
}
