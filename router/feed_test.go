package router_test

import (
	"math"
	"runtime"
	"testing"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/router"
)

// What room for the keys of so many blocks takes at least, and more than anything
// else that happens to a batch in these tests.
const (
	cacheBlocks = 200_000
	cacheRoom   = 25 * cacheBlocks
)

// stored are events of so many blocks with numbers from first on.
func stored(first, blocks int) (events []kv.Event) {
	for at := first; at < first+blocks; at += 100 {
		e := kv.Event{}
		for i := at; i < min(at+100, first+blocks); i++ {
			e.Blocks = append(e.Blocks, kv.Block{Engine: kv.EngineHash(i), Local: kv.LocalHash(i)})
		}
		events = append(events, e)
	}
	return events
}

// removed are events that take away what stored does.
func removed(first, blocks int) []kv.Event {
	events := stored(first, blocks)
	for i := range events {
		events[i].Kind = kv.Removed
	}
	return events
}

// allocates returns how many bytes are allocated while do runs.
func allocates(do func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	do()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// Once a worker has told of an eighth of its cache, the index has room for all of
// it, until the cache is empty.
func TestFeed_MakesRoomOnceALife(t *testing.T) {
	h := newHouse(t, router.Config{})
	defer h.fleet.Close()
	h.join(1, card(func(c *engine.Card) { c.TotalBlocks = cacheBlocks }))
	const eighth = cacheBlocks / 8
	n := uint64(1)
	for i, s := range []struct {
		why    string
		events []kv.Event
		room   bool
	}{
		{"has told of little", stored(0, eighth-1), false},
		{"has told of enough", stored(eighth-1, 1), true},
		{"fills its cache", stored(eighth, 40_000), false},
		{"loses nearly all", removed(0, 60_000), false},
		{"has told of enough once more", stored(0, 60_000), false},
		{"begins anew", []kv.Event{{Kind: kv.Cleared}}, false},
		{"has told of little since", stored(0, eighth-1), false},
		{"has told of enough since", stored(eighth-1, 1), true},
		{"begins anew and tells of enough at once", append([]kv.Event{{Kind: kv.Cleared}}, stored(0, eighth)...), true},
	} {
		got := allocates(func() { h.tells(1, n, s.events...) })
		n += uint64(len(s.events))
		if (got >= cacheRoom) != s.room {
			t.Errorf("step %d, a worker that %s: %d bytes allocated, room for its cache takes %d: want it made: %v", i, s.why, got, cacheRoom, s.room)
		}
	}
	if got := h.router.IndexStats(); got.Blocks != eighth || got.BlockNotFound+got.ParentNotFound != 0 {
		t.Errorf("%+v", got)
	}
}

// A card that is wrong takes no memory, however many ranks it is told of for.
func TestFeed_BelievesNoCardAlone(t *testing.T) {
	for _, told := range []uint64{math.MaxUint64, 1 << 31, 1 << 22, 0} {
		h := newHouse(t, router.Config{})
		h.join(1, card(func(c *engine.Card) { c.TotalBlocks, c.DPSize = told, 64 }))
		events := stored(0, 1000)
		got := allocates(func() {
			for rank := range uint32(64) {
				h.engines[1].events <- kv.Batch{Rank: rank, Epoch: 1, First: 1, Last: uint64(len(events)), Events: events}
				h.engines[1].events <- kv.Batch{Rank: rank, Epoch: 1, Last: uint64(len(events))}
			}
		})
		if s := h.router.IndexStats(); s.Blocks != 64*1000 {
			t.Errorf("a card of %d blocks: %+v", told, s)
		}
		if most := uint64(64 * 1000 * 8 * 26); got > most {
			t.Errorf("a card of %d blocks takes %d bytes, want no more than %d", told, got, most)
		}
		h.fleet.Close()
	}
}
