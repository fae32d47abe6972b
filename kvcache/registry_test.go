package kvcache_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/kvcache"
)

// plant is a registry together with what the caller of one has: the bytes in all
// slots, and transfers that take their time.
type plant struct {
	r      *kvcache.Registry
	tiers  [4]*kvcache.Tier
	bytes  [4][]kv.SeqHash // what lies in each slot
	under  []*kvcache.Transfer
	now    time.Duration
	events *kvcache.Consolidator
	folded *fold
	loads  map[kvcache.LoadID][]kv.SeqHash // promised
	bases  map[kvcache.LoadID][]kvcache.Ref
	clean  bool                      // nothing has failed so far
	pins   bool                      // somebody has pinned something
	closed bool                      // ways may be
	down   [4]bool                   // tiers that cannot be reached
	moved  map[kvcache.Edge][3]int64 // transfers, blocks that arrived and that did not
	fatalf func(string, ...any)
}

func newPlant(fatalf func(string, ...any), slots [4]int, cfg kvcache.Config) *plant {
	var pools [4]*kvcache.Pool
	for k, n := range slots {
		if n > 0 {
			pools[k] = kvcache.New(n)
		}
	}
	return newPlantOver(fatalf, pools, cfg)
}

func newPlantOver(fatalf func(string, ...any), pools [4]*kvcache.Pool, cfg kvcache.Config) *plant {
	return newPlantBeside(nil, fatalf, pools, cfg)
}

// newPlantBeside returns one that shares the shared tier of another, if that is not
// nil.
func newPlantBeside(other *plant, fatalf func(string, ...any), pools [4]*kvcache.Pool, cfg kvcache.Config) *plant {
	p := &plant{
		fatalf: fatalf, clean: true, folded: newFold(),
		events: kvcache.NewConsolidator(kvcache.ConsolidatorConfig{Epoch: 1}),
		loads:  map[kvcache.LoadID][]kv.SeqHash{}, bases: map[kvcache.LoadID][]kvcache.Ref{},
	}
	for k, pool := range pools {
		if pool != nil {
			p.tiers[k] = kvcache.NewTier(kv.Tier(k), pool)
			p.tiers[k].Listen(p.events)
			p.bytes[k] = make([]kv.SeqHash, pool.Stats().Total)
		}
	}
	if other != nil {
		p.tiers[3], p.bytes[3] = other.tiers[3], other.bytes[3]
		p.tiers[3].Listen(p.events)
	}
	cfg.Device, cfg.Host, cfg.Disk, cfg.Shared = p.tiers[0], p.tiers[1], p.tiers[2], p.tiers[3]
	var err error
	if p.r, err = kvcache.NewRegistry(cfg); err != nil {
		fatalf("%v", err)
	}
	return p
}

func (p *plant) device() *kvcache.Tier { return p.tiers[0] }

// compute does what a request does that has to compute its blocks: it returns
// references to all of them, or nil if there is no room.
func (p *plant) compute(seq []kv.SeqHash) []kvcache.Ref {
	refs := p.device().Match(0, nil, seq)
	found := len(refs)
	refs, ok := p.device().Allocate(refs, len(seq)-found)
	if !ok {
		p.device().Release(refs)
		return nil
	}
	for i := found; i < len(seq); i++ {
		parent := kvcache.Root
		if i > 0 {
			parent = refs[i-1]
		}
		p.bytes[0][refs[i]] = seq[i]
		p.device().Register(refs[i], numbered(seq[i]), parent)
	}
	p.r.WriteThrough(p.now, refs[found:])
	return refs
}

// start begins whatever is to be begun.
func (p *plant) start() {
	for _, x := range p.r.Start(nil, p.now) {
		for _, c := range x.Copies {
			if got := p.bytes[x.Edge.From][c.From]; got != c.Block.Hash {
				p.fatalf("transfer %d is to read block %d from %s slot %d, where %d lies", x.ID, c.Block.Hash, x.Edge.From, c.From, got)
			}
			if from := p.tiers[x.Edge.From].Pool(); x.Edge.From < x.Edge.To && !p.pins && from.Class(c.From) == kvcache.Ephemeral {
				p.fatalf("transfer %d writes block %d, which is ephemeral", x.ID, c.Block.Hash)
			}
			if s := p.tiers[x.Edge.To].Pool().State(c.To); s != kvcache.Mutable {
				p.fatalf("transfer %d is to fill %s slot %d, which is %s", x.ID, x.Edge.To, c.To, s)
			}
			for _, y := range p.under {
				for _, d := range y.Copies {
					if y.Edge.To == x.Edge.To && d.To == c.To {
						p.fatalf("%s slot %d is filled by transfers %d and %d", x.Edge.To, c.To, x.ID, y.ID)
					}
				}
			}
		}
		p.under = append(p.under, x)
	}
}

