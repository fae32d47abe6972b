package kvcache_test

import (
	"testing"
	"time"

	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/kvcache"
)

// depot is a plant whose disk holds the chain, with a device of so many slots of
// which prefetches may hold half.
func depot(t *testing.T, slots int) *plant {
	p := newPlant(t.Fatalf, [4]int{slots, 16, 16, 0}, kvcache.Config{
		BlockBytes: 100, PrefetchShare: 0.5,
		Ways: map[kvcache.Edge]kvcache.WayConfig{
			hostDevice: {Link: kvcache.LinkConfig{Bandwidth: 1000}, Batch: 1, Transfers: 1},
			diskHost:   {Batch: 1, Transfers: 1},
		},
	})
	p.put(kv.TierDisk, chain...)
	return p
}

func (p *plant) state(id kvcache.PrefetchID) kvcache.Prefetch {
	s, ok := p.r.Prefetched(id)
	if !ok {
		p.fatalf("prefetch %d is unknown", id)
	}
	return s
}

// Blocks that are there when a prefetch is asked for, and go before its deadline, are
// back by then.
func TestPrefetchOfWhatGoes(t *testing.T) {
	p := depot(t, 8)
	p.put(kv.TierHost, chain[:3]...)
	p.put(kv.TierDevice, chain[:3]...)
	s := p.r.Prefetch(0, kvcache.PrefetchRequest{Hashes: chain[:3:3], Target: kv.TierDevice, Deadline: 10 * time.Second})
	if want := (kvcache.Prefetch{ID: s.ID, Requested: 3, Already: 3}); s != want {
		t.Fatalf("%+v, want %+v", s, want)
	}
	refs, ok := p.device().Allocate(nil, 8)
	if !ok || p.device().Has(chain[0]) {
		t.Fatal("a flood has left something on the device")
	}
	p.device().Release(refs)
	at, ok := p.r.Next()
	if !ok || at >= 10*time.Second {
		t.Fatalf("the second step begins at %v, %v, which is too late", at, ok)
	}
	p.r.Advance(at)
	p.drain()
	if s := p.state(s.ID); s.State != kvcache.PrefetchDone || s.Loaded != 3 || !p.device().Has(chain[2]) {
		t.Errorf("%+v", s)
	}
}

func TestPrefetchThenRequest(t *testing.T) {
	p := depot(t, 16)
	p.put(kv.TierHost, 1, 2)
	p.put(kv.TierDevice, 1)
	s := p.r.Prefetch(0, kvcache.PrefetchRequest{Hashes: append(chain[:4:4], 9999), Target: kv.TierDevice, Deadline: 10 * time.Second})
	if want := (kvcache.Prefetch{ID: s.ID, Requested: 5, Already: 1, Scheduled: 3, Missing: 1}); s != want {
		t.Fatalf("%+v, want %+v", s, want)
	}
	for edges := p.step(); len(edges) > 0; edges = p.step() {
		for _, e := range edges {
			if e != diskHost {
				t.Fatalf("a block went over %s long before the deadline", e)
			}
		}
	}
	if !p.tiers[1].Has(8) || p.device().Has(2) {
		t.Fatal("after the first step blocks are not on the host, or on the device already")
	}
	// Three blocks of 100 bytes, and one that may have gone by then, at a quarter of
	// 1000 bytes/s, and half as much again.
	if at, ok := p.r.Next(); !ok || at != 10*time.Second-2400*time.Millisecond {
		t.Fatalf("the second step begins at %v, %v", at, ok)
	}
	p.drain()
	s = p.state(s.ID)
	if s.State != kvcache.PrefetchDone || s.Loaded != 3 || s.Failed != 0 {
		t.Fatalf("%+v", s)
	}
	if ref, _ := p.device().Pool().Find(8); p.device().Pool().Class(ref) != kvcache.SoftPinned {
		t.Error("what was prefetched is not pinned")
	}
	if got := p.r.PrefetchStats(); got.Unread != 3 || got.Blocks != [4]int64{3, 2} {
		t.Errorf("%+v", got)
	}
	before := p.stats(hostDevice).Blocks
	refs := p.device().Match(0, nil, chain[:4])
	if got := p.device().Pool().Class(refs[3]); got != kvcache.Plain {
		t.Errorf("after its use a block is still %s", got)
	}
	if _, n := p.load(chain[:4]); len(refs) != 4 || n != 0 || p.stats(hostDevice).Blocks != before {
		t.Errorf("the request found %d blocks and loads %d more", len(refs), n)
	}
	if got := p.r.PrefetchStats(); got.Unread != 0 || got.Wasted != 0 {
		t.Errorf("after the request: %+v", got)
	}
	p.device().Release(refs)
	p.now = 20*time.Second + 1
	p.r.Advance(p.now)
	if s := p.device().Pool().Stats(); s.Used() != 0 || s.Inactive != 4 {
		t.Errorf("the device ends as %+v", s)
	}
}

