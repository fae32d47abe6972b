package main

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/remote"
)

// mostIdlePeers is to how many workers a worker stays connected from which it gets nothing
// at the moment.
const mostIdlePeers = 32

// pullPeers are the workers from which blocks are pulled.
type pullPeers struct {
	// config is how they are reached, but for the address. With an identity they want
	// TLS, and get no key without.
	config   remote.Config
	identity *identity // or nil
	name     string    // in their certificates; "": where they are reached
	log      *slog.Logger

	mu     sync.Mutex
	known  map[string]*pullPeer
	uses   int // that have ended
	closed bool
	warned bool
}

// pullPeer is one of them.
type pullPeer struct {
	*remote.Client
	users int
	last  int // which of all uses was its last one
}

// dial returns the worker at an address, and a function that ends its use. It stays
// connected for the next time.
func (p *pullPeers) dial(_ context.Context, address string) (engine.Puller, func(), error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, nil, errors.New("the worker is closed")
	}
	peer := p.known[address]
	if peer == nil {
		c, err := remote.New(p.configOf(address))
		if err != nil {
			return nil, nil, err
		}
		if p.known == nil {
			p.known = map[string]*pullPeer{}
		}
		peer = &pullPeer{Client: c}
		p.known[address] = peer
	}
	peer.users++
	return peer, sync.OnceFunc(func() { p.leave(peer) }), nil
}

// configOf returns how the worker at an address is reached.
func (p *pullPeers) configOf(address string) remote.Config {
	c := p.config
	if p.identity != nil {
		c.URL, c.TLS = "grpcs://"+address, p.identity.client(p.name)
		return c
	}
	c.URL, c.Insecure = "grpc://"+address, true
	if c.Key != "" && !p.warned && overNetwork("http://"+address) {
		p.warned = true
		p.log.Warn("the key for prefill workers goes over the network in plain text: want --tcp-tls-cert-path and --tcp-tls-key-path here and there, or a network of your own", "peer", address)
	}
	return c
}

// leave ends a use of a worker. Of those that are not used, the ones whose use is the
// longest ago are left.
func (p *pullPeers) leave(peer *pullPeer) {
	p.mu.Lock()
	p.uses++
	peer.users--
	peer.last = p.uses
	left := p.surplus()
	p.mu.Unlock()
	if left != nil {
		left.Close() //nolint:errcheck // nothing runs on it
	}
}

// surplus takes out a worker, if there are too many that nobody uses. The lock must be
// held.
func (p *pullPeers) surplus() (oldest *pullPeer) {
	idle, at := 0, ""
	for address, peer := range p.known {
		if peer.users > 0 {
			continue
		}
		if idle++; oldest == nil || peer.last < oldest.last {
			oldest, at = peer, address
		}
	}
	if idle <= mostIdlePeers {
		return nil
	}
	delete(p.known, at)
	return oldest
}

func (p *pullPeers) close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	var errs []error
	for _, peer := range p.known {
		errs = append(errs, peer.Close())
	}
	p.known = nil
	return errors.Join(errs...)
}

// pullFailures tell of hand-offs that were not got as a whole.
type pullFailures struct {
	log   *slog.Logger
	times atomic.Uint64
}

// tell logs the 1st, 2nd, 4th, 8th of them.
func (f *pullFailures) tell(address string, err error) {
	if n := f.times.Add(1); n&(n-1) == 0 {
		f.log.Warn("KV blocks did not come from the prefill worker, and are computed here", "peer", address, "error", err, "times", n)
	}
}
