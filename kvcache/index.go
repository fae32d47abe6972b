package kvcache

import (
	"math/bits"

	"github.com/dynago/dynago/kv"
)

// index finds slots by hash: open addressing with linear probing, at most three
// quarters full. An entry holds 32 bits of the hash beside the slot, so that a
// probe looks at a block only when it has very likely found it.
type index struct {
	entries []entry
	mask    uint32
}

type entry struct {
	tag  uint32
	slot int32 // slot+1; 0 = empty
}

func newIndex(n int) index {
	size := uint64(1) << bits.Len64(uint64(n)*4/3)
	return index{entries: make([]entry, size), mask: uint32(size - 1)}
}

// place spreads a hash over position and tag. Hashes come from XXH3 and need no
// further mixing, but callers may use small numbers in tests and simulations.
func place(h kv.SeqHash) (position, tag uint32) {
	x := uint64(h) * 0x9e3779b97f4a7c15
	return uint32(x >> 32), uint32(x)
}

func (x *index) get(blocks []block, h kv.SeqHash) int32 {
	at, tag := place(h)
	for at &= x.mask; x.entries[at].slot != 0; at = (at + 1) & x.mask {
		if e := x.entries[at]; e.tag == tag && blocks[e.slot-1].hash == h {
			return e.slot - 1
		}
	}
	return none
}

// put adds a hash that is not in the index.
func (x *index) put(h kv.SeqHash, slot int32) {
	at, tag := place(h)
	for at &= x.mask; x.entries[at].slot != 0; at = (at + 1) & x.mask {
	}
	x.entries[at] = entry{tag, slot + 1}
}

// remove takes out a hash that is in the index. Entries behind the hole move up
// where that brings them nearer to their place, so that no tombstone is needed.
func (x *index) remove(blocks []block, h kv.SeqHash) {
	at, tag := place(h)
	for at &= x.mask; ; at = (at + 1) & x.mask {
		if e := x.entries[at]; e.tag == tag && blocks[e.slot-1].hash == h {
			break
		}
	}
	hole := at
	for at = (at + 1) & x.mask; x.entries[at].slot != 0; at = (at + 1) & x.mask {
		home, _ := place(blocks[x.entries[at].slot-1].hash)
		if (at-home)&x.mask >= (at-hole)&x.mask {
			x.entries[hole] = x.entries[at]
			hole = at
		}
	}
	x.entries[hole] = entry{}
}
