package store

import "github.com/zeebo/xxh3"

// sum stands for a conversation: all its items, in their order.
type sum [16]byte

// end is the end of somebody's conversation.
type end struct {
	tenant string
	sum    sum
}

// with returns the sum of the conversation that goes on with an item.
func (s sum) with(item Item) sum {
	one := xxh3.Hash128(item.JSON).Bytes()
	var both [32]byte
	copy(both[:], s[:])
	copy(both[16:], one[:])
	return xxh3.Hash128(both[:]).Bytes()
}

func (s sum) withAll(items []Item) sum {
	for _, item := range items {
		s = s.with(item)
	}
	return s
}

// told finds the node whose whole conversation stands at the beginning of items,
// the longest if there are several, and how many items that are. So a client that
// sends everything again each time, as it came, costs no more than one that names
// the response that it continues.
func (t *tree) told(tenant string, items []Item) (n *node, count int) {
	var s sum
	for i := range items {
		s = s.with(items[i])
		if at := t.ends[end{tenant, s}]; at != nil {
			n, count = at, i+1
		}
	}
	return n, count
}
