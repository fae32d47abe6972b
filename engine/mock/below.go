package mock

import (
	"fmt"
	"slices"
	"time"

	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/kvcache"
	"github.com/dynago/dynago/kvcache/carry"
)

// below is what lies below the device of a core: tiers, what is on its way between
// them, and the one stream of events that all of them make.
type below struct {
	registry *kvcache.Registry
	carrier  carrier
	events   *kvcache.Consolidator
	device   *kvcache.Tier
	lower    []*kvcache.Tier
	shared   *Shared
	disk     *kvcache.Tier // the core's own, which survives it; or nil

	loads   map[kvcache.LoadID]*request // that are parked
	written []run                       // sealed in the last pass, to be offered when it is over

	// contents are the tokens of all blocks on any tier, if the core reports.
	contents map[kv.SeqHash]Store

	bytes *Bytes // or nil
}

// carrier carries out what a registry wants to move: in virtual time, or really.
type carrier interface {
	Advance(now time.Duration)
	Next() (at time.Duration, ok bool)
}

// run is blocks of the device that follow each other.
type run []kvcache.Ref

// newBelow returns the tiers of the arguments, over a device. A disk of an earlier
// life goes on. Where blocks have bytes, these are really moved.
func newBelow(a *Args, device *kvcache.Pool, s *Shared, disk *kvcache.Tier, bytes *Bytes) *below {
	b := &below{
		bytes:  bytes,
		device: kvcache.NewTier(kv.TierDevice, device), shared: s, loads: map[kvcache.LoadID]*request{},
		events: kvcache.NewConsolidator(kvcache.ConsolidatorConfig{Batches: 1}), // who reads them keeps them
	}
	tiers := [...]*kvcache.Tier{kv.TierDevice: b.device, kv.TierHost: nil, kv.TierDisk: disk, kv.TierShared: nil}
	if s != nil && s.disk != nil && a.DiskShared {
		tiers[kv.TierDisk] = s.disk
	}
	if s != nil && a.Tiers()[kv.TierShared] > 0 {
		tiers[kv.TierShared] = s.store
	}
	for k, blocks := range a.Tiers() {
		if k := kv.Tier(k); blocks > 0 && tiers[k] == nil {
			tiers[k] = kvcache.NewTier(k, kvcache.NewPool(a.pool(k)))
		}
	}
	if disk := tiers[kv.TierDisk]; s == nil || disk != s.disk {
		b.disk = disk
	}
	cfg := kvcache.Config{
		Device: b.device, Host: tiers[kv.TierHost], Disk: tiers[kv.TierDisk], Shared: tiers[kv.TierShared],
		BlockBytes: a.BlockBytes(), Ways: a.ways(), MinPriority: uint8(a.OffloadMinPriority),
		NoReadThrough: !a.ReadThrough, Zero: bytes.start(),
	}
	if a.DiskFilter {
		cfg.DiskFilter = kvcache.NewFrequencyFilter(0)
	}
	var err error
	if b.registry, err = kvcache.NewRegistry(cfg); err != nil {
		panic(fmt.Sprintf("mock: tiers of valid arguments: %v", err))
	}
	b.carrier = bytes.carrier(b.registry)
	for _, t := range tiers {
		if t == nil {
			continue
		}
		t.Listen(b.events)
		if t != b.device {
			b.lower = append(b.lower, t)
		}
	}
	return b
}

// end lets go of everything that others have too.
func (b *below) end(now time.Duration) {
	if c, ok := b.carrier.(*carry.Carrier); ok {
		c.Close() // before slots that it writes are given to others
	}
	b.registry.Abandon(now)
	for _, t := range b.lower {
		t.Ignore(b.events)
	}
}

// Restart ends a core, as a crash does, and returns that of the next life: what was
// in memory is gone, and what lay on a disk or is shared is still there.
func (c *Core) Restart(now time.Duration) *Core {
	c.Close(now)
	if c.below == nil {
		return c.next(nil, nil)
	}
	next := c.next(c.below.shared, c.below.disk)
	next.below.contents = c.below.contents
	next.forgetContents()
	return next
}

// next returns a core like this one, with nothing in it.
func (c *Core) next(s *Shared, disk *kvcache.Tier) *Core {
	next := newCore(c.args, s, disk, c.bytes)
	next.reports = c.reports
	return next
}

// Close lets go of everything, for ever. Others go on with what they share with the
// core.
func (c *Core) Close(now time.Duration) {
	if c.below == nil {
		return
	}
	for _, r := range c.slots {
		c.drop(r)
	}
	c.below.end(max(now, c.end))
	c.below.remember()
}

// advance lets everything happen that has happened below until now. What the last
// pass has computed could leave the device when that was over.
func (c *Core) advance(now time.Duration) {
	b := c.below
	if b == nil {
		if c.asked {
			c.pool.Advance(now)
			c.countPins(now)
		}
		return
	}
	if len(b.written) > 0 && now >= c.end {
		b.carrier.Advance(c.end)
		for _, run := range b.written {
			b.registry.WriteThrough(c.end, run)
		}
		b.written = b.written[:0]
	}
	b.carrier.Advance(now)
	c.countPins(now)
	c.collect()
}

