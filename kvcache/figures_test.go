package kvcache_test

import (
	"testing"
	"time"

	"github.com/dynago/dynago/kvcache"
)

// What is counted of pins, deadlines and sessions is what there is.
func TestFigures(t *testing.T) {
	o := kvcache.NewOrder(kvcache.PoolConfig{Eviction: kvcache.EvictRetention, PinBudget: 10, HardPins: true})
	for r := range kvcache.Ref(4) {
		o.Insert(r, kvcache.Root, 1)
	}
	want := func(what string, soft, hard int, expired int64) {
		t.Helper()
		if s, h := o.PinnedBlocks(); s != soft || h != hard || o.Expired() != expired {
			t.Errorf("%s: %d soft and %d hard pins, %d expired, want %d, %d and %d", what, s, h, o.Expired(), soft, hard, expired)
		}
	}
	o.Pin([]kvcache.Ref{0, 1}, kvcache.Pin{Owner: 7, TTL: time.Second})
	o.Pin([]kvcache.Ref{1, 2}, kvcache.Pin{Owner: 8, TTL: time.Minute, Hard: true})
	o.Retain(3, kvcache.Retention{Priority: 80, TTL: time.Second})
	want("pinned", 1, 2, 0)
	o.Hold(0)
	want("in use", 1, 2, 0)
	o.Release(0)
	o.Advance(2 * time.Second)
	want("a second later", 0, 2, 3)
	o.Remove(2)
	want("one removed", 0, 1, 3)
	o.Advance(time.Hour)
	want("an hour later", 0, 0, 4)

	o.OpenSession(7, kvcache.SessionOptions{Timeout: 24 * time.Hour})
	o.OpenSession(8, kvcache.SessionOptions{Timeout: 24 * time.Hour})
	o.BeginTurn(8, kvcache.SessionOptions{}, nil)
	o.Tag(7, []kvcache.Ref{0, 1})
	o.Tag(8, []kvcache.Ref{3})
	blocks := map[kvcache.SessionState]int{}
	o.EachSession(func(_ kvcache.SessionID, state kvcache.SessionState, n int) { blocks[state] += n })
	if blocks[kvcache.SessionIdle] != 2 || blocks[kvcache.SessionActive] != 1 {
		t.Errorf("blocks of sessions by state: %v", blocks)
	}
}
