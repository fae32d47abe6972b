package remote

import (
	"context"
	"iter"
	"slices"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/remote/workerpb"
	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/kvevent"
)

// Events yields what the worker's caches do. The sequence ends without an error when
// the connection is lost, or the worker sends what cannot be: another one may go on
// from where this one came to.
func (c *Client) Events(ctx context.Context, from []kv.Cursor) iter.Seq2[kv.Batch, error] {
	return func(yield func(kv.Batch, error) bool) {
		if ctx.Err() != nil {
			return
		}
		caller := ctx
		ctx, done := c.begin(ctx)
		defer done()
		m := &workerpb.EventsRequest{}
		for _, at := range from {
			m.From = append(m.From, &workerpb.Cursor{Rank: at.Rank, Epoch: at.Epoch, Sequence: at.Sequence})
		}
		stream, err := c.worker().Events(ctx, m)
		if err != nil {
			return
		}
		r, dropped := eventReader{rebuilding: map[uint32]bool{}}, uint64(0)
		if card := c.watch.board.status().Card; card != nil {
			r.scheme, r.plain = int(card.BlockSize), card.HashScheme == engine.SchemeXXH3
		}
		for {
			m, err := stream.Recv()
			if err != nil {
				e := errorOf(err, stream.Trailer(), true)
				if caller.Err() == nil && (e.Kind == engine.Denied || e.Kind == engine.Unsupported) {
					yield(kv.Batch{}, e)
				}
				return
			}
			b, ok, err := r.batch(m)
			if err != nil {
				c.log.Warn("KV events cannot be read; the rank is told anew", "rank", m.Rank, "error", err)
				yield(kv.Batch{Rank: m.Rank, Epoch: m.Epoch, Gap: kv.GapLost}, nil)
				return
			}
			if r.dropped > dropped && dropped == 0 {
				c.log.Warn("KV events are left out: their tokens do not fill blocks of the size that the card says", "rank", m.Rank, "block_size", r.scheme)
			}
			dropped = r.dropped
			if ok && !yield(b, nil) {
				return
			}
		}
	}
}

// eventReader turns messages into batches.
type eventReader struct {
	rebuilding map[uint32]bool // ranks whose snapshot has begun
	scheme     int             // tokens of a block
	plain      bool            // blocks are hashed as this package can
	decoder    kvevent.RouterDecoder
	dropped    uint64 // events whose tokens do not fill their blocks
}

// batch returns what a message tells; ok is false for what is of no use here.
func (r *eventReader) batch(m *workerpb.EventBatch) (b kv.Batch, ok bool, err error) {
	b = kv.Batch{Rank: m.Rank, Epoch: m.Epoch, First: m.First, Last: m.Last}
	switch body := m.Body.(type) {
	case *workerpb.EventBatch_Gap:
		r.rebuilding[m.Rank] = false
		b.First, b.Last, b.Gap = 0, 0, gapReason(body.Gap.GetReason())
		return b, true, nil
	case *workerpb.EventBatch_Snapshot:
		r.rebuilding[m.Rank] = !body.Snapshot.GetEnd()
		if !body.Snapshot.GetEnd() {
			return b, false, nil
		}
		b.First, b.Snapshot = 0, kv.SnapshotEnd
		return b, true, nil
	case *workerpb.EventBatch_Mark:
		b.First = 0
		return b, true, nil
	case *workerpb.EventBatch_RouterEvents:
		b.Events, err = r.router(m, body.RouterEvents)
	case *workerpb.EventBatch_TokenEvents:
		b.Events, err = r.tokens(body.TokenEvents.GetEvents())
	default: // of a later version
		return b, false, nil
	}
	switch {
	case err != nil:
		return b, false, err
	case r.rebuilding[m.Rank]:
		b.First, b.Last, b.Snapshot = 0, 0, kv.SnapshotPart
	case m.First == 0 || m.Last < m.First || m.Last-m.First+1 != uint64(len(b.Events)):
		return b, false, broken("%d events as those from %d to %d", len(b.Events), m.First, m.Last)
	}
	return b, true, nil
}

func gapReason(s string) kv.GapReason {
	switch g := kv.GapReason(s); g {
	case kv.GapRestart, kv.GapLost, kv.GapOverflow, kv.GapTooOld, kv.GapFuture:
		return g
	}
	return kv.GapLost
}

// router reads events that have their hashes.
func (r *eventReader) router(m *workerpb.EventBatch, payload []byte) ([]kv.Event, error) {
	list, err := r.decoder.Decode(payload)
	if err != nil {
		return nil, err
	}
	out := make([]kv.Event, len(list))
	for i := range list {
		e := &list[i]
		if e.Rank != m.Rank || !r.rebuilding[m.Rank] && e.ID != m.First+uint64(i) {
			return nil, broken("event %d of rank %d among those of rank %d from %d on", e.ID, e.Rank, m.Rank, m.First)
		}
		out[i] = e.Event
		out[i].Blocks = slices.Clone(e.Event.Blocks) // they are the decoder's
	}
	return out, nil
}

// tokens hashes events of workers that know nothing of our hashes. One whose tokens
// do not fill its blocks keeps its number and loses its effect.
func (r *eventReader) tokens(list []*workerpb.TokenEvent) ([]kv.Event, error) {
	if !r.plain || r.scheme == 0 {
		return nil, broken("events with tokens, and the card does not say %q and a block size", engine.SchemeXXH3)
	}
	out := make([]kv.Event, len(list))
	for i, m := range list {
		out[i] = r.token(m)
	}
	return out, nil
}

func (r *eventReader) token(m *workerpb.TokenEvent) kv.Event {
	nothing := kv.Event{Kind: kv.Removed}
	e := kv.Event{Tier: tierOf(m.GetTier())}
	switch m.GetKind() {
	case workerpb.EventKind_EVENT_KIND_CLEARED:
		return kv.Event{Kind: kv.Cleared}
	case workerpb.EventKind_EVENT_KIND_REMOVED:
		e.Kind = kv.Removed
		for _, h := range m.Hashes {
			e.Blocks = append(e.Blocks, kv.Block{Engine: kv.EngineHash(h)})
		}
		return e
	case workerpb.EventKind_EVENT_KIND_STORED:
	default: // of a later version
		return nothing
	}
	if len(m.Hashes) == 0 || len(m.TokenIds) != len(m.Hashes)*r.scheme {
		r.dropped++
		return nothing
	}
	scheme := kv.Scheme{BlockSize: r.scheme, Seed: kv.Namespace{LoRA: m.Lora, Salt: m.Salt}.Seed()}
	var media []kv.Media
	for _, s := range m.Media {
		media = append(media, kv.Media{Hash: s.GetMmHash(), Spans: []kv.Span{{Start: int(s.GetStart()), End: int(s.GetEnd())}}})
	}
	for i, l := range scheme.AppendLocalMedia(nil, m.TokenIds, media) {
		e.Blocks = append(e.Blocks, kv.Block{Engine: kv.EngineHash(m.Hashes[i]), Local: l})
	}
	if m.Parent != nil {
		e.Parent, e.HasParent = kv.EngineHash(*m.Parent), true
	}
	return e
}

func tierOf(t workerpb.Tier) kv.Tier {
	if t >= 0 && t <= workerpb.Tier_TIER_SHARED {
		return kv.Tier(t)
	}
	return kv.TierDevice
}