// finish ends a transfer, with faults or without.
func (p *plant) finish(x *kvcache.Transfer, faults []kvcache.Fault) {
	p.under = slices.DeleteFunc(p.under, func(y *kvcache.Transfer) bool { return x == y })
	for i, c := range x.Copies {
		if p.bytes[x.Edge.From][c.From] != c.Block.Hash {
			p.fatalf("%s slot %d was overwritten while transfer %d read block %d from it", x.Edge.From, c.From, x.ID, c.Block.Hash)
		}
		if faults == nil || faults[i] == kvcache.Arrived {
			p.bytes[x.Edge.To][c.To] = c.Block.Hash
		} else {
			p.clean = false
		}
	}
	if p.moved == nil {
		p.moved = map[kvcache.Edge][3]int64{}
	}
	counted := p.moved[x.Edge]
	counted[0]++
	for i := range x.Copies {
		if faults == nil || faults[i] == kvcache.Arrived {
			counted[1]++
		} else {
			counted[2]++
			p.closed = p.closed || faults[i] == kvcache.Unreachable
		}
	}
	p.moved[x.Edge] = counted
	p.r.Finish(p.now, x.ID, faults)
	p.settled()
}

// reach says what could be loaded after the leading blocks that are on the device
// already, if no tier was ever out of reach.
func (p *plant) reach(seq []kv.SeqHash, contiguous bool) (want kvcache.Reach) {
	least := 0
	for _, h := range seq {
		found := -1
		for k := 3; k >= least; k-- {
			if p.tiers[k] != nil && p.tiers[k].Has(h) {
				found = k
			}
		}
		if found < 0 {
			break
		}
		want.Blocks++
		want.From[found]++
		if contiguous {
			least = found
		}
	}
	return want
}

// settled takes the loads that have ended, checks them and gives them back.
func (p *plant) settled() {
	for _, l := range p.r.Loaded() {
		want, ok := p.loads[l.ID]
		if !ok || len(l.Refs) > len(want) || p.clean && len(l.Refs) < len(want) {
			p.fatalf("load %d ended with %d blocks of %d promised", l.ID, len(l.Refs), len(want))
		}
		for i, ref := range l.Refs {
			state := p.device().Pool().State(ref)
			held := state == kvcache.Primary || state == kvcache.Duplicate
			if p.bytes[0][ref] != want[i] || p.device().Pool().Hash(ref) != want[i] || !held {
				p.fatalf("load %d has block %d in slot %d for block %d, which is %s", l.ID, p.bytes[0][ref], ref, want[i], state)
			}
		}
		delete(p.loads, l.ID)
		p.device().Release(l.Refs)
		p.device().Release(p.bases[l.ID])
		delete(p.bases, l.ID)
	}
}

// load does what a request does first: it takes what the device has and loads
// what lies below.
func (p *plant) load(seq []kv.SeqHash) (id kvcache.LoadID, blocks int) {
	base := p.device().Match(0, nil, seq)
	under := kvcache.Root
	if len(base) > 0 {
		under = base[len(base)-1]
	}
	id, n, ok := p.r.Load(p.now, seq[len(base):], under)
	if !ok || n == 0 {
		p.device().Release(base)
		return 0, 0
	}
	p.loads[id], p.bases[id] = seq[len(base):][:n], base
	p.settled()
	return id, n
}

// drain lets everything that is under way end well.
func (p *plant) drain() {
	for {
		p.r.Advance(p.now)
		p.start()
		if len(p.under) > 0 {
			p.finish(p.under[0], nil)
			continue
		}
		at, ok := p.r.Next()
		if !ok {
			p.settled()
			return
		}
		p.now = max(p.now, at)
	}
}

// contents is what each tier holds.
func (p *plant) contents() (out [4]map[kv.SeqHash]bool) {
	for k := range out {
		out[k] = map[kv.SeqHash]bool{}
		if p.tiers[k] == nil {
			continue
		}
		p.tiers[k].SetDown(false) // to see what lies there
		defer p.tiers[k].SetDown(p.down[k])
		for run := range p.tiers[k].Pool().Chains() {
			for _, ref := range run {
				h := p.tiers[k].Pool().Hash(ref)
				if !p.tiers[k].Has(h) {
					continue // found to be wrong, and held by its children
				}
				if p.bytes[k][ref] != h {
					p.fatalf("%s slot %d is published as block %d and holds %d", kv.Tier(k), ref, h, p.bytes[k][ref])
				}
				out[k][h] = true
			}
		}
	}
	return out
}

