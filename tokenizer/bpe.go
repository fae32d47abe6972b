package tokenizer

import (
	"math/bits"
	"sync/atomic"
	"unicode/utf8"
)

// bpe is a model whose words are built up from bytes or, if text is set, from
// characters, by merging pairs. It is immutable but for what it remembers: which
// tokens come out whole, and the ids of recent words.
type bpe struct {
	vocabulary
	bytes1 [256]uint32 // id of each single byte, of ASCII alone if text is set, or none
	merges mergeTable

	ignoreMerges bool // a word of the vocabulary is one token, whatever the merges say
	fuseUnk      bool // a run of unk is one unk

	fallback *[256]uint32 // ids of the tokens <0x00> to <0xFF> for characters that are not in the vocabulary, or nil
	joints   *joints      // where a word falls into parts that never merge, or nil

	whole []atomic.Uint32 // two bits an id: does merging its bytes yield it?
	cache wordCache
}

// none is no id and no rank.
const none = ^uint32(0)

// The states of bpe.whole.
const (
	wholeUnset = iota
	wholeNo
	wholeYes
)

// appendWord appends the ids of a word, which must not be empty.
func (m *bpe) appendWord(dst []uint32, word string, s *scratch) []uint32 {
	if m.joints == nil {
		return m.appendPart(dst, word, s)
	}
	for i := 0; i < len(word); {
		end := m.joints.next(word, i)
		dst = m.appendPart(dst, word[i:end], s)
		i = end
	}
	return dst
}

func (m *bpe) appendPart(dst []uint32, word string, s *scratch) []uint32 {
	if len(word) == 1 && m.bytes1[word[0]] != none {
		return append(dst, m.bytes1[word[0]])
	}
	hash := m.index.hash(word)
	// Most words are tokens. Merging would build them again, so that one look-up
	// is enough once it is known to do so.
	if id, ok := m.index.lookup(&m.pieces, word, hash); ok && (m.ignoreMerges || m.isWhole(id, word, s)) {
		return append(dst, id)
	}
	if ids, ok := m.cache.get(hash, word); ok {
		return append(dst, ids...)
	}
	start := len(dst)
	dst = m.merge(dst, word, s)
	m.cache.put(hash, word, dst[start:])
	return dst
}

func (m *bpe) isWhole(id uint32, word string, s *scratch) bool {
	state, shift := &m.whole[id/16], id%16*2
	switch state.Load() >> shift & 3 {
	case wholeYes:
		return true
	case wholeNo:
		return false
	}
	s.ids = m.merge(s.ids[:0], word, s)
	if len(s.ids) == 1 && s.ids[0] == id {
		state.Or(wholeYes << shift)
		return true
	}
	state.Or(wholeNo << shift)
	return false
}

// merge appends the ids of word by byte-pair encoding: from single bytes on, the
// adjacent pair of the lowest rank is merged, leftmost first, until no pair has
// a rank.
func (m *bpe) merge(dst []uint32, word string, s *scratch) []uint32 {
	start := len(dst)
	dst = m.symbols(dst, word)
	word32 := dst[start:]
	if len(word32) <= len(s.ranks) {
		return dst[:start+m.mergeShort(word32, &s.ranks)]
	}
	return dst[:start+m.mergeLong(word32, s)]
}

// symbols appends the ids that merging of word begins with.
func (m *bpe) symbols(dst []uint32, word string) []uint32 {
	unknown := false // an unknown token is due before the next known one
	for i := 0; i < len(word); {
		n := 1
		if m.text && word[i] >= utf8.RuneSelf {
			_, n = utf8.DecodeRuneInString(word[i:])
		}
		symbol := word[i : i+n]
		i += n
		if id, ok := m.symbol(symbol); ok {
			if unknown {
				dst = append(dst, m.unk)
				unknown = false
			}
			dst = append(dst, id)
			continue
		}
		if spells(m.fallback, symbol) {
			// The reference implementation lets an unknown token that is due
			// wait behind them.
			for _, b := range []byte(symbol) {
				dst = append(dst, m.fallback[b])
			}
			continue
		}
		if unknown && !m.fuseUnk {
			dst = append(dst, m.unk)
		}
		unknown = m.unk != none
	}
	if unknown {
		dst = append(dst, m.unk)
	}
	return dst
}

// symbol returns the id of one byte or character.
func (m *bpe) symbol(symbol string) (uint32, bool) {
	if len(symbol) == 1 {
		id := m.bytes1[symbol[0]]
		return id, id != none
	}
	return m.find(symbol)
}

