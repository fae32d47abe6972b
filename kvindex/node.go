package kvindex

import (
	"math/bits"
	"sync/atomic"
)

// place is where a block's local hash lies in the slab: the name of a block
// under everything before it, for as long as somebody needs it. 0 stands for
// the root, before the first block.
type place uint32

// node is a run of consecutive blocks that belong to the same holders, but for
// those that have only parts of it. It fills one cache line.
//
// The children of a node are known by the place of its last block. Because a
// split leaves the lower half in its place, nothing below it needs to be told.
//
// Readers take no lock: they read the version, then what they need, then the
// version again, and believe nothing unless it was even and has not changed.
type node struct {
	version atomic.Uint64
	run     atomic.Uint64 // place of the first block, room in the slab, blocks; see runOf
	links   atomic.Uint64 // place of the block above, id of the lower covers (0 = none)
	device  cover
	hint    atomic.Uint64 // id of the newest child, place of its first block; 0 without children

	// For the writer alone.
	depth    uint32 // blocks above
	children uint32
	tail     uint32 // node that was cut off from this one's end, or 0
}

// nodeChunk is half a MiB of nodes.
type nodeChunk [1 << nodeOrder]node

// lower holds the covers of the tiers below the device, by tier - 1.
type lower [tiers - 1]cover

type lowerChunk [1 << lowerOrder]lower

const (
	nodeOrder  = 13
	lowerOrder = 13
)

// run says which part of the slab a node has.
type run struct {
	start  place
	room   int // blocks that can be there before another run begins
	length int // blocks that are there
}

func runOf(w uint64) run {
	return run{start: place(w >> 32), room: int(w >> 16 & 0xffff), length: int(w & 0xffff)}
}

func (r run) word() uint64 { return uint64(r.start)<<32 | uint64(r.room)<<16 | uint64(r.length) }

// last returns the place of the last block.
func (r run) last() place { return r.start + place(r.length) - 1 }

func (r run) contains(p place) bool { return p >= r.start && p-r.start < place(r.length) }

func (n *node) at() run { return runOf(n.run.Load()) }

// up returns the place of the block above the run.
func (n *node) up() place { return place(n.links.Load() >> 32) }

// lowerID names the covers of the lower tiers, 0 if there are none.
func (n *node) lowerID() uint32 { return uint32(n.links.Load()) }

func (n *node) link(up place, lower uint32) { n.links.Store(uint64(up)<<32 | uint64(lower)) }

// open begins a change that readers must not see in part; shut ends it.
func (n *node) open() { n.version.Store(n.version.Load() + 1) }
func (n *node) shut() { n.version.Store(n.version.Load() + 1) }

// slabChunk is a MiB of local hashes. For the writer alone it says whose the
// units are.
type slabChunk struct {
	hash  [1 << (unitOrder + slabOrder)]atomic.Uint64
	first [1 << slabOrder]uint32 // the node that begins first in the unit or before it
	nodes [1 << slabOrder]uint8  // nodes that have blocks or room in the unit
}

const (
	unitOrder = 4 // a unit of the slab is 16 blocks, two cache lines
	unit      = 1 << unitOrder
	slabOrder = 13

	// placeBits leave room for the tiers of a key beside its place.
	placeBits = 28
	maxRun    = 1024 // blocks of one node
)

// hash returns the local hash at p, which must be in use.
func (t *tree) hash(p place) *atomic.Uint64 {
	return &t.slab.chunk(uint32(p) >> (unitOrder + slabOrder)).hash[p&(1<<(unitOrder+slabOrder)-1)]
}

// hashes returns the slab from p on for n blocks. For a reader whose p is no
// longer true it may be empty or hold anything.
func (t *tree) hashes(p place, n int) []atomic.Uint64 {
	c := t.slab.chunk(uint32(p) >> (unitOrder + slabOrder))
	i := int(p & (1<<(unitOrder+slabOrder) - 1))
	if c == nil || i+n > len(c.hash) {
		return nil
	}
	return c.hash[i : i+n]
}

// node returns a node by its id, or nil if its chunk is gone, which happens to
// readers alone.
func (t *tree) node(id uint32) *node {
	c := t.nodes.chunk(id >> nodeOrder)
	if c == nil {
		return nil
	}
	return &c[id&(1<<nodeOrder-1)]
}

// lower returns covers by their id, with the same reservation.
func (t *tree) lower(id uint32) *lower {
	c := t.lowers.chunk(id >> lowerOrder)
	if c == nil {
		return nil
	}
	return &c[id&(1<<lowerOrder-1)]
}

// units returns how many units hold n blocks.
func units(n int) int { return (n + unit - 1) / unit }

// fold mixes a key of any quality into 64 good bits.
func fold(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a^0x9e3779b97f4a7c15, b^0xd6e8feb86659fd93)
	return hi ^ lo
}