// TestAnyHistoryOfTiers runs random histories: requests that compute, load,
// prefetch and give up, wishes, transfers that end in any order, with faults, tiers
// that fail and come back, and time. At no moment
// may a slot be read that holds something else, or be filled twice; a load gives
// exactly the blocks it promised unless something failed; the events fold to the
// contents of the tiers; and in the end nothing is held that nobody holds.
func TestAnyHistoryOfTiers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		slots := [4]int{
			rapid.IntRange(1, 10).Draw(t, "device"), rapid.IntRange(0, 8).Draw(t, "host"),
			rapid.IntRange(0, 12).Draw(t, "disk"), rapid.IntRange(0, 12).Draw(t, "shared"),
		}
		if slots[1] == 0 && slots[2] == 0 {
			slots[3] = 0
		}
		cfg := kvcache.Config{
			BlockBytes:    100,
			NoReadThrough: rapid.Bool().Draw(t, "no read-through"),
			Contiguous:    rapid.Bool().Draw(t, "contiguous"),
			PrefetchShare: rapid.SampledFrom([]float64{0.1, 0.5, 1}).Draw(t, "share"),
			Ways:          map[kvcache.Edge]kvcache.WayConfig{},
		}
		if slots[1] > 0 {
			cfg.Ways[kvcache.Edge{From: kv.TierDevice, To: kv.TierHost}] = kvcache.WayConfig{
				Transfers: rapid.IntRange(0, 2).Draw(t, "transfers"), Batch: rapid.IntRange(0, 2).Draw(t, "batch"), Queue: rapid.IntRange(0, 3).Draw(t, "queue"),
			}
			cfg.Ways[kvcache.Edge{From: kv.TierHost, To: kv.TierDevice}] = kvcache.WayConfig{Transfers: rapid.IntRange(0, 2).Draw(t, "transfers"), Batch: rapid.IntRange(0, 2).Draw(t, "batch")}
		}
		if rapid.Bool().Draw(t, "filter") {
			cfg.DiskFilter = kvcache.NewFrequencyFilter(4)
		}
		var pools [4]*kvcache.Pool
		for k, n := range slots {
			if n > 0 {
				pools[k] = kvcache.NewPool(kvcache.PoolConfig{Blocks: n, Reject: k >= 2, PinBudget: int64(k * n / 4)})
			}
		}
		p := newPlantOver(t.Fatalf, pools, cfg)
		sequence := rapid.Custom(func(t *rapid.T) []kv.SeqHash {
			var seq []kv.SeqHash
			h := kv.SeqHash(1)
			for range rapid.IntRange(1, 6).Draw(t, "depth") {
				seq = append(seq, h)
				h = h*2 + kv.SeqHash(rapid.IntRange(0, 1).Draw(t, "branch"))
			}
			return seq
		})
		for _, h := range rapid.SliceOfDistinct(rapid.IntRange(1, 15), rapid.ID).Draw(t, "blocks below") {
			k := rapid.IntRange(1, 3).Draw(t, "on tier")
			if tier := p.tiers[k]; tier != nil && tier.Pool().Stats().Free > 0 {
				p.put(kv.Tier(k), kv.SeqHash(h))
			}
		}
		calm := rapid.Bool().Draw(t, "nothing fails")
		var running [][]kvcache.Ref
		var prefetches []kvcache.PrefetchID
		t.Repeat(map[string]func(*rapid.T){
			"compute": func(t *rapid.T) {
				if refs := p.compute(sequence.Draw(t, "sequence")); refs != nil {
					running = append(running, refs)
				}
			},
			"end a request": func(t *rapid.T) {
				if len(running) > 0 {
					k := rapid.IntRange(0, len(running)-1).Draw(t, "which")
					p.device().Release(running[k])
					running = slices.Delete(running, k, k+1)
				}
			},
			"load":       func(t *rapid.T) { p.load(sequence.Draw(t, "sequence")) },
			"load again": func(t *rapid.T) { p.load(sequence.Draw(t, "sequence")) },
			"cancel a load": func(t *rapid.T) {
				if ids := slices.Sorted(maps.Keys(p.loads)); len(ids) > 0 {
					id := rapid.SampledFrom(ids).Draw(t, "which")
					if !p.r.Cancel(id) {
						t.Fatalf("load %d is unknown", id)
					}
					p.device().Release(p.bases[id])
					delete(p.loads, id)
					delete(p.bases, id)
					p.settled()
				}
			},
			"start":  func(*rapid.T) { p.start() },
			"start ": func(*rapid.T) { p.start() },
			"finish": func(t *rapid.T) {
				if len(p.under) > 0 {
					p.finish(rapid.SampledFrom(p.under).Draw(t, "which"), nil)
				}
			},
			"fail": func(t *rapid.T) {
				if calm || len(p.under) == 0 {
					return
				}
				x := rapid.SampledFrom(p.under).Draw(t, "which")
				faults := make([]kvcache.Fault, len(x.Copies))
				for i := range faults {
					faults[i] = kvcache.Fault(rapid.IntRange(0, 2).Draw(t, "fault"))
					if faults[i] == kvcache.Lost && x.Edge.From == kv.TierDevice {
						faults[i] = kvcache.Unreachable
					}
				}
				p.finish(x, faults)
			},
			"clear": func(t *rapid.T) {
				k := rapid.IntRange(0, 3).Draw(t, "which")
				if p.tiers[k] == nil || rapid.IntRange(0, 3).Draw(t, "seldom") > 0 {
					return
				}
				before := p.tiers[k].Pool().Stats()
				if n := p.tiers[k].Clear(); n != before.Inactive || p.tiers[k].Pool().Stats().Inactive != 0 {
					t.Fatalf("cleared %d of %+v, left %+v", n, before, p.tiers[k].Pool().Stats())
				}
			},
			"a tier fails or comes back": func(t *rapid.T) {
				if k := rapid.IntRange(1, 3).Draw(t, "which"); !calm && p.tiers[k] != nil {
					p.down[k] = !p.down[k]
					p.tiers[k].SetDown(p.down[k])
					p.clean = false
				}
			},
			"prefetch": func(t *rapid.T) {
				req := kvcache.PrefetchRequest{
					Hashes: sequence.Draw(t, "sequence"), Target: kv.Tier(rapid.IntRange(0, 1).Draw(t, "target")),
					Deadline: time.Duration(rapid.IntRange(0, 3).Draw(t, "deadline")) * time.Second,
					Lead:     time.Duration(rapid.IntRange(0, 2).Draw(t, "lead")) * time.Second,
				}
				if req.Deadline > 0 {
					req.Deadline += p.now
				}
				got := p.r.Prefetch(p.now, req)
				if got.Requested != len(req.Hashes) || got.Already+got.Scheduled+got.Missing != got.Requested {
					t.Fatalf("prefetch %+v", got)
				}
				prefetches = append(prefetches, got.ID)
				p.settled()
			},
			"cancel a prefetch": func(t *rapid.T) {
				if len(prefetches) > 0 {
					id := rapid.SampledFrom(prefetches).Draw(t, "which")
					before, _ := p.r.Prefetched(id)
					if p.r.CancelPrefetch(p.now, id) && before.State != kvcache.PrefetchRunning {
						t.Fatalf("prefetch %d was %s and could be cancelled", id, before.State)
					}
					p.settled()
				}
			},
			"wish": func(t *rapid.T) {
				tier := p.tiers[rapid.IntRange(0, 3).Draw(t, "tier")]
				if tier == nil {
					return
				}
				seq := sequence.Draw(t, "sequence")
				switch rapid.SampledFrom([]int{0, 1, 2, 2}).Draw(t, "what") {
				case 0:
					tier.Pool().SetRetention(seq, kvcache.Retention{Priority: uint8(rapid.IntRange(0, 100).Draw(t, "priority")), TTL: time.Duration(rapid.IntRange(0, 2).Draw(t, "ttl")) * time.Second})
				case 1:
					p.pins = true
					p.r.Pin(p.now, seq, kvcache.Pin{TTL: time.Duration(rapid.IntRange(0, 3).Draw(t, "ttl")) * time.Second})
				case 2:
					if ref, ok := tier.Pool().Find(seq[len(seq)-1]); ok {
						tier.Pool().SetEphemeral(ref)
					}
				}
			},
			"wait": func(t *rapid.T) {
				p.now += time.Duration(rapid.IntRange(0, 2000).Draw(t, "ms")) * time.Millisecond
				p.r.Advance(p.now)
				p.settled()
			},
			"": func(t *rapid.T) {
				p.events.Flush()
				batches, _ := p.events.Read(p.folded.at)
				p.folded.take(t, batches, nil)
				for k, want := range p.contents() {
					if !maps.Equal(p.folded.tiers[k], want) {
						t.Fatalf("events say that the %s tier holds %v, it holds %v", kv.Tier(k), p.folded.tiers[k], want)
					}
				}
				for _, w := range p.r.Ways() {
					if got := [3]int64{w.Transfers, w.Blocks, w.Failed}; got != p.moved[w.Edge] || w.Bytes != 100*w.Blocks {
						t.Fatalf("%s counts %+v, has moved %v", w.Edge, w, p.moved[w.Edge])
					}
				}
				seq := sequence.Draw(t, "reach")
				if got, want := p.r.Reach(p.now, seq), p.reach(seq, cfg.Contiguous); !p.closed && got != want {
					t.Fatalf("in reach of %v: %+v, want %+v", seq, got, want)
				}
				for _, id := range prefetches {
					if s, ok := p.r.Prefetched(id); !ok || s.Loaded+s.Failed > s.Requested {
						t.Fatalf("prefetch %+v, %v", s, ok)
					}
				}
				if s := p.r.PrefetchStats(); s.Unread < 0 || s.Reserved < 0 || float64(s.Unread+s.Reserved) > cfg.PrefetchShare*float64(slots[0]) {
					t.Fatalf("prefetches hold %+v of %d blocks", s, slots[0])
				}
			},
		})
		for _, refs := range running {
			p.device().Release(refs)
		}
		p.drain()
		if len(p.loads) > 0 {
			t.Fatalf("loads %v have never ended", p.loads)
		}
		for k, tier := range p.tiers {
			if tier != nil {
				if s := tier.Pool().Stats(); s.Used() > 0 {
					t.Fatalf("the %s tier ends as %+v", kv.Tier(k), s)
				}
			}
		}
		for _, w := range p.r.Ways() {
			if w.Moving > 0 || w.Waiting > 0 {
				t.Fatalf("%s ends as %+v", w.Edge, w)
			}
		}
	})
}

