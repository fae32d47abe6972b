package kvcache_test

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/kvcache"
)

// put lays blocks of a sequence onto a tier.
func (p *plant) put(tier kv.Tier, hashes ...kv.SeqHash) {
	t := p.tiers[tier]
	for _, h := range hashes {
		refs, ok := t.Allocate(nil, 1)
		if !ok {
			p.fatalf("no room for block %d on the %s tier", h, tier)
		}
		p.bytes[tier][refs[0]] = h
		ref, _ := t.Register(refs[0], numbered(h), kvcache.Root)
		t.Release([]kvcache.Ref{ref})
	}
}

// step starts what can start and ends it, and says over which ways it went.
func (p *plant) step(faults ...kvcache.Fault) (edges []kvcache.Edge) {
	p.start()
	for _, x := range slices.Clone(p.under) {
		edges = append(edges, x.Edge)
		f := faults
		if len(f) > 0 {
			f = slices.Grow(slices.Clone(f), len(x.Copies))[:len(x.Copies)]
		}
		p.finish(x, f)
	}
	return edges
}

var chain = []kv.SeqHash{1, 2, 4, 8, 16, 32, 64, 128}

func TestReach(t *testing.T) {
	lay := func(cfg kvcache.Config) *plant {
		p := newPlant(t.Fatalf, [4]int{8, 8, 8, 8}, cfg)
		p.put(kv.TierHost, 1, 8)
		p.put(kv.TierDisk, 1, 2, 8)
		p.put(kv.TierShared, 4, 16, 64)
		return p
	}
	for _, tt := range []struct {
		name string
		cfg  kvcache.Config
		down []kv.Tier
		want kvcache.Reach
	}{
		{"up and down the tiers", kvcache.Config{}, nil, kvcache.Reach{Blocks: 5, From: [4]int{0, 2, 1, 2}}},
		{"only down", kvcache.Config{Contiguous: true}, nil, kvcache.Reach{Blocks: 3, From: [4]int{0, 1, 1, 1}}},
		{"no host", kvcache.Config{}, []kv.Tier{kv.TierHost}, kvcache.Reach{Blocks: 5, From: [4]int{0, 0, 3, 2}}},
		{"no disk", kvcache.Config{}, []kv.Tier{kv.TierDisk}, kvcache.Reach{Blocks: 1, From: [4]int{0, 1, 0, 0}}},
		{"nothing below", kvcache.Config{}, []kv.Tier{kv.TierHost, kv.TierDisk, kv.TierShared}, kvcache.Reach{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := lay(tt.cfg)
			for _, k := range tt.down {
				p.tiers[k].SetDown(true)
			}
			if got := p.r.Reach(0, chain); got != tt.want {
				t.Errorf("%+v, want %+v", got, tt.want)
			}
			if _, n := p.load(chain); n != tt.want.Blocks {
				t.Errorf("a load promises %d blocks", n)
			}
			p.drain()
			if got := p.device().Pool().Stats().Inactive; got != tt.want.Blocks {
				t.Errorf("the device has %d blocks in the end", got)
			}
		})
	}
}

// TestReadThrough: what comes from below the host stays there on its way, but not
// where that is not wished, where it will not be wanted again, where there is no
// room, or from where it could not be read.
func TestReadThrough(t *testing.T) {
	for _, tt := range []struct {
		name  string
		cfg   kvcache.Config
		setup func(p *plant)
		want  []kvcache.Edge
	}{
		{"as a rule", kvcache.Config{}, func(*plant) {}, []kvcache.Edge{diskHost, hostDevice}},
		{"not wished", kvcache.Config{NoReadThrough: true}, func(*plant) {}, []kvcache.Edge{diskDevice}},
		{"ephemeral", kvcache.Config{}, func(p *plant) {
			r, _ := p.tiers[2].Pool().Find(1)
			p.tiers[2].Pool().SetEphemeral(r)
		}, []kvcache.Edge{diskDevice}},
		{"no room", kvcache.Config{}, func(p *plant) { p.tiers[1].Allocate(nil, 4) }, []kvcache.Edge{diskDevice}},
		{"room of what is worth more", kvcache.Config{}, func(p *plant) { p.fill(1, kvcache.Retention{Priority: 90}) }, []kvcache.Edge{diskDevice}},
		{"no host", kvcache.Config{}, func(p *plant) { p.tiers[1].SetDown(true) }, []kvcache.Edge{diskDevice}},
		{"a host that could not be read", kvcache.Config{}, func(p *plant) {
			p.put(kv.TierHost, 3)
			p.load([]kv.SeqHash{3})
			p.step(kvcache.Unreachable)
		}, []kvcache.Edge{diskDevice}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := newPlant(t.Fatalf, [4]int{4, 4, 4, 0}, tt.cfg)
			p.put(kv.TierDisk, 1)
			tt.setup(p)
			p.load(chain[:1])
			var got []kvcache.Edge
			for edges := p.step(); len(edges) > 0; edges = p.step() {
				got = append(got, edges...)
			}
			if !slices.Equal(got, tt.want) || !p.device().Has(1) {
				t.Errorf("went over %v, want %v", got, tt.want)
			}
			if through := len(tt.want) == 2; p.tiers[1].Has(1) != through {
				t.Errorf("the host has it: %v", !through)
			}
		})
	}
}

