package kvcache_test

import (
	"testing"

	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/kvcache"
)

// What was prefetched and is cleared away is unread no more, and what prefetches
// may hold is free again.
func TestClearedBeforeItWasRead(t *testing.T) {
	p := depot(t, 8)
	prefetch := func() {
		p.r.Prefetch(p.now, kvcache.PrefetchRequest{Hashes: chain[:4], Target: kv.TierDevice})
		p.drain()
		if got := p.r.PrefetchStats(); got.Unread != 4 {
			t.Fatalf("%+v, want 4 blocks unread", got)
		}
	}
	prefetch()
	if n := p.device().Clear(); n != 4 {
		t.Fatalf("cleared %d blocks", n)
	}
	if got := p.r.PrefetchStats(); got.Unread != 0 || got.Wasted != 4 {
		t.Errorf("after the device was cleared: %+v", got)
	}
	prefetch()
}

// A block of the device that has turned out to be wrong, and is still in someone's
// hands, is loaded for others into a slot of its own.
func TestLostOnTheDevice(t *testing.T) {
	p := newPlant(t.Fatalf, [4]int{4, 4, 0, 0}, kvcache.Config{BlockBytes: 1})
	p.put(kv.TierDevice, 9, 1)
	p.put(kv.TierHost, 1, 2)
	held := p.device().Match(0, nil, chain[:1])
	p.device().Forget(1)
	if _, n := p.load(chain[:2]); n != 2 {
		t.Fatalf("%d blocks are in reach, want 2", n)
	}
	p.drain()
	p.device().Release(held)
	if s := p.device().Pool().Stats(); s.Used() != 0 {
		t.Errorf("the device ends as %+v", s)
	}
}
