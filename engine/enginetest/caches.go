package enginetest

import (
	"context"
	"reflect"
	"testing"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/kv"
)

// watch reads events from the cursors on until stop is true or 2 s have passed.
func watch(t *testing.T, e engine.Engine, from []kv.Cursor, see func(kv.Batch) (stop bool)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	for b, err := range e.Events(ctx, from) {
		if err != nil {
			t.Fatalf("events: %v", err)
		}
		if see(b) {
			return
		}
	}
}

// fold returns what a rank's cache holds: with a cursor by its events, without
// one by its snapshot. It reads until the rank has nothing new.
func fold(t *testing.T, e engine.Engine, rank uint32, from *kv.Cursor) view {
	t.Helper()
	v := make(view)
	var cursors []kv.Cursor
	if from != nil {
		cursors = []kv.Cursor{*from}
	}
	_, newest := snapshot(t, e, rank)
	if from != nil && from.Sequence >= newest.Sequence {
		return v
	}
	watch(t, e, cursors, func(b kv.Batch) bool {
		if b.Rank != rank {
			return false
		}
		v.apply(t, b)
		return b.Snapshot == kv.SnapshotEnd || b.Snapshot == kv.SnapshotNone && b.Last >= newest.Sequence
	})
	return v
}

// snapshot returns what a fresh reader of a rank is told, and the place that it
// stands for.
func snapshot(t *testing.T, e engine.Engine, rank uint32) (v view, at kv.Cursor) {
	t.Helper()
	v = make(view)
	done := false
	watch(t, e, nil, func(b kv.Batch) bool {
		if b.Rank != rank {
			return false
		}
		v.apply(t, b)
		at = kv.Cursor{Rank: rank, Epoch: b.Epoch, Sequence: b.Last}
		done = b.Snapshot == kv.SnapshotEnd
		if !done && (b.Snapshot != kv.SnapshotPart || b.First != 0 || b.Last != 0) {
			t.Fatalf("a fresh reader got %+v before the end of the snapshot", b)
		}
		return done
	})
	if !done {
		t.Fatal("a fresh reader got no snapshot")
	}
	return v, at
}

// work makes a rank store and use blocks.
func (s *Subject) work(t *testing.T, e engine.Engine) {
	t.Helper()
	zero := uint32(0)
	for i := range uint64(12) {
		r := s.request(i%5, 40+10*int(i%7), 20)
		if ready(t, e).Card.Features.Has(engine.FeatureDPRank) {
			r.DPRank = &zero
		}
		generate(t, e, r)
	}
}

func eventsFold(t *testing.T, s *Subject) {
	e := s.New(t)
	st := ready(t, e)
	s.work(t, e)
	truth, at := snapshot(t, e, 0)
	if len(truth) == 0 || at.Sequence == 0 {
		t.Fatalf("%d blocks at %+v after some work", len(truth), at)
	}
	if got := fold(t, e, 0, &kv.Cursor{Epoch: st.Epoch}); !reflect.DeepEqual(got, truth) {
		t.Errorf("events fold to %d blocks, the cache holds %d", len(got), len(truth))
	}
}

func namespaces(t *testing.T, s *Subject) {
	e := s.New(t)
	st := ready(t, e)
	zero := uint32(0)
	n := 3*int(st.Card.BlockSize) + 1
	before := 0
	for _, ns := range []kv.Namespace{{}, {Salt: "a"}, {LoRA: "a"}, {Salt: "a", LoRA: "a"}} {
		r := s.request(1, n, 1)
		r.KV.Namespace, r.DPRank = ns, &zero
		if a := generate(t, e, r); *a.last.Usage.Cached != 0 {
			t.Errorf("%+v found %d tokens of another namespace", ns, *a.last.Usage.Cached)
		}
		cache, _ := snapshot(t, e, 0)
		if len(cache) != before+3 {
			t.Errorf("%+v made %d blocks of %d", ns, len(cache), before)
		}
		before = len(cache)
		if st.Card.HashScheme != engine.SchemeXXH3 {
			continue
		}
		for _, l := range kv.AppendLocalHashes(nil, r.TokenIDs, int(st.Card.BlockSize), ns.Seed()) {
			if !cache.has(l) {
				t.Errorf("%+v: no block with content %x", ns, l)
			}
		}
	}
}

