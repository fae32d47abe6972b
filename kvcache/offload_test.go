package kvcache_test

import (
	"slices"
	"testing"
	"time"

	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/kvcache"
)

var (
	deviceHost = kvcache.Edge{From: kv.TierDevice, To: kv.TierHost}
	deviceDisk = kvcache.Edge{From: kv.TierDevice, To: kv.TierDisk}
	hostDisk   = kvcache.Edge{From: kv.TierHost, To: kv.TierDisk}
	hostDevice = kvcache.Edge{From: kv.TierHost, To: kv.TierDevice}
	diskHost   = kvcache.Edge{From: kv.TierDisk, To: kv.TierHost}
	diskDevice = kvcache.Edge{From: kv.TierDisk, To: kv.TierDevice}
)

// stats returns what a way has counted.
func (p *plant) stats(e kvcache.Edge) kvcache.WayStats {
	for _, w := range p.r.Ways() {
		if w.Edge == e {
			return w
		}
	}
	p.fatalf("there is no way %s", e)
	return kvcache.WayStats{}
}

// skipped returns the reasons for which a way has skipped blocks, and how often.
func (p *plant) skipped(e kvcache.Edge) map[kvcache.Skip]int64 {
	out := map[kvcache.Skip]int64{}
	for reason, n := range p.stats(e).Skipped {
		if n > 0 {
			out[kvcache.Skip(reason)] = n
		}
	}
	return out
}

// only writes and publishes one block on the device.
func (p *plant) only(h kv.SeqHash) kvcache.Ref {
	refs, ok := p.device().Allocate(nil, 1)
	if !ok {
		p.fatalf("there is no room for block %d", h)
	}
	p.bytes[0][refs[0]] = h
	p.device().Register(refs[0], kvcache.Block{Hash: h, Local: content(h)}, kvcache.Root)
	return refs[0]
}

