package workload

import "math/rand/v2"

// cache is one worker's prefix cache: the least recently used block goes first.
// A prompt is touched from its last block to its first, so that a block is never
// older than the ones below it, and what is held is always closed under
// prefixes.
type cache struct {
	capacity int
	slots    map[uint32]uint32 // by block id
	ring     []entry           // slot 0 stands between the oldest and the newest
	free     []uint32
}

type entry struct {
	id           uint32
	older, newer uint32
}

func newCache(capacity int) *cache {
	return &cache{capacity: capacity, slots: make(map[uint32]uint32, capacity), ring: make([]entry, 1, capacity+1)}
}

// hit returns how many leading blocks of chain are held.
func (c *cache) hit(chain []uint32) int {
	for i, id := range chain {
		if _, ok := c.slots[id]; !ok {
			return i
		}
	}
	return len(chain)
}

// admit makes chain the newest, of which hit leading blocks are held, and
// appends to evicted what had to go, oldest first. chain must not be longer than
// the capacity.
func (c *cache) admit(chain []uint32, hit int, evicted []uint32) []uint32 {
	for i := hit - 1; i >= 0; i-- {
		c.touch(c.slots[chain[i]])
	}
	for len(c.slots)+len(chain)-hit > c.capacity {
		evicted = append(evicted, c.evict())
	}
	for i := len(chain) - 1; i >= hit; i-- {
		c.insert(chain[i])
	}
	for i := hit - 1; i >= 0; i-- {
		c.touch(c.slots[chain[i]])
	}
	return evicted
}

func (c *cache) insert(id uint32) {
	var slot uint32
	if n := len(c.free); n > 0 {
		slot, c.free = c.free[n-1], c.free[:n-1]
	} else {
		slot = uint32(len(c.ring))
		c.ring = append(c.ring, entry{})
	}
	c.slots[id] = slot
	c.ring[slot].id = id
	c.link(slot)
}

func (c *cache) evict() uint32 {
	slot := c.ring[0].newer
	id := c.ring[slot].id
	c.unlink(slot)
	delete(c.slots, id)
	c.free = append(c.free, slot)
	return id
}

func (c *cache) touch(slot uint32) {
	c.unlink(slot)
	c.link(slot)
}

func (c *cache) link(slot uint32) {
	newest := c.ring[0].older
	c.ring[slot].older, c.ring[slot].newer = newest, 0
	c.ring[newest].newer = slot
	c.ring[0].older = slot
}

func (c *cache) unlink(slot uint32) {
	e := c.ring[slot]
	c.ring[e.older].newer = e.newer
	c.ring[e.newer].older = e.older
}

func newRand() *rand.Rand { return rand.New(rand.NewPCG(seed, seed)) }
