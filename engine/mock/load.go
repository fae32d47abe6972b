package mock

import (
	"slices"

	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/kvcache"
)

// A waiting request whose next blocks lie on a lower tier is parked while these are
// loaded, and others run. It then stands where it stood before, and has its blocks.

// beginning is what became of a waiting request.
type beginning uint8

const (
	begun   beginning = iota // it runs, or could
	parked                   // it waits for its blocks
	blocked                  // it waits for room
)

// parked returns how many requests are parked.
func (c *Core) parked() int {
	if c.below == nil {
		return 0
	}
	return len(c.below.loads)
}

// park begins to load what follows the first found blocks of a waiting request. It
// may begin to run if there is nothing to load that is worth it.
func (c *Core) park(r *request, found int, sequence []kv.SeqHash) beginning {
	b := c.below
	rest := sequence[found:]
	if r.loaded || len(rest) < c.args.LoadBackThreshold || r.Received > 0 && r.preempted == 0 {
		return begun
	}
	reach := b.registry.Reach(c.start, rest)
	if reach.Blocks == 0 || reach.Blocks < c.args.LoadBackThreshold || !c.worthLoading(reach, found) {
		return begun
	}
	held := len(r.blocks)
	r.blocks = c.match(r, r.blocks, sequence[held:found])
	base := kvcache.Root
	if found > 0 {
		base = r.blocks[found-1]
	}
	id, n, ok := b.registry.Load(c.start, rest, base)
	for !ok && len(c.running)+len(b.loads) == 0 && c.yield(r) {
		id, n, ok = b.registry.Load(c.start, rest, base)
	}
	if !ok || n == 0 {
		b.device.Release(r.blocks[held:])
		r.blocks = r.blocks[:held]
		if len(c.running)+len(b.loads) > 0 {
			return blocked
		}
		r.loaded = true // there is room for it in parts, if at all
		return begun
	}
	r.base, r.from = found, r.from[:0]
	for _, h := range rest[:n] {
		r.from = append(r.from, c.source(h))
	}
	c.waiting.remove(r)
	r.load, r.parkedAt = id, c.start
	b.loads[id] = r
	c.stats.Parked++
	return parked
}

// worthLoading says whether a load takes no longer than computing would. Where that
// is not imitated it does not.
func (c *Core) worthLoading(reach kvcache.Reach, found int) bool {
	if c.args.LoadBias == 0 || c.bytes != nil {
		return c.args.LoadBias > 0
	}
	size := c.args.BlockSize
	tokens, before := reach.Blocks*size, found*size
	compute := c.computing(tokens, &Work{
		Prefills: 1, PromptEnds: before + tokens, PromptStarts: before,
		Tokens: tokens, Attention: float64(tokens * (before + tokens)),
	})
	return float64(c.below.registry.LoadTime(reach)) <= float64(compute)*c.args.LoadBias
}

// source returns the fastest lower tier that has a block.
func (c *Core) source(h kv.SeqHash) kv.Tier {
	for _, t := range c.below.lower {
		if t.Has(h) {
			return t.Kind()
		}
	}
	return kv.TierDevice // it is on its way already
}

// collect takes the loads that have ended. Of what has come a request has used
// each block, as if it had found it there.
func (c *Core) collect() {
	b := c.below
	for _, l := range slices.Backward(b.registry.Loaded()) {
		r := b.loads[l.ID]
		if r == nil { // cancelled when it was over already
			b.device.Release(l.Refs)
			continue
		}
		delete(b.loads, l.ID)
		r.blocks = c.match(r, r.blocks, r.seq[r.base:r.base+len(l.Refs)])
		b.device.Release(l.Refs)
		r.from = r.from[:len(l.Refs)]
		r.load, r.loaded = 0, true
		c.stats.LoadWait += c.start - r.parkedAt
		c.waiting.putBack(r)
	}
}

// unpark ends the load of a request, if there is one.
func (c *Core) unpark(r *request) {
	if r.load == 0 {
		return
	}
	c.below.registry.Cancel(r.load)
	delete(c.below.loads, r.load)
	r.load = 0
}

// drop takes the blocks from a request that does not run.
func (c *Core) drop(r *request) {
	c.unpark(r)
	c.giveBack(r)
	r.from = r.from[:0]
	r.loaded = false
}

// yield makes a request that does not run give its blocks back, for one that is
// not keep: the last in the queue, else the last that is parked. It is false if
// there is none.
func (c *Core) yield(keep *request) bool {
	if c.below == nil {
		return false
	}
	for r := c.waiting.tail; r != nil; r = r.prev {
		if r != keep && len(r.blocks) > 0 {
			c.drop(r)
			return true
		}
	}
	var last *request
	for _, r := range c.below.loads {
		if r != keep && (last == nil || r.arrived > last.arrived) {
			last = r
		}
	}
	if last == nil {
		return false
	}
	c.drop(last)
	c.waiting.putBack(last)
	return true
}

// returning returns how many slots of the device are being filled for nobody who
// runs: they can be had as soon as that ends.
func (c *Core) returning() int {
	if c.below == nil {
		return 0
	}
	n := c.pool.Stats().Mutable - c.keptOpen
	for _, r := range c.running {
		n -= len(r.blocks) - r.sealed
	}
	return n
}

// found books on which tiers the blocks lay that an admitted request did not have
// to compute.
func (c *Core) found(r *request, blocks int) (from [kv.TierShared + 1]int) {
	size := c.args.BlockSize
	loaded := 0
	for i, t := range r.from {
		if r.base+i < blocks {
			from[t] += size
			loaded++
		}
	}
	from[kv.TierDevice] += (blocks - loaded) * size
	for t, n := range from {
		c.stats.Tiers[t].HitTokens += int64(n)
	}
	r.from = r.from[:0]
	return from
}

// stuck ends the first request in the queue if nothing that is on its way makes room
// for it: what fills the device is pinned for good.
func (c *Core) stuck() bool {
	r := c.waiting.head
	if r == nil || !c.alone() {
		return false
	}
	if pinned, _ := c.pool.PinBudget(); pinned == 0 {
		return false
	}
	if c.pool.Stats().Used() > len(r.blocks) {
		return false // the others are being filled or copied, and come back
	}
	c.waiting.remove(r)
	c.result.Outputs = append(c.result.Outputs, Output{ID: r.id, Owner: r.Owner, Err: errNoRoom(c)})
	c.retire(r)
	return true
}