// TestSkipRules looks at each rule of what is not written, and at its place in
// the order: what holds of a block first is counted, and nothing else.
func TestSkipRules(t *testing.T) {
	low := kvcache.Retention{Priority: 10}
	high := kvcache.Retention{Priority: 90}
	for _, tt := range []struct {
		name  string
		edge  kvcache.Edge
		cfg   kvcache.Config
		setup func(p *plant, ref kvcache.Ref)
		want  map[kvcache.Skip]int64
		there bool // in the end
	}{
		{"nothing against it", deviceHost, kvcache.Config{}, func(*plant, kvcache.Ref) {}, nil, true},
		{
			"ephemeral, and forbidden, and of low priority", deviceHost,
			kvcache.Config{MinPriority: 50},
			func(p *plant, ref kvcache.Ref) { p.device().Pool().SetEphemeral(ref) },
			map[kvcache.Skip]int64{kvcache.SkipEphemeral: 1},
			false,
		},
		{
			"ephemeral, and present", deviceHost,
			kvcache.Config{},
			func(p *plant, ref kvcache.Ref) {
				p.r.WriteThrough(0, []kvcache.Ref{ref})
				p.drain()
				p.device().Pool().SetEphemeral(ref)
			},
			map[kvcache.Skip]int64{kvcache.SkipEphemeral: 1},
			true,
		},
		{
			"present, and forbidden", deviceHost,
			kvcache.Config{},
			func(p *plant, ref kvcache.Ref) {
				p.r.WriteThrough(0, []kvcache.Ref{ref})
				p.drain()
				p.device().Pool().SetSkipWrite(ref)
			},
			map[kvcache.Skip]int64{kvcache.SkipPresent: 1},
			true,
		},
		{
			"waiting, and under way", deviceHost,
			kvcache.Config{},
			func(p *plant, ref kvcache.Ref) {
				p.r.WriteThrough(0, []kvcache.Ref{ref})
				p.r.WriteThrough(0, []kvcache.Ref{ref})
				p.start()
			},
			map[kvcache.Skip]int64{kvcache.SkipPresent: 2},
			true,
		},
		{
			"forbidden, and of low priority", deviceHost,
			kvcache.Config{MinPriority: 50},
			func(p *plant, ref kvcache.Ref) {
				p.device().Pool().Retain(ref, low)
				p.device().Pool().SetSkipWrite(ref)
			},
			map[kvcache.Skip]int64{kvcache.SkipForbidden: 1},
			false,
		},
		{
			"of low priority, and not seen before", deviceDisk,
			kvcache.Config{MinPriority: 50, DiskFilter: kvcache.NewFrequencyFilter(0)},
			func(p *plant, ref kvcache.Ref) { p.device().Pool().Retain(ref, low) },
			map[kvcache.Skip]int64{kvcache.SkipPriority: 1},
			false,
		},
		{
			"of no known priority", deviceHost,
			kvcache.Config{MinPriority: 1},
			func(*plant, kvcache.Ref) {},
			map[kvcache.Skip]int64{kvcache.SkipPriority: 1},
			false,
		},
		{
			"not seen before, and no room", deviceDisk,
			kvcache.Config{DiskFilter: kvcache.NewFrequencyFilter(0)},
			func(p *plant, _ kvcache.Ref) { p.tiers[2].Allocate(nil, 4) },
			map[kvcache.Skip]int64{kvcache.SkipFrequency: 1},
			false,
		},
		{
			"seen before", deviceDisk,
			kvcache.Config{DiskFilter: kvcache.NewFrequencyFilter(0)},
			func(p *plant, ref kvcache.Ref) { p.r.WriteThrough(0, []kvcache.Ref{ref}) },
			map[kvcache.Skip]int64{kvcache.SkipFrequency: 1},
			true,
		},
		{
			"no room", deviceHost,
			kvcache.Config{},
			func(p *plant, _ kvcache.Ref) { p.tiers[1].Allocate(nil, 4) },
			map[kvcache.Skip]int64{kvcache.SkipSpace: 1},
			false,
		},
		{
			"no room but for what is worth more", deviceHost,
			kvcache.Config{},
			func(p *plant, _ kvcache.Ref) { p.fill(1, high) },
			map[kvcache.Skip]int64{kvcache.SkipSpace: 1},
			false,
		},
		{
			"room of what is worth less", deviceHost,
			kvcache.Config{},
			func(p *plant, _ kvcache.Ref) { p.fill(1, low) },
			nil,
			true,
		},
		{
			"too many wait", deviceHost,
			kvcache.Config{Ways: map[kvcache.Edge]kvcache.WayConfig{deviceHost: {Queue: 1}}},
			func(p *plant, _ kvcache.Ref) { p.r.WriteThrough(0, []kvcache.Ref{p.only(7)}) },
			map[kvcache.Skip]int64{kvcache.SkipOverflow: 1},
			false,
		},
		{
			"not reachable", deviceHost,
			kvcache.Config{},
			func(p *plant, _ kvcache.Ref) { p.tiers[1].SetDown(true) },
			map[kvcache.Skip]int64{kvcache.SkipDown: 1},
			false,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			slots := [4]int{8, 4, 0, 0}
			if tt.edge == deviceDisk {
				slots = [4]int{8, 0, 4, 0}
			}
			p := newPlant(t.Fatalf, slots, tt.cfg)
			ref := p.only(1)
			tt.setup(p, ref)
			p.r.WriteThrough(0, []kvcache.Ref{ref})
			p.drain()
			got := p.skipped(tt.edge)
			for reason := range kvcache.Skip(kvcache.Skips) {
				if got[reason] != tt.want[reason] {
					t.Errorf("%d skipped as %s, want %d", got[reason], reason, tt.want[reason])
				}
			}
			if _, there := p.tiers[tt.edge.To].Pool().Find(1); there != tt.there {
				t.Errorf("block 1 is on the %s tier: %v", tt.edge.To, there)
			}
		})
	}
}