// TestLoadsShare: two that want the same block load it once, and if the first one
// gives up the second one still gets it.
func TestLoadsShare(t *testing.T) {
	for _, cancel := range []string{"nobody", "before it began", "while under way", "when it had arrived"} {
		t.Run(cancel+" gives up", func(t *testing.T) {
			p := newPlant(t.Fatalf, [4]int{8, 8, 0, 0}, kvcache.Config{
				Ways: map[kvcache.Edge]kvcache.WayConfig{hostDevice: {Batch: 1}},
			})
			p.put(kv.TierHost, chain[:3]...)
			first, _ := p.load(chain[:3])
			second, n := p.load(chain[:3])
			if n != 3 {
				t.Fatalf("the second one is promised %d blocks", n)
			}
			if got := p.device().Pool().Stats().Mutable; got != 3 {
				t.Errorf("both hold %d slots", got)
			}
			giveUp := func(at string) {
				if cancel == at {
					p.r.Cancel(first)
					delete(p.loads, first)
				}
			}
			giveUp("before it began")
			p.start()
			giveUp("while under way")
			p.finish(p.under[2], nil) // the last block first: it cannot be published yet
			giveUp("when it had arrived")
			p.drain()
			if p.loads[second] != nil || p.loads[first] != nil {
				t.Error("a load has not ended")
			}
			s := p.stats(hostDevice)
			if s.Blocks != 3 || p.r.LoadStats().Adopted != 3 {
				t.Errorf("%d blocks were loaded, %d shared", s.Blocks, p.r.LoadStats().Adopted)
			}
			if s := p.device().Pool().Stats(); s.Inactive != 3 || s.Used() != 0 {
				t.Errorf("the device ends as %+v", s)
			}
		})
	}
}

// TestCancelledForNothing: what nobody waits for any more does not begin, and who
// comes while it is under way gets it.
func TestCancelledForNothing(t *testing.T) {
	p := newPlant(t.Fatalf, [4]int{8, 8, 8, 0}, kvcache.Config{})
	p.put(kv.TierDisk, chain[:3]...)
	id, _ := p.load(chain[:3])
	p.r.Cancel(id)
	delete(p.loads, id)
	if edges := p.step(); len(edges) > 0 || p.device().Pool().Stats().Free != 8 || p.tiers[1].Pool().Stats().Free != 8 {
		t.Errorf("went over %v for nobody", edges)
	}
	if p.r.Cancel(id) {
		t.Error("cancelled twice")
	}

	p.put(kv.TierHost, chain[:3]...)
	id, _ = p.load(chain[:3])
	p.start()
	p.r.Cancel(id)
	delete(p.loads, id)
	p.load(chain[:2])
	p.drain()
	if got := p.stats(hostDevice); len(p.loads) > 0 || got.Blocks != 3 || p.device().Has(4) || !p.device().Has(2) {
		t.Errorf("%+v, loads %v", got, p.loads)
	}
	if s := p.device().Pool().Stats(); s.Used() != 0 {
		t.Errorf("the device ends as %+v", s)
	}
}

// TestLoadsShareAFailure: when what two wait for is lost, both look elsewhere.
func TestLoadsShareAFailure(t *testing.T) {
	for _, elsewhere := range []bool{false, true} {
		p := newPlant(t.Fatalf, [4]int{8, 8, 8, 0}, kvcache.Config{})
		p.put(kv.TierHost, chain[:2]...)
		if elsewhere {
			p.put(kv.TierDisk, chain[:2]...)
		}
		p.load(chain[:2])
		p.load(chain[:2])
		p.step(kvcache.Arrived, kvcache.Lost)
		p.drain()
		if len(p.loads) > 0 || p.device().Has(2) != elsewhere || p.device().Pool().Stats().Used() != 0 {
			t.Errorf("loads %v, the device has the block: %v, and ends as %+v", p.loads, p.device().Has(2), p.device().Pool().Stats())
		}
	}
}

