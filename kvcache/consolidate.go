package kvcache

import (
	"maps"
	"slices"
	"sort"

	"github.com/dynago/dynago/kv"
)

// Block says what a slot holds: the block's own hash, its parent's, and that of
// its content alone.
type Block struct {
	Hash   kv.SeqHash
	Parent kv.SeqHash // 0 = the first block of a sequence
	Local  kv.LocalHash
}

// Consolidator joins the changes of all tiers of one rank into one stream of
// events: a block is told as stored on a tier when it was not there before, and
// as removed when it has gone, and never anything else. It tells what has changed
// since the last batch, not what has happened since: stores first, then removals,
// so that for a block that moves there is no moment at which it is nowhere.
//
// Whoever folds its batches knows at the end of each exactly what lies where;
// that holds for readers that come late or come back as well.
type Consolidator struct {
	cfg     ConsolidatorConfig
	blocks  map[kv.SeqHash]told
	changed []kv.SeqHash // since the last batch, each once
	last    uint64       // number of the newest event
	ring    []kv.Batch   // the newest batches, from ring[oldest] on
	oldest  int
}

// told is one block: the tiers it lies on, now and when it was last told.
type told struct {
	parent      kv.SeqHash
	local       kv.LocalHash
	tiers, then tierSet
	changed     bool
}

// tierSet has one bit for each tier.
type tierSet uint8

func (s tierSet) has(t kv.Tier) bool { return s>>t&1 != 0 }

// tiers is how many there are.
const tiers = int(kv.TierShared) + 1

// ringBatches is how many batches are kept if nothing else is said.
const ringBatches = 10_000

// ConsolidatorConfig says how a [Consolidator] tells.
type ConsolidatorConfig struct {
	Rank  uint32
	Epoch uint64
	// Flat hides the tiers: every block is told as lying on the device while it
	// lies on any. It is for consumers that know of no tiers.
	Flat bool
	// Batches is how many are kept for readers that come back; 0 = 10,000.
	Batches int
}

// NewConsolidator returns one that knows of no block.
func NewConsolidator(cfg ConsolidatorConfig) *Consolidator {
	if cfg.Batches <= 0 {
		cfg.Batches = ringBatches
	}
	return &Consolidator{cfg: cfg, blocks: map[kv.SeqHash]told{}}
}

// Store notes that a tier holds a block.
func (c *Consolidator) Store(t kv.Tier, b Block) {
	e, ok := c.blocks[b.Hash]
	if !ok {
		e.parent, e.local = b.Parent, b.Local
	}
	c.set(b.Hash, e, e.tiers|1<<t)
}

// Remove notes that a tier holds a block no more.
func (c *Consolidator) Remove(t kv.Tier, h kv.SeqHash) {
	if e, ok := c.blocks[h]; ok {
		c.set(h, e, e.tiers&^(1<<t))
	}
}

func (c *Consolidator) set(h kv.SeqHash, e told, to tierSet) {
	if !e.changed {
		e.changed = true
		c.changed = append(c.changed, h)
	}
	e.tiers = to
	c.blocks[h] = e
}

// Restart begins another life of the cache, in which nothing is stored.
func (c *Consolidator) Restart(epoch uint64) {
	clear(c.blocks)
	clear(c.ring)
	c.cfg.Epoch, c.last, c.changed, c.ring, c.oldest = epoch, 0, c.changed[:0], c.ring[:0], 0
}

// Len returns how many blocks lie on any tier, those included that have gone since
// the last batch.
func (c *Consolidator) Len() int { return len(c.blocks) }

// Last returns the number of the newest event.
func (c *Consolidator) Last() uint64 { return c.last }

// Flush closes a batch with what has changed since the last one, and returns its
// events, or none. They are shared with readers and not to be changed.
func (c *Consolidator) Flush() []kv.Event {
	var events []kv.Event
	var came, went tierSet // by any block
	for _, h := range c.changed {
		e := c.blocks[h]
		now, then := c.view(e.tiers), c.view(e.then)
		came, went = came|now&^then, went|then&^now
	}
	for t := range kv.Tier(tiers) {
		if !came.has(t) {
			continue
		}
		events = c.stores(events, t, c.changed, func(e told) bool { return c.view(e.tiers).has(t) && !c.view(e.then).has(t) })
	}
	for t := range kv.Tier(tiers) {
		if !went.has(t) {
			continue
		}
		var gone []kv.Block
		for _, h := range c.changed {
			if e := c.blocks[h]; c.view(e.then).has(t) && !c.view(e.tiers).has(t) {
				gone = append(gone, kv.Block{Engine: kv.EngineHash(h)})
			}
		}
		events = append(events, kv.Event{Kind: kv.Removed, Tier: t, Blocks: gone})
	}
	for _, h := range c.changed {
		e := c.blocks[h]
		if e.changed, e.then = false, e.tiers; e.tiers == 0 {
			delete(c.blocks, h)
		} else {
			c.blocks[h] = e
		}
	}
	c.changed = c.changed[:0]
	for _, part := range kv.Cut(events) {
		c.keep(kv.Batch{Rank: c.cfg.Rank, Epoch: c.cfg.Epoch, First: c.last + 1, Last: c.last + uint64(len(part)), Events: part})
		c.last += uint64(len(part))
	}
	return events
}