// fill fills a tier with blocks of one retention that nobody uses.
func (p *plant) fill(tier int, r kvcache.Retention) {
	t := p.tiers[tier]
	refs, _ := t.Allocate(nil, t.Pool().Stats().Free)
	for i, ref := range refs {
		h := kv.SeqHash(1000*(tier+1) + i)
		p.bytes[tier][ref] = h
		t.Register(ref, kvcache.Block{Hash: h}, kvcache.Root)
		t.Pool().Retain(ref, r)
	}
	t.Release(refs)
}

func TestEvictedBeforeItsTurn(t *testing.T) {
	p := newPlant(t.Fatalf, [4]int{1, 4, 0, 0}, kvcache.Config{})
	ref := p.only(1)
	p.r.WriteThrough(0, []kvcache.Ref{ref})
	p.device().Release([]kvcache.Ref{ref})
	p.only(2)
	p.drain()
	if got := p.skipped(deviceHost); got[kvcache.SkipGone] != 1 || p.tiers[1].Has(1) {
		t.Errorf("skipped %v", got)
	}
}

func TestWriteOrder(t *testing.T) {
	p := newPlant(t.Fatalf, [4]int{8, 8, 0, 0}, kvcache.Config{
		Ways: map[kvcache.Edge]kvcache.WayConfig{deviceHost: {Transfers: 1, Batch: 2}},
	})
	for i, priority := range []uint8{35, 80, 35, 100, 10} {
		ref := p.only(kv.SeqHash(i + 1))
		p.device().Pool().Retain(ref, kvcache.Retention{Priority: priority})
		p.r.WriteThrough(0, []kvcache.Ref{ref})
	}
	var got [][]kv.SeqHash
	for p.start(); len(p.under) > 0; p.start() {
		if len(p.under) != 1 {
			t.Fatalf("%d transfers at a time", len(p.under))
		}
		var batch []kv.SeqHash
		for _, c := range p.under[0].Copies {
			batch = append(batch, c.Block.Hash)
		}
		got = append(got, batch)
		p.finish(p.under[0], nil)
	}
	if want := [][]kv.SeqHash{{4, 2}, {1, 3}, {5}}; !slices.EqualFunc(got, want, slices.Equal) {
		t.Errorf("written %v, want %v", got, want)
	}
}

// TestPriorityEndsARequest: from the first block below the threshold on, nothing
// of the request leaves the device.
func TestPriorityEndsARequest(t *testing.T) {
	p := newPlant(t.Fatalf, [4]int{8, 8, 0, 0}, kvcache.Config{MinPriority: 50})
	var run []kvcache.Ref
	for i, priority := range []uint8{80, 50, 49, 90} {
		ref := p.only(kv.SeqHash(i + 1))
		p.device().Pool().Retain(ref, kvcache.Retention{Priority: priority})
		run = append(run, ref)
	}
	p.r.WriteThrough(0, run)
	p.drain()
	for h, want := range map[kv.SeqHash]bool{1: true, 2: true, 3: false, 4: false} {
		if p.tiers[1].Has(h) != want {
			t.Errorf("block %d is on the host: %v", h, !want)
		}
	}
	p.r.WriteThrough(0, run[3:]) // another request
	p.drain()
	if !p.tiers[1].Has(4) {
		t.Error("block 4 by itself was not written")
	}
}

// TestWriteGoesOn: what has reached the host goes on to disk and shared store,
// and a block is never in a tier before it has arrived there.
func TestWriteGoesOn(t *testing.T) {
	p := newPlant(t.Fatalf, [4]int{4, 4, 4, 4}, kvcache.Config{})
	ref := p.only(1)
	p.device().Pool().Retain(ref, kvcache.Retention{Priority: 77})
	p.r.WriteThrough(0, []kvcache.Ref{ref})
	for _, want := range []uint8{0b0001, 0b0011} {
		if got := p.r.Present(1); got != want {
			t.Fatalf("present %04b, want %04b", got, want)
		}
		p.start()
		p.finish(p.under[0], nil)
	}
	p.drain()
	if got := p.r.Present(1); got != 0b1111 {
		t.Errorf("present %04b in the end", got)
	}
	for _, tier := range p.tiers {
		r, _ := tier.Pool().Find(1)
		if got := tier.Pool().Record(r, time.Time{}).Priority; got != 77 {
			t.Errorf("on the %s tier the block has priority %d, want 77", tier.Kind(), got)
		}
	}
}

