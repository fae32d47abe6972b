package fleet

import (
	"testing"

	"github.com/dynago/dynago/kv"
	"pgregory.net/rapid"
)

func TestOrder(t *testing.T) {
	events := func(n int) []kv.Event { return make([]kv.Event, n) }
	type step struct {
		in      kv.Batch
		verdict verdict
		gap     kv.GapReason
		events  int
	}
	for name, steps := range map[string][]step{
		"any first number is accepted": {
			{kv.Batch{Epoch: 1, First: 40, Last: 41, Events: events(2)}, apply, "", 2},
			{kv.Batch{Epoch: 1, First: 42, Last: 42, Events: events(1)}, apply, "", 1},
		},
		"snapshot, then live": {
			{kv.Batch{Epoch: 1, Events: events(3), Snapshot: kv.SnapshotPart}, apply, "", 3},
			{kv.Batch{Epoch: 1, Events: events(3), Snapshot: kv.SnapshotPart}, apply, "", 3},
			{kv.Batch{Epoch: 1, Last: 9, Snapshot: kv.SnapshotEnd}, apply, "", 0},
			{kv.Batch{Epoch: 1, First: 10, Last: 10, Events: events(1)}, apply, "", 1},
			{kv.Batch{Epoch: 1, First: 12, Last: 12, Events: events(1)}, hole, "", 1},
		},
		"empty snapshot of number 0": {
			{kv.Batch{Epoch: 1, Snapshot: kv.SnapshotEnd}, apply, "", 0},
			{kv.Batch{Epoch: 1, First: 2, Last: 2, Events: events(1)}, hole, "", 1},
		},
		"a second snapshot replaces the first": {
			{kv.Batch{Epoch: 1, Last: 9, Snapshot: kv.SnapshotEnd}, apply, "", 0},
			{kv.Batch{Epoch: 1, Events: events(1), Snapshot: kv.SnapshotPart}, apply, kv.GapLost, 1},
		},
		"gap without events, then live": {
			{kv.Batch{Epoch: 1, First: 1, Last: 1, Events: events(1)}, apply, "", 1},
			{kv.Batch{Epoch: 1, Gap: kv.GapOverflow}, apply, kv.GapOverflow, 0},
			{kv.Batch{Epoch: 1, First: 70, Last: 70, Events: events(1)}, apply, "", 1},
		},
		"idle marks": {
			{kv.Batch{Epoch: 1, First: 1, Last: 1, Events: events(1)}, apply, "", 1},
			{kv.Batch{Epoch: 1, Last: 1}, ignore, "", 0},
			{kv.Batch{Epoch: 1, Last: 2}, hole, "", 0},
		},
		"overlap that cannot be cut": {
			{kv.Batch{Epoch: 1, First: 1, Last: 2, Events: events(2)}, apply, "", 2},
			{kv.Batch{Epoch: 1, First: 2, Last: 4, Events: events(2)}, hole, "", 2},
		},
		"fewer events than numbers": {
			{kv.Batch{Epoch: 1, First: 1, Last: 2, Events: events(2)}, apply, "", 2},
			{kv.Batch{Epoch: 1, First: 3, Last: 5, Events: events(2)}, hole, "", 2},
		},
		"more events than numbers": {
			{kv.Batch{Epoch: 1, First: 1, Last: 2, Events: events(2)}, apply, "", 2},
			{kv.Batch{Epoch: 1, First: 3, Last: 3, Events: events(2)}, hole, "", 2},
		},
		"numbers without end": {
			{kv.Batch{Epoch: 1, First: 1, Last: 2, Events: events(2)}, apply, "", 2},
			{kv.Batch{Epoch: 1, Last: 1<<64 - 1}, hole, "", 0},
			{kv.Batch{Epoch: 1, First: 1<<64 - 1, Last: 1<<64 - 1, Events: events(1)}, apply, "", 1},
			{kv.Batch{Epoch: 1, First: 1, Last: 3, Events: events(3)}, ignore, "", 3},
		},
		"numbers that go back": {
			{kv.Batch{Epoch: 1, First: 7, Last: 8, Events: events(2)}, apply, "", 2},
			{kv.Batch{Epoch: 1, First: 3, Last: 4, Events: events(2)}, ignore, "", 2},
			{kv.Batch{Epoch: 1, First: 9, Last: 2, Events: events(1)}, ignore, "", 1},
			{kv.Batch{Epoch: 1, First: 9, Last: 9, Events: events(1)}, apply, "", 1},
		},
		"a snapshot that is cut off": {
			{kv.Batch{Epoch: 1, Events: events(3), Snapshot: kv.SnapshotPart}, apply, "", 3},
			{kv.Batch{Epoch: 1, First: 10, Last: 10, Events: events(1)}, hole, "", 1},
			{kv.Batch{Epoch: 1, First: 11, Last: 11, Events: events(1)}, hole, "", 1},
		},
		"gaps for ever": {
			{kv.Batch{Epoch: 1, First: 1, Last: 1, Events: events(1)}, apply, "", 1},
			{kv.Batch{Epoch: 1, Gap: kv.GapOverflow}, apply, kv.GapOverflow, 0},
			{kv.Batch{Epoch: 1, Gap: kv.GapOverflow}, ignore, "", 0},
			{kv.Batch{Epoch: 2, Gap: kv.GapLost}, ignore, "", 0},
			{kv.Batch{Epoch: 3, Last: 9}, ignore, "", 0},
			{kv.Batch{Epoch: 3, First: 10, Last: 10, Events: events(1)}, apply, "", 1},
			{kv.Batch{Epoch: 3, Gap: kv.GapOverflow}, apply, kv.GapOverflow, 0},
		},
		"two lives in turn": {
			{kv.Batch{Epoch: 1, First: 1, Last: 1, Events: events(1)}, apply, "", 1},
			{kv.Batch{Epoch: 2, First: 1, Last: 1, Events: events(1)}, apply, kv.GapRestart, 1},
			{kv.Batch{Epoch: 1, First: 2, Last: 2, Events: events(1)}, apply, kv.GapRestart, 1},
		},
		"another epoch": {
			{kv.Batch{Epoch: 1, First: 1, Last: 2, Events: events(2)}, apply, "", 2},
			{kv.Batch{Epoch: 2, First: 3, Last: 3, Events: events(1)}, apply, kv.GapRestart, 1},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var o order
			for i, s := range steps {
				got, v := o.next(s.in)
				if v != s.verdict || got.Gap != s.gap || len(got.Events) != s.events {
					t.Fatalf("step %d: verdict %d, gap %q, %d events; want %+v", i, v, got.Gap, len(got.Events), s)
				}
			}
		})
	}
}

