package kvcache_test

import (
	"testing"
	"time"

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

// Whoever reads no more is told no more.
func TestUnlisten(t *testing.T) {
	tier := kvcache.NewTier(kv.TierShared, kvcache.New(4))
	stays, goes := kvcache.NewConsolidator(kvcache.ConsolidatorConfig{}), kvcache.NewConsolidator(kvcache.ConsolidatorConfig{})
	tier.Listen(stays)
	tier.Listen(goes)
	tier.Unlisten(goes)
	tier.Restore(numbered(1), kvcache.NeutralRecord, time.Time{})
	if stays.Len() != 1 || goes.Len() != 0 {
		t.Errorf("%d and %d blocks are known, want 1 and 0", stays.Len(), goes.Len())
	}
}

// A worker that dies takes nothing of the shared tier with it.
func TestClose(t *testing.T) {
	shared := kvcache.NewTier(kv.TierShared, kvcache.NewPool(kvcache.PoolConfig{Blocks: 8, Reject: true}))
	device := kvcache.NewTier(kv.TierDevice, kvcache.New(8))
	host := kvcache.NewTier(kv.TierHost, kvcache.New(8))
	r, err := kvcache.NewRegistry(kvcache.Config{Device: device, Host: host, Shared: shared, Ways: map[kvcache.Edge]kvcache.WayConfig{
		{From: kv.TierShared, To: kv.TierHost}: {Batch: 1, Transfers: 1},
	}})
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range chain[:4] {
		shared.Restore(numbered(h), kvcache.NeutralRecord, time.Time{})
	}
	for _, h := range []kv.SeqHash{3, 6} {
		host.Restore(numbered(h), kvcache.NeutralRecord, time.Time{})
	}
	r.Load(0, chain[:2], kvcache.Root)
	r.Prefetch(0, kvcache.PrefetchRequest{Hashes: chain[:4], Target: kv.TierHost})
	refs, _ := device.Allocate(nil, 1)
	device.Register(refs[0], numbered(3), kvcache.Root)
	r.WriteThrough(0, refs)
	for _, x := range r.Start(nil, 0) { // 3 is on the host: nothing but reads
		if x.Edge.From != kv.TierShared {
			t.Errorf("%s begins", x.Edge)
		}
	}
	refs, _ = device.Allocate(refs, 1)
	device.Register(refs[1], numbered(7), refs[0])
	r.WriteThrough(0, refs[1:])
	r.Finish(0, r.Start(nil, 0)[0].ID, nil) // 7 to the host, and from there on
	if s := shared.Pool().Stats(); len(r.Start(nil, 0)) != 1 || s.Used() == 0 {
		t.Fatalf("nothing is under way: %+v", s)
	}
	r.Close()
	device.Release(refs)
	for _, tier := range []*kvcache.Tier{device, host, shared} {
		if s := tier.Pool().Stats(); s.Used() != 0 {
			t.Errorf("the %s tier ends as %+v", tier.Kind(), s)
		}
	}
	if n := len(r.Start(nil, time.Hour)); n != 0 {
		t.Errorf("%d transfers begin after the end", n)
	}
}

// A block that was to be used once is told as gone when its last user lets go of it.
func TestUsedOnceIsToldAtOnce(t *testing.T) {
	tier := kvcache.NewTier(kv.TierHost, kvcache.New(2))
	events := kvcache.NewConsolidator(kvcache.ConsolidatorConfig{})
	tier.Listen(events)
	refs, _ := tier.Allocate(nil, 1)
	tier.Register(refs[0], numbered(1), kvcache.Root)
	tier.Pool().SetOnce(refs[0])
	events.Flush()
	tier.Release(refs)
	if got := events.Flush(); len(got) != 1 || got[0].Kind != kv.Removed {
		t.Errorf("told %+v", got)
	}
}
