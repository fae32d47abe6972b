// Package kvindex knows which worker of the fleet holds which KV block, and
// answers for a prompt how many of its leading blocks each of them has.
//
// The one idea: all caches are laid over each other as one tree. A path from
// the root is a prefix of tokens, told by the local hashes of its blocks, and
// every node carries the set of targets that hold it. A prompt is then compared
// with all workers in a single walk down, because the set of those that have
// everything so far can only shrink.
package kvindex

import (
	"errors"
	"slices"
	"sync"

	"github.com/dynago/dynago/kv"
)

// Reasons why an event could not be applied as a whole. They are counted in
// [Stats]; the stream they came from goes on.
var (
	// ErrParentNotFound: the blocks continue one that the target does not hold.
	// Nothing was stored.
	ErrParentNotFound = errors.New("kvindex: parent block not found")
	// ErrBlockNotFound: a removal names a block that the target does not hold on
	// that tier. The others it names were removed.
	ErrBlockNotFound = errors.New("kvindex: block not found")
	// ErrInvalidSequence: a block is its own ancestor. What came before it was
	// stored.
	ErrInvalidSequence = errors.New("kvindex: block is its own ancestor")
	// ErrUnsupported: the event's kind or tier is unknown. Nothing was changed.
	ErrUnsupported = errors.New("kvindex: unknown kind of event or tier")
)

// tiers is the number of tiers that the index keeps apart.
const tiers = int(kv.TierShared) + 1

// Index maps prefixes to the targets that hold them. The zero value is not
// ready; use [New].
//
// All methods may be called from any goroutine. Matches run beside each other;
// changes exclude everything else for as long as one event takes.
type Index struct {
	mu      sync.RWMutex
	root    node
	targets map[kv.Target]*holder
	order   []*holder // by target, ascending
	slots   slots
	stats   Stats
}

// holder is what the index knows of one target.
type holder struct {
	target kv.Target
	slot   int // its bit in every set
	blocks map[kv.EngineHash]block
	// twins counts the keys beyond the first that stand for the same place.
	twins map[place]int
}

// block is where one engine key lies.
type block struct {
	node  *node
	tiers uint8 // bit per tier
}

type place struct {
	node *node
	tier kv.Tier
}

// Stats counts what an index holds and what has happened to it.
type Stats struct {
	Targets int // targets that hold something, or did and were not removed
	Nodes   int // distinct prefixes
	Blocks  int // engine keys, over all targets

	// Events applied, failed ones included.
	Stored, Removed, Cleared uint64
	// Events that failed, by reason.
	ParentNotFound, BlockNotFound, InvalidSequence, Unsupported uint64
	// Conflicts counts blocks whose key was known with another content or
	// parent; the older meaning stays.
	Conflicts uint64
}

// New returns an empty index.
func New() *Index {
	return &Index{targets: make(map[kv.Target]*holder)}
}

// Apply makes one event of t part of the index. Blocks already known are
// accepted again. The error is one of this package's and has been counted; the
// caller need not act on it.
func (x *Index) Apply(t kv.Target, e kv.Event) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	err := x.apply(t, e)
	x.stats.count(e.Kind, err)
	return err
}

