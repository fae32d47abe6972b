// Package positional is the published Flash Indexer as a second index of cached
// prefixes: the same contract and the same answers as kvindex, from another
// structure. Tests hold the two against each other, and benchmarks show them side
// by side.
//
// The one idea: a block is found without walking to it, by its position and its
// content. Because the set of targets that hold a prefix can only shrink with its
// length, a search may jump: if the block a stride ahead is held by all that are
// left, so is everything in between. Two things make it exact. A block found is
// believed only if the chain hash of everything before it is the one computed
// for the request; and targets with holes in their chains, for which sets do not
// shrink, are walked block by block.
package positional

import (
	"slices"
	"sync"

	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/kvindex"
)

// DefaultStride is how far a search jumps, in blocks.
const DefaultStride = 8

// tiers is the number of tiers that are kept apart.
const tiers = int(kv.TierShared) + 1

// Index maps prefixes to the targets that hold them. The zero value is not
// ready; use [New].
//
// All methods may be called from any goroutine. Matches run beside each other;
// changes exclude everything else for as long as one event takes.
type Index struct {
	mu      sync.RWMutex
	stride  int
	blocks  arena
	table   table // blocks by position, content and chain
	wide    bitsets
	holders map[kv.Target]*holder
	order   []*holder // by target, ascending
	slots   slots
	open    []uint64 // slots of targets with holes on the device
	lower   int      // places held on tiers below the device, over all targets
	stats   kvindex.Stats
}

// holder is what the index knows of one target.
type holder struct {
	target kv.Target
	slot   int
	keys   keys
	// twins counts the keys beyond the first that stand for the same place.
	twins map[place]int
	// orphans is the number of places held on the device whose parent is not.
	// The target is closed, and may be jumped over, while it is 0.
	orphans int
}

type place struct {
	block uint32
	tier  kv.Tier
}

// New returns an empty index that jumps stride blocks at a time; a stride of 1
// walks.
func New(stride int) *Index {
	x := &Index{stride: max(1, stride), holders: make(map[kv.Target]*holder)}
	x.blocks.reset()
	return x
}

// Apply makes one event of t part of the index. Blocks already known are
// accepted again. The error is one of package kvindex and has been counted.
func (x *Index) Apply(t kv.Target, e kv.Event) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	err := x.apply(t, e)
	x.count(e.Kind, err)
	return err
}

func (x *Index) apply(t kv.Target, e kv.Event) error {
	if int(e.Tier) >= tiers {
		return kvindex.ErrUnsupported
	}
	switch e.Kind {
	case kv.Stored:
		return x.store(t, e)
	case kv.Removed:
		return x.remove(t, e)
	case kv.Cleared:
		x.removeTarget(t)
		return nil
	}
	return kvindex.ErrUnsupported
}

// RemoveTarget forgets all of one rank, on every tier.
func (x *Index) RemoveTarget(t kv.Target) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.removeTarget(t)
}

// RemoveWorker forgets all ranks of a worker, on every tier.
func (x *Index) RemoveWorker(id uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, h := range slices.Clone(x.order) {
		if h.target.Worker == id {
			x.removeTarget(h.target)
		}
	}
}

// Blocks returns how many blocks t holds, on any tier.
func (x *Index) Blocks(t kv.Target) int {
	x.mu.RLock()
	defer x.mu.RUnlock()
	if h := x.holders[t]; h != nil {
		return h.keys.len
	}
	return 0
}

// Stats returns the counters as they stand. Every prefix is a node.
func (x *Index) Stats() kvindex.Stats {
	x.mu.RLock()
	defer x.mu.RUnlock()
	s := x.stats
	s.Targets = len(x.order)
	s.Nodes, s.Prefixes = x.blocks.used, x.blocks.used
	for _, h := range x.order {
		s.Blocks += h.keys.len
	}
	return s
}

func (x *Index) store(t kv.Target, e kv.Event) error {
	at := root
	if e.HasParent {
		h := x.holders[t]
		if h == nil {
			return kvindex.ErrParentNotFound
		}
		parent, _ := h.keys.get(e.Parent)
		if parent == 0 {
			return kvindex.ErrParentNotFound
		}
		at = parent
	}
	h := x.holder(t)
	for _, b := range e.Blocks {
		known, on := h.keys.get(b.Engine)
		switch {
		case known == 0:
			known = x.child(at, b.Local)
			x.hold(h, known, e.Tier)
			h.keys.put(b.Engine, known, 1<<e.Tier)
		case x.blocks.at(known).parent != at && x.above(known, at):
			return kvindex.ErrInvalidSequence
		case x.blocks.at(known).parent != at || x.blocks.at(known).local != b.Local:
			x.stats.Conflicts++
		case on&(1<<e.Tier) == 0:
			x.hold(h, known, e.Tier)
			h.keys.put(b.Engine, known, on|1<<e.Tier)
		default:
			x.stats.Duplicates++
		}
		at = known
	}
	return nil
}

func (x *Index) remove(t kv.Target, e kv.Event) error {
	h := x.holders[t]
	if h == nil {
		return kvindex.ErrBlockNotFound
	}
	var err error
	for _, b := range e.Blocks {
		known, on := h.keys.get(b.Engine)
		if on&(1<<e.Tier) == 0 {
			err = kvindex.ErrBlockNotFound
			continue
		}
		if on &^= 1 << e.Tier; on == 0 {
			h.keys.remove(b.Engine)
		} else {
			h.keys.put(b.Engine, known, on)
		}
		if x.letGo(h, known, e.Tier) {
			x.prune(known)
		}
	}
	return err
}

func (x *Index) removeTarget(t kv.Target) {
	h := x.holders[t]
	if h == nil {
		return
	}
	for at, on := range h.keys.all() {
		for tier := range tiers {
			// The second key of a place finds it dropped, and perhaps gone.
			if on&(1<<tier) != 0 && x.drop(h, at, kv.Tier(tier)) {
				x.prune(at)
			}
		}
	}
	delete(x.holders, t)
	setBit(x.open, h.slot, false)
	x.slots.free(h.slot)
	if i, ok := x.find(t); ok {
		x.order = slices.Delete(x.order, i, i+1)
	}
}

// holder returns what is known of t, from now on something.
func (x *Index) holder(t kv.Target) *holder {
	if h := x.holders[t]; h != nil {
		return h
	}
	h := &holder{target: t, slot: x.slots.take()}
	x.holders[t] = h
	i, _ := x.find(t)
	x.order = slices.Insert(x.order, i, h)
	for len(x.open) < x.slots.words() {
		x.open = append(x.open, 0)
	}
	return h
}

func (x *Index) find(t kv.Target) (int, bool) {
	return slices.BinarySearchFunc(x.order, t, func(h *holder, t kv.Target) int { return h.target.Compare(t) })
}

func (x *Index) count(kind kv.EventKind, err error) {
	s := &x.stats
	switch kind {
	case kv.Stored:
		s.Stored++
	case kv.Removed:
		s.Removed++
	case kv.Cleared:
		s.Cleared++
	}
	switch err {
	case kvindex.ErrParentNotFound:
		s.ParentNotFound++
	case kvindex.ErrBlockNotFound:
		s.BlockNotFound++
	case kvindex.ErrInvalidSequence:
		s.InvalidSequence++
	case kvindex.ErrUnsupported:
		s.Unsupported++
	}
}
