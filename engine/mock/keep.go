package mock

import (
	"context"
	"encoding/json"
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
func (e *Engine) Pin(_ context.Context, q engine.PinRequest) (pinned engine.PinResult, err error) {
	pin := kvcache.Pin{Owner: e.sessionOf(q.Session), TTL: max(q.TTL, 0), Hard: q.Hard}
	err = e.ask(q.Rank, func(r *rank, now time.Duration) {
		got := r.core.Pin(now, r.core.Hashes(q.TokenIDs, q.Namespace), pin)
		pinned.Requested, pinned.Pinned = got.Requested, max(pinned.Pinned, got.Pinned)
	})
	if pinned.Pinned > 0 {
		pinned.Deadline = time.Now().Add(pin.TTL)
	}
	return pinned, err
}

// Retain implements [engine.Pinner].
func (e *Engine) Retain(_ context.Context, u engine.RetentionUpdate) (updated int, err error) {
	if u.Priority > kvcache.MaxPriority {
		return 0, engine.Errorf(engine.InvalidArgument, "a retention of %d, want 0 to %d", u.Priority, kvcache.MaxPriority)
	}
	err = e.ask(nil, func(r *rank, now time.Duration) {
		updated = max(updated, r.core.Retain(now, u.Hashes, kvcache.Retention{Priority: u.Priority, TTL: u.TTL}))
	})
	return updated, err
}

// Prefetch implements [engine.Prefetcher]. If no rank is named it is the first one.
func (e *Engine) Prefetch(ctx context.Context, q engine.PrefetchRequest) (state engine.PrefetchState, err error) {
	if q.Target > kv.TierHost {
		return state, engine.Errorf(engine.InvalidArgument, "prefetch to the %s tier, want %s or %s", q.Target, kv.TierDevice, kv.TierHost)
	}
	number := uint32(0)
	if q.Rank != nil {
		number = *q.Rank
	}
	if int(number) < len(e.rank) && len(q.Hashes) > 0 {
		e.rank[number].lookFor(ctx, q.Hashes)
	} else if int(number) < len(e.rank) {
		e.rank[number].look(ctx, q.TokenIDs, q.Namespace)
	}
	err = e.ask(&number, func(r *rank, now time.Duration) {
		p := kvcache.PrefetchRequest{Hashes: q.Hashes, Target: q.Target}
		if len(p.Hashes) == 0 {
			p.Hashes = r.core.Hashes(q.TokenIDs, q.Namespace)
		}
		if q.In > 0 {
			p.Deadline = now + min(q.In, longestPass)
		}
		state = r.prefetch(r.core.Prefetch(now, p))
	})
	return state, err
}

// PrefetchState implements [engine.Prefetcher].
func (e *Engine) PrefetchState(_ context.Context, id string) (engine.PrefetchState, error) {
	return e.prefetched(id, false)
}

// CancelPrefetch implements [engine.Prefetcher].
func (e *Engine) CancelPrefetch(_ context.Context, id string) error {
	_, err := e.prefetched(id, true)
	return err
}

func (e *Engine) prefetched(id string, cancel bool) (state engine.PrefetchState, err error) {
	var number uint32
	var epoch, n uint64
	unknown := engine.Errorf(engine.NotFound, "the %s engine knows no prefetch %q", e.cfg.Kind, id)
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

func (r *rank) prefetch(p kvcache.Prefetch) engine.PrefetchState {
	return engine.PrefetchState{
		ID: fmt.Sprintf(prefetchName, r.journal.epoch, r.journal.rank, p.ID), State: p.State.String(),
		Requested: p.Requested, Already: p.Already, Scheduled: p.Scheduled, Missing: p.Missing, Loaded: p.Loaded, Failed: p.Failed,
	}
}

// Control implements [engine.Controller]: reset makes every rank forget what it has
// cached and does not share with others. One that has something to do refuses, as
// servers do, and keeps what it has.
func (e *Engine) Control(_ context.Context, name string, _ json.RawMessage) (json.RawMessage, error) {
	if name != engine.ControlReset {
		return nil, engine.Errorf(engine.Unsupported, "the %s engine has no control %q", e.cfg.Kind, name)
	}
	if err := e.ask(nil, func(*rank, time.Duration) {}); err != nil {
		return nil, err
	}
	if !e.Forget() {
		return nil, engine.Errorf(engine.Unavailable, "the %s engine has requests whose blocks are in use: reset it when they have ended", e.cfg.Kind)
	}
	return nil, nil
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
	// While it drains what runs goes on, and its cache with it.
	if state, reason := e.state(); state != engine.Ready && state != engine.Draining {
		return engine.Errorf(engine.Unavailable, "%s", reason)
	}
	if !e.cfg.Args.EnablePrefixCaching {
		return engine.Errorf(engine.Unsupported, "the %s engine was started with \"enable_prefix_caching\": false, and keeps nothing", e.cfg.Kind)
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
	r.passing.Lock()
	defer r.passing.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	do(r, r.e.clock.Now())
	r.tell(r.core.news())
	r.e.cfg.Shared.announce()
	if _, more := r.core.NextWake(); more || r.core.waits() {
		r.work()
	}
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
