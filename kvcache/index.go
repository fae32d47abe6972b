package kvcache

import (
	"math/bits"

	"github.com/dynago/dynago/kv"
)

// index finds slots by hash: open addressing with linear probing, at most three
// quarters full. An entry holds 32 bits of the hash beside the slot, so that a
// probe looks at a block only when it has very likely found it. They begin with
// the entry's place, and so entries can be moved without a look at their blocks.
type index struct {
	entries []entry
	mask    uint32
	seen    int32 // of what was only touched, so that touching is not left out
}

type entry struct {
	tag  uint32
	slot int32 // slot+1; 0 = empty
}

func newIndex(n int) index {
	size := uint64(1) << bits.Len64(uint64(n)*4/3)
	return index{entries: make([]entry, size), mask: uint32(size - 1)}
}

// tagOf spreads a hash over 32 bits, of which the lowest are its place. Hashes come
// from XXH3 and need no further mixing, but callers may use small numbers in tests
// and simulations.
func tagOf(h kv.SeqHash) uint32 { return uint32(uint64(h) * 0x9e3779b97f4a7c15 >> 32) }

func (x *index) get(blocks []block, h kv.SeqHash) int32 {
	tag := tagOf(h)
	return x.probe(blocks, h, tag, x.entries[tag&x.mask])
}

// probe is get for those who have looked at the first entry already.
func (x *index) probe(blocks []block, h kv.SeqHash, tag uint32, e entry) int32 {
	for at := tag; e.slot != 0; e = x.entries[at&x.mask] {
		if e.tag == tag && blocks[e.slot-1].hash == h {
			return e.slot - 1
		}
		at++
	}
	return none
}

// atOnce is how many hashes are looked up together.
const atOnce = 32

// leading finds the slots of up to atOnce leading hashes, as far as they are there,
// and returns how many are. It first touches all entries and then all blocks, none
// of which depends on another, so that the processor waits for many at a time.
func (x *index) leading(blocks []block, hashes []kv.SeqHash, slots *[atOnce]int32) (n int) {
	var first [atOnce]entry
	hashes = hashes[:min(len(hashes), atOnce)]
	for k, h := range hashes {
		first[k] = x.entries[tagOf(h)&x.mask]
	}
	for k, h := range hashes {
		i := x.probe(blocks, h, tagOf(h), first[k])
		if i == none {
			return k
		}
		slots[k] = i
	}
	return len(hashes)
}

// put adds a hash that is not in the index.
func (x *index) put(h kv.SeqHash, slot int32) {
	tag := tagOf(h)
	at := tag & x.mask
	for x.entries[at].slot != 0 {
		at = (at + 1) & x.mask
	}
	x.entries[at] = entry{tag, slot + 1}
}

// removeAll takes slots out that are in the index under hashes, and waits for many
// entries at a time as leading does.
func (x *index) removeAll(hashes []kv.SeqHash, slots []Ref) {
	for len(hashes) > 0 {
		n := min(len(hashes), atOnce)
		for _, h := range hashes[:n] {
			x.seen ^= x.entries[tagOf(h)&x.mask].slot
		}
		for k, h := range hashes[:n] {
			x.remove(h, int32(slots[k]))
		}
		hashes, slots = hashes[n:], slots[n:]
	}
}

// remove takes a slot out that is in the index under a hash. Entries behind the
// hole move up where that brings them nearer to their place, so that no tombstone
// is needed.
func (x *index) remove(h kv.SeqHash, slot int32) {
	hole := tagOf(h) & x.mask
	for x.entries[hole].slot != slot+1 {
		hole = (hole + 1) & x.mask
	}
	for at := (hole + 1) & x.mask; x.entries[at].slot != 0; at = (at + 1) & x.mask {
		if home := x.entries[at].tag; (at-home)&x.mask >= (at-hole)&x.mask {
			x.entries[hole] = x.entries[at]
			hole = at
		}
	}
	x.entries[hole] = entry{}
}