// TestRequestDuringPrefetch: it takes over what is under way and waits for the
// rest only.
func TestRequestDuringPrefetch(t *testing.T) {
	p := depot(t, 16)
	p.put(kv.TierHost, chain[:4]...)
	s := p.r.Prefetch(0, kvcache.PrefetchRequest{Hashes: chain[:4], Target: kv.TierDevice})
	p.step()
	p.step()
	if got := p.r.PrefetchStats(); got.Unread != 2 || got.Reserved != 2 {
		t.Errorf("half of it is there: %+v", got)
	}
	p.start()
	if x := p.under[0]; !x.Background {
		t.Fatal("a prefetch is not in the background")
	}
	if _, n := p.load(chain[:4]); n != 2 {
		t.Fatalf("the request waits for %d blocks, want 2", n)
	}
	if got := p.r.Promoted(); len(got) != 1 || got[0] != p.under[0].ID {
		t.Errorf("promoted %v, want %d", got, p.under[0].ID)
	}
	p.finish(p.under[0], nil)
	if p.start(); p.under[0].Background {
		t.Error("what someone waits for is still in the background")
	}
	p.drain()
	if got := p.stats(hostDevice); got.Blocks != 4 || len(p.loads) != 0 {
		t.Errorf("%+v, loads %v", got, p.loads)
	}
	if got := p.state(s.ID); got.State != kvcache.PrefetchDone {
		t.Errorf("%+v", got)
	}
	if got := p.r.PrefetchStats(); got.Unread != 0 {
		t.Errorf("the request has used two blocks before and two after they came: %+v", got)
	}
}

func TestDemandGoesFirst(t *testing.T) {
	p := depot(t, 16)
	p.put(kv.TierHost, chain[:3]...)
	p.put(kv.TierHost, 3)
	p.r.Prefetch(0, kvcache.PrefetchRequest{Hashes: chain[:3], Target: kv.TierDevice})
	p.load([]kv.SeqHash{1, 3})
	p.start()
	p.finish(p.under[0], nil)
	p.start()
	if got := p.under[0].Copies[0].Block.Hash; got != 3 {
		t.Errorf("block %d goes before what someone waits for", got)
	}
}

func TestPrefetchCancelled(t *testing.T) {
	p := depot(t, 16)
	p.put(kv.TierHost, chain[:4]...)
	s := p.r.Prefetch(0, kvcache.PrefetchRequest{Hashes: chain, Target: kv.TierDevice})
	p.start() // one to the device, one to the host
	if !p.r.CancelPrefetch(0, s.ID) || p.r.CancelPrefetch(0, s.ID) {
		t.Fatal("it could not be cancelled, or twice")
	}
	if s := p.device().Pool().Stats(); s.Mutable != 1 {
		t.Errorf("the device has %d slots reserved, want that which is being filled", s.Mutable)
	}
	p.drain()
	for _, k := range []kv.Tier{kv.TierDevice, kv.TierHost} {
		if s := p.tiers[k].Pool().Stats(); s.Used() != 0 {
			t.Errorf("the %s tier ends as %+v", k, s)
		}
	}
	if got := p.state(s.ID); got.State != kvcache.PrefetchCancelled || p.r.PrefetchStats().Reserved != 0 {
		t.Errorf("%+v, %+v", got, p.r.PrefetchStats())
	}
	if n := p.stats(hostDevice).Blocks + p.stats(diskHost).Blocks; n != 2 {
		t.Errorf("%d blocks were moved", n)
	}
}

func TestPrefetchExpires(t *testing.T) {
	p := depot(t, 16)
	p.put(kv.TierHost, chain[:4]...)
	s := p.r.Prefetch(0, kvcache.PrefetchRequest{Hashes: chain[:4], Target: kv.TierDevice, Deadline: time.Second, Lead: time.Second})
	p.step()
	p.now = time.Second
	p.r.Advance(p.now)
	if got := p.state(s.ID); got.State != kvcache.PrefetchExpired {
		t.Fatalf("%+v", got)
	}
	p.drain()
	if ref, ok := p.device().Pool().Find(1); !ok || p.device().Pool().Class(ref) != kvcache.Plain {
		t.Error("what came in time has gone, or is kept for longer than others")
	}
	if s := p.device().Pool().Stats(); s.Used() != 0 || s.Inactive != 1 {
		t.Errorf("the device ends as %+v", s)
	}
}

