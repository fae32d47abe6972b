package kvindex

import (
	"sync"
	"sync/atomic"

	"github.com/dynago/dynago/kv"
)

// holder is what the index knows of one target. Its lock is taken before that
// of the tree, and held for a whole event, so that the events of a target are
// applied one after the other; those of others come in between.
type holder struct {
	target kv.Target
	slot   uint32 // its number in every cover
	life   uint64 // tells it from those that have had the slot before

	mu   sync.Mutex
	gone bool // nothing is to be added any more
	// twins counts the keys beyond the first that stand for the same place on
	// the same tier.
	twins  map[twin]int
	keys   keys
	places [slice]place // of the blocks that an event takes away

	on [tiers]int // keys on each tier

	// The same and the keys on any tier, for those who do not want to wait.
	blocks   atomic.Int64
	blocksOn [tiers]atomic.Int64
}

type twin struct {
	place place
	tier  int
}

// count notes that some blocks of from..to-1 get one more key of the target
// than they have on that tier.
func (h *holder) count(t *tree, c *cover, tier int, r run, from, to int) {
	for i := from; i < min(to, r.length); i++ {
		if !t.touches(c, h.slot, i, i+1) {
			continue
		}
		if h.twins == nil {
			h.twins = make(map[twin]int)
		}
		h.twins[twin{r.start + place(i), tier}]++
	}
}

// last says whether the key just removed was the last for a place on a tier.
func (h *holder) last(p place, tier int) bool {
	if len(h.twins) == 0 {
		return true
	}
	s := twin{p, tier}
	if h.twins[s] == 0 {
		return true
	}
	if h.twins[s]--; h.twins[s] == 0 {
		delete(h.twins, s)
	}
	return false
}

// unlock lets others at the target again.
func (h *holder) unlock() {
	h.keys.check(h.on)
	h.publish()
	h.mu.Unlock()
}

// publish tells the counts to those who do not wait.
func (h *holder) publish() {
	h.blocks.Store(int64(h.keys.count))
	for tier, n := range h.on {
		if at := &h.blocksOn[tier]; at.Load() != int64(n) {
			at.Store(int64(n))
		}
	}
}