// However a stream is cut, repeated, or torn: what is applied since the last
// gap is an unbroken run of numbers, and resuming goes on behind it.
func TestOrderProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var o order
		var at uint64 // newest number applied; 0 = nothing since the last gap
		for range rapid.IntRange(1, 50).Draw(t, "steps") {
			first := rapid.Uint64Range(1, 12).Draw(t, "first")
			n := rapid.Uint64Range(1, 4).Draw(t, "n")
			b := kv.Batch{Epoch: 1, First: first, Last: first + n - 1}
			for i := range n {
				b.Events = append(b.Events, kv.Event{Parent: kv.EngineHash(first + i)})
			}
			got, v := o.next(b)
			switch v {
			case hole:
				if _, broken := o.resume(); len(broken) != 1 {
					t.Fatalf("a hole breaks %v", broken)
				}
				at = 0
			case apply:
				for _, e := range got.Events {
					if at != 0 && uint64(e.Parent) != at+1 {
						t.Fatalf("%d follows %d", e.Parent, at)
					}
					at = uint64(e.Parent)
				}
				if c, _ := o.resume(); len(c) != 1 || c[0].Sequence != at {
					t.Fatalf("resumes at %v after %d", c, at)
				}
			case ignore:
				if b.Last > at {
					t.Fatalf("%d..%d ignored at %d", b.First, b.Last, at)
				}
			}
		}
	})
}
