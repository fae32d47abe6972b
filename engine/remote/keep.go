package remote

import (
	"context"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/remote/workerpb"
	"github.com/dynago/dynago/kv"
)

// What a cache is to keep, and what it is to fetch, besides what requests say.

// Pin keeps a prefix on the worker.
func (c *Client) Pin(ctx context.Context, q engine.PinRequest) (engine.PinResult, error) {
	m, err := c.control(ctx, controlTimeout, &workerpb.ControlRequest{What: &workerpb.ControlRequest_Pin{Pin: &workerpb.PinPrefix{
		Lora: q.Namespace.LoRA, Salt: q.Namespace.Salt, TokenIds: q.TokenIDs,
		TtlMs: millis(q.TTL), Hard: q.Hard, Session: q.Session.ID, DpRank: q.Rank,
	}}})
	if p := pinOf(m.GetPin()); p != nil {
		return *p, err
	}
	return engine.PinResult{}, err
}

// Retain changes what blocks on the worker are worth.
func (c *Client) Retain(ctx context.Context, u engine.RetentionUpdate) (updated int, err error) {
	priority := uint32(u.Priority)
	q := &workerpb.Retain{Priority: &priority}
	for _, h := range u.Hashes {
		q.SeqHashes = append(q.SeqHashes, uint64(h))
	}
	if u.TTL > 0 {
		q.PriorityDeadlineUnixMs = uint64(time.Now().Add(u.TTL).UnixMilli())
	}
	m, err := c.control(ctx, controlTimeout, &workerpb.ControlRequest{What: &workerpb.ControlRequest_Retain{Retain: q}})
	return int(m.GetRetain().GetUpdated()), err
}

// Prefetch lets the worker bring blocks up.
func (c *Client) Prefetch(ctx context.Context, q engine.PrefetchRequest) (engine.PrefetchState, error) {
	p := &workerpb.Prefetch{
		Lora: q.Namespace.LoRA, Salt: q.Namespace.Salt, TokenIds: q.TokenIDs, Target: workerpb.Tier(q.Target), DpRank: q.Rank,
	}
	for _, h := range q.Hashes {
		p.SeqHashes = append(p.SeqHashes, uint64(h))
	}
	if q.In > 0 {
		p.DeadlineUnixMs = uint64(time.Now().Add(q.In).UnixMilli())
	}
	m, err := c.control(ctx, controlTimeout, &workerpb.ControlRequest{What: &workerpb.ControlRequest_Prefetch{Prefetch: p}})
	return prefetchOf(m.GetPrefetch()), err
}

// PrefetchState says how far a prefetch has come.
func (c *Client) PrefetchState(ctx context.Context, id string) (engine.PrefetchState, error) {
	m, err := c.control(ctx, controlTimeout, &workerpb.ControlRequest{What: &workerpb.ControlRequest_PrefetchState{PrefetchState: &workerpb.PrefetchRef{PrefetchId: id}}})
	return prefetchOf(m.GetPrefetch()), err
}

// CancelPrefetch ends one.
func (c *Client) CancelPrefetch(ctx context.Context, id string) error {
	_, err := c.control(ctx, controlTimeout, &workerpb.ControlRequest{What: &workerpb.ControlRequest_PrefetchCancel{PrefetchCancel: &workerpb.PrefetchRef{PrefetchId: id}}})
	return err
}

