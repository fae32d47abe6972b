package store

// cacheBytes bounds what a store in a directory keeps in memory as well.
const cacheBytes = 64 << 20

// cache holds records of files, so that a conversation that goes on need not be
// read again at each turn. What came first goes first.
type cache struct {
	limit, bytes int64
	nodes        []*node // may hold some that have left the tree
}

// add keeps the record of a node.
func (c *cache) add(n *node, r *Record) {
	size, _ := r.size()
	if n.record != nil || n.unfinished || size > c.limit/8 {
		return
	}
	n.record = r
	c.bytes += size
	c.nodes = append(c.nodes, n)
	drop := 0
	for c.bytes > c.limit {
		first := c.nodes[drop]
		drop++
		size, _ := first.record.size()
		c.bytes -= size
		first.record = nil
	}
	if drop > 0 {
		c.nodes = append(c.nodes[:0], c.nodes[drop:]...)
	}
}
