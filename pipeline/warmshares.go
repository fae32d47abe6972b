package pipeline

import "slices"

// The budget of a worker is for all tenants who have prefixes kept warm there. Each has
// a right to an equal share of it, and may have what nobody else wants.

// fitLocked makes room for a lease. It is cut to what the budget leaves beside what other
// tenants hold of their shares, and where others hold more than that, the eldest lease
// of whoever holds most gives way: down to the share, if it is another tenant's, else as a
// whole, since what its own tenant asks for now is worth more to it. It is false if there
// is no room for a single block. The lock must be held.
func (w *warmth) fitLocked(l *lease, budget int) bool {
	held := w.heldLocked(l.target.Worker)
	if _, known := held[l.tenant]; !known {
		held[l.tenant] = 0
	}
	share, room, sum := budget/len(held), budget, l.blocks()
	for tenant, blocks := range held {
		sum += blocks
		if tenant != l.tenant {
			room -= min(blocks, share)
		}
	}
	if room < 1 {
		return false
	}
	if over := l.blocks() - room; over > 0 {
		l.tokens = l.tokens[:room*l.size]
		sum -= over
	}
	held[l.tenant] += l.blocks()
	for sum > budget {
		i := w.eldestLocked(l, held)
		old := w.leases[i]
		gone, over := old.blocks(), min(sum-budget, held[old.tenant]-share)
		if old.tenant != l.tenant && gone > over {
			short := *old // who uses the prefix at this moment goes on with what it has
			short.tokens = old.tokens[:(gone-over)*old.size]
			w.leases[i], gone = &short, over
		} else {
			w.leases = slices.Delete(w.leases, i, i+1)
		}
		sum -= gone
		held[old.tenant] -= gone
	}
	return true
}

// eldestLocked returns the eldest lease beside a new one of whoever holds most, of which
// there is one. The lock must be held.
func (w *warmth) eldestLocked(l *lease, held map[string]int) (eldest int) {
	eldest = -1
	for i, o := range w.leases {
		if o.target.Worker == l.target.Worker && (eldest < 0 || held[o.tenant] > held[w.leases[eldest].tenant]) {
			eldest = i
		}
	}
	return eldest
}

// heldLocked returns how many blocks are kept warm on a worker, by tenants. The lock must
// be held.
func (w *warmth) heldLocked(worker uint64) map[string]int {
	held := map[string]int{}
	for _, l := range w.leases {
		if l.target.Worker == worker {
			held[l.tenant] += l.blocks()
		}
	}
	return held
}
