package store

import (
	"container/heap"
	"time"
)

// overhead is what a record costs besides its bytes: its place in the tree, in
// the order of use, and in the indices. An id of an item costs idOverhead more.
const (
	overhead   = 512
	idOverhead = 128
)

// A node is one stored response: what it adds to the conversation that it
// continues. It stays in the tree as long as its record can be asked for, or
// another node continues it.
type node struct {
	name
	parent   *node
	children int
	// bytes is what the node costs; extra of them only as long as its record can
	// be asked for.
	bytes, extra int64
	items        []place
	expires      time.Time
	used         time.Time
	touched      time.Time // when others were told of the use
	record       *Record   // nil if it lies elsewhere
	// orphan says that what the node stands on is lost, and unfinished that its
	// response was still being made when it was written.
	orphan, unfinished bool
	// sum is that of the conversation up to here; zero if there is none.
	sum sum

	// live says that the record can be asked for. Then the node has a place in
	// the order of use and in the heap of expiries.
	live         bool
	older, newer *node
	heapIndex    int
}

// name is an id and whose it is.
type name struct{ tenant, id string }

// place is one occurrence of an item, in a list of those with the same id. The
// newest counts.
type place struct {
	id           string
	node         *node
	index        int // among the node's items
	older, newer *place
}

// tree holds stored responses: plain data, whose methods get the time as an
// argument. It is bounded by bytes, and what a record shares with those before
// it counts once.
type tree struct {
	limit    int64
	bytes    int64
	nodes    map[name]*node // live or not
	places   map[name]*place
	ends     map[end]*node // the newest with a conversation
	expiries expiries
	order    node // of use: a ring, order.newer is the oldest
	live     int

	evicted, expired int64
	// dropped hears of each record that can no longer be asked for, and of each
	// node that is gone.
	dropped func(n *node, gone bool)
}

func newTree(limit int64) *tree {
	t := &tree{limit: limit, nodes: map[name]*node{}, places: map[name]*place{}, ends: map[end]*node{}, dropped: func(*node, bool) {}}
	t.order.older, t.order.newer = &t.order, &t.order
	return t
}

// newNode makes a node for a record of so many bytes, extra of them beside its
// items.
func newNode(key name, bytes, extra int64, items []string, used, expires time.Time) *node {
	n := &node{
		name: key, bytes: bytes + overhead + idOverhead*int64(len(items)), extra: extra,
		items: make([]place, len(items)), used: used, expires: expires,
	}
	for i, id := range items {
		n.items[i] = place{id: id, node: n, index: i}
	}
	return n
}

// add takes in a record, which continues parent, a node of the tree, or nothing.
// It returns false if the record is too large to be kept, has expired, or if
// there is one of its name.
func (t *tree) add(now time.Time, n, parent *node) bool {
	if !n.expires.After(now) || !t.hang(n, parent) {
		return false
	}
	t.revive(n)
	t.settle(now)
	return n.live
}

// revive lets a node's record be asked for.
func (t *tree) revive(n *node) {
	n.live = true
	t.live++
	t.link(n)
	heap.Push(&t.expiries, n)
}

// settle drops what has expired, and then what was not used for longest until
// the rest is small enough.
func (t *tree) settle(now time.Time) {
	t.expire(now)
	for t.bytes > t.limit {
		t.evicted++
		t.retire(t.order.newer)
	}
}

// hang puts a node under its parent, without a record that could be asked for.
func (t *tree) hang(n, parent *node) bool {
	if t.nodes[n.name] != nil {
		return false
	}
	chain := n.bytes
	for at := parent; at != nil; at = at.parent {
		chain += at.bytes
		if at.live {
			chain -= at.extra
		}
	}
	if chain > t.limit {
		return false
	}
	if parent != nil {
		n.parent = parent
		parent.children++
	}
	t.nodes[n.name] = n
	if n.sum != (sum{}) && !n.unfinished { // what is being made must be free to end
		t.ends[end{n.tenant, n.sum}] = n
	}
	t.bytes += n.bytes
	for i := range n.items {
		p := &n.items[i]
		key := name{n.tenant, p.id}
		if p.older = t.places[key]; p.older != nil {
			p.older.newer = p
		}
		t.places[key] = p
	}
	return true
}

