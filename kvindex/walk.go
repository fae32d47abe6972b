package kvindex

import "math/bits"

// walk is the state of a query on its way down: who has everything so far, and
// how far the others came.
type walk struct {
	words  int // of a bit set of all slots
	slots  int
	active [tiers][]uint64 // by tier, who is in the middle of a run there
	tiered bool            // somebody is active on a lower tier
	live   int             // members of active[0]

	// What is known of those who have lost their run, by rank: where it ended on
	// each tier, and a bit set of those who had one.
	reach [][tiers]int32
	ended []uint64
	rank  []uint32 // of slots

	// Within one node:
	fell  []uint64 // who goes on on the next tier,
	falls []uint64 // who does so after that,
	from  []uint16 // and from which block on, by slot

	touched uint64 // keeps the compiler from dropping loads that only warm the cache
}

func (w *walk) begin(r *roster) {
	w.slots, w.words = len(r.seats), (len(r.seats)+63)/64
	for tier := range w.active {
		w.active[tier] = zeroed(w.active[tier], w.words)
	}
	w.fell = zeroed(w.fell, w.words)
	w.falls = zeroed(w.falls, w.words)
	w.ended = zeroed(w.ended, w.words+1)
	if len(w.from) < w.slots {
		w.reach = make([][tiers]int32, w.slots+1)
		w.from = make([]uint16, w.slots)
	}
	w.rank = r.rank
	w.tiered, w.live = false, 0
}

func zeroed(s []uint64, n int) []uint64 {
	if cap(s) < n {
		return make([]uint64, n)
	}
	s = s[:n]
	clear(s)
	return s
}

func (w *walk) alive() bool { return w.live > 0 || w.tiered }

// visit compares those still in a run with the holders of a node that stands at
// depth and has length blocks, of which the prompt has the first same.
func (w *walk) visit(t *tree, n *node, depth, same, length int) {
	full, part, lower := set(n.device.full.Load()), spans(n.device.part.Load()), n.lowerID()
	switch {
	case w.tiered || lower != 0:
		w.visitTiers(t, n, depth, same, length)
	case depth == 0:
		w.start(t, full, part, same)
	default:
		w.narrow(t, full, part, depth, same)
	}
}

// start lets those in who hold a first node that is on no lower tier.
func (w *walk) start(t *tree, full set, part spans, same int) {
	w.join(w.active[0], t, full)
	for _, word := range w.active[0] {
		w.live += bits.OnesCount64(word)
	}
	n, words := t.peek(part)
	for i := range n {
		if s := part.at(words, i); int(s.slot()) < w.slots && s.from() == 0 {
			w.stop(s.slot(), 0, min(s.to(), same))
		}
	}
}

// join adds the members of s to a bit set.
func (w *walk) join(to []uint64, t *tree, s set) {
	if s.inline() {
		for ; s != 0; s >>= 16 {
			if slot := int(s&0xffff) - 1; slot < w.slots && slot >= 0 {
				to[slot>>6] |= 1 << (slot & 63)
			}
		}
		return
	}
	words := t.words(s.list())
	for i := range min(len(words), len(to)) {
		to[i] |= words[i].Load()
	}
	w.trim(to)
}

// trim takes slots out that the roster does not know.
func (w *walk) trim(set []uint64) {
	if n := w.slots & 63; n != 0 {
		set[len(set)-1] &= 1<<n - 1
	}
}

// narrow keeps those active who hold a node in full, when there is nothing on
// lower tiers.
func (w *walk) narrow(t *tree, full set, part spans, depth, same int) {
	active, gone, left := w.active[0], w.fell, 0
	if full.inline() {
		for s := full; s != 0; s >>= 16 {
			if slot := int(s&0xffff) - 1; slot < w.slots && slot >= 0 {
				left += int(active[slot>>6] >> (slot & 63) & 1)
			}
		}
		if left == w.live {
			return
		}
		clear(gone)
		w.join(gone, t, full)
		for i := range active {
			active[i], gone[i] = active[i]&gone[i], active[i]&^gone[i]
		}
	} else {
		words := t.words(full.list())
		for i, a := range active {
			var stay uint64
			if i < len(words) {
				stay = a & words[i].Load()
			}
			active[i], gone[i] = stay, a&^stay
			left += bits.OnesCount64(stay)
		}
		if left == w.live {
			return
		}
	}
	w.live = left
	n, words := t.peek(part)
	for i := range n {
		s := part.at(words, i)
		if s.from() == 0 && w.takeOut(gone, s.slot()) {
			w.stop(s.slot(), 0, depth+min(s.to(), same))
		}
	}
	for i, word := range gone {
		for ; word != 0; word &= word - 1 {
			w.stop(uint32(i<<6+bits.TrailingZeros64(word)), 0, depth)
		}
	}
}

// takeOut removes slot from a bit set and says whether it was there.
func (w *walk) takeOut(from []uint64, slot uint32) bool {
	if int(slot) >= w.slots || from[slot>>6]>>(slot&63)&1 == 0 {
		return false
	}
	from[slot>>6] &^= 1 << (slot & 63)
	return true
}

// stop notes that a slot's last run, on the tier given, ended at depth.
func (w *walk) stop(slot uint32, tier, depth int) {
	rank := w.rank[slot]
	if d := int32(depth); tier == 0 {
		w.reach[rank] = [tiers]int32{d, d, d, d}
	} else {
		for ; tier < tiers; tier++ {
			w.reach[rank][tier] = d
		}
	}
	if depth > 0 {
		w.ended[rank>>6] |= 1 << (rank & 63)
	}
}

// end stops all who have everything up to depth.
func (w *walk) end(depth int) {
	for tier := range w.active {
		if tier > 0 && !w.tiered {
			break
		}
		for i, word := range w.active[tier] {
			for ; word != 0; word &= word - 1 {
				w.stop(uint32(i<<6+bits.TrailingZeros64(word)), tier, depth)
			}
		}
	}
}

// report appends what was found, in the order of targets, to found. It leaves
// out slots that had no owner when the query began, or have another one now.
func (w *walk) report(found []Match, before, now *roster) []Match {
	for i, word := range w.ended {
		for ; word != 0; word &= word - 1 {
			rank := i<<6 + bits.TrailingZeros64(word)
			if rank >= len(before.targets) || now != before && !now.still(before, before.order[rank]) {
				continue
			}
			r := &w.reach[rank]
			found = append(found, Match{}) // and filled in place, because a copy waits for what it copies
			m := &found[len(found)-1]
			m.Target = before.targets[rank]
			m.Blocks[0], m.Blocks[1], m.Blocks[2], m.Blocks[3] = r[0], r[1]-r[0], r[2]-r[1], r[3]-r[2]
		}
	}
	return found
}