// tell appends what has happened on all tiers since it was last asked to the events
// of the pass.
func (c *Core) tell() {
	if c.below == nil {
		return
	}
	events, stores := c.news()
	c.result.Events, c.result.Stores = append(c.result.Events, events...), append(c.result.Stores, stores...)
}

// News returns what has happened to the tiers of the core since the last pass, by
// what was on its way or by others who share them. It is not to be changed.
func (c *Core) News() []kv.Event {
	events, _ := c.news()
	return events
}

// news is News with what was stored, if the core reports.
func (c *Core) news() (events []kv.Event, stores []Store) {
	if c.below == nil {
		return nil, nil
	}
	events = c.below.events.Flush()
	if c.reports {
		for _, e := range events {
			stores = append(stores, c.below.contentsOf(e))
		}
		c.forgetContents()
	}
	return events, stores
}

// contentsOf returns the tokens of what an event has stored. Of what others have
// computed none are known.
func (b *below) contentsOf(e kv.Event) (s Store) {
	if e.Kind != kv.Stored {
		return s
	}
	for _, block := range e.Blocks {
		x := b.contents[kv.SeqHash(block.Engine)]
		s.Namespace = x.Namespace
		s.Tokens = append(s.Tokens, x.Tokens...)
	}
	return s
}

// forgetContents drops the tokens of blocks that are nowhere any more, once there
// are many of them.
func (c *Core) forgetContents() {
	b := c.below
	if len(b.contents) <= 2*b.events.Len()+64 {
		return
	}
	for h := range b.contents {
		if b.registry.Present(h) == 0 {
			delete(b.contents, h)
		}
	}
}

// publish publishes block k of a request on the device, and heeds what it asks for it.
// It reports whether nobody had stored the block before.
func (c *Core) publish(r *request, k int, parent kvcache.Ref) (fresh bool) {
	if r.wishes == nil {
		return c.register(r, k, parent)
	}
	quiet := c.quiet(r, r.seq[k:k+1])
	fresh = c.register(r, k, parent)
	c.mark(r, k, fresh)
	c.hush(quiet)
	return fresh
}

func (c *Core) register(r *request, k int, parent kvcache.Ref) (fresh bool) {
	b := c.below
	if b == nil {
		return c.pool.Register(r.blocks[k], r.seq[k], parent)
	}
	block := kvcache.Block{Hash: r.seq[k], Local: r.local[k]}
	if k > 0 {
		block.Parent = r.seq[k-1]
	}
	_, outcome := b.device.Register(r.blocks[k], block, parent)
	if c.reports && outcome == kvcache.Added {
		if b.contents == nil {
			b.contents = map[kv.SeqHash]Store{}
		}
		b.contents[r.seq[k]] = Store{Namespace: r.Namespace, Tokens: slices.Clone(r.content(k, c.args.BlockSize))}
	}
	return outcome == kvcache.Added
}

// writeLater offers the blocks of a request that have just been sealed to the tiers
// below, once the pass is over that computes them.
func (c *Core) writeLater(r *request, full int) {
	b := c.below
	if b == nil || c.args.WritePolicy != "write_through" {
		return
	}
	var sealed run
	for _, h := range r.seq[r.sealed:full] {
		if ref, ok := c.pool.Find(h); ok { // by then a duplicate may be gone
			sealed = append(sealed, ref)
		}
	}
	b.written = append(b.written, sealed)
}

// allocate appends n blocks of the device, and tells what was evicted for them.
func (c *Core) allocate(dst []kvcache.Ref, n int, ns kv.Namespace) ([]kvcache.Ref, bool) {
	if c.below != nil {
		return c.below.device.Allocate(dst, n)
	}
	dst, evicted, ok := c.pool.Allocate(dst, n)
	if len(evicted) > 0 {
		e := kv.Event{Kind: kv.Removed, Blocks: make([]kv.Block, len(evicted))}
		for i, h := range evicted {
			e.Blocks[i].Engine = kv.EngineHash(h)
		}
		c.happen(e, ns)
	}
	return dst, ok
}

// match appends references to leading blocks that are on the device, which a request
// uses.
func (c *Core) match(r *request, dst []kvcache.Ref, hashes []kv.SeqHash) []kvcache.Ref {
	quiet := c.quiet(r, hashes)
	if c.below != nil {
		dst = c.below.device.Match(r.Session, dst, hashes)
	} else {
		dst = c.pool.MatchFor(r.Session, dst, hashes)
	}
	c.hush(quiet)
	return dst
}

// giveBack releases all blocks of a request.
func (c *Core) giveBack(r *request) {
	quiet := c.quiet(r, r.seq[:min(r.sealed, len(r.seq))])
	c.release(r.blocks)
	c.hush(quiet)
	r.blocks = r.blocks[:0]
}

func (c *Core) release(refs []kvcache.Ref) {
	if c.below != nil {
		c.below.device.Release(refs)
		return
	}
	c.pool.Release(refs)
}