// TestReadingSlotsAreKept: no slot is given away while it is read, and all are
// when that ends.
func TestReadingSlotsAreKept(t *testing.T) {
	p := newPlant(t.Fatalf, [4]int{2, 4, 0, 0}, kvcache.Config{})
	refs := []kvcache.Ref{p.only(1), p.only(2)}
	p.r.WriteThrough(0, refs)
	p.device().Release(refs)
	p.start()
	if _, ok := p.device().Allocate(nil, 1); ok {
		t.Fatal("a slot that is read was given away")
	}
	p.finish(p.under[0], nil)
	if _, ok := p.device().Allocate(nil, 2); !ok {
		t.Fatal("slots that were read are not free again")
	}
}

// TestErrorsCloseTheWay: after each error the way stays closed twice as long, up
// to half a minute, and after a success it is forgotten.
func TestErrorsCloseTheWay(t *testing.T) {
	p := newPlant(t.Fatalf, [4]int{16, 16, 0, 0}, kvcache.Config{
		Ways: map[kvcache.Edge]kvcache.WayConfig{deviceHost: {Transfers: 1, Batch: 1}},
	})
	var h kv.SeqHash
	attempt := func(f kvcache.Fault) {
		h++
		ref := p.only(h)
		p.r.WriteThrough(p.now, []kvcache.Ref{ref})
		p.device().Release([]kvcache.Ref{ref})
		if p.start(); len(p.under) != 1 {
			t.Fatalf("%d transfers at %v", len(p.under), p.now)
		}
		p.finish(p.under[0], []kvcache.Fault{f})
	}
	wait := func(want time.Duration) {
		t.Helper()
		refs := []kvcache.Ref{p.only(99)}
		p.r.WriteThrough(p.now, refs)
		p.start()
		at, ok := p.r.Next()
		if len(p.under) != 0 || !ok || at != p.now+want {
			t.Fatalf("%d transfers; the way opens at %v, %v, want %v later than %v", len(p.under), at, ok, want, p.now)
		}
		p.now = at - 1
		if p.start(); len(p.under) != 0 {
			t.Fatal("the way opened too early")
		}
		p.now = at
		p.start()
		p.finish(p.under[0], []kvcache.Fault{kvcache.Unreachable})
		p.device().Release(refs)
		p.device().Forget(99)
	}
	attempt(kvcache.Unreachable)
	for _, want := range []time.Duration{100, 200, 400, 800, 1600, 3200, 6400, 12800, 25600, 30000, 30000} {
		wait(want * time.Millisecond)
	}
	p.now += time.Minute
	attempt(kvcache.Arrived)
	attempt(kvcache.Unreachable)
	wait(100 * time.Millisecond)
	if got := p.stats(deviceHost); got.Failed != 14 || got.Blocks != 1 {
		t.Errorf("counted %+v", got)
	}
}