func (x *Index) apply(t kv.Target, e kv.Event) error {
	if int(e.Tier) >= tiers {
		return ErrUnsupported
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
	return ErrUnsupported
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
	if h := x.targets[t]; h != nil {
		return len(h.blocks)
	}
	return 0
}

// Stats returns the counters as they stand.
func (x *Index) Stats() Stats {
	x.mu.RLock()
	defer x.mu.RUnlock()
	s := x.stats
	s.Targets = len(x.order)
	for _, h := range x.order {
		s.Blocks += len(h.blocks)
	}
	return s
}

func (x *Index) store(t kv.Target, e kv.Event) error {
	at := &x.root
	if e.HasParent {
		h := x.targets[t]
		if h == nil {
			return ErrParentNotFound
		}
		parent, ok := h.blocks[e.Parent]
		if !ok {
			return ErrParentNotFound
		}
		at = parent.node
	}
	h := x.holder(t)
	for _, b := range e.Blocks {
		known, ok := h.blocks[b.Engine]
		switch {
		case !ok:
			at = x.child(at, b.Local)
			h.hold(at, e.Tier)
			h.blocks[b.Engine] = block{node: at, tiers: 1 << e.Tier}
			continue
		case known.node.isAncestorOf(at):
			return ErrInvalidSequence
		case known.node.parent != at || known.node.local != b.Local:
			x.stats.Conflicts++
		case known.tiers&(1<<e.Tier) == 0:
			h.hold(known.node, e.Tier)
			known.tiers |= 1 << e.Tier
			h.blocks[b.Engine] = known
		}
		at = known.node
	}
	return nil
}

func (x *Index) remove(t kv.Target, e kv.Event) error {
	h := x.targets[t]
	if h == nil {
		return ErrBlockNotFound
	}
	var err error
	for _, b := range e.Blocks {
		known, ok := h.blocks[b.Engine]
		if !ok || known.tiers&(1<<e.Tier) == 0 {
			err = ErrBlockNotFound
			continue
		}
		known.tiers &^= 1 << e.Tier
		if known.tiers == 0 {
			delete(h.blocks, b.Engine)
		} else {
			h.blocks[b.Engine] = known
		}
		if h.letGo(known.node, e.Tier) {
			x.prune(known.node)
		}
	}
	return err
}

func (x *Index) removeTarget(t kv.Target) {
	h := x.targets[t]
	if h == nil {
		return
	}
	for _, b := range h.blocks {
		for tier := range tiers {
			if b.tiers&(1<<tier) != 0 {
				b.node.holders(kv.Tier(tier)).remove(h.slot)
			}
		}
		x.prune(b.node)
	}
	delete(x.targets, t)
	x.slots.free(h.slot)
	if i, ok := x.find(t); ok {
		x.order = slices.Delete(x.order, i, i+1)
	}
}

// holder returns what is known of t, from now on something.
func (x *Index) holder(t kv.Target) *holder {
	if h := x.targets[t]; h != nil {
		return h
	}
	h := &holder{target: t, slot: x.slots.take(), blocks: make(map[kv.EngineHash]block)}
	x.targets[t] = h
	i, _ := x.find(t)
	x.order = slices.Insert(x.order, i, h)
	return h
}

func (x *Index) find(t kv.Target) (int, bool) {
	return slices.BinarySearchFunc(x.order, t, func(h *holder, t kv.Target) int { return h.target.Compare(t) })
}

// child returns the node of content l below at, made if need be.
func (x *Index) child(at *node, l kv.LocalHash) *node {
	n := at.children.get(l)
	if n == nil {
		n = &node{local: l, parent: at}
		at.children.put(n)
		x.stats.Nodes++
	}
	return n
}

// prune unlinks n if nothing needs it any more, and then what stands above it.
func (x *Index) prune(n *node) {
	for n.parent != nil && n.idle() {
		parent := n.parent
		parent.children.remove(n.local)
		n.parent = nil
		x.stats.Nodes--
		n = parent
	}
}

// hold notes that one more key of h stands for n on tier.
func (h *holder) hold(n *node, tier kv.Tier) {
	if n.holders(tier).add(h.slot) {
		return
	}
	if h.twins == nil {
		h.twins = make(map[place]int)
	}
	h.twins[place{n, tier}]++
}

// letGo takes one key for n on tier back and says whether it was the last.
func (h *holder) letGo(n *node, tier kv.Tier) bool {
	p := place{n, tier}
	if h.twins[p] > 0 {
		if h.twins[p]--; h.twins[p] == 0 {
			delete(h.twins, p)
		}
		return false
	}
	n.holders(tier).remove(h.slot)
	return true
}

func (s *Stats) count(kind kv.EventKind, err error) {
	switch kind {
	case kv.Stored:
		s.Stored++
	case kv.Removed:
		s.Removed++
	case kv.Cleared:
		s.Cleared++
	}
	switch err {
	case ErrParentNotFound:
		s.ParentNotFound++
	case ErrBlockNotFound:
		s.BlockNotFound++
	case ErrInvalidSequence:
		s.InvalidSequence++
	case ErrUnsupported:
		s.Unsupported++
	}
}
