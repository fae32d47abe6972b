package kvindex

import "github.com/dynago/dynago/kv"

// lost gathers consecutive blocks that a target holds no more on a tier, so
// that the tree is told once for all of them.
type lost struct {
	*tree
	slot uint32
	tier int
	id   uint32 // 0 = nothing gathered
	n    *node
	run  run
	from int
	to   int
}

func (l *lost) add(p place) {
	if l.id == 0 || !l.run.contains(p) {
		l.flush()
		l.id, l.n, l.run = l.resolve(p)
		l.from = int(p - l.run.start)
		l.to = l.from + 1
		return
	}
	switch i := int(p - l.run.start); i {
	case l.from - 1:
		l.from = i
	case l.to:
		l.to++
	default:
		l.flush()
		l.add(p)
	}
}

func (l *lost) flush() {
	if l.id == 0 {
		return
	}
	p := l.run.start
	l.release(l.id, l.n, l.tier, l.slot, l.from, l.to)
	if id, n, _ := l.resolve(p); id == l.id {
		l.relieve(id, n)
	}
	l.id = 0
}

// remove applies a removal. The holder must be locked.
func (x *Index) remove(h *holder, e *kv.Event) error {
	var failed error
	for blocks := e.Blocks; len(blocks) > 0; {
		if h.keys.count == 0 { // and so there is no table to look into
			return ErrBlockNotFound
		}
		n := min(len(blocks), slice)
		h.keys.touch(blocks[:n], 0)
		x.tree.mu.Lock()
		if err := h.remove(&x.tree, blocks[:n], e.Tier); err != nil {
			failed = err
		}
		x.tree.check()
		x.tree.mu.Unlock()
		h.keys.shrink()
		blocks = blocks[n:]
	}
	return failed
}

func (h *holder) remove(t *tree, blocks []kv.Block, tier kv.Tier) error {
	var err error
	l := lost{tree: t, slot: h.slot, tier: int(tier)}
	for i := range blocks {
		key := blocks[i].Engine
		home := h.keys.homes[i]
		known := h.keys.findAt(home, key)
		if known == nil || !known.on(tier) {
			err = ErrBlockNotFound
			continue
		}
		p := known.place()
		if *known = known.without(tier); known.gone() {
			h.keys.remove(home, key)
		}
		if h.last(p, int(tier)) {
			l.add(p)
		}
	}
	l.flush()
	return err
}

// sweep takes a target out of the tree, some keys at a time. The first key of a
// node takes the whole node; those that come later find nothing, or what others
// have made there since.
func (h *holder) sweep(t *tree) {
	for buckets := h.keys.buckets; len(buckets) > 0; {
		n := min(len(buckets), slice/2)
		t.mu.Lock()
		for i := range buckets[:n] {
			for _, v := range buckets[i].held {
				if id, n, _ := t.resolve(v.place()); id != 0 {
					t.evict(id, n, h.slot)
				}
			}
		}
		t.check()
		t.mu.Unlock()
		buckets = buckets[n:]
	}
	h.keys, h.twins = keys{}, nil
	h.blocks.Store(0)
}
