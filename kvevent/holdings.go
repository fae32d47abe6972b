package kvevent

import (
	"cmp"
	"maps"
	"slices"

	"github.com/dynago/dynago/kv"
)

// Holdings is what one rank holds according to its events: enough to tell somebody
// who knows nothing. It is plain data and not safe for concurrent use.
type Holdings struct {
	most   int  // blocks
	over   bool // there are more, so that it is no longer known what is held
	blocks map[kv.EngineHash]*held
	age    uint64
}

// held is one block. A block that is gone stays, with no tier, while blocks that
// continue it are there.
type held struct {
	parent    kv.EngineHash
	hasParent bool
	local     kv.LocalHash
	tiers     uint8 // bit per tier
	children  int
	age       uint64 // parents are older than their children
}

// NewHoldings returns those of an empty cache, of which at most so many blocks are
// remembered; 0 = [DefaultMaxBlocks].
func NewHoldings(most int) *Holdings {
	if most <= 0 {
		most = DefaultMaxBlocks
	}
	return &Holdings{most: most}
}

// Whole says that all that is held is remembered.
func (h *Holdings) Whole() bool { return !h.over }

// Blocks returns how many blocks are held.
func (h *Holdings) Blocks() int { return len(h.blocks) }

// Apply makes an event true of the holdings. A store that continues what is not
// there has no effect, as in an index.
func (h *Holdings) Apply(e *kv.Event) {
	switch e.Kind {
	case kv.Stored:
		h.store(e)
	case kv.Removed:
		for _, b := range e.Blocks {
			if k := h.blocks[b.Engine]; k != nil {
				k.tiers &^= 1 << e.Tier
				h.prune(b.Engine, k)
			}
		}
	case kv.Cleared:
		clear(h.blocks)
		h.over = false
	}
}

func (h *Holdings) store(e *kv.Event) {
	parent, hasParent := e.Parent, e.HasParent
	if p := h.blocks[parent]; hasParent && (p == nil || p.tiers == 0) {
		return
	}
	if h.blocks == nil {
		h.blocks = make(map[kv.EngineHash]*held)
	}
	for _, b := range e.Blocks {
		k := h.blocks[b.Engine]
		if k == nil && len(h.blocks) >= h.most {
			h.over = true
			return
		}
		if k == nil {
			h.age++
			k = &held{parent: parent, hasParent: hasParent, local: b.Local, age: h.age}
			h.blocks[b.Engine] = k
			if hasParent {
				h.blocks[parent].children++
			}
		}
		k.tiers |= 1 << e.Tier
		parent, hasParent = b.Engine, true
	}
}

// prune lets go of a block that nothing needs, and then of its parent.
func (h *Holdings) prune(key kv.EngineHash, k *held) {
	for k != nil && k.tiers == 0 && k.children == 0 {
		delete(h.blocks, key)
		if !k.hasParent {
			return
		}
		key = k.parent
		if k = h.blocks[key]; k != nil {
			k.children--
		}
	}
}

// Dump returns events that make an empty index hold the same: each run of
// blocks on its fastest tier, parents before their children; then the other
// tiers; last the removal of what is only there because others continue it.
func (h *Holdings) Dump() []kv.Event {
	keys := slices.SortedFunc(maps.Keys(h.blocks), func(a, b kv.EngineHash) int { return cmp.Compare(h.blocks[a].age, h.blocks[b].age) })
	var stores, lower []kv.Event
	gone := kv.Event{Kind: kv.Removed}
	for len(keys) > 0 {
		first := h.blocks[keys[0]]
		n := 1
		for n < len(keys) && n < kv.BatchBlocks {
			next := h.blocks[keys[n]]
			if !next.hasParent || next.parent != keys[n-1] || next.tiers != first.tiers {
				break
			}
			n++
		}
		run := kv.Event{Kind: kv.Stored, Parent: first.parent, HasParent: first.hasParent, Blocks: make([]kv.Block, n)}
		for i, key := range keys[:n] {
			run.Blocks[i] = kv.Block{Engine: key, Local: h.blocks[key].local}
			if first.tiers == 0 {
				gone.Blocks = append(gone.Blocks, kv.Block{Engine: key})
			}
		}
		told := first.tiers == 0
		for tier := kv.TierDevice; tier <= kv.TierShared; tier++ {
			switch {
			case first.tiers&(1<<tier) == 0:
			case !told:
				run.Tier, told = tier, true
			default:
				again := run
				again.Tier = tier
				lower = append(lower, again)
			}
		}
		stores = append(stores, run)
		keys = keys[n:]
	}
	stores = append(stores, lower...)
	if len(gone.Blocks) > 0 {
		stores = append(stores, gone)
	}
	return stores
}
