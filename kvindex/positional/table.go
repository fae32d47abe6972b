package positional

import (
	"iter"

	"github.com/dynago/dynago/kv"
)

// table finds blocks by position and content. Each slot is the head of a chain
// that runs through the blocks themselves, so that nothing moves and a removal
// leaves no tombstone.
type table struct {
	heads []uint32 // a power of two
	len   int
}

func (t *table) slot(position uint32, l kv.LocalHash) *uint32 {
	return &t.heads[hash(uint64(l)^uint64(position)<<40)&uint64(len(t.heads)-1)]
}

// first returns the first block that may be at position with content l, or 0.
func (t *table) first(position uint32, l kv.LocalHash) uint32 {
	if t.len == 0 {
		return 0
	}
	return *t.slot(position, l)
}

func (t *table) put(a *arena, i uint32) {
	if t.len == len(t.heads) {
		t.resize(a, max(64, 2*len(t.heads)))
	}
	t.len++
	t.link(a, i)
}

func (t *table) link(a *arena, i uint32) {
	b := a.at(i)
	head := t.slot(b.position, b.local)
	b.chain, *head = *head, i
}

func (t *table) remove(a *arena, i uint32) {
	b := a.at(i)
	at := t.slot(b.position, b.local)
	for *at != i {
		at = &a.at(*at).chain
	}
	*at = b.chain
	t.len--
	if t.len < len(t.heads)/8 {
		t.resize(a, len(t.heads)/2)
	}
}

func (t *table) resize(a *arena, n int) {
	old := t.heads
	t.heads = make([]uint32, n)
	for _, i := range old {
		for i != 0 {
			next := a.at(i).chain
			t.link(a, i)
			i = next
		}
	}
}

// hash spreads x over its low bits.
func hash(x uint64) uint64 {
	x ^= x >> 32
	x *= 0x9e3779b97f4a7c15
	return x ^ x>>32
}

// keys says where the engine keys of one target lie: an open table with linear
// probing, from which a removal moves later entries back.
type keys struct {
	entries []entry // a power of two
	len     int
}

type entry struct {
	key   kv.EngineHash
	block uint32 // 0 in an empty entry
	on    uint8  // bit per tier
}

// index returns where key is, or the empty entry where it would be.
func (k *keys) index(key kv.EngineHash) int {
	mask := len(k.entries) - 1
	i := int(hash(uint64(key))) & mask
	for k.entries[i].block != 0 && k.entries[i].key != key {
		i = (i + 1) & mask
	}
	return i
}

// get returns the block and the tiers of key, or zeros.
func (k *keys) get(key kv.EngineHash) (block uint32, on uint8) {
	if k.len == 0 {
		return 0, 0
	}
	e := &k.entries[k.index(key)]
	return e.block, e.on
}

func (k *keys) put(key kv.EngineHash, block uint32, on uint8) {
	if k.len >= len(k.entries)*5/8 {
		k.resize(max(16, 2*len(k.entries)))
	}
	e := &k.entries[k.index(key)]
	if e.block == 0 {
		k.len++
	}
	*e = entry{key, block, on}
}

// remove forgets key, which must be there.
func (k *keys) remove(key kv.EngineHash) {
	mask := len(k.entries) - 1
	hole := k.index(key)
	for i := (hole + 1) & mask; k.entries[i].block != 0; i = (i + 1) & mask {
		home := int(hash(uint64(k.entries[i].key))) & mask
		if (i-home)&mask >= (i-hole)&mask {
			k.entries[hole] = k.entries[i]
			hole = i
		}
	}
	k.entries[hole] = entry{}
	k.len--
	if len(k.entries) > 16 && k.len < len(k.entries)/8 {
		k.resize(len(k.entries) / 2)
	}
}

func (k *keys) resize(n int) {
	old := k.entries
	k.entries = make([]entry, n)
	for _, e := range old {
		if e.block != 0 {
			k.entries[k.index(e.key)] = e
		}
	}
}

// all yields the block and the tiers of every key.
func (k *keys) all() iter.Seq2[uint32, uint8] {
	return func(yield func(uint32, uint8) bool) {
		for _, e := range k.entries {
			if e.block != 0 && !yield(e.block, e.on) {
				return
			}
		}
	}
}
