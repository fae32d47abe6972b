package tokenizer

import "unicode/utf8"

// tiedBPE merges pieces as SentencePiece does in general, where byte-pair
// encoding is not the same: pieces may share a score, then the leftmost goes
// first; their characters need not be pieces; and unused ones, which merge but
// are no outcome, fall back into what they were merged from.
type tiedBPE struct {
	vocabulary
	ranks    map[string]uint32 // of the scores of pieces and unused ones
	used     map[string]uint32 // ids of the others than unused ones
	fallback *[256]uint32
}

func (p *pieceModel) buildTied() *tiedBPE {
	m := &tiedBPE{vocabulary: p.vocabulary(), fallback: p.fallback(), ranks: map[string]uint32{}, used: map[string]uint32{}}
	rank, last := none, float32(0)
	for _, id := range p.merged() {
		piece := p.file.pieces[id]
		if rank == none || piece.score != last {
			rank, last = rank+1, piece.score
		}
		m.ranks[piece.text] = rank
	}
	for text, id := range p.byText {
		if p.file.pieces[id].kind != pieceUnused {
			m.used[text] = id
		}
	}
	return m
}

// sometimesTied is byte-pair encoding with some pieces that share a score. Parts
// of a word that hold none of them are merged the fast way.
type sometimesTied struct {
	*bpe
	tied *tiedBPE
	ties *pieceTrie
}

func (m *sometimesTied) appendWord(dst []uint32, word string, s *scratch) []uint32 {
	for i := 0; i < len(word); {
		end := len(word)
		if m.joints != nil {
			end = m.joints.next(word, i)
		}
		if part := word[i:end]; m.ties.within(part) {
			dst = m.tied.appendWord(dst, part, s)
		} else {
			dst = m.appendPart(dst, part, s)
		}
		i = end
	}
	return dst
}

// tiedLink is a symbol of a word, which other symbols may have merged into.
type tiedLink struct {
	start, end int32 // in the word; equal if merged away
	prev, next int32
}

func (m *tiedBPE) appendWord(dst []uint32, word string, _ *scratch) []uint32 {
	links := make([]tiedLink, 0, utf8.RuneCountInString(word))
	for i := 0; i < len(word); {
		_, n := utf8.DecodeRuneInString(word[i:])
		k := int32(len(links))
		links = append(links, tiedLink{int32(i), int32(i + n), k - 1, k + 1})
		i += n
	}
	last := int32(len(links))
	// Where an unused piece was merged, by its text.
	var cuts map[string]int
	queue := make(minHeap, 0, len(links))
	push := func(left int32) {
		if left < 0 || links[left].next >= last {
			return
		}
		right := links[links[left].next]
		piece := word[links[left].start:right.end]
		rank, ok := m.ranks[piece]
		if !ok {
			return
		}
		queue.push(uint64(rank)<<32 | uint64(left))
		if _, ok := m.used[piece]; !ok {
			if cuts == nil {
				cuts = map[string]int{}
			}
			cuts[piece] = int(right.start - links[left].start)
		}
	}
	for left := range last {
		push(left)
	}
	for len(queue) > 0 {
		top := queue.pop()
		left := int32(uint32(top))
		l := &links[left]
		if l.start == l.end || l.next >= last {
			continue
		}
		right := l.next
		// A pair that is no more; if the one in its place has the same rank, its
		// turn is now.
		if rank, ok := m.ranks[word[l.start:links[right].end]]; !ok || uint64(rank) != top>>32 {
			continue
		}
		l.end, l.next = links[right].end, links[right].next
		links[right].start = links[right].end
		if l.next < last {
			links[l.next].prev = left
		}
		push(l.prev)
		push(left)
	}
	unknown := false
	for i := int32(0); i < last; i = links[i].next {
		dst, unknown = m.appendPiece(dst, word[links[i].start:links[i].end], cuts, unknown)
	}
	return dst
}

// appendPiece appends the id of a piece, or those of what it falls back into.
// Unknown ones in a row are one.
func (m *tiedBPE) appendPiece(dst []uint32, piece string, cuts map[string]int, unknown bool) ([]uint32, bool) {
	if id, ok := m.used[piece]; ok {
		return append(dst, id), false
	}
	if cut, ok := cuts[piece]; ok {
		dst, unknown = m.appendPiece(dst, piece[:cut], cuts, unknown)
		return m.appendPiece(dst, piece[cut:], cuts, unknown)
	}
	// An unused piece of one character has nothing to fall back into.
	if _, ok := m.ranks[piece]; ok {
		return append(dst, m.other[piece]), false
	}
	if m.fallback != nil {
		for _, b := range []byte(piece) {
			dst = append(dst, m.fallback[b])
		}
		return dst, true
	}
	if unknown {
		return dst, true
	}
	return append(dst, m.unk), true
}

func (m *tiedBPE) symbols(dst []uint32, word string) []uint32 {
	unknown := false
	for i := 0; i < len(word); {
		_, n := utf8.DecodeRuneInString(word[i:])
		dst, unknown = m.appendPiece(dst, word[i:i+n], nil, unknown)
		i += n
	}
	return dst
}
