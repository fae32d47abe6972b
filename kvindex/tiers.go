package kvindex

import "math/bits"

// visitTiers does for a node what visit does, with all tiers. Who lacks a block
// on one tier may have it and what follows on the next.
func (w *walk) visitTiers(t *tree, n *node, depth, same, length int) {
	var covers [tiers]struct {
		full set
		part spans
	}
	covers[0].full, covers[0].part = set(n.device.full.Load()), spans(n.device.part.Load())
	if id := n.lowerID(); id != 0 {
		if l := t.lower(id); l != nil {
			for i := range l {
				covers[i+1].full, covers[i+1].part = set(l[i].full.Load()), spans(l[i].part.Load())
			}
		}
	}
	clear(w.fell)
	if depth == 0 {
		for tier := range covers {
			w.join(w.fell, t, covers[tier].full)
			w.joinSpans(w.fell, t, covers[tier].part)
		}
		for i, word := range w.fell {
			for ; word != 0; word &= word - 1 {
				w.from[i<<6+bits.TrailingZeros64(word)] = 0
			}
		}
	}
	w.tiered = false
	for tier := range covers {
		w.visitTier(t, covers[tier].full, covers[tier].part, tier, depth, same, length)
	}
	for i, word := range w.fell {
		for ; word != 0; word &= word - 1 {
			slot := i<<6 + bits.TrailingZeros64(word)
			if rank := w.rank[slot]; w.reach[rank][tiers-1] > 0 {
				w.ended[rank>>6] |= 1 << (rank & 63)
			}
		}
	}
	w.live = 0
	for _, word := range w.active[0] {
		w.live += bits.OnesCount64(word)
	}
}

// visitTier takes those who were active on a tier, and those who fell from the
// one above in this node. Who holds the rest of the node is active from then
// on; the others fall in turn.
func (w *walk) visitTier(t *tree, full set, part spans, tier, depth, same, length int) {
	active := w.active[tier]
	clear(w.falls)
	w.join(w.falls, t, full)
	for i, a := range active {
		for come := a &^ w.fell[i]; come != 0; come &= come - 1 {
			w.from[i<<6+bits.TrailingZeros64(come)] = 0
		}
		there := a | w.fell[i]
		active[i], w.fell[i] = there&w.falls[i], there&^w.falls[i]
	}
	// fell are now those who do not hold all of the node. Of them, falls will be
	// those who have a span to fall from.
	clear(w.falls)
	n, words := t.peek(part)
	for i := range n {
		s := part.at(words, i)
		slot := s.slot()
		if int(slot) >= w.slots || w.fell[slot>>6]>>(slot&63)&1 == 0 {
			continue
		}
		if at := int(w.from[slot]); at < s.from() || at >= s.to() {
			continue
		}
		w.takeOut(w.fell, slot)
		if s.to() == length {
			active[slot>>6] |= 1 << (slot & 63)
			continue
		}
		w.from[slot] = uint16(min(s.to(), same))
		w.falls[slot>>6] |= 1 << (slot & 63)
	}
	for i := range w.fell {
		w.fell[i] |= w.falls[i]
		for word := w.fell[i]; word != 0; word &= word - 1 {
			slot := i<<6 + bits.TrailingZeros64(word)
			w.reach[w.rank[slot]][tier] = int32(depth + int(w.from[slot]))
		}
		if tier > 0 && active[i] != 0 {
			w.tiered = true
		}
	}
}

// joinSpans adds those who have a span to a bit set.
func (w *walk) joinSpans(to []uint64, t *tree, part spans) {
	n, words := t.peek(part)
	for i := range n {
		if slot := part.at(words, i).slot(); int(slot) < w.slots {
			to[slot>>6] |= 1 << (slot & 63)
		}
	}
}