// TestPrefetchBudget: prefetches hold at most their share of the device, and take
// no slot from what somebody wants kept.
func TestPrefetchBudget(t *testing.T) {
	p := depot(t, 8)
	p.put(kv.TierHost, chain...)
	s := p.r.Prefetch(0, kvcache.PrefetchRequest{Hashes: chain, Target: kv.TierDevice})
	p.drain()
	if got := p.state(s.ID); got.State != kvcache.PrefetchDone || got.Loaded != 4 || p.r.PrefetchStats().Unread != 4 {
		t.Errorf("%+v, %+v", got, p.r.PrefetchStats())
	}
	p.device().Release(p.device().Match(0, nil, chain[:1])) // one is used: there is room for one more
	s = p.r.Prefetch(p.now, kvcache.PrefetchRequest{Hashes: chain, Target: kv.TierDevice})
	p.drain()
	if got := p.state(s.ID); got.Already != 4 || got.Loaded != 1 {
		t.Errorf("after one was used: %+v", got)
	}

	p = depot(t, 8)
	p.fill(0, kvcache.Retention{Priority: 60})
	s = p.r.Prefetch(0, kvcache.PrefetchRequest{Hashes: chain, Target: kv.TierDevice})
	p.drain()
	if got := p.state(s.ID); got.Loaded != 0 || p.device().Pool().Evictions() != [6]uint64{} {
		t.Errorf("%+v, and evicted %v", got, p.device().Pool().Evictions())
	}
}

func TestPrefetchWasted(t *testing.T) {
	p := depot(t, 8)
	p.put(kv.TierHost, chain...)
	p.r.Prefetch(0, kvcache.PrefetchRequest{Hashes: chain[:3], Target: kv.TierDevice})
	p.drain()
	p.device().Release(p.device().Match(0, nil, chain[:1]))
	refs, ok := p.device().Allocate(nil, 8) // breaks the pins
	if got := p.r.PrefetchStats(); !ok || got.Wasted != 2 || got.Unread != 0 {
		t.Errorf("two of three were never used: %+v", got)
	}
	p.device().Release(refs)
}

func TestPrefetchToHost(t *testing.T) {
	p := depot(t, 8)
	p.put(kv.TierHost, 1)
	s := p.r.Prefetch(0, kvcache.PrefetchRequest{Hashes: chain[:4], Target: kv.TierHost})
	if s.Already != 1 || s.Scheduled != 3 {
		t.Errorf("%+v", s)
	}
	p.step(kvcache.Lost)
	p.drain()
	if got := p.state(s.ID); got.State != kvcache.PrefetchDone || got.Loaded != 2 || got.Failed != 1 {
		t.Errorf("%+v", got)
	}
	if p.tiers[1].Has(2) || !p.tiers[1].Has(8) || p.device().Pool().Stats().Free != 8 {
		t.Error("the host has the wrong blocks, or the device any")
	}
	if got := p.r.PrefetchStats(); got.Blocks[kv.TierHost] != 2 || got.Failed[kv.TierHost] != 1 {
		t.Errorf("%+v", got)
	}
	p.load([]kv.SeqHash{1})
	p.drain()
	p.put(kv.TierHost, 2)
	p.load(chain[:3]) // uses 4, and 8 remains
	p.drain()
	p.tiers[1].Allocate(nil, 16)
	if got := p.r.PrefetchStats(); got.Wasted != 1 {
		t.Errorf("of two blocks on the host one was never used: %+v", got)
	}
}

// Prefetches for a time that is far away do not pile up, nor do they keep those out that
// are needed sooner.
func TestTooManyPrefetches(t *testing.T) {
	p := depot(t, 16)
	req := kvcache.PrefetchRequest{Hashes: chain[:2], Target: kv.TierDevice, Deadline: 1000 * time.Hour, Lead: time.Second}
	first := p.r.Prefetch(0, req)
	last := first
	n := 1
	for ; last.State == kvcache.PrefetchRunning && n < 5000; n++ {
		last = p.r.Prefetch(0, req)
	}
	if want := (kvcache.Prefetch{ID: last.ID, State: kvcache.PrefetchCancelled, Requested: 2, Missing: 2}); n != 1025 || last != want {
		t.Errorf("number %d is %+v, want %+v", n, last, want)
	}
	p.r.CancelPrefetch(0, first.ID)
	if got := p.r.Prefetch(0, req); got.State != kvcache.PrefetchRunning {
		t.Errorf("after one has ended: %+v", got)
	}
	later := req
	later.Deadline++
	if got := p.r.Prefetch(0, later); got.State != kvcache.PrefetchCancelled {
		t.Errorf("one that is needed later than all: %+v", got)
	}
	sooner := req
	sooner.Deadline--
	if got := p.r.Prefetch(0, sooner); p.state(got.ID).State != kvcache.PrefetchRunning {
		t.Errorf("one that is needed sooner: %+v", got)
	}
	soon := kvcache.PrefetchRequest{Hashes: chain[:2], Target: kv.TierDevice}
	for range 2000 {
		if got := p.r.Prefetch(0, soon); got.Scheduled != 2 || got.Missing != 0 {
			t.Fatalf("one that is needed soon: %+v", got)
		}
	}
}

// A tier that nothing is prefetched to stands for the host.
func TestPrefetchToTheDisk(t *testing.T) {
	p := depot(t, 16)
	id := p.r.Prefetch(0, kvcache.PrefetchRequest{Hashes: chain[:2], Target: kv.TierShared}).ID
	p.drain()
	if got := p.state(id); got.State != kvcache.PrefetchDone || !p.tiers[1].Has(chain[1]) {
		t.Errorf("%+v", got)
	}
}