func resume(t *testing.T, s *Subject) {
	e := s.New(t)
	st := ready(t, e)
	s.work(t, e)
	truth, newest := snapshot(t, e, 0)
	var all []kv.Event
	from := kv.Cursor{Epoch: st.Epoch}
	tail := func(from kv.Cursor) (events []kv.Event) {
		next := from.Sequence + 1
		watch(t, e, []kv.Cursor{from}, func(b kv.Batch) bool {
			if b.Rank != 0 {
				return false
			}
			if b.Gap != "" || b.Snapshot != kv.SnapshotNone || b.First != next || b.Last-b.First+1 != uint64(len(b.Events)) {
				t.Errorf("from %+v: batch %d..%d of %d events, gap %q, want one from %d on", from, b.First, b.Last, len(b.Events), b.Gap, next)
				return true
			}
			events = append(events, b.Events...)
			next = b.Last + 1
			return b.Last >= newest.Sequence
		})
		return events
	}
	all = tail(from)
	for from.Sequence < newest.Sequence {
		from.Sequence++
		if from.Sequence == newest.Sequence {
			break
		}
		if got := tail(from); !reflect.DeepEqual(got, all[from.Sequence:]) {
			t.Fatalf("from %d on: %d events, want %d", from.Sequence, len(got), len(all)-int(from.Sequence))
		}
	}
	for reason, from := range map[kv.GapReason]kv.Cursor{
		kv.GapFuture:  {Epoch: st.Epoch, Sequence: newest.Sequence + 1},
		kv.GapRestart: {Epoch: st.Epoch + 1, Sequence: 1},
	} {
		v := view{1: 1}
		first := true
		watch(t, e, []kv.Cursor{from}, func(b kv.Batch) bool {
			if b.Rank != 0 {
				return false
			}
			if first && b.Gap != reason {
				t.Errorf("from %+v: gap %q, want %q", from, b.Gap, reason)
			}
			first = false
			v.apply(t, b)
			return b.Snapshot == kv.SnapshotEnd
		})
		if !reflect.DeepEqual(v, truth) {
			t.Errorf("after gap %q: %d blocks, want %d", reason, len(v), len(truth))
		}
	}
}

func restart(t *testing.T, s *Subject) {
	e := s.New(t)
	old := ready(t, e)
	s.work(t, e)
	_, at := snapshot(t, e, 0)
	gap, end := false, false
	s.Restart(e)
	watch(t, e, []kv.Cursor{at}, func(b kv.Batch) bool {
		if b.Rank != 0 {
			return false
		}
		switch {
		case b.Gap == kv.GapRestart && b.Epoch != old.Epoch:
			gap = true
		case !gap && b.Epoch != old.Epoch:
			t.Errorf("%+v before a gap", b)
		case gap && b.Snapshot == kv.SnapshotEnd:
			end = true
		}
		return end
	})
	if !gap || !end {
		t.Errorf("after a restart: gap seen %v, snapshot %v", gap, end)
	}
	if v, _ := snapshot(t, e, 0); len(v) != 0 {
		t.Errorf("%d blocks survived the restart", len(v))
	}
	r := s.request(1, 20, 5)
	r.Epoch = old.Epoch
	if a := collect(context.Background(), t, e, r); engine.KindOf(a.err) != engine.Stale || len(a.deltas) > 0 {
		t.Errorf("a request of the old epoch: %d deltas, %v, want stale", len(a.deltas), a.err)
	}
	awaitLoad(t, e, time.Second, "nothing was begun", idle)
	r.Epoch = ready(t, e).Epoch
	generate(t, e, r)
}

func load(t *testing.T, s *Subject) {
	e := s.Slow(t)
	card := ready(t, e).Card
	known := func(n int64) bool { return n == engine.Unknown || n >= 0 }
	l := loadNow(t, e)
	if len(l.Ranks) != int(card.Ranks()) {
		t.Errorf("%d ranks, the card says %d", len(l.Ranks), card.Ranks())
	}
	for i, r := range l.Ranks {
		if r.Rank != card.DPStart+uint32(i) || !known(r.Running) || !known(r.Waiting) || !known(r.UsedBlocks) || !known(r.TotalBlocks) {
			t.Errorf("rank %d: %+v", i, r)
		}
		if card.TotalBlocks > 0 && r.TotalBlocks != engine.Unknown && r.TotalBlocks != int64(card.TotalBlocks) {
			t.Errorf("rank %d has %d blocks, the card says %d", i, r.TotalBlocks, card.TotalBlocks)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		collect(ctx, t, e, s.request(1, 50, 400))
	}()
	awaitLoad(t, e, time.Second, "one runs", func(running, _ int64) bool { return running == 1 })
	cancel()
	<-done
	awaitLoad(t, e, time.Second, "none runs", idle)
}
