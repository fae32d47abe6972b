package tokenizer

import (
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

	last  []atomic.Uint32 // by id, how merging its bytes ends
	pairs *pairs          // or nil: words are merged
	cache wordCache
}

// none is no id and no rank.
const none = ^uint32(0)

// The values of bpe.last, each of which is found out when it is first needed.
const (
	lastUnset  = iota
	lastOther  // its bytes become other tokens
	lastSymbol // it is what merging begins with
	lastOdd    // it comes out, but see [bpe.end]
	lastMerge  // and from here on the index of the last merge
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
	if len(word) > cachedLen {
		return m.merge(dst, word, s)
	}
	if ids, ok := m.cache.get(hash, word); ok {
		return append(dst, ids...)
	}
	start := len(dst)
	dst = m.merge(dst, word, s)
	m.cache.put(hash, word, dst[start:])
	return dst
}

// isWhole tells whether merging the bytes of a token yields it.
func (m *bpe) isWhole(id uint32, word string, s *scratch) bool {
	last := m.last[id].Load()
	if last == lastUnset {
		last = m.end(id, word, s)
	}
	return last != lastOther
}

// end finds out how merging the bytes of a token ends. For [pairs] a token is
// odd if it is long or if its parts do not have earlier turns than itself.
func (m *bpe) end(id uint32, word string, s *scratch) (last uint32) {
	defer func() { m.last[id].Store(last) }()
	symbols := m.symbols(s.ids[:0], word)
	s.ids = symbols
	switch {
	case len(symbols) == 1 && symbols[0] == id:
		return lastSymbol
	case len(symbols) > len(s.ranks):
		if n := m.mergeLong(symbols, s); n != 1 || symbols[0] != id {
			return lastOther
		}
		return lastOdd
	}
	n, index := m.mergeShort(symbols, &s.ranks)
	if n != 1 || symbols[0] != id {
		return lastOther
	}
	if m.pairs == nil || len(word) >= longToken {
		return lastOdd
	}
	merge := m.merges.list[index]
	for _, part := range [...]uint32{merge.left, merge.right} {
		last := m.last[part].Load()
		if last == lastUnset {
			last = m.end(part, string(m.bytes(part)), s)
		}
		if last == lastOther || last == lastOdd || last >= lastMerge && m.merges.list[last-lastMerge].rank >= merge.rank {
			return lastOdd
		}
	}
	return lastMerge + index
}

// merge appends the ids of word by byte-pair encoding: from single bytes on, the
// adjacent pair of the lowest rank is merged, leftmost first, until no pair has
// a rank.
func (m *bpe) merge(dst []uint32, word string, s *scratch) []uint32 {
	if m.pairs != nil && len(word) <= maxPaired {
		if dst, ok := m.appendPaired(dst, word, s); ok {
			return dst
		}
	}
	start := len(dst)
	return m.mergeFrom(start, m.symbols(dst, word), s)
}

// mergeFrom merges the symbols in dst[start:].
func (m *bpe) mergeFrom(start int, dst []uint32, s *scratch) []uint32 {
	if len(dst)-start > len(s.ranks) {
		return dst[:start+m.mergeLong(dst[start:], s)]
	}
	n, _ := m.mergeShort(dst[start:], &s.ranks)
	return dst[:start+n]
}

// symbols appends the ids that merging of word begins with.
func (m *bpe) symbols(dst []uint32, word string) []uint32 {
	due := false
	for i := 0; i < len(word); {
		n := 1
		if m.text && word[i] >= utf8.RuneSelf {
			_, n = utf8.DecodeRuneInString(word[i:])
		}
		dst, due = m.appendSymbol(dst, word[i:i+n], due)
		i += n
	}
	if due {
		dst = append(dst, m.unk)
	}
	return dst
}

// appendSymbol appends the id of a byte or a character, or if it has none the ids
// of its bytes. An unknown token is due before the next one that is known, so that
// several can be one.
func (m *bpe) appendSymbol(dst []uint32, symbol string, due bool) ([]uint32, bool) {
	if id, ok := m.symbol(symbol); ok {
		if due {
			dst = append(dst, m.unk)
		}
		return append(dst, id), false
	}
	if spells(m.fallback, symbol) {
		// The reference implementation lets an unknown token that is due wait
		// behind them.
		for _, b := range []byte(symbol) {
			dst = append(dst, m.fallback[b])
		}
		return dst, due
	}
	if due && !m.fuseUnk {
		dst = append(dst, m.unk)
	}
	return dst, m.unk != none
}

// symbol returns the id of one byte or character.
func (m *bpe) symbol(symbol string) (uint32, bool) {
	if len(symbol) == 1 {
		id := m.bytes1[symbol[0]]
		return id, id != none
	}
	return m.find(symbol)
}

// mergeShort merges ids in place and returns how many are left, and the index of
// the last merge. Looking through all ranks for each merge beats any bookkeeping
// for words of ordinary length.
func (m *bpe) mergeShort(ids []uint32, ranks *[shortWord]uint32) (n int, last uint32) {
	n = len(ids)
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
		if n == 2 {
			last, _ = m.merges.find(ids[0], ids[1])
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
	return n, last
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