// TestRestore: what a tier holds at a start is found again, with what was asked
// for it, and goes in the order in which it was told.
func TestRestore(t *testing.T) {
	disk := kvcache.NewTier(kv.TierDisk, kvcache.New(3))
	events := kvcache.NewConsolidator(kvcache.ConsolidatorConfig{})
	disk.Listen(events)
	zero := time.Unix(1_000_000, 0)
	for i, priority := range []uint8{35, 90, 35, 35} {
		_, ok := disk.Restore(numbered(chain[i]), kvcache.Record{Priority: priority}, zero)
		if ok != (i < 3) {
			t.Errorf("block %d was restored: %v", chain[i], ok)
		}
	}
	if _, ok := disk.Restore(numbered(1), kvcache.NeutralRecord, zero); ok {
		t.Error("a block was restored twice")
	}
	if got := events.Flush(); len(got) != 1 || len(got[0].Blocks) != 3 {
		t.Errorf("told %+v", got)
	}
	for _, want := range []kv.SeqHash{4, 2, 1} { // leaves first
		if _, ok := disk.Allocate(nil, 1); !ok || disk.Has(want) {
			t.Errorf("block %d is still there", want)
		}
	}
}

// Two workers share a store: what one has computed the other one loads.
func Example_tiers() {
	store := kvcache.NewTier(kv.TierShared, kvcache.NewPool(kvcache.PoolConfig{Blocks: 100, Reject: true}))
	worker := func() (*kvcache.Tier, *kvcache.Registry, *kvcache.Carrier) {
		device := kvcache.NewTier(kv.TierDevice, kvcache.New(8))
		r, err := kvcache.NewRegistry(kvcache.Config{
			Device: device, Host: kvcache.NewTier(kv.TierHost, kvcache.New(16)), Shared: store,
			BlockBytes: 2 << 20,
			Ways: map[kvcache.Edge]kvcache.WayConfig{
				{From: kv.TierShared, To: kv.TierHost}: {Link: kvcache.LinkConfig{Bandwidth: 2 << 30}},
			},
		})
		if err != nil {
			panic(err)
		}
		return device, r, kvcache.NewCarrier(r)
	}
	prompt := []kvcache.Block{{Hash: 0xa}, {Hash: 0xb, Parent: 0xa}, {Hash: 0xc, Parent: 0xb}}

	device, r, carrier := worker()
	refs, _ := device.Allocate(nil, len(prompt))
	parent := kvcache.Root
	for i, b := range prompt {
		device.Register(refs[i], b, parent)
		parent = refs[i]
	}
	r.WriteThrough(0, refs)
	device.Release(refs)
	carrier.Advance(time.Second)

	_, r, carrier = worker()
	_, n, _ := r.Load(time.Second, []kv.SeqHash{0xa, 0xb, 0xc, 0xd}, kvcache.Root)
	fmt.Println("in reach:", n)
	at, _ := carrier.Next()
	carrier.Advance(at)
	for _, l := range r.Loaded() {
		fmt.Println("loaded:", len(l.Refs), "after", (at - time.Second).Round(time.Microsecond))
	}
	// Output:
	// in reach: 3
	// loaded: 3 after 2.93ms
}

