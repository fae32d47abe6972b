package remote

import (
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/remote/workerpb"
	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/kvevent"
)

// Events tells what the engine's caches do, from the frontend's cursors on.
func (s *Server) Events(m *workerpb.EventsRequest, stream workerpb.Worker_EventsServer) error {
	if card := s.board.status().Card; card == nil || !card.Features.Has(engine.FeatureEvents) {
		return fail(stream, engine.Errorf(engine.Unsupported, "the engine tells no KV events"))
	}
	var from []kv.Cursor
	for _, c := range m.From {
		from = append(from, kv.Cursor{Rank: c.GetRank(), Epoch: c.GetEpoch(), Sequence: c.GetSequence()})
	}
	if err := stream.SendHeader(nil); err != nil {
		return err
	}
	ctx := stream.Context()
	w := eventWriter{rebuilding: map[uint32]bool{}}
	for b, err := range s.engine.Events(ctx, from) {
		if err != nil {
			return fail(stream, engine.CauseOf(ctx, err))
		}
		for _, m := range w.messages(&b) {
			if err := stream.Send(m); err != nil {
				return err
			}
		}
		if s.life.Err() != nil {
			break
		}
	}
	return nil
}

// eventWriter turns batches into messages.
type eventWriter struct {
	rebuilding map[uint32]bool // ranks whose snapshot has begun
	events     []kvevent.RouterEvent
}

func (w *eventWriter) messages(b *kv.Batch) (out []*workerpb.EventBatch) {
	add := func(first, last uint64, m *workerpb.EventBatch) {
		m.Rank, m.Epoch, m.First, m.Last = b.Rank, b.Epoch, first, last
		out = append(out, m)
	}
	if b.Gap != "" {
		w.rebuilding[b.Rank] = false
		add(0, 0, &workerpb.EventBatch{Body: &workerpb.EventBatch_Gap{Gap: &workerpb.Gap{Reason: string(b.Gap)}}})
	}
	if b.Snapshot != kv.SnapshotNone && !w.rebuilding[b.Rank] {
		w.rebuilding[b.Rank] = true
		add(0, 0, &workerpb.EventBatch{Body: &workerpb.EventBatch_Snapshot{Snapshot: &workerpb.Snapshot{}}})
	}
	if len(b.Events) > 0 {
		first, last := b.First, b.Last
		if b.Snapshot != kv.SnapshotNone {
			first, last = 0, 0
		}
		add(first, last, &workerpb.EventBatch{Body: &workerpb.EventBatch_RouterEvents{RouterEvents: w.encode(b, first)}})
	}
	switch {
	case b.Snapshot == kv.SnapshotEnd:
		w.rebuilding[b.Rank] = false
		add(0, b.Last, &workerpb.EventBatch{Body: &workerpb.EventBatch_Snapshot{Snapshot: &workerpb.Snapshot{End: true}}})
	case len(out) == 0:
		add(0, b.Last, &workerpb.EventBatch{Body: &workerpb.EventBatch_Mark{Mark: &workerpb.Mark{}}})
	}
	return out
}

// encode writes the events of a batch, numbered from first on; 0: they have no
// numbers.
func (w *eventWriter) encode(b *kv.Batch, first uint64) []byte {
	w.events = w.events[:0]
	for i := range b.Events {
		e := kvevent.RouterEvent{Rank: b.Rank, Event: b.Events[i]}
		if first > 0 {
			e.ID = first + uint64(i)
		}
		w.events = append(w.events, e)
	}
	return kvevent.AppendRouterEvents(nil, kvevent.Arrays, w.events)
}
