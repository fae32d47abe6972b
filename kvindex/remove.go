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
		places, err := h.forget(blocks[:n], e.Tier)
		if err != nil {
			failed = err
		}
		x.tree.mu.Lock()
		x.tree.expect(places)
		l := lost{tree: &x.tree, slot: h.slot, tier: int(e.Tier)}
		for _, p := range places {
			l.add(p)
		}
		l.flush()
		x.tree.check()
		x.tree.mu.Unlock()
		h.keys.shrink()
		blocks = blocks[n:]
	}
	return failed
}

// forget takes a tier from the keys of some blocks, and returns the places that
// the target has no key for on that tier any more. They are overwritten by the
// next call.
func (h *holder) forget(blocks []kv.Block, tier kv.Tier) ([]place, error) {
	var err error
	h.keys.touch(blocks, 0)
	places, gone := h.places[:0], 0
	for i := range blocks {
		home := h.keys.homes[i]
		at, ok := h.keys.findFrom(home, blocks[i].Engine)
		if !ok || !h.keys.at(at).on(tier) {
			err = ErrBlockNotFound
			continue
		}
		known := h.keys.at(at)
		gone++
		p := known.place()
		if *known = known.without(tier); known.gone() {
			h.keys.remove(home, at)
		}
		if h.last(p, int(tier)) {
			places = append(places, p)
		}
	}
	h.on[tier] -= gone
	return places, err
}

// expect brings what is needed to give up some places into the cache.
func (t *tree) expect(places []place) {
	var last place
	var sum uint32
	var ids [slice]uint32
	n := 0
	for _, p := range places {
		if p>>unitOrder == last>>unitOrder {
			continue
		}
		last = p
		o, i := t.owner(p)
		ids[n] = o.first[i]
		n++
	}
	for _, id := range ids[:n] {
		sum += uint32(t.node(id).run.Load())
	}
	t.touched += sum
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
	h.keys, h.twins, h.on = keys{}, nil, [tiers]int{}
	h.publish()
}
