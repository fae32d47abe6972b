package router

import (
	"slices"
	"sort"

	"github.com/dynago/dynago/kv"
)

// run is a stretch of blocks that the same requests hold. Runs form a tree, in
// which a way down from the root is the beginning of a prompt: what a thousand
// blocks have in common is booked once. A request ends where a run ends, so a
// run is cut in two where a prompt leaves it.
//
// As each hash stands for everything before it, two runs that agree somewhere
// agree up to there. Runs are not joined again while someone holds them, so there
// are as many as places where running prompts have parted, and at worst as many
// as blocks.
type run struct {
	hashes   []kv.SeqHash // none at the root, else at least one
	parent   *run
	children map[kv.SeqHash]*run // by their first hash
	holders  []hold              // nobody holds the root
}

// runs is the tree, and memory to be used again.
type runs struct {
	root  run
	spare []*run
}

// Spare memory is kept within these bounds.
const (
	mostSpare    = 256     // runs
	longestSpare = 1 << 14 // blocks
)

// hold is what requests of one target hold of a run.
type hold struct {
	load     *load
	requests int
	weight   int64 // of each block
}

// enter notes a request of l that holds these blocks, and returns the run that
// ends with the last of them.
func (t *runs) enter(l *load, hashes []kv.SeqHash) *run {
	r := &t.root
	for len(hashes) > 0 {
		next := r.children[hashes[0]]
		if next == nil {
			next = t.fresh()
			next.hashes = append(next.hashes, hashes...)
			r.adopt(next)
		} else if n := common(next.hashes, hashes); n < len(next.hashes) {
			next = t.cut(next, n)
		}
		next.add(l)
		hashes = hashes[len(next.hashes):]
		r = next
	}
	return r
}

// leave takes back one request of l that ends with r. A run that nobody holds
// has no children, who would hold it too.
func (t *runs) leave(r *run, l *load) {
	for r.parent != nil {
		parent := r.parent
		if r.remove(l); len(r.holders) == 0 {
			delete(parent.children, r.hashes[0])
			t.recycle(r)
		}
		r = parent
	}
}

// depths sets for every target where leading blocks are in use how many, and the
// number of the question. Who
// holds a run holds all above it, so the deepest one counts.
func (t *runs) depths(hashes []kv.SeqHash, asked uint64) {
	r := &t.root
	for depth := 0; depth < len(hashes); {
		next := r.children[hashes[depth]]
		if next == nil {
			return
		}
		n := common(next.hashes, hashes[depth:])
		depth += n
		for _, h := range next.holders {
			h.load.depth, h.load.asked = depth, asked
		}
		if n < len(next.hashes) {
			return
		}
		r = next
	}
}

// weigh gives the blocks that no other request of l uses, from r upwards, another
// weight.
func (r *run) weigh(l *load, w int64) {
	for ; r.parent != nil; r = r.parent {
		h := &r.holders[r.find(l)]
		if h.requests > 1 {
			return
		}
		l.weight += (w - h.weight) * int64(len(r.hashes))
		h.weight = w
	}
}

func (r *run) adopt(child *run) {
	if r.children == nil {
		r.children = make(map[kv.SeqHash]*run)
	}
	r.children[child.hashes[0]] = child
	child.parent = r
}

// cut makes a run of its own of the first n blocks of r and returns it. Requests
// that end with r go on doing so.
func (t *runs) cut(r *run, n int) *run {
	upper := t.fresh()
	upper.hashes = append(upper.hashes, r.hashes[:n]...)
	upper.holders = append(upper.holders, r.holders...)
	r.parent.adopt(upper)
	r.hashes = slices.Delete(r.hashes, 0, n)
	upper.adopt(r)
	return upper
}

// fresh returns an empty run, with memory if there is some.
func (t *runs) fresh() *run {
	n := len(t.spare)
	if n == 0 {
		return new(run)
	}
	r := t.spare[n-1]
	t.spare = t.spare[:n-1]
	return r
}

func (t *runs) recycle(r *run) {
	if len(t.spare) < mostSpare && cap(r.hashes) <= longestSpare {
		r.hashes, r.parent = r.hashes[:0], nil
		t.spare = append(t.spare, r)
	}
}

// add notes one more request of l. Blocks that are shared count whole.
func (r *run) add(l *load) {
	i := r.find(l)
	if i < 0 {
		i = len(r.holders)
		r.holders = append(r.holders, hold{load: l})
	}
	h := &r.holders[i]
	h.requests++
	l.weight += (one - h.weight) * int64(len(r.hashes))
	h.weight = one
}

// remove takes back one request of l, which must be there.
func (r *run) remove(l *load) {
	i := r.find(l)
	h := &r.holders[i]
	if h.requests--; h.requests > 0 {
		return
	}
	l.weight -= h.weight * int64(len(r.hashes))
	r.holders = slices.Delete(r.holders, i, i+1)
}

func (r *run) find(l *load) int {
	return slices.IndexFunc(r.holders, func(h hold) bool { return h.load == l })
}

// common returns how many leading hashes are the same.
func common(a, b []kv.SeqHash) int {
	n := min(len(a), len(b))
	if n > 0 && a[n-1] == b[n-1] {
		return n
	}
	return sort.Search(n, func(i int) bool { return a[i] != b[i] })
}