// get finds a record, and makes it the one used last.
func (t *tree) get(now time.Time, key name) *node {
	t.expire(now)
	n := t.nodes[key]
	if n == nil || !n.live {
		return nil
	}
	t.use(n, now)
	return n
}

// use notes that a record was asked for.
func (t *tree) use(n *node, now time.Time) {
	t.unlink(n)
	n.used = now
	t.link(n)
}

// item finds the newest item of an id. Its own record may be gone, as long as
// another continues it.
func (t *tree) item(now time.Time, key name) *place {
	t.expire(now)
	return t.places[key]
}

// remove forgets a record.
func (t *tree) remove(now time.Time, key name) bool {
	t.expire(now)
	n := t.nodes[key]
	if n == nil || !n.live {
		return false
	}
	t.retire(n)
	return true
}

// expire forgets what has been kept long enough.
func (t *tree) expire(now time.Time) {
	for len(t.expiries) > 0 && !t.expiries[0].expires.After(now) {
		t.expired++
		t.retire(t.expiries[0])
	}
}

// retire makes a record one that cannot be asked for.
func (t *tree) retire(n *node) {
	n.live = false
	t.live--
	t.unlink(n)
	heap.Remove(&t.expiries, n.heapIndex)
	n.bytes -= n.extra
	t.bytes -= n.extra
	if n.children > 0 {
		t.dropped(n, false)
		return
	}
	t.prune(n)
}

// prune takes nodes out that nobody needs: n, and then what it alone has kept.
func (t *tree) prune(n *node) {
	for n != nil && !n.live && n.children == 0 {
		delete(t.nodes, n.name)
		if key := (end{n.tenant, n.sum}); t.ends[key] == n {
			delete(t.ends, key)
		}
		t.bytes -= n.bytes
		for i := range n.items {
			t.forget(&n.items[i])
		}
		t.dropped(n, true)
		if n.parent != nil {
			n.parent.children--
		}
		n, n.parent = n.parent, nil
	}
}

// forget takes a place out of the list of those of its id.
func (t *tree) forget(p *place) {
	key := name{p.node.tenant, p.id}
	if p.older != nil {
		p.older.newer = p.newer
	}
	switch {
	case p.newer != nil:
		p.newer.older = p.older
	case p.older != nil:
		t.places[key] = p.older
	default:
		delete(t.places, key)
	}
}

// link puts a node into the order of use. Most are the newest; one that was
// found in a directory goes where its time says.
func (t *tree) link(n *node) {
	at := t.order.older
	for at != &t.order && at.used.After(n.used) {
		at = at.older
	}
	n.older, n.newer = at, at.newer
	at.newer.older = n
	at.newer = n
}

func (t *tree) unlink(n *node) {
	n.older.newer, n.newer.older = n.newer, n.older
	n.older, n.newer = nil, nil
}

// lineage returns a node and what it continues, the oldest first.
func lineage(n *node) []*node {
	depth := 0
	for at := n; at != nil; at = at.parent {
		depth++
	}
	line := make([]*node, depth)
	for at := n; at != nil; at = at.parent {
		depth--
		line[depth] = at
	}
	return line
}

// expiries is a heap of nodes, the one that expires first on top.
type expiries []*node

// Len, Less, Swap, Push and Pop implement heap.Interface.
func (e expiries) Len() int           { return len(e) }
func (e expiries) Less(i, j int) bool { return e[i].expires.Before(e[j].expires) }

func (e expiries) Swap(i, j int) {
	e[i], e[j] = e[j], e[i]
	e[i].heapIndex, e[j].heapIndex = i, j
}

func (e *expiries) Push(x any) {
	n := x.(*node)
	n.heapIndex = len(*e)
	*e = append(*e, n)
}

func (e *expiries) Pop() any {
	old := *e
	n := old[len(old)-1]
	old[len(old)-1] = nil
	*e = old[:len(old)-1]
	return n
}
