package tokenizer

import (
	"math/bits"
	"sync/atomic"
)

// pairs encodes a word from left to right instead of merging it. Merging ends in
// a row of tokens of which each would come out of its own bytes alone, and each
// two neighbours out of theirs: what merges within two neighbours does not depend
// on the others. The converse holds too, because merging is deterministic: a row
// of such tokens is what merging yields. So it is enough to find one, by trying
// at each place the longest token first. If none fits, the token before was the
// wrong one; the place where it ended is marked, since the row that leads to a
// place is the only one, and is not tried again.
//
// Whether two neighbours stay apart is told by undoing their merges, the latest
// first, down the sides where they touch: in each state on the way the pair that
// touches must not have had an earlier turn than the merge that was undone.
type pairs struct {
	// A bit for each length that tokens with the same first three bytes have, by a
	// hash of these. The highest stands for longToken and more.
	lengths []uint64
	// Neighbours that were looked at, each in the slot of its hash, where the latest
	// wins: left, right, and whether they stay apart.
	known [knownPairs]atomic.Uint64
}

const (
	knownBits  = 14
	knownPairs = 1 << knownBits

	// maxPaired is the length in bytes of the longest word to try.
	maxPaired = 512
	// longToken is the length from which tokens are too long.
	longToken = 63

	prefixLen  = 3
	prefixBits = 15
)

func newPairs(tokens *pieces) *pairs {
	p := &pairs{lengths: make([]uint64, 1<<prefixBits)}
	for id := range uint32(len(tokens.at)) {
		if token := tokens.bytes(id); len(token) >= prefixLen {
			p.lengths[prefixHash(string(token[:prefixLen]))] |= 1 << min(len(token), longToken)
		}
	}
	return p
}

func prefixHash(s string) uint32 {
	return (uint32(s[0]) | uint32(s[1])<<8 | uint32(s[2])<<16) * 0x9e3779b1 >> (32 - prefixBits)
}

// candidates returns the lengths, as bits, that tokens at the start of text may
// have.
func (p *pairs) candidates(text string) uint64 {
	lengths := uint64(1<<1 | 1<<2)
	if len(text) >= prefixLen {
		lengths |= p.lengths[prefixHash(text)]
	}
	if len(text) < longToken {
		lengths &= 1<<(len(text)+1) - 1
	}
	return lengths
}

// appendPaired appends the ids of a word. It gives up, and ok is false, at a token
// that is odd or long, and if it would have to try too often.
func (m *bpe) appendPaired(dst []uint32, word string, s *scratch) (_ []uint32, ok bool) {
	start := len(dst)
	var dead [maxPaired/64 + 1]uint64 // places that no row leads on from
	tries := 4*len(word) + 16
	pos := 0
	lengths := m.pairs.candidates(word)
	for pos < len(word) {
		if lengths>>longToken != 0 {
			return dst[:start], false
		}
		next := pos
		for lengths != 0 {
			n := bits.Len64(lengths) - 1
			lengths &^= 1 << n
			end := pos + n
			if dead[end/64]>>(end%64)&1 != 0 {
				continue
			}
			id, ok := m.symbol(word[pos:end])
			if !ok {
				continue
			}
			last := m.last[id].Load()
			if last == lastUnset {
				last = m.end(id, word[pos:end], s)
			}
			if last == lastOdd {
				return dst[:start], false
			}
			if last == lastOther || len(dst) > start && !m.apart(dst[len(dst)-1], id) {
				continue
			}
			dst = append(dst, id)
			next = end
			break
		}
		if next > pos {
			pos = next
			lengths = m.pairs.candidates(word[pos:])
			continue
		}
		if tries--; tries < 0 || len(dst) == start {
			return dst[:start], false
		}
		dead[pos/64] |= 1 << (pos % 64)
		wrong := m.at[dst[len(dst)-1]]
		dst = dst[:len(dst)-1]
		n := int(wrong.end - wrong.start)
		pos -= n
		lengths = m.pairs.candidates(word[pos:]) & (1<<n - 1)
	}
	return dst, true
}

// apart tells whether two tokens stay apart when their bytes are merged as one
// word. Neither may be odd, and of both it must be known how merging ends.
func (m *bpe) apart(left, right uint32) bool {
	key := uint64(left)<<idBits | uint64(right)
	known := &m.pairs.known[key*0x9e3779b97f4a7c15>>(64-knownBits)]
	was := known.Load()
	if was>>2 == key && was&1 != 0 {
		return was&2 != 0
	}
	is := m.stayApart(left, right)
	now := key<<2 | 1
	if is {
		now |= 2
	}
	known.Store(now)
	return is
}

func (m *bpe) stayApart(left, right uint32) bool {
	limit := none // the pair that touches must not have had its turn before
	for {
		if m.merges.rank(left, right) < limit {
			return false
		}
		l, r := m.last[left].Load(), m.last[right].Load()
		switch {
		case l == lastSymbol && r == lastSymbol:
			return true
		case l == lastSymbol || r != lastSymbol && m.merges.list[r-lastMerge].rank >= m.merges.list[l-lastMerge].rank:
			// Of two pairs of one rank the left one goes first.
			merge := &m.merges.list[r-lastMerge]
			limit, right = merge.rank+1, merge.left
		default:
			merge := &m.merges.list[l-lastMerge]
			limit, left = merge.rank, merge.right
		}
	}
}
