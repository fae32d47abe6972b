package positional

import (
	"cmp"
	"math/bits"
	"slices"

	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/kvindex"
)

// Matches is the answer of [Index.Match]. It is reused: keep one per goroutine
// or in a pool, and read it before the next call with it.
type Matches struct {
	// Found holds the targets that have at least one block, in ascending order
	// of (worker, rank).
	Found []kvindex.Match

	local  []kv.LocalHash
	seq    []kv.SeqHash    // of the request, as far as computed
	active []uint64        // slots that have all so far
	lower  [tiers][]uint64 // the same per tier below the device
	reach  [][tiers]int32  // per slot the depth at which each tier ended
	drops  []drop          // where slots fell off the device
}

// drop is up to 64 slots that end at one depth.
type drop struct {
	depth int
	word  int
	slots uint64
}

// Match sets out to what each target holds of the prompt whose blocks have the
// local hashes given. Only an unbroken run from the first block on counts.
func (x *Index) Match(local []kv.LocalHash, out *Matches) {
	x.mu.RLock()
	defer x.mu.RUnlock()

	out.begin(local, x.slots.words())
	if len(local) == 0 {
		return
	}
	first := x.lookup(out, 0)
	if first == nil {
		return
	}
	x.jump(out, first)
	x.walk(out, first)
	if x.lower > 0 {
		x.continued(out, first)
	}
	x.collect(out)
}

func (m *Matches) begin(local []kv.LocalHash, words int) {
	m.Found, m.seq, m.drops = m.Found[:0], m.seq[:0], m.drops[:0]
	m.local = local
	m.active = zeroed(m.active, words)
	m.reach = zeroed(m.reach, 64*words)
}

// lookup returns the block of the request at a position, or nil. It is the one
// with the request's chain hash, whatever else has the same content there.
func (x *Index) lookup(m *Matches, position int) *block {
	for len(m.seq) <= position {
		i := len(m.seq)
		seq := kv.SeqHash(m.local[i])
		if i > 0 {
			seq = m.seq[i-1].Next(m.local[i])
		}
		m.seq = append(m.seq, seq)
	}
	l, seq := m.local[position], m.seq[position]
	for i := x.table.first(uint32(position), l); i != 0; {
		b := x.blocks.at(i)
		if b.seq == seq && b.local == l && b.position == uint32(position) {
			return b
		}
		i = b.chain
	}
	return nil
}

// device returns 64 slots of those that hold b on the device; b may be nil.
func (x *Index) device(b *block, word int) uint64 {
	if b == nil {
		return 0
	}
	return x.word(b.device, word)
}

// jump finds how far the closed targets reach.
func (x *Index) jump(m *Matches, first *block) {
	left := false
	for i := range m.active {
		m.active[i] = x.device(first, i) &^ x.open[i]
		left = left || m.active[i] != 0
	}
	for at, last := 0, len(m.local)-1; left; {
		if at == last {
			m.leave(m.active, len(m.local))
			return
		}
		next := min(at+x.stride, last)
		b := x.lookup(m, next)
		if !x.holds(b, m.active) {
			for at+1 < next && left {
				at++
				left = x.step(m, x.lookup(m, at), at)
			}
			if left {
				left = x.step(m, b, next)
			}
		}
		at = next
	}
}

// holds says whether all of active hold b.
func (x *Index) holds(b *block, active []uint64) bool {
	for i, w := range active {
		if w&^x.device(b, i) != 0 {
			return false
		}
	}
	return true
}

// walk finds how far the targets with holes reach.
func (x *Index) walk(m *Matches, first *block) {
	left := false
	for i := range m.active {
		m.active[i] = x.device(first, i) & x.open[i]
		left = left || m.active[i] != 0
	}
	for at := 1; left; at++ {
		if at == len(m.local) {
			m.leave(m.active, at)
			return
		}
		left = x.step(m, x.lookup(m, at), at)
	}
}

// step compares those still in the run with the holders of the block at depth,
// and says whether anyone is left.
func (x *Index) step(m *Matches, b *block, depth int) bool {
	var left uint64
	for i, active := range m.active {
		if active == 0 {
			continue
		}
		stay := active & x.device(b, i)
		m.active[i] = stay
		left |= stay
		m.fall(active&^stay, i, depth)
	}
	return left != 0
}

// leave notes that all of a set end at depth.
func (m *Matches) leave(set []uint64, depth int) {
	for i, w := range set {
		m.fall(w, i, depth)
	}
}

func (m *Matches) fall(slots uint64, word, depth int) {
	if slots == 0 {
		return
	}
	m.drops = append(m.drops, drop{depth, word, slots})
	for ; slots != 0; slots &= slots - 1 {
		reach := &m.reach[64*word+bits.TrailingZeros64(slots)]
		for tier := range reach {
			reach[tier] = int32(depth)
		}
	}
}

// continued goes on on the lower tiers where the device ended: at the first block
// for who has nothing on the device.
func (x *Index) continued(m *Matches, first *block) {
	for i, used := range x.slots.used {
		if none := used &^ x.device(first, i); none != 0 {
			m.drops = append(m.drops, drop{0, i, none})
		}
	}
	slices.SortFunc(m.drops, func(a, b drop) int { return cmp.Compare(a.depth, b.depth) })
	for tier := 1; tier < tiers; tier++ {
		m.lower[tier] = zeroed(m.lower[tier], len(m.active))
	}
	left := false
	for at, next := 0, 0; ; at++ {
		if !left {
			if next == len(m.drops) {
				return
			}
			at = m.drops[next].depth
		}
		for ; next < len(m.drops) && m.drops[next].depth == at; next++ {
			m.lower[1][m.drops[next].word] |= m.drops[next].slots
		}
		if at == len(m.local) {
			return
		}
		left = x.stepLower(m, x.lookup(m, at), at)
	}
}

// stepLower compares those in the run on each lower tier with the holders of the
// block at depth. Who has it reaches one further there; who lacks it may have it
// on the next tier.
func (x *Index) stepLower(m *Matches, b *block, depth int) bool {
	var left uint64
	for tier := 1; tier < tiers; tier++ {
		for i, active := range m.lower[tier] {
			if active == 0 {
				continue
			}
			var stay uint64
			if b != nil && b.lower != 0 {
				stay = active & x.word(x.blocks.lower[b.lower][tier-1], i)
			}
			m.lower[tier][i] = stay
			left |= stay
			if tier+1 < tiers {
				m.lower[tier+1][i] |= active &^ stay
			}
			for ; stay != 0; stay &= stay - 1 {
				reach := &m.reach[64*i+bits.TrailingZeros64(stay)]
				for t := tier; t < tiers; t++ {
					reach[t] = int32(depth) + 1
				}
			}
		}
	}
	return left != 0
}

// collect lists what was found.
func (x *Index) collect(m *Matches) {
	for _, h := range x.order {
		reach := &m.reach[h.slot]
		if reach[tiers-1] == 0 {
			continue
		}
		f := kvindex.Match{Target: h.target}
		var before int32
		for tier, depth := range reach {
			f.Blocks[tier] = depth - before
			before = depth
		}
		m.Found = append(m.Found, f)
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