// BenchmarkDevice is BenchmarkSequence by way of a tier and a registry of which
// nothing is asked: what a block costs an engine that has a device alone.
func BenchmarkDevice(b *testing.B) {
	const blocks, slots, half = 128, 100_000, 64
	device := kvcache.NewTier(kv.TierDevice, kvcache.New(slots))
	r, err := kvcache.NewRegistry(kvcache.Config{Device: device})
	if err != nil {
		b.Fatal(err)
	}
	seq := make([]kv.SeqHash, blocks)
	var refs []kvcache.Ref
	run := func(i int) {
		h := kv.SeqHash(i%512+1) << 32
		for k := range seq {
			if k == half {
				h = kv.SeqHash(i)<<20 | 1
			}
			h += 0x9e3779b97f4a7c15
			seq[k] = h
		}
		refs = device.Match(0, refs[:0], seq)
		found := len(refs)
		refs, _ = device.Allocate(refs, blocks-found)
		for k := found; k < blocks; k++ {
			parent, up := kvcache.Root, kv.SeqHash(0)
			if k > 0 {
				parent, up = refs[k-1], seq[k-1]
			}
			device.Register(refs[k], kvcache.Block{Hash: seq[k], Parent: up}, parent)
		}
		r.WriteThrough(0, refs[found:])
		device.Release(refs)
	}
	i := 0
	for ; i < 2*slots/half; i++ {
		run(i)
	}
	b.ReportAllocs()
	for b.Loop() {
		run(i)
		i++
	}
	b.ReportMetric(float64(b.N)*blocks/b.Elapsed().Seconds(), "blocks/s")
}

