package trace

import "github.com/dynago/dynago/kv"

// Chains numbers the blocks of the prompts of a workload: equal numbers are
// equal tokens behind equal tokens. The last block of a prompt may be short.
func Chains(w []Request, blockSize int) [][]int32 {
	n := newNumbering(blockSize)
	chains := make([][]int32, len(w))
	for i := range w {
		chains[i] = n.of(w[i].Prompt)
	}
	return chains
}

// numbering gives blocks numbers as they come.
type numbering struct {
	blockSize int
	ids       map[kv.SeqHash]int32
	tokens    []uint32
	local     []kv.LocalHash
	seq       []kv.SeqHash
}

func newNumbering(blockSize int) *numbering {
	return &numbering{blockSize: blockSize, ids: map[kv.SeqHash]int32{}}
}

func (n *numbering) of(t Text) []int32 {
	n.tokens = t.Append(n.tokens[:0])
	n.local = kv.AppendLocalHashes(n.local[:0], n.tokens, n.blockSize, 0)
	if rest := len(n.tokens) % n.blockSize; rest > 0 {
		n.local = kv.AppendLocalHashes(n.local, n.tokens[len(n.tokens)-rest:], rest, 0)
	}
	n.seq = kv.AppendSeqHashes(n.seq[:0], n.local)
	chain := make([]int32, len(n.seq))
	for i, hash := range n.seq {
		id, ok := n.ids[hash]
		if !ok {
			id = int32(len(n.ids))
			n.ids[hash] = id
		}
		chain[i] = id
	}
	return chain
}

// Cache is the least that a cache of blocks does: it keeps the blocks that were
// used last. It has no owner, no events and no time; what real ones hit is
// compared with it.
type Cache struct {
	capacity int // 0: endless
	nodes    []node
	head     int32 // used last, as index of nodes; 0 is nobody
	tail     int32
	held     int
}

// node is a block, at its number + 1.
type node struct {
	newer, older int32
	held         bool
}

// NewCache returns an empty cache for so many blocks; 0 is endless.
func NewCache(capacity int) *Cache { return &Cache{capacity: capacity, nodes: make([]node, 1)} }

// Len returns the number of blocks held.
func (c *Cache) Len() int { return c.held }

// Match returns how many leading blocks of a chain are held.
func (c *Cache) Match(chain []int32) int {
	for i, id := range chain {
		if int(id)+1 >= len(c.nodes) || !c.nodes[id+1].held {
			return i
		}
	}
	return len(chain)
}

// Touch uses all blocks of a chain, the last one first, so that a beginning is
// dropped after what stands behind it; then it drops the oldest blocks beyond the
// capacity.
func (c *Cache) Touch(chain []int32) {
	for i := len(chain) - 1; i >= 0; i-- {
		c.use(chain[i])
	}
	c.trim()
}

// TouchForward is Touch with the first block first, as simple caches do: a
// beginning is then dropped first, and what stands behind it is of no use.
func (c *Cache) TouchForward(chain []int32) {
	for _, id := range chain {
		c.use(id)
	}
	c.trim()
}

func (c *Cache) use(id int32) {
	at := id + 1
	for int(at) >= len(c.nodes) {
		c.nodes = append(c.nodes, node{})
	}
	if c.nodes[at].held {
		c.unlink(at)
	} else {
		c.nodes[at].held = true
		c.held++
	}
	c.link(at)
}

func (c *Cache) trim() {
	for c.capacity > 0 && c.held > c.capacity {
		oldest := c.tail
		c.unlink(oldest)
		c.nodes[oldest].held = false
		c.held--
	}
}

func (c *Cache) link(at int32) {
	n := &c.nodes[at]
	n.newer, n.older = 0, c.head
	if c.head != 0 {
		c.nodes[c.head].newer = at
	} else {
		c.tail = at
	}
	c.head = at
}

func (c *Cache) unlink(at int32) {
	n := c.nodes[at]
	if n.newer != 0 {
		c.nodes[n.newer].older = n.older
	} else {
		c.head = n.older
	}
	if n.older != 0 {
		c.nodes[n.older].newer = n.newer
	} else {
		c.tail = n.newer
	}
}

// Placement is what comes of placing a workload on workers that only cache.
type Placement struct {
	Hit float64 // share of the blocks that were held where their prompt went
	// Imbalance is the work of the busiest worker, in blocks not held, against
	// the mean.
	Imbalance float64
}

// PlaceOptions say how a workload is placed.
type PlaceOptions struct {
	Workers  int
	Capacity int // of each, in blocks
	// RoundRobin lets workers take turns. Otherwise a prompt goes where the blocks
	// that are not held, and LoadWeight for each block that has not been held
	// there so far, are least; of equal ones to the first.
	RoundRobin bool
	LoadWeight float64
	// Forward lets caches use the blocks of a prompt from the first one on, which
	// costs hits but is what the published table was computed with.
	Forward bool
}

// Place places the prompts that the chains are of in order, with no time passing
// and no queue: what caches and placement alone make of a workload.
func Place(chains [][]int32, o PlaceOptions) Placement {
	caches := make([]*Cache, o.Workers)
	for i := range caches {
		caches[i] = NewCache(o.Capacity)
	}
	work := make([]int, o.Workers)
	hits, blocks := 0, 0
	for i, chain := range chains {
		worker := i % o.Workers
		if !o.RoundRobin {
			least := 0.0
			for k, c := range caches {
				cost := float64(len(chain)-c.Match(chain)) + o.LoadWeight*float64(work[k])
				if k == 0 || cost < least {
					worker, least = k, cost
				}
			}
		}
		held := caches[worker].Match(chain)
		if o.Forward {
			caches[worker].TouchForward(chain)
		} else {
			caches[worker].Touch(chain)
		}
		hits += held
		blocks += len(chain)
		work[worker] += len(chain) - held
	}
	most, sum := 0, 0
	for _, n := range work {
		most, sum = max(most, n), sum+n
	}
	return Placement{
		Hit:       float64(hits) / float64(max(blocks, 1)),
		Imbalance: float64(most*o.Workers) / float64(max(sum, 1)),
	}
}