// TestLostBlocks: a load ends before the first block that no tier can give, and
// what was wrong is never found again.
func TestLostBlocks(t *testing.T) {
	lost := []kvcache.Fault{kvcache.Arrived, kvcache.Lost, kvcache.Arrived}
	p := newPlant(t.Fatalf, [4]int{8, 8, 8, 0}, kvcache.Config{})
	p.put(kv.TierHost, chain[:3]...)
	id, _ := p.load(chain[:3])
	p.step(lost...)
	if p.loads[id] != nil || !p.device().Has(1) || p.device().Has(2) || p.device().Has(4) {
		t.Errorf("the device has block 1: %v, 2: %v, 4: %v", p.device().Has(1), p.device().Has(2), p.device().Has(4))
	}
	if p.tiers[1].Has(2) || !p.tiers[1].Has(4) {
		t.Error("the host has the block still, or has lost others")
	}
	if got := p.r.LoadStats(); got.Truncated != 1 {
		t.Errorf("%+v", got)
	}
	if s := p.device().Pool().Stats(); s.Used() != 0 {
		t.Errorf("the device ends as %+v", s)
	}
	if got := p.r.Reach(p.now, chain[1:3]); got.Blocks != 0 {
		t.Errorf("the lost block is in reach: %+v", got)
	}

	p = newPlant(t.Fatalf, [4]int{8, 8, 8, 0}, kvcache.Config{})
	p.put(kv.TierHost, chain[:3]...)
	p.put(kv.TierDisk, chain[:3]...)
	p.load(chain[:3])
	p.step(lost...)
	p.drain()
	if !p.device().Has(4) || p.r.LoadStats().Truncated != 0 {
		t.Errorf("the disk did not help out: %+v", p.r.LoadStats())
	}
}

// TestUnreachableTier: nothing is asked of a tier for a while after it could not
// be reached, and what it holds is not forgotten.
func TestUnreachableTier(t *testing.T) {
	p := newPlant(t.Fatalf, [4]int{8, 0, 8, 0}, kvcache.Config{})
	p.put(kv.TierDisk, chain[:2]...)
	p.load(chain[:2])
	p.step(kvcache.Arrived, kvcache.Unreachable)
	if got := p.r.Reach(p.now, chain[1:2]); got.Blocks != 0 {
		t.Errorf("in reach: %+v", got)
	}
	p.now += 100 * time.Millisecond
	if got := p.r.Reach(p.now, chain[1:2]); got.Blocks != 1 {
		t.Errorf("in reach later: %+v", got)
	}
}

// TestNothingIsPushedOut: a block that is lifted to the host does not take the
// place of one that is to be loaded from there.
func TestNothingIsPushedOut(t *testing.T) {
	p := newPlant(t.Fatalf, [4]int{4, 1, 4, 0}, kvcache.Config{})
	p.put(kv.TierDisk, 1)
	p.put(kv.TierHost, 2)
	if _, n := p.load(chain[:2]); n != 2 {
		t.Fatalf("%d blocks promised", n)
	}
	p.drain()
	if !p.device().Has(2) {
		t.Error("a block was pushed out before it was loaded")
	}
}

// TestNoRoom: a load that the device has no slots for changes nothing.
func TestNoRoom(t *testing.T) {
	p := newPlant(t.Fatalf, [4]int{2, 8, 0, 0}, kvcache.Config{})
	p.put(kv.TierHost, chain[:3]...)
	before := p.device().Pool().Stats()
	if _, n, ok := p.r.Load(0, chain[:3], kvcache.Root); ok || n != 3 || p.device().Pool().Stats() != before {
		t.Errorf("%d blocks, %v, device %+v", n, ok, p.device().Pool().Stats())
	}
}

