package kvevent

import (
	"math/bits"
	"math/rand/v2"

	"github.com/dynago/dynago/kv"
)

// tally counts the copies of one block, 16 bits per tier. An engine may hold
// the same block several times over, and tells of each.
type tally uint64

const mostCopies = 1<<16 - 1

func (c tally) on(t kv.Tier) uint64 { return uint64(c) >> (16 * t) & mostCopies }

// add counts one copy more. Beyond what fits the count stands still, so that a
// block may be taken for gone too early and never too late.
func (c tally) add(t kv.Tier) tally {
	if c.on(t) == mostCopies {
		return c
	}
	return c + 1<<(16*t)
}

func (c tally) drop(t kv.Tier) tally { return c - 1<<(16*t) }

// entry is one block that an engine holds.
type entry struct {
	key    kv.EngineHash
	copies tally // 0 = the slot is free
}

// holding is what one rank of an engine holds: how many copies of which block,
// and where in the space of namespaces it belongs.
//
// It is an open-addressing table without pointers: a block costs 16 bytes at a
// load of 3/8 to 3/4, and its removal moves the entries behind it up, so that
// no amount of turnover leaves anything behind.
type holding struct {
	entries []entry // a power of two of them
	used    int
	touched tally  // nothing but a reason for the processor to read
	shift   uint8  // 64 - log2 of the number of slots
	mix     uint64 // which slot a key comes to is not for engines to choose
	// seeds has the seed of each entry's namespace, or 0 for a block that is in
	// several. It is nil as long as there is nothing but the plain namespace.
	seeds []uint64
	// chains has the sequence hash of each entry's chain, hashed as if it had no
	// namespace. It is nil unless somebody asks for it.
	chains []kv.SeqHash

	groups groups
	size   int    // tokens of the engine's blocks, once there was one
	pages  *pages // if they are smaller than ours
}

const (
	fewestSlots = 64
	// severalSpaces is the seed of blocks that are in several namespaces.
	severalSpaces = 0
)

func newHolding(chains bool) *holding {
	h := &holding{mix: rand.Uint64()}
	h.resize(fewestSlots)
	if chains {
		h.chains = make([]kv.SeqHash, fewestSlots)
	}
	return h
}

func (h *holding) len() int {
	if h.pages != nil {
		return h.used + h.pages.len()
	}
	return h.used
}

// home is the slot where the search for a key begins.
func (h *holding) home(key kv.EngineHash) int {
	return int(scatter(key, h.mix) >> h.shift)
}

// scatter spreads keys over the numbers in a way that depends on mix.
func scatter(key kv.EngineHash, mix uint64) uint64 {
	high, low := bits.Mul64(uint64(key)^mix, 0x9e3779b97f4a7c15)
	return high ^ low
}

// find returns the slot of a key, or the free one where it would come.
func (h *holding) find(key kv.EngineHash) (slot int, ok bool) {
	mask := len(h.entries) - 1
	for i := h.home(key); ; i = (i + 1) & mask {
		switch e := &h.entries[i]; {
		case e.copies == 0:
			return i, false
		case e.key == key:
			return i, true
		}
	}
}

// touch brings the slots of keys into the processor's caches, all at once: one
// after the other, as they are needed, each would be waited for.
func (h *holding) touch(keys []kv.EngineHash) {
	var sum tally
	for _, k := range keys {
		sum += h.entries[h.home(k)].copies
	}
	h.touched = sum
}

// reserve makes room for n more blocks, so that slots stay where they are until
// so many have come.
func (h *holding) reserve(n int) {
	slots := len(h.entries)
	for (h.used+n)*4 > slots*3 {
		slots *= 2
	}
	if slots != len(h.entries) {
		h.resize(slots)
	}
}