// TestPinOnlyOnTheDevice: a pin that the device has no budget for goes with the
// block to where it can be kept.
func TestPinOnlyOnTheDevice(t *testing.T) {
	host := kvcache.NewPool(kvcache.PoolConfig{Blocks: 4, PinBudget: 2})
	p := newPlantOver(t.Fatalf, [4]*kvcache.Pool{kvcache.New(8), host}, kvcache.Config{MinPriority: 100})
	seq := []kv.SeqHash{1, 2, 4}
	refs := p.compute(seq) // none is written: their priority is too low
	p.drain()
	if p.tiers[1].Has(1) {
		t.Fatal("written without a pin")
	}
	p.fill(1, kvcache.Retention{Priority: 90}) // worth more than they are, and less than a pin
	p.device().Pool().SetEphemeral(refs[2])
	p.pins = true
	p.r.Pin(p.now, seq, kvcache.Pin{TTL: 10 * time.Second})
	p.drain()
	for h, want := range map[kv.SeqHash]kvcache.Class{1: kvcache.SoftPinned, 2: kvcache.SoftPinned, 4: kvcache.Ephemeral} {
		ref, ok := host.Find(h)
		if !ok || host.Class(ref) != want {
			t.Errorf("block %d is on the host: %v, as %s, want %s", h, ok, host.Class(ref), want)
		}
	}
	p.device().Release(refs)
	p.fill(1, kvcache.Retention{Priority: 90})
	p.now += 10 * time.Second
	p.r.Advance(p.now)
	if ref, _ := host.Find(1); host.Class(ref) != kvcache.Plain {
		t.Errorf("the pin has not expired: %s", host.Class(ref))
	}
}

// TestPinNeedsItsParent: a block whose parent did not arrive is not pinned, nor is
// one that arrives too late.
func TestPinNeedsItsParent(t *testing.T) {
	host := kvcache.NewPool(kvcache.PoolConfig{Blocks: 4, PinBudget: 4})
	p := newPlantOver(t.Fatalf, [4]*kvcache.Pool{kvcache.New(8), host}, kvcache.Config{})
	p.compute([]kv.SeqHash{1, 2})
	p.r.Pin(p.now, []kv.SeqHash{1, 2}, kvcache.Pin{TTL: time.Minute})
	p.step(kvcache.Unreachable, kvcache.Arrived)
	if ref, ok := host.Find(2); !ok || host.Class(ref) != kvcache.Plain {
		t.Errorf("block 2 is there: %v, as %s", ok, host.Class(ref))
	}

	host = kvcache.NewPool(kvcache.PoolConfig{Blocks: 4, PinBudget: 4})
	p = newPlantOver(t.Fatalf, [4]*kvcache.Pool{kvcache.New(8), host}, kvcache.Config{})
	p.compute([]kv.SeqHash{1})
	p.r.Pin(p.now, []kv.SeqHash{1}, kvcache.Pin{TTL: time.Minute})
	p.start()
	p.now += time.Minute
	p.finish(p.under[0], nil)
	if ref, ok := host.Find(1); !ok || host.Class(ref) != kvcache.Plain {
		t.Errorf("block 1 is there too late: %v, as %s", ok, host.Class(ref))
	}
}

// TestUnpin: a TTL of 0 takes back also what has not arrived.
func TestUnpin(t *testing.T) {
	host := kvcache.NewPool(kvcache.PoolConfig{Blocks: 4, PinBudget: 4})
	p := newPlantOver(t.Fatalf, [4]*kvcache.Pool{kvcache.New(8), host}, kvcache.Config{})
	p.compute([]kv.SeqHash{1})
	p.r.Pin(p.now, []kv.SeqHash{1}, kvcache.Pin{TTL: time.Minute})
	p.r.Pin(p.now, []kv.SeqHash{1}, kvcache.Pin{})
	p.drain()
	if ref, ok := host.Find(1); !ok || host.Class(ref) != kvcache.Plain {
		t.Errorf("block 1 is there: %v, as %s", ok, host.Class(ref))
	}
	p.r.Pin(p.now, []kv.SeqHash{1}, kvcache.Pin{TTL: time.Minute})
	if ref, _ := host.Find(1); host.Class(ref) != kvcache.SoftPinned {
		t.Error("what lies on the host was not pinned at once")
	}
}

// TestPromotedBlocksAreWritten: an ephemeral block stays on the device until
// somebody else uses it, and is written then.
func TestPromotedBlocksAreWritten(t *testing.T) {
	p := newPlant(t.Fatalf, [4]int{4, 4, 0, 0}, kvcache.Config{})
	ref := p.only(1)
	p.device().Pool().SetEphemeral(ref)
	p.r.WriteThrough(0, []kvcache.Ref{ref})
	p.drain()
	if p.tiers[1].Has(1) {
		t.Fatal("an ephemeral block was written")
	}
	p.device().Release(p.device().Match(0, nil, []kv.SeqHash{1}))
	p.drain()
	if !p.tiers[1].Has(1) {
		t.Error("a block that others use was not written")
	}
}

