package kvindex

import (
	"cmp"
	"iter"
	"slices"

	"github.com/dynago/dynago/kv"
)

// Dump returns events that make an empty index hold of t what this one does:
// stores, parents before children, tier by tier, and at last a removal, if t
// has lost blocks that others of its blocks stand on. Those are stored under
// keys that t does not have. A target that is known and holds nothing is one
// store without blocks.
//
// The events show one moment: the beginning of the iteration, while it takes
// which events of t wait and others do not.
func (x *Index) Dump(t kv.Target) iter.Seq[kv.Event] {
	return func(yield func(kv.Event) bool) {
		if h := x.known(t); h != nil {
			h.dump(&x.tree).events(yield)
		}
	}
}

// dump is what a target holds, and the blocks it lacks but stands on.
type dump struct {
	keys   []dumped
	of     map[place]kv.EngineHash // a key for each place
	lacked []kv.Block              // under keys of their own
}

// dumped is one key and its block.
type dumped struct {
	key   kv.EngineHash
	held  held
	up    place
	depth uint32
	local kv.LocalHash
}

func (h *holder) dump(t *tree) *dump {
	h.mu.Lock()
	defer h.mu.Unlock()
	d := &dump{of: make(map[place]kv.EngineHash, h.keys.count)}
	h.survey(t, func(key kv.EngineHash, v held, n *node, r run) {
		d.add(t, key, v, n, r)
	})
	next := kv.EngineHash(0)
	for i := 0; i < len(d.keys); i++ {
		up := d.keys[i].up
		if _, ok := d.of[up]; up == 0 || ok {
			continue
		}
		for _, ok := h.keys.find(next); ok; _, ok = h.keys.find(next) {
			next++
		}
		t.mu.Lock()
		_, n, r := t.resolve(up)
		d.add(t, next, newHeld(up, kv.TierDevice), n, r)
		t.mu.Unlock()
		d.lacked = append(d.lacked, kv.Block{Engine: next})
		next++
	}
	slices.SortFunc(d.keys, func(a, b dumped) int {
		return cmp.Or(cmp.Compare(a.depth, b.depth), cmp.Compare(a.held, b.held), cmp.Compare(a.key, b.key))
	})
	return d
}

// add notes a key of the block at v's place in n.
func (d *dump) add(t *tree, key kv.EngineHash, v held, n *node, r run) {
	p := v.place()
	k := dumped{key: key, held: v, up: p - 1, depth: n.depth + uint32(p-r.start), local: kv.LocalHash(t.hash(p).Load())}
	if p == r.start {
		k.up = n.up()
	}
	d.keys = append(d.keys, k)
	d.of[p] = key
}

// events makes one event of consecutive blocks of a run, for each tier they are
// on.
func (d *dump) events(yield func(kv.Event) bool) {
	if len(d.keys) == 0 && !yield(kv.Event{Kind: kv.Stored}) {
		return
	}
	at := make(map[place]int, len(d.of)) // where the key of a place stands
	for i, k := range d.keys {
		if d.of[k.held.place()] == k.key {
			at[k.held.place()] = i
		}
	}
	done := make([]bool, len(d.keys))
	for i, k := range d.keys {
		if done[i] {
			continue
		}
		blocks := []kv.Block{{Engine: k.key, Local: k.local}}
		for p := k.held.place(); d.of[p] == k.key; {
			next, ok := at[p+1]
			if !ok || done[next] || d.keys[next].up != p || d.keys[next].held.tiers() != k.held.tiers() {
				break
			}
			done[next] = true
			p, k = p+1, d.keys[next]
			blocks = append(blocks, kv.Block{Engine: k.key, Local: k.local})
		}
		first := d.keys[i]
		e := kv.Event{Kind: kv.Stored, Parent: d.of[first.up], HasParent: first.up != 0, Blocks: blocks}
		for e.Tier = range kv.Tier(tiers) {
			if first.held.on(e.Tier) && !yield(e) {
				return
			}
		}
	}
	if len(d.lacked) > 0 {
		yield(kv.Event{Kind: kv.Removed, Blocks: d.lacked})
	}
}