func (h *holding) resize(slots int) {
	old := *h
	h.entries = make([]entry, slots)
	h.shift = uint8(64 - bits.Len(uint(slots-1)))
	if old.seeds != nil {
		h.seeds = make([]uint64, slots)
	}
	if old.chains != nil {
		h.chains = make([]kv.SeqHash, slots)
	}
	for from, e := range old.entries {
		if e.copies == 0 {
			continue
		}
		to, _ := h.find(e.key)
		h.entries[to] = e
		if old.seeds != nil {
			h.seeds[to] = old.seeds[from]
		}
		if old.chains != nil {
			h.chains[to] = old.chains[from]
		}
	}
}

// put makes a free slot that find has returned the key's.
func (h *holding) put(slot int, key kv.EngineHash, o origin) {
	h.used++
	h.entries[slot].key = key
	h.file(slot, o.seed)
	if h.chains != nil {
		h.chains[slot] = o.chain
	}
}

// take takes one copy of a slot's block away and says whether that is to be
// passed on: whether none is left on the tier, or there was none.
func (h *holding) take(slot int, tier kv.Tier) bool {
	b := &h.entries[slot]
	several := h.seed(slot) == severalSpaces
	if b.copies.on(tier) > 0 {
		b.copies = b.copies.drop(tier)
	}
	gone := b.copies.on(tier) == 0
	if b.copies == 0 {
		h.remove(slot)
	}
	return gone && !several
}

// origin returns what blocks behind a key take over.
func (h *holding) origin(key kv.EngineHash) (o origin, ok bool) {
	if h.pages != nil {
		if i, ok := h.pages.at[key]; ok {
			p := &h.pages.all[i]
			return origin{p.seed, p.settled, p.chain}, true
		}
	}
	slot, ok := h.find(key)
	if !ok {
		return origin{}, false
	}
	o = origin{seed: h.seed(slot), settled: true}
	if h.chains != nil {
		o.chain = h.chains[slot]
	}
	return o, true
}

// seed returns that of a slot's namespace.
func (h *holding) seed(slot int) uint64 {
	if h.seeds == nil {
		return kv.HashSeed
	}
	return h.seeds[slot]
}

// file puts a slot's block into the namespace of a seed.
func (h *holding) file(slot int, seed uint64) {
	if h.seeds == nil {
		if seed == kv.HashSeed {
			return
		}
		h.seeds = make([]uint64, len(h.entries))
		for i := range h.seeds {
			h.seeds[i] = kv.HashSeed
		}
	}
	h.seeds[slot] = seed
}

// remove frees a slot whose last copy is gone. What stands behind it may move.
func (h *holding) remove(slot int) {
	h.used--
	mask := len(h.entries) - 1
	hole := slot
	for i := (slot + 1) & mask; h.entries[i].copies != 0; i = (i + 1) & mask {
		// An entry may fill the hole unless its search begins behind it.
		if home := h.home(h.entries[i].key); (i-home)&mask < (i-hole)&mask {
			continue
		}
		h.entries[hole] = h.entries[i]
		if h.seeds != nil {
			h.seeds[hole] = h.seeds[i]
		}
		if h.chains != nil {
			h.chains[hole] = h.chains[i]
		}
		hole = i
	}
	h.entries[hole] = entry{}
}

// clear forgets all blocks and keeps what is known of groups.
func (h *holding) clear() {
	fresh := newHolding(h.chains != nil)
	fresh.groups = h.groups
	*h = *fresh
}

// groups is what has been learned of a rank's groups of layers.
type groups struct {
	first [8]attention // of the groups that models really have
	rest  map[uint32]attention
}

const maxGroups = 1024

func (g *groups) of(group uint32) attention {
	if group < uint32(len(g.first)) {
		return g.first[group]
	}
	return g.rest[group]
}

func (g *groups) learn(group uint32, a attention) {
	switch {
	case group < uint32(len(g.first)):
		g.first[group] = a
	case g.rest == nil:
		g.rest = map[uint32]attention{group: a}
	case len(g.rest) < maxGroups || g.rest[group] != attentionUntold:
		g.rest[group] = a
	}
}