// What is asked for a block while it is being copied goes with it.
func TestRetentionDuringATransfer(t *testing.T) {
	p := newPlant(t.Fatalf, [4]int{4, 4, 0, 0}, kvcache.Config{BlockBytes: 1})
	refs := p.compute(chain[:1])
	p.start()
	p.device().Pool().Retain(refs[0], kvcache.Retention{Priority: 80})
	p.finish(p.under[0], nil)
	if got := p.tiers[1].Pool().Record(p.onHost(1), time.Time{}); got.Priority != 80 {
		t.Errorf("on the host it is %+v", got)
	}
}

// What has become ephemeral while it waited pushes nothing out.
func TestEphemeralPushesNothingOut(t *testing.T) {
	p := newPlant(t.Fatalf, [4]int{4, 1, 0, 0}, kvcache.Config{BlockBytes: 1})
	p.put(kv.TierHost, 64)
	p.tiers[1].Pool().SetEphemeral(p.onHost(64))
	refs := p.compute(chain[:1])
	p.device().Pool().SetEphemeral(refs[0])
	p.start()
	if !p.tiers[1].Has(64) || len(p.under) > 0 || p.skipped(deviceHost)[kvcache.SkipEphemeral] != 1 {
		t.Errorf("%d transfers, skipped %v", len(p.under), p.skipped(deviceHost))
	}
}

// onHost returns the slot of a block there.
func (p *plant) onHost(h kv.SeqHash) kvcache.Ref {
	ref, ok := p.tiers[1].Pool().Find(h)
	if !ok {
		p.fatalf("block %d is not on the host", h)
	}
	return ref
}

// Of several who want a block pinned that is on its way each has a pin when it
// arrives, and of two wishes of one the longer holds.
func TestPinsOfSeveralOnTheDevice(t *testing.T) {
	p := newPlantOver(t.Fatalf, [4]*kvcache.Pool{kvcache.New(8), kvcache.NewPool(kvcache.PoolConfig{Blocks: 8, PinBudget: 8})}, kvcache.Config{BlockBytes: 1})
	refs := p.compute(chain[:1])
	for _, pin := range []kvcache.Pin{{Owner: 1, TTL: time.Hour}, {Owner: 1, TTL: time.Minute}, {Owner: 2, TTL: time.Second}, {Owner: 3, TTL: time.Hour}, {Owner: 3}} {
		p.r.Pin(0, chain[:1], pin)
	}
	p.drain()
	p.device().Release(refs)
	host := p.tiers[1].Pool()
	for _, owner := range []kvcache.SessionID{3, 2} {
		host.Unpin(chain[:1], owner)
	}
	host.Advance(time.Hour - 1)
	if got := host.Class(p.onHost(1)); got != kvcache.SoftPinned {
		t.Errorf("after nearly an hour the block is %s", got)
	}
	if n := host.Unpin(chain[:1], 1); n != 1 || host.Class(p.onHost(1)) != kvcache.Plain {
		t.Errorf("%d pins of the first, and the block is %s", n, host.Class(p.onHost(1)))
	}
}

// Wishes for blocks that have gone do not pile up.
func TestWishesAreForgotten(t *testing.T) {
	p := newPlant(t.Fatalf, [4]int{4, 0, 4, 0}, kvcache.Config{BlockBytes: 1})
	for h := range kv.SeqHash(10_000) {
		p.device().Release([]kvcache.Ref{p.only(h + 1)})
		p.r.Pin(0, []kv.SeqHash{h + 1}, kvcache.Pin{Owner: 1, TTL: 24 * time.Hour})
	}
	if n := p.r.Wishes(); n > 2048 {
		t.Errorf("%d wishes for 4 blocks", n)
	}
}
