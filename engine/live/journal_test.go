package live_test

import (
	"fmt"
	"maps"
	"testing"

	"pgregory.net/rapid"

	"github.com/dynago/dynago/engine/live"
	"github.com/dynago/dynago/kv"
)

// view is what a reader believes to be held.
type view struct {
	blocks map[kv.EngineHash]bool
	epoch  uint64
	last   uint64
	// numbered is whether the last batch had a number, rebuilding whether a snapshot
	// has begun; whole whether one has ended since the last gap.
	numbered, rebuilding, whole bool
}

// take follows the rules for readers, and says which was broken.
func (v *view) take(b kv.Batch) error {
	if b.Gap != "" {
		*v = view{blocks: map[kv.EngineHash]bool{}, epoch: b.Epoch}
	}
	if v.blocks == nil {
		v.blocks, v.epoch = map[kv.EngineHash]bool{}, b.Epoch
	}
	switch {
	case b.Epoch != v.epoch:
		return fmt.Errorf("epoch %d became %d without a gap", v.epoch, b.Epoch)
	case b.Snapshot != kv.SnapshotNone && !v.rebuilding && len(v.blocks) > 0:
		return fmt.Errorf("a snapshot over %d blocks", len(v.blocks))
	case b.Snapshot == kv.SnapshotNone && v.rebuilding:
		return fmt.Errorf("an event within a snapshot")
	case b.Snapshot == kv.SnapshotNone && len(b.Events) > 0 && v.numbered && b.First != v.last+1:
		return fmt.Errorf("%d after %d", b.First, v.last)
	case b.Snapshot == kv.SnapshotNone && b.Last-b.First+1 != uint64(len(b.Events)) && len(b.Events) > 0:
		return fmt.Errorf("%d events as %d to %d", len(b.Events), b.First, b.Last)
	}
	v.rebuilding = b.Snapshot == kv.SnapshotPart
	v.whole = v.whole || b.Snapshot == kv.SnapshotEnd
	if !v.rebuilding && b.Last > 0 {
		v.last, v.numbered = b.Last, true
	}
	for _, e := range b.Events {
		for _, k := range e.Blocks {
			switch e.Kind {
			case kv.Stored:
				if e.HasParent && !v.blocks[e.Parent] && v.whole {
					return fmt.Errorf("block %d is stored behind %d, which is not there", k.Engine, e.Parent)
				}
				v.blocks[k.Engine] = true
			case kv.Removed:
				delete(v.blocks, k.Engine)
			}
		}
		if e.Kind == kv.Cleared {
			clear(v.blocks)
		}
	}
	return nil
}

// Whatever a source tells, and whenever readers come, go and come back: each knows
// what is held if the source knows it, and never believes in what is not.
func TestJournalProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		epoch := uint64(1)
		j := live.NewJournal(3, epoch)
		held := map[kv.EngineHash]bool{} // as the source tells it
		next := kv.EngineHash(0)
		pick := func() (kv.EngineHash, bool) {
			for k := range held {
				return k, true
			}
			return 0, false
		}
		fresh := func() kv.Event {
			next++
			e := kv.Event{Kind: kv.Stored, Blocks: []kv.Block{{Engine: next, Local: kv.LocalHash(next)}}}
			return e
		}
		type readerOf struct {
			place *live.Place
			view  *view
		}
		var readers []readerOf
		read := func(r readerOf) {
			for _, b := range j.Read(r.place) {
				if b.Rank != 3 {
					t.Fatalf("a batch of rank %d", b.Rank)
				}
				if err := r.view.take(b); err != nil {
					t.Fatalf("%v in %+v", err, b)
				}
			}
			for k := range r.view.blocks {
				if !held[k] {
					t.Fatalf("block %d is believed to be there", k)
				}
			}
			if j.Whole() && (!r.view.whole || !maps.Equal(r.view.blocks, held)) {
				t.Fatalf("%d blocks are known (whole %v), %d are held", len(r.view.blocks), r.view.whole, len(held))
			}
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			switch rapid.IntRange(0, 9).Draw(t, "what") {
			case 0, 1, 2:
				var b kv.Batch
				for range rapid.IntRange(1, 5).Draw(t, "events") {
					e := fresh()
					b.Events = append(b.Events, e)
					held[e.Blocks[0].Engine] = true
				}
				j.Take(b)
			case 3:
				if k, ok := pick(); ok {
					delete(held, k)
					j.Take(kv.Batch{Events: []kv.Event{{Kind: kv.Removed, Blocks: []kv.Block{{Engine: k}}}}})
				}
			case 4:
				clear(held)
				j.Take(kv.Batch{Gap: kv.GapLost})
			case 5:
				// A snapshot, after which everything is known.
				clear(held)
				j.Take(kv.Batch{Gap: kv.GapLost})
				for range rapid.IntRange(0, 3).Draw(t, "parts") {
					e := fresh()
					held[e.Blocks[0].Engine] = true
					j.Take(kv.Batch{Events: []kv.Event{e}, Snapshot: kv.SnapshotPart})
					for _, r := range readers {
						for _, b := range j.Read(r.place) {
							if err := r.view.take(b); err != nil {
								t.Fatal(err)
							}
						}
					}
				}
				j.Take(kv.Batch{Snapshot: kv.SnapshotEnd})
			case 6:
				epoch++
				keep := rapid.Bool().Draw(t, "keep")
				if !keep {
					clear(held)
				}
				j.Renew(epoch, keep)
			case 7:
				r := readerOf{live.Fresh(), &view{}}
				readers = append(readers, r)
			case 8:
				if n := len(readers); n > 0 {
					// It comes back with the place that it had.
					i := rapid.IntRange(0, n-1).Draw(t, "reader")
					if v := readers[i].view; v.whole {
						readers[i].place = live.From(kv.Cursor{Rank: 3, Epoch: v.epoch, Sequence: v.last})
					}
				}
			case 9:
				if !rapid.Bool().Draw(t, "floods") {
					continue
				}
				var b kv.Batch // more than is kept
				for range live.RingEvents + 1 {
					e := fresh()
					b.Events = append(b.Events, e, kv.Event{Kind: kv.Removed, Blocks: e.Blocks})
				}
				j.Take(b)
			}
			for _, r := range readers {
				if rapid.Bool().Draw(t, "reads") {
					read(r)
				}
			}
		}
		for _, r := range readers {
			read(r)
		}
	})
}
