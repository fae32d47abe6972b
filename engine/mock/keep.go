package mock

import (
	"context"
	"fmt"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/kvcache"
)

// OpenSession implements [engine.Sessioner].
func (e *Engine) OpenSession(_ context.Context, key kv.SessionKey, o engine.SessionOptions) (known bool, err error) {
	id, err := e.session(key)
	if err != nil {
		return false, err
	}
	err = e.ask(o.Rank, func(r *rank, now time.Duration) {
		known = r.core.OpenSession(now, id, kvcache.SessionOptions{Timeout: o.Timeout, Ephemeral: o.Ephemeral}) || known
	})
	return known, err
}

// CloseSession implements [engine.Sessioner].
func (e *Engine) CloseSession(_ context.Context, key kv.SessionKey) (known bool, err error) {
	id, err := e.session(key)
	if err != nil {
		return false, err
	}
	err = e.ask(nil, func(r *rank, now time.Duration) {
		was := r.core.CloseSession(now, id)
		known = known || was == kvcache.SessionActive || was == kvcache.SessionIdle
	})
	return known, err
}

// Pin implements [engine.Pinner].
func (e *Engine) Pin(_ context.Context, p *engine.Prefix, o engine.PinOptions) (pinned engine.Pinned, err error) {
	pin := kvcache.Pin{Owner: e.sessionOf(o.Owner), TTL: max(o.TTL, 0), Hard: o.Hard}
	err = e.ask(p.Rank, func(r *rank, now time.Duration) {
		got := r.core.Pin(now, r.hashes(p), pin)
		pinned.Requested, pinned.Pinned = got.Requested, max(pinned.Pinned, got.Pinned)
	})
	return pinned, err
}

// Retain implements [engine.Retainer].
func (e *Engine) Retain(_ context.Context, p *engine.Prefix, priority uint8, ttl time.Duration) (blocks int, err error) {
	if priority > kvcache.MaxPriority {
		return 0, engine.Errorf(engine.InvalidArgument, "a retention of %d, want 0 to %d", priority, kvcache.MaxPriority)
	}
	err = e.ask(p.Rank, func(r *rank, now time.Duration) {
		blocks = max(blocks, r.core.Retain(now, r.hashes(p), kvcache.Retention{Priority: priority, TTL: ttl}))
	})
	return blocks, err
}

// Prefetch implements [engine.Prefetcher]. Of a prefix on any rank it is the first
// one that gets the blocks.
func (e *Engine) Prefetch(_ context.Context, p *engine.Prefix, o engine.PrefetchOptions) (state engine.Prefetch, err error) {
	if o.Target > kv.TierHost {
		return state, engine.Errorf(engine.InvalidArgument, "prefetch to the %s tier, want %s or %s", o.Target, kv.TierDevice, kv.TierHost)
	}
	rank0 := uint32(0)
	if p.Rank != nil {
		rank0 = *p.Rank
	}
	err = e.ask(&rank0, func(r *rank, now time.Duration) {
		q := kvcache.PrefetchRequest{Hashes: r.hashes(p), Target: o.Target}
		if o.In > 0 {
			q.Deadline = now + o.In
		}
		state = r.prefetch(r.core.Prefetch(now, q))
	})
	return state, err
}

// Prefetched implements [engine.Prefetcher].
func (e *Engine) Prefetched(_ context.Context, id string) (engine.Prefetch, error) {
	return e.prefetched(id, false)
}

// CancelPrefetch implements [engine.Prefetcher].
func (e *Engine) CancelPrefetch(_ context.Context, id string) (engine.Prefetch, error) {
	return e.prefetched(id, true)
}

func (e *Engine) prefetched(id string, cancel bool) (state engine.Prefetch, err error) {
	var number uint32
	var epoch, n uint64
	unknown := engine.Errorf(engine.NotFound, "the mock engine knows no prefetch %q", id)
	if _, err := fmt.Sscanf(id, prefetchName, &epoch, &number, &n); err != nil || int(number) >= len(e.rank) || epoch != e.Epoch() {
		return state, unknown
	}
	found := false
	err = e.ask(&number, func(r *rank, now time.Duration) {
		if cancel {
			r.core.CancelPrefetch(now, kvcache.PrefetchID(n))
		}
		var p kvcache.Prefetch
		if p, found = r.core.Prefetched(now, kvcache.PrefetchID(n)); found {
			state = r.prefetch(p)
		}
	})
	if err == nil && !found {
		err = unknown
	}
	return state, err
}

// prefetchName is the form of names of prefetches: life, rank and number.
const prefetchName = "pf_%x_%d_%d"

func (r *rank) prefetch(p kvcache.Prefetch) engine.Prefetch {
	return engine.Prefetch{
		ID: fmt.Sprintf(prefetchName, r.journal.epoch, r.journal.rank, p.ID), State: p.State.String(),
		Requested: p.Requested, Already: p.Already, Scheduled: p.Scheduled, Missing: p.Missing, Loaded: p.Loaded, Failed: p.Failed,
	}
}

// CacheStats tells what the caches of each rank have done.
func (e *Engine) CacheStats() []CacheStats {
	all := make([]CacheStats, len(e.rank))
	for i, r := range e.rank {
		r.mu.Lock()
		all[i] = r.core.CacheStats()
		r.mu.Unlock()
	}
	return all
}

// ask does something with the core of one rank, or of each, and what follows from it.
func (e *Engine) ask(number *uint32, do func(r *rank, now time.Duration)) error {
	if err := e.refusal(); err != nil {
		return err
	}
	if !e.cfg.Args.EnablePrefixCaching {
		return engine.Errorf(engine.Unsupported, "the mock engine was started with \"enable_prefix_caching\": false, and keeps nothing")
	}
	ranks := e.rank
	if number != nil {
		if int(*number) >= len(ranks) {
			return engine.Errorf(engine.InvalidArgument, "data-parallel rank %d, want 0 to %d", *number, len(ranks)-1)
		}
		ranks = ranks[*number : *number+1]
	}
	for _, r := range ranks {
		r.ask(do)
	}
	return nil
}

func (r *rank) ask(do func(r *rank, now time.Duration)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	do(r, r.e.clock.Now())
	r.tell(r.core.news())
	r.e.cfg.Shared.announce()
	if _, more := r.core.NextWake(); more {
		r.work()
	}
}

func (r *rank) hashes(p *engine.Prefix) []kv.SeqHash {
	if p.Hashes != nil {
		return p.Hashes
	}
	return r.core.Hashes(p.TokenIDs, p.Namespace)
}

// sessionOf returns the id of a session here. Whatever name a client has for the
// model, it is that of the requests.
func (e *Engine) sessionOf(key kv.SessionKey) kvcache.SessionID {
	key.Model = e.cfg.Model
	return kvcache.SessionOf(key)
}

func (e *Engine) session(key kv.SessionKey) (kvcache.SessionID, error) {
	id := e.sessionOf(key)
	if id == 0 {
		return 0, engine.Errorf(engine.InvalidArgument, "a session needs an id")
	}
	return id, nil
}
