package kvindex

import (
	"math/bits"

	"github.com/dynago/dynago/kv"
)

// Match is what one target holds of a prompt. Blocks[kv.TierDevice] leading
// blocks lie on its device; from there on Blocks[kv.TierHost] more continue on
// the host, then on disk, then in a shared store.
type Match struct {
	Target kv.Target
	Blocks [tiers]int32
}

// Matches is the answer of [Index.Match]. It is reused: keep one per goroutine
// or in a pool, and read it before the next call with it.
type Matches struct {
	// Found holds the targets that have at least one block, in ascending order
	// of (worker, rank).
	Found []Match

	active [tiers][]uint64 // per tier the slots that have all so far
	reach  [][tiers]int32  // per slot the depth at which each tier ended
}

// Match sets out to what each target holds of the prompt whose blocks have the
// local hashes given. Only an unbroken run from the first block on counts.
func (x *Index) Match(local []kv.LocalHash, out *Matches) {
	x.mu.RLock()
	defer x.mu.RUnlock()

	out.begin(&x.slots)
	depth := 0
	for at := &x.root; depth < len(local); depth++ {
		if at = at.children.get(local[depth]); at == nil || !out.step(at, depth) {
			break
		}
	}
	out.end(depth)

	for _, h := range x.order {
		reach := &out.reach[h.slot]
		if reach[tiers-1] == 0 {
			continue
		}
		m := Match{Target: h.target}
		var before int32
		for tier, depth := range reach {
			m.Blocks[tier] = depth - before
			before = depth
		}
		out.Found = append(out.Found, m)
	}
}

// begin makes every slot in use a candidate for the first tier.
func (m *Matches) begin(s *slots) {
	words := (s.size + 63) / 64
	for tier := range m.active {
		m.active[tier] = zeroed(m.active[tier], words)
	}
	for i := range words {
		m.active[0][i] = s.used.word(i)
	}
	m.reach = zeroed(m.reach, s.size)
	m.Found = m.Found[:0]
}

// step compares those still in the run with the holders of the block at depth.
// Who lacks it on one tier may have it on the next. It says whether anyone is
// left.
func (m *Matches) step(n *node, depth int) bool {
	var left uint64
	for tier := range m.active {
		for i, active := range m.active[tier] {
			if active == 0 {
				continue
			}
			stay := active & n.word(tier, i)
			m.active[tier][i] = stay
			left |= stay
			gone := active &^ stay
			if gone == 0 {
				continue
			}
			m.note(gone, i, tier, depth)
			if tier+1 < tiers {
				m.active[tier+1][i] |= gone
			}
		}
	}
	return left != 0
}

// end notes the depth of those who had everything.
func (m *Matches) end(depth int) {
	for tier := range m.active {
		for i, active := range m.active[tier] {
			for last := tier; last < tiers && active != 0; last++ {
				m.note(active, i, last, depth)
			}
		}
	}
}

func (m *Matches) note(set uint64, word, tier, depth int) {
	for ; set != 0; set &= set - 1 {
		m.reach[64*word+bits.TrailingZeros64(set)][tier] = int32(depth)
	}
}

func zeroed[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	s = s[:n]
	clear(s)
	return s
}