// TestSharedTier: what one worker has written another one loads, with what was
// asked for it, and both tell of it.
func TestSharedTier(t *testing.T) {
	shared := kvcache.NewTier(kv.TierShared, kvcache.NewPool(kvcache.PoolConfig{Blocks: 8, Reject: true}))
	bytes := make([]kv.SeqHash, 8)
	worker := func() *plant {
		p := newPlantOver(t.Fatalf, [4]*kvcache.Pool{kvcache.New(4), kvcache.New(4)}, kvcache.Config{})
		p.tiers[3], p.bytes[3] = shared, bytes
		shared.Listen(p.events)
		var err error
		if p.r, err = kvcache.NewRegistry(kvcache.Config{Device: p.tiers[0], Host: p.tiers[1], Shared: shared}); err != nil {
			t.Fatal(err)
		}
		return p
	}
	a, b := worker(), worker()
	refs := a.compute(chain[:3])
	a.device().Pool().Retain(refs[0], kvcache.Retention{Priority: 88})
	a.drain()
	if _, n := b.load(chain[:4]); n != 3 {
		t.Fatalf("the other worker is promised %d blocks", n)
	}
	b.drain()
	ref, ok := b.device().Pool().Find(1)
	if got := b.device().Pool().Record(ref, time.Time{}).Priority; !ok || got != 88 {
		t.Errorf("there it has priority %d, want 88", got)
	}
	for _, p := range []*plant{a, b} {
		stored := 0
		for _, e := range p.events.Flush() {
			if e.Tier == kv.TierShared && e.Kind == kv.Stored {
				stored += len(e.Blocks)
			}
		}
		if stored != 3 {
			t.Errorf("told of %d blocks in the shared tier", stored)
		}
	}

	// Both compute the same at the same time: the store keeps one.
	a.compute([]kv.SeqHash{1, 3})
	b.compute([]kv.SeqHash{1, 3})
	for range 2 {
		a.step()
		b.start()
	}
	b.drain()
	a.drain()
	if s := shared.Pool().Stats(); s.Inactive != 4 || s.Free != 4 {
		t.Errorf("the store ends as %+v", s)
	}
}

func TestLoadTime(t *testing.T) {
	link := func(rate float64, latency time.Duration) kvcache.WayConfig {
		return kvcache.WayConfig{Link: kvcache.LinkConfig{Bandwidth: rate, Latency: latency}}
	}
	cfg := kvcache.Config{BlockBytes: 100, Ways: map[kvcache.Edge]kvcache.WayConfig{
		hostDevice: link(1000, time.Second), diskHost: link(100, 0), diskDevice: link(50, 0),
	}}
	reach := kvcache.Reach{Blocks: 3, From: [4]int{0, 1, 2, 0}}
	p := newPlant(t.Fatalf, [4]int{4, 4, 4, 0}, cfg)
	if got, want := p.r.LoadTime(reach), 2*time.Second+1300*time.Millisecond; got != want {
		t.Errorf("through the host %v, want %v", got, want)
	}
	cfg.NoReadThrough = true
	p = newPlant(t.Fatalf, [4]int{4, 4, 4, 0}, cfg)
	if got, want := p.r.LoadTime(reach), 4*time.Second+1100*time.Millisecond; got != want {
		t.Errorf("past the host %v, want %v", got, want)
	}
}

func TestRegistryRefuses(t *testing.T) {
	tier := func(k kv.Tier) *kvcache.Tier { return kvcache.NewTier(k, kvcache.New(1)) }
	link := func(l kvcache.LinkConfig) kvcache.Config {
		return kvcache.Config{Device: tier(kv.TierDevice), Host: tier(kv.TierHost), Ways: map[kvcache.Edge]kvcache.WayConfig{hostDevice: {Link: l}}}
	}
	for name, cfg := range map[string]kvcache.Config{
		"no device":              {Host: tier(kv.TierHost)},
		"a store and no more":    {Device: tier(kv.TierDevice), Shared: tier(kv.TierShared)},
		"a tier in wrong place":  {Device: tier(kv.TierDevice), Host: tier(kv.TierDisk)},
		"a way that is not":      {Device: tier(kv.TierDevice), Host: tier(kv.TierHost), Ways: map[kvcache.Edge]kvcache.WayConfig{deviceDisk: {}}},
		"a way past the host":    {Device: tier(kv.TierDevice), Host: tier(kv.TierHost), Disk: tier(kv.TierDisk), Ways: map[kvcache.Edge]kvcache.WayConfig{deviceDisk: {}}},
		"blocks of minus a byte": {Device: tier(kv.TierDevice), BlockBytes: -1},
		"priorities above all":   {Device: tier(kv.TierDevice), MinPriority: 101},
		"more than all":          {Device: tier(kv.TierDevice), PrefetchShare: 1.1},
		"a share of nothing":     {Device: tier(kv.TierDevice), PrefetchShare: math.NaN()},
		"no bandwidth":           link(kvcache.LinkConfig{Bandwidth: math.NaN()}),
		"all bandwidth":          link(kvcache.LinkConfig{Bandwidth: math.Inf(1)}),
		"a background in front":  link(kvcache.LinkConfig{Background: 2}),
		"a latency below 0":      link(kvcache.LinkConfig{Latency: -1}),
	} {
		if _, err := kvcache.NewRegistry(cfg); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
