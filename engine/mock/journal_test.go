package mock

import (
	"reflect"
	"testing"

	"github.com/dynago/dynago/kv"
	"pgregory.net/rapid"
)

// TestJournal reads from every kind of place, and compares what a reader ends
// up with.
func TestJournal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		j := journal{rank: 3}
		j.restart(7)
		n := rapid.SampledFrom([]int{0, 1, 100, ringEvents - 1, ringEvents, ringEvents + 1, 2*ringEvents + 5}).Draw(t, "events")
		var all []kv.Event
		for i := range n {
			all = append(all, kv.Event{Kind: kv.Stored, Blocks: make([]kv.Block, 1+i%200)})
			all[i].Blocks[0].Engine = kv.EngineHash(i + 1)
		}
		j.append(all)
		state := []kv.Event{{Kind: kv.Stored, Blocks: []kv.Block{{Engine: 99}}}}
		oldest := max(0, n-ringEvents)
		from := rapid.OneOf(rapid.IntRange(0, n+2), rapid.IntRange(max(0, oldest-2), oldest+2)).Draw(t, "from")
		r := reader{epoch: rapid.Uint64Range(6, 7).Draw(t, "epoch"), last: uint64(from), live: rapid.Bool().Draw(t, "live")}
		want := kv.GapReason("")
		switch {
		case r.epoch != 7:
			want = kv.GapRestart
		case from > n:
			want = kv.GapFuture
		case from < oldest && r.live:
			want = kv.GapOverflow
		case from < oldest:
			want = kv.GapTooOld
		}
		batches := j.read(&r, func() []kv.Event { return state })
		if r != (reader{epoch: 7, last: uint64(n), live: true}) {
			t.Fatalf("reader at %+v of %d", r, n)
		}
		if want != "" {
			expect := []kv.Batch{
				{Rank: 3, Epoch: 7, Gap: want},
				{Rank: 3, Epoch: 7, Events: state, Snapshot: kv.SnapshotPart},
				{Rank: 3, Epoch: 7, Last: uint64(n), Snapshot: kv.SnapshotEnd},
			}
			if !reflect.DeepEqual(batches, expect) {
				t.Fatalf("got %+v, want %+v", batches, expect)
			}
			return
		}
		next := uint64(from) + 1
		for _, b := range batches {
			blocks := 0
			for i, e := range b.Events {
				if !reflect.DeepEqual(e, all[int(next)-1+i]) {
					t.Fatalf("event %d is another", next)
				}
				blocks += len(e.Blocks)
			}
			if b.Rank != 3 || b.Epoch != 7 || b.First != next || b.Last != next+uint64(len(b.Events))-1 || len(b.Events) > kv.BatchEvents || blocks > kv.BatchBlocks {
				t.Fatalf("batch %d..%d of %d events and %d blocks, want one from %d on", b.First, b.Last, len(b.Events), blocks, next)
			}
			next = b.Last + 1
		}
		if next != uint64(n)+1 {
			t.Fatalf("read up to %d of %d", next-1, n)
		}
	})
}
