// Package kvindex knows which worker of the fleet holds which KV block, and
// answers for a prompt how many of its leading blocks each of them has.
//
// The one idea: all caches are laid over each other as one tree. A path from
// the root is a prefix of tokens, told by the local hashes of its blocks, and
// every node carries the set of targets that hold it. A prompt is then compared
// with all workers in a single walk down, because the set of those that have
// everything so far can only shrink. A node is a whole run of blocks in one
// cache line, so that the walk waits for memory a few times, not once a block;
// see README.md.
package kvindex

import (
	"errors"
	"sync"
	"sync/atomic"

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
	// ErrFull: there are more targets than 32,767, or more distinct blocks than
	// about 250 million. What came before was stored.
	ErrFull = errors.New("kvindex: no room for more targets or blocks")
)

// tiers is the number of tiers that the index keeps apart.
const tiers = int(kv.TierShared) + 1

// Index maps prefixes to the targets that hold them. The zero value is not
// ready; use [New].
//
// All methods may be called from any goroutine. Matches take no lock and run
// beside each other and beside changes. Changes of different targets look up
// their keys beside each other and take turns in the tree, for some
// microseconds at a time; those of one target follow one another.
type Index struct {
	mu      sync.RWMutex // for those who join and leave
	targets map[kv.Target]*holder
	free    bitmap // slots below slots that nobody has
	slots   int
	lives   uint64
	roster  atomic.Pointer[roster]

	_     [64]byte // what writers change is far from what readers look at
	stats Stats    // events and conflicts; under the lock of the tree
	tree  tree
}

// New returns an empty index.
func New() *Index {
	x := &Index{targets: make(map[kv.Target]*holder)}
	x.roster.Store(new(roster))
	x.tree.init()
	return x
}

// Apply makes one event of t part of the index. Blocks already known are
// accepted again. When it returns, the change is seen by every later [Match].
// The event is not kept. The error is one of this package's and has been
// counted; the caller need not act on it.
func (x *Index) Apply(t kv.Target, e kv.Event) error {
	err := x.apply(t, &e)
	x.tree.mu.Lock()
	x.stats.count(e.Kind, err)
	x.tree.mu.Unlock()
	return err
}

func (x *Index) apply(t kv.Target, e *kv.Event) error {
	if int(e.Tier) >= tiers {
		return ErrUnsupported
	}
	switch e.Kind {
	case kv.Stored:
		if e.HasParent && x.known(t) == nil {
			return ErrParentNotFound
		}
		h := x.holder(t)
		if h == nil {
			return ErrFull
		}
		defer h.unlock()
		return x.store(h, e)
	case kv.Removed:
		h := x.known(t)
		if h == nil {
			return ErrBlockNotFound
		}
		h.mu.Lock()
		defer h.unlock()
		if h.gone {
			return ErrBlockNotFound
		}
		return x.remove(h, e)
	case kv.Cleared:
		x.RemoveTarget(t)
		return nil
	}
	return ErrUnsupported
}

// Reserve makes room for as many blocks as the cache of t has, so that no key is
// moved while the cache fills. It is a hint, and takes its 26 B a block at once;
// of more than four million blocks no more is believed. It makes t known, and
// ends when t is removed or cleared.
func (x *Index) Reserve(t kv.Target, blocks int) {
	if blocks <= 0 {
		return
	}
	h := x.holder(t)
	if h == nil {
		return // and neither can anything of t be stored
	}
	defer h.unlock()
	// A quarter more keeps the table at a load of one half, at which most keys
	// are where they belong.
	blocks = min(blocks, mostReserved)
	h.keys.least = blocks + blocks/4
	h.keys.reserve(h.keys.least - h.keys.count)
}

// mostReserved is the most blocks that are believed in before they are there.
const mostReserved = 4 << 20

// RemoveTarget forgets all of one rank, on every tier. Once it has returned, no
// query returns the rank until it stores something again.
func (x *Index) RemoveTarget(t kv.Target) {
	x.leave([]kv.Target{t})
}

// RemoveWorker forgets all ranks of a worker, on every tier, as
// [Index.RemoveTarget] does.
func (x *Index) RemoveWorker(id uint64) {
	x.leave(x.roster.Load().ranks(id))
}

// Blocks returns how many blocks t holds, on any tier.
func (x *Index) Blocks(t kv.Target) int {
	if h := x.known(t); h != nil {
		return int(h.blocks.Load())
	}
	return 0
}

// TiersOf returns on which tiers t holds a block, by the name that its engine has for
// it; none if it does not. Events of t wait meanwhile.
func (x *Index) TiersOf(t kv.Target, key kv.EngineHash) (on []kv.Tier) {
	h := x.known(t)
	if h == nil {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	at, ok := h.keys.find(key)
	if !ok {
		return nil
	}
	for tier := range kv.Tier(tiers) {
		if h.keys.at(at).on(tier) {
			on = append(on, tier)
		}
	}
	return on
}

// BlocksOn returns how many of the blocks that [Index.Blocks] counts t holds on
// one tier. Those on several count on each. It waits for nobody.
func (x *Index) BlocksOn(t kv.Target, tier kv.Tier) int {
	if h := x.known(t); h != nil && int(tier) < tiers {
		return int(h.blocksOn[tier].Load())
	}
	return 0
}