func (s *Server) keep(ctx context.Context, m *workerpb.ControlRequest) (*workerpb.ControlResponse, error) {
	e, err := able[engine.Pinner](s.engine, "pins")
	if err != nil {
		return nil, err
	}
	if q := m.GetPin(); q != nil {
		r := engine.PinRequest{
			Namespace: kv.Namespace{LoRA: q.Lora, Salt: q.Salt}, TokenIDs: q.TokenIds, TTL: duration(q.TtlMs), Hard: q.Hard, Rank: q.DpRank,
		}
		if q.Session != "" {
			r.Session = kv.SessionKey{Salt: q.Salt, ID: q.Session}
		}
		p, err := e.Pin(ctx, r)
		return &workerpb.ControlResponse{What: &workerpb.ControlResponse_Pin{Pin: pinMessage(&p)}}, err
	}
	q := m.GetRetain()
	if q == nil || q.Priority == nil {
		return nil, engine.Errorf(engine.Unsupported, "blocks cannot be retained without a priority")
	}
	u := engine.RetentionUpdate{Priority: priority(q.GetPriority()), TTL: until(q.GetPriorityDeadlineUnixMs())}
	for _, h := range q.GetSeqHashes() {
		u.Hashes = append(u.Hashes, kv.SeqHash(h))
	}
	n, err := e.Retain(ctx, u)
	return &workerpb.ControlResponse{What: &workerpb.ControlResponse_Retain{Retain: &workerpb.RetainResult{Updated: natural(n)}}}, err
}

func (s *Server) prefetch(ctx context.Context, m *workerpb.ControlRequest) (*workerpb.ControlResponse, error) {
	e, err := able[engine.Prefetcher](s.engine, "prefetches")
	if err != nil {
		return nil, err
	}
	if q := m.GetPrefetchCancel(); q != nil {
		return &workerpb.ControlResponse{}, e.CancelPrefetch(ctx, q.PrefetchId)
	}
	var p engine.PrefetchState
	if q := m.GetPrefetchState(); q != nil {
		p, err = e.PrefetchState(ctx, q.PrefetchId)
	} else {
		q := m.GetPrefetch()
		r := engine.PrefetchRequest{
			Namespace: kv.Namespace{LoRA: q.Lora, Salt: q.Salt}, TokenIDs: q.TokenIds, Target: tierOf(q.Target),
			In: until(q.DeadlineUnixMs), Rank: q.DpRank,
		}
		for _, h := range q.SeqHashes {
			r.Hashes = append(r.Hashes, kv.SeqHash(h))
		}
		p, err = e.Prefetch(ctx, r)
	}
	return &workerpb.ControlResponse{What: &workerpb.ControlResponse_Prefetch{Prefetch: &workerpb.PrefetchResult{
		PrefetchId: p.ID, State: p.State, Requested: natural(p.Requested), Already: natural(p.Already), Scheduled: natural(p.Scheduled),
		Missing: natural(p.Missing), Loaded: natural(p.Loaded), Failed: natural(p.Failed),
	}}}, err
}

func prefetchOf(m *workerpb.PrefetchResult) engine.PrefetchState {
	return engine.PrefetchState{
		ID: m.GetPrefetchId(), State: m.GetState(), Requested: int(m.GetRequested()), Already: int(m.GetAlready()), Scheduled: int(m.GetScheduled()),
		Missing: int(m.GetMissing()), Loaded: int(m.GetLoaded()), Failed: int(m.GetFailed()),
	}
}

func pinMessage(p *engine.PinResult) *workerpb.PinResult {
	if p == nil {
		return nil
	}
	m := &workerpb.PinResult{Requested: natural(p.Requested), Pinned: natural(p.Pinned), Outcome: p.Outcome()}
	if !p.Deadline.IsZero() {
		m.DeadlineUnixMs = uint64(max(0, p.Deadline.UnixMilli()))
	}
	return m
}

func pinOf(m *workerpb.PinResult) *engine.PinResult {
	if m == nil {
		return nil
	}
	p := &engine.PinResult{Requested: int(m.Requested), Pinned: int(m.Pinned)}
	if m.DeadlineUnixMs > 0 {
		p.Deadline = time.UnixMilli(int64(min(m.DeadlineUnixMs, 1<<53)))
	}
	return p
}

// until returns how long it is to a moment; 0 if there is none, and a little if it
// has passed.
func until(unixMS uint64) time.Duration {
	if unixMS == 0 {
		return 0
	}
	return max(time.Until(time.UnixMilli(int64(min(unixMS, 1<<53)))), time.Millisecond)
}
