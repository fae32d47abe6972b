//go:build invariants

package kvindex

import (
	"fmt"
	"sync/atomic"

	"github.com/dynago/dynago/kv"
)

// crowd is how many spans a cover may have before its run is split: so few that
// it happens in tests.
const crowd = 2

// checks counts the calls of check, of all trees.
var checks atomic.Int64

// check panics if the tree contradicts itself. It looks at every node, and so
// exists only under the build tag invariants; the larger a tree is, the fewer of
// its changes are looked at.
func (t *tree) check() {
	if checks.Add(1)%int64(1+t.nodes.used/2) != 0 {
		return
	}
	c := checking{tree: t, children: make(map[uint32]uint32), units: make(map[place]uint8)}
	for chunk := range *t.nodes.chunks.Load() {
		if t.nodes.book(chunk) == nil {
			continue
		}
		for i := range uint32(1 << nodeOrder) {
			if id := uint32(chunk)<<nodeOrder | i; t.node(id).run.Load() != 0 {
				c.node(id)
			}
		}
	}
	c.totals()
}

type checking struct {
	*tree
	nodeCount, blockCount int
	listCount, lowerCount int
	children              map[uint32]uint32
	units                 map[place]uint8
}

func (c *checking) require(ok bool, id uint32, format string, args ...any) {
	if !ok {
		panic(fmt.Sprintf("kvindex: node %d: ", id) + fmt.Sprintf(format, args...))
	}
}

func (c *checking) node(id uint32) {
	n := c.tree.node(id)
	r := n.at()
	c.nodeCount++
	c.blockCount += r.length
	c.require(n.version.Load()&1 == 0, id, "left open")
	c.require(r.length > 0 && r.length <= r.room, id, "%d blocks in room for %d", r.length, r.room)
	for p := r.start &^ (unit - 1); p < r.start+place(r.room); p += unit {
		c.units[p]++
	}
	for _, i := range []int{0, r.length - 1} {
		got, _, _ := c.resolve(r.start + place(i))
		c.require(got == id, id, "block %d belongs to node %d", i, got)
	}
	depth := uint32(0)
	if n.up() != 0 {
		up, parent, pr := c.resolve(n.up())
		c.require(up != 0 && pr.last() == n.up(), id, "hangs on %d, which is not the end of node %d", n.up(), up)
		depth = parent.depth + uint32(pr.length)
		c.children[up]++
	}
	c.require(n.depth == depth, id, "depth is %d and not %d", n.depth, depth)
	found, _, _ := c.child(n.up(), c.hash(r.start).Load())
	c.require(found == id, id, "its key leads to node %d", found)
	if n.tail != 0 {
		tail := c.tree.node(n.tail)
		c.require(tail.at().start == r.start+place(r.length) && tail.up() == r.last(), id, "tail %d does not follow", n.tail)
	}
	end := 0
	if n.lowerID() != 0 {
		c.lowerCount++
		empty := true
		for i := range c.lower(n.lowerID()) {
			empty = empty && c.lower(n.lowerID())[i].empty()
		}
		c.require(!empty, id, "keeps empty covers of the lower tiers")
	}
	c.eachCover(n, func(tier int, cov *cover) { end = max(end, c.cover(id, tier, cov, r.length)) })
	c.require(n.children > 0 || end == r.length, id, "is held up to block %d of %d, and nothing is below", end, r.length)
}

// cover checks one cover and returns the end of the last block that is held.
func (c *checking) cover(id uint32, tier int, cov *cover, length int) (end int) {
	full, p := set(cov.full.Load()), spans(cov.part.Load())
	members := 0
	for range c.members(full) {
		members++
		end = length
	}
	c.require(members == full.count(), id, "tier %d: counts %d holders of all and has %d", tier, full.count(), members)
	c.require(full.inline() || members > 3, id, "tier %d: keeps a bit set for %d holders", tier, members)
	if !full.inline() {
		c.listCount += 1 << (full.list().order - pairOrder)
	}
	if !p.inline() {
		c.listCount += 1 << (p.list().order - pairOrder)
		c.require(c.count(p) > 1, id, "tier %d: keeps a list for %d spans", tier, c.count(p))
	}
	for i := range c.count(p) {
		s := c.span(p, i)
		end = max(end, s.to())
		c.require(!c.has(full, s.slot()), id, "tier %d: slot %d stands in full and has a span", tier, s.slot())
		c.require(s.from() < s.to() && s.to() <= length && s.to()-s.from() < length, id, "tier %d: span %d..%d of %d", tier, s.from(), s.to(), length)
		for k := range i {
			o := c.span(p, k)
			c.require(o.slot() != s.slot() || o.from() > s.to() || s.from() > o.to(), id, "tier %d: spans of slot %d touch", tier, s.slot())
		}
	}
	return end
}

func (c *checking) totals() {
	t := c.tree
	c.require(c.nodeCount == t.nodes.used, 0, "%d nodes in use, %d booked", c.nodeCount, t.nodes.used)
	c.require(c.blockCount == t.blocks, 0, "%d blocks, %d booked", c.blockCount, t.blocks)
	c.require(c.listCount == t.lists.used, 0, "%d pairs of words in lists, %d booked", c.listCount, t.lists.used)
	c.require(c.lowerCount == t.lowers.used, 0, "%d lower covers, %d booked", c.lowerCount, t.lowers.used)
	c.require(len(c.units) == t.slab.used, 0, "%d units in use, %d booked", len(c.units), t.slab.used)
	for p, nodes := range c.units {
		o, i := t.owner(p)
		c.require(o != nil && o.nodes[i] == nodes, o.first[i], "unit %d has %d nodes", p>>unitOrder, nodes)
	}
	used := 0
	for i := range t.children.shards {
		used += t.children.shards[i].Load().used
	}
	c.require(used == c.nodeCount, 0, "%d entries for %d nodes", used, c.nodeCount)
	for id, children := range c.children {
		n := t.node(id)
		c.require(n.children == children, id, "%d children, %d booked", children, n.children)
	}
}

// check panics if the table of keys contradicts itself: each key lies in its
// home or behind full buckets, all of which count it, and on the tiers that on
// counts. It looks at some of the changes, as that of the tree does.
func (k *keys) check(on [tiers]int) {
	if checks.Add(1)%int64(1+k.count/2) != 0 {
		return
	}
	passed := make([]uint32, len(k.buckets))
	count := 0
	for at := range k.buckets {
		b := &k.buckets[at]
		for i := range keysPerBucket {
			if (b.held[i] != 0) != (i < b.size()) || i >= b.size() && b.key[i] != 0 {
				panic(fmt.Sprintf("kvindex: bucket %d of %d keys has %v for %v", at, b.size(), b.held, b.key))
			}
		}
		for i, key := range b.key[:b.size()] {
			count++
			for tier := range on {
				if b.held[i].on(kv.Tier(tier)) {
					on[tier]--
				}
			}
			for from := k.home(key); from != uint32(at); from = k.next(from) {
				passed[from]++
			}
		}
	}
	if on != [tiers]int{} {
		panic(fmt.Sprintf("kvindex: keys on tiers that are not booked, or the other way round: %v", on))
	}
	if count != k.count {
		panic(fmt.Sprintf("kvindex: %d keys, %d booked", count, k.count))
	}
	for at, n := range passed {
		if b := &k.buckets[at]; b.load/passes != n || n > 0 && b.size() < keysPerBucket {
			panic(fmt.Sprintf("kvindex: bucket %d of %d keys was passed by %d, counts %d", at, b.size(), n, b.load/passes))
		}
	}
}