// view is what a reader sees of a set of tiers.
func (c *Consolidator) view(s tierSet) tierSet {
	if c.cfg.Flat && s != 0 {
		return 1 << kv.TierDevice
	}
	return s
}

// stores appends events that store on tier t those of the hashes that are
// wanted, parents before children, in runs as long as they come.
func (c *Consolidator) stores(events []kv.Event, t kv.Tier, hashes []kv.SeqHash, wanted func(told) bool) []kv.Event {
	seen := map[kv.SeqHash]bool{}
	var up []kv.SeqHash
	var run *kv.Event
	var end kv.SeqHash
	for _, h := range hashes {
		up = up[:0]
		for !seen[h] {
			e, ok := c.blocks[h]
			if !ok || !wanted(e) {
				break
			}
			seen[h] = true
			up = append(up, h)
			if h = e.parent; h == 0 {
				break
			}
		}
		for _, h := range slices.Backward(up) {
			e := c.blocks[h]
			if run == nil || e.parent == 0 || e.parent != end {
				events = append(events, kv.Event{Kind: kv.Stored, Tier: t, Parent: kv.EngineHash(e.parent), HasParent: e.parent != 0})
				run = &events[len(events)-1]
			}
			run.Blocks = append(run.Blocks, kv.Block{Engine: kv.EngineHash(h), Local: e.local})
			end = h
		}
	}
	return events
}

func (c *Consolidator) keep(b kv.Batch) {
	if len(c.ring) < c.cfg.Batches {
		c.ring = append(c.ring, b)
		return
	}
	c.ring[c.oldest] = b
	c.oldest = (c.oldest + 1) % len(c.ring)
}

// Read returns the batches after a cursor, and the cursor behind them. Where
// they do not continue the cursor, or it is the zero one, they begin anew: with a
// gap, unless the reader knows nothing, and a snapshot of the last batch's end.
func (c *Consolidator) Read(at kv.Cursor) ([]kv.Batch, kv.Cursor) {
	next := kv.Cursor{Rank: c.cfg.Rank, Epoch: c.cfg.Epoch, Sequence: c.last}
	gap := kv.GapReason("")
	switch {
	case at == kv.Cursor{Rank: at.Rank}:
	case at.Epoch != c.cfg.Epoch:
		gap = kv.GapRestart
	case at.Sequence > c.last:
		gap = kv.GapFuture
	case len(c.ring) > 0 && at.Sequence+1 < c.ring[c.oldest].First:
		gap = kv.GapTooOld
	default:
		return c.after(at.Sequence), next
	}
	var out []kv.Batch
	if gap != "" {
		out = append(out, kv.Batch{Rank: c.cfg.Rank, Epoch: c.cfg.Epoch, Gap: gap})
	}
	for _, part := range kv.Cut(c.Snapshot()) {
		out = append(out, kv.Batch{Rank: c.cfg.Rank, Epoch: c.cfg.Epoch, Events: part, Snapshot: kv.SnapshotPart})
	}
	return append(out, kv.Batch{Rank: c.cfg.Rank, Epoch: c.cfg.Epoch, Last: c.last, Snapshot: kv.SnapshotEnd}), next
}

// after returns what the ring holds behind event n.
func (c *Consolidator) after(n uint64) []kv.Batch {
	k := sort.Search(len(c.ring), func(k int) bool { return c.batch(k).Last > n })
	var out []kv.Batch
	for ; k < len(c.ring); k++ {
		b := c.batch(k)
		if b.First <= n {
			b.Events = b.Events[n+1-b.First:]
			b.First = n + 1
		}
		out = append(out, b)
	}
	return out
}

// batch returns the k-th oldest batch of the ring.
func (c *Consolidator) batch(k int) kv.Batch { return c.ring[(c.oldest+k)%len(c.ring)] }

// Snapshot returns events that store everything the last batch left, on each
// tier parents before children.
func (c *Consolidator) Snapshot() []kv.Event {
	hashes := slices.Sorted(maps.Keys(c.blocks))
	var events []kv.Event
	for t := range kv.Tier(tiers) {
		there := func(e told) bool {
			if e.changed {
				return c.view(e.then).has(t)
			}
			return c.view(e.tiers).has(t)
		}
		parents := map[kv.SeqHash]bool{}
		for _, h := range hashes {
			if e := c.blocks[h]; there(e) {
				parents[e.parent] = true
			}
		}
		leaves := slices.DeleteFunc(slices.Clone(hashes), func(h kv.SeqHash) bool { return parents[h] })
		events = c.stores(events, t, leaves, there)
	}
	return events
}
