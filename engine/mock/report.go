package mock

import (
	"time"

	"github.com/dynago/dynago/kv"
)

// Report is what one pass did to the cache of a rank. It is what engines tell of
// themselves, and the events of package kv are made of: hashes alone do not say
// which tokens they are of.
type Report struct {
	Rank  uint32
	Epoch uint64
	// Fresh says that a life begins, in which nothing is cached yet.
	Fresh bool
	// Events are in the order in which they happened.
	Events []kv.Event
	// Stores has an item for each event; that of an event which is no store is of
	// no meaning.
	Stores []Store
}

// Store is what was stored.
type Store struct {
	Namespace kv.Namespace
	// Tokens are those of the blocks, one after the other.
	Tokens []uint32
}

// Report makes the core tell with each event what it stored. What is cached
// already is never told of. It is to be called before the first request.
func (c *Core) Report() { c.reports = true }

// happen adds an event to the pass, for a request of a namespace.
func (c *Core) happen(e kv.Event, ns kv.Namespace) {
	c.result.Events = append(c.result.Events, e)
	if c.reports {
		c.result.Stores = append(c.result.Stores, Store{Namespace: ns})
	}
}

// Forget drops everything that is cached and is not shared, and all sessions. It is
// false, and nothing happens, while there is a request.
func (c *Core) Forget(now time.Duration) bool {
	if len(c.running)+c.parked()+c.kept > 0 || c.waiting.head != nil {
		return false
	}
	var s *Shared
	if c.below != nil {
		c.below.end(max(now, c.end))
		c.bytes.forgetDisk()
		s = c.below.shared
	}
	fresh := newCore(c.args, s, nil, c.bytes)
	if c.below != nil {
		fresh.below.contents = c.below.contents // of what is shared, and still there
	}
	c.pool, c.below = fresh.pool, fresh.below
	return true
}

// Hear makes the engine tell what its caches do: first that each is fresh, and
// then every change, rank by rank in order. It is to be called once, before the
// first request. The function is called while the rank stands still, so it must
// be quick and must not call the engine; the tokens are its own to keep, the
// slices that hold events and stores are not.
func (e *Engine) Hear(hear func(Report)) {
	for _, r := range e.rank {
		r.mu.Lock()
		r.hear = hear
		r.core.Report()
		r.report(Report{Fresh: true})
		r.mu.Unlock()
	}
}

func (r *rank) report(p Report) {
	if r.hear == nil {
		return
	}
	p.Rank, p.Epoch = r.journal.rank, r.journal.epoch
	r.hear(p)
}

// Forget drops what the ranks have cached. It is false if a rank was busy, whose
// cache stays as it is.
func (e *Engine) Forget() bool {
	all := true
	for _, r := range e.rank {
		all = r.forget() && all
	}
	e.events.ring()
	return all
}

func (r *rank) forget() bool {
	r.passing.Lock()
	defer r.passing.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.core.Forget(r.e.clock.Now()) {
		return false
	}
	cleared := []kv.Event{{Kind: kv.Cleared}}
	r.journal.append(cleared)
	r.report(Report{Events: cleared, Stores: make([]Store, 1)})
	r.tell(r.core.news()) // what is shared is there as before
	return true
}