// BenchmarkTiers is the life of requests of 128 blocks, half of them shared, on a
// device of 10,000 blocks over a host of 20,000: what is gone from the device is
// loaded, the rest computed and written through, and events are told. It says
// what a block costs in all of this.
func BenchmarkTiers(b *testing.B) {
	const blocks, half = 128, 64
	p := newPlant(b.Fatalf, [4]int{10_000, 20_000, 0, 0}, kvcache.Config{BlockBytes: 1 << 20})
	c := kvcache.NewCarrier(p.r)
	seq := make([]kv.SeqHash, blocks)
	run := func(i int) {
		h := kv.SeqHash(i%256+1) << 32
		for k := range seq {
			if k == half {
				h = kv.SeqHash(i)<<20 | 1
			}
			h += 0x9e3779b97f4a7c15
			seq[k] = h
		}
		refs := p.device().Match(0, nil, seq)
		under := kvcache.Root
		if len(refs) > 0 {
			under = refs[len(refs)-1]
		}
		if _, n, _ := p.r.Load(p.now, seq[len(refs):], under); n > 0 {
			c.Advance(p.now)
			for _, l := range p.r.Loaded() {
				refs = append(refs, l.Refs...)
			}
		}
		found := len(refs)
		refs, _ = p.device().Allocate(refs, blocks-found)
		for k := found; k < blocks; k++ {
			parent, up := kvcache.Root, kv.SeqHash(0)
			if k > 0 {
				parent, up = refs[k-1], seq[k-1]
			}
			p.device().Register(refs[k], kvcache.Block{Hash: seq[k], Parent: up}, parent)
		}
		p.r.WriteThrough(p.now, refs[found:])
		c.Advance(p.now)
		p.device().Release(refs)
		p.events.Flush()
		p.now += time.Millisecond
	}
	i := 0
	for ; i < 1000; i++ {
		run(i)
	}
	b.ReportAllocs()
	for b.Loop() {
		run(i)
		i++
	}
	b.ReportMetric(float64(b.N)*blocks/b.Elapsed().Seconds(), "blocks/s")
}