// mergeShort merges ids in place and returns how many are left. Looking through
// all ranks for each merge beats any bookkeeping for words of ordinary length.
func (m *bpe) mergeShort(ids []uint32, ranks *[shortWord]uint32) int {
	n := len(ids)
	for i := range n - 1 {
		ranks[i] = m.merges.rank(ids[i], ids[i+1])
	}
	for n > 1 {
		best, at := none, 0
		for i, r := range ranks[:n-1] {
			if r < best {
				best, at = r, i
			}
		}
		if best == none {
			break
		}
		ids[at] = m.merges.made[best]
		copy(ids[at+1:n], ids[at+2:n])
		n--
		if at < n-1 {
			copy(ranks[at+1:n-1], ranks[at+2:n])
			ranks[at] = m.merges.rank(ids[at], ids[at+1])
		}
		if at > 0 {
			ranks[at-1] = m.merges.rank(ids[at-1], ids[at])
		}
	}
	return n
}

// shortWord is the length in bytes up to which words go to mergeShort.
const shortWord = 64

// mergeLong is mergeShort in n log n: a linked list of the ids and a queue of
// their pairs, from which pairs that no longer exist are dropped when they come
// up.
func (m *bpe) mergeLong(ids []uint32, s *scratch) int {
	list := s.list[:0]
	for i := range ids {
		list = append(list, link{int32(i) - 1, int32(i) + 1})
	}
	end := int32(len(ids))
	queue := &s.queue
	queue.reset(len(ids))
	for i := range end - 1 {
		if r := m.merges.rank(ids[i], ids[i+1]); r != none {
			queue.push(r, i)
		}
	}
	for {
		rank, at, ok := queue.pop()
		if !ok {
			break
		}
		next := list[at].next
		// A merged id leaves none at the place of its right half.
		if ids[at] == none || next >= end || m.merges.rank(ids[at], ids[next]) != rank {
			continue
		}
		made := m.merges.made[rank]
		ids[at], ids[next] = made, none
		after := list[next].next
		list[at].next = after
		if after < end {
			list[after].prev = at
			if r := m.merges.rank(made, ids[after]); r != none {
				queue.push(r, at)
			}
		}
		if before := list[at].prev; before >= 0 {
			if r := m.merges.rank(ids[before], made); r != none {
				queue.push(r, before)
			}
		}
	}
	s.list = list
	n := 0
	for i := int32(0); i < end; i = list[i].next {
		ids[n] = ids[i]
		n++
	}
	return n
}

// scratch is the memory that encoding works in; one goroutine at a time.
type scratch struct {
	ranks [shortWord]uint32
	ids   []uint32
	text  []byte
	best  []bestEnd
	list  []link
	queue pairQueue
	words [2][]string
}

type link struct{ prev, next int32 }

// mergeTable gives the rank of a pair of ids and what the pair becomes: open
// addressing with linear probing, at most half full.
type mergeTable struct {
	slots []mergeSlot
	shift uint     // 64 - log2(len(slots))
	made  []uint32 // by rank
}

type mergeSlot struct {
	key  uint64 // left<<32 | right, plus 1; 0 is empty
	rank uint32
}

func newMergeTable(merges int) mergeTable {
	log := uint(bits.Len(uint(2 * merges)))
	return mergeTable{slots: make([]mergeSlot, 1<<log), shift: 64 - log, made: make([]uint32, 0, merges)}
}

func pairKey(left, right uint32) uint64 { return uint64(left)<<32 + uint64(right) + 1 }

// slot returns the index where key is or belongs. The multiplier is 2^64 over
// the golden ratio (Knuth, TAOCP 6.4).
func (t *mergeTable) slot(key uint64) uint64 {
	mask := uint64(len(t.slots) - 1)
	for i := key * 0x9e3779b97f4a7c15 >> t.shift; ; i = (i + 1) & mask {
		if k := t.slots[i].key; k == key || k == 0 {
			return i
		}
	}
}

// rank returns the rank of a pair, or none.
func (t *mergeTable) rank(left, right uint32) uint32 {
	key := pairKey(left, right)
	slot := &t.slots[t.slot(key)]
	if slot.key != key {
		return none
	}
	return slot.rank
}

// add gives a pair the next rank. A pair that comes again has the later one, as
// in the reference implementation.
func (t *mergeTable) add(left, right, made uint32) {
	t.made = append(t.made, made)
	t.addAnother(left, right)
}

// addAnother gives a pair the rank of the last one, with which it makes the same.
func (t *mergeTable) addAnother(left, right uint32) {
	key := pairKey(left, right)
	t.slots[t.slot(key)] = mergeSlot{key, uint32(len(t.made) - 1)}
}
