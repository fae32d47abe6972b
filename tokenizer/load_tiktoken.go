package tokenizer

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
)

// maxRanked bounds the bytes of a token in a rank file, all of whose halves are
// looked up. The longest of real files has 128.
const maxRanked = 1 << 10

// LoadTiktoken reads a rank file, a line for each token with its bytes in base64
// and its rank, which is its id. Such a file holds neither the pattern by which
// text is split into words nor the special tokens, which are given by content.
//
// Two neighbours merge if their bytes together are a token, the lowest rank
// first. An error names the line.
func LoadTiktoken(ranks []byte, pattern string, special map[string]uint32) (*Tokenizer, error) {
	vocab, err := readRanks(ranks)
	if err != nil {
		return nil, fmt.Errorf("tokenizer: ranks: %w", err)
	}
	t := &Tokenizer{scratch: &sync.Pool{New: func() any { return new(scratch) }}}
	m, err := vocab.buildRanked()
	if err != nil {
		return nil, fmt.Errorf("tokenizer: ranks: %w", err)
	}
	t.model, t.vocab = m, &m.vocabulary
	for content, id := range special {
		switch {
		case content == "":
			return nil, fmt.Errorf("tokenizer: special tokens: %d has no content", id)
		case id >= maxID:
			return nil, fmt.Errorf("tokenizer: special tokens: id %d of %q is not below %d", id, content, maxID)
		case t.vocab.known(id):
			return nil, fmt.Errorf("tokenizer: special tokens: id %d of %q is taken by a token with a rank", id, content)
		}
		t.added = append(t.added, AddedToken{ID: id, Content: content, Special: true})
	}
	slices.SortFunc(t.added, func(a, b AddedToken) int { return int(a.ID) - int(b.ID) })
	for i := 1; i < len(t.added); i++ {
		if a, b := t.added[i-1], t.added[i]; a.ID == b.ID {
			return nil, fmt.Errorf("tokenizer: special tokens: %q and %q both have the id %d", a.Content, b.Content, a.ID)
		}
	}
	pre := preTokenizer{}
	if err := pre.addPattern("pattern", patternFile{Regex: &pattern, dialect: rust}, isolated, false); err != nil {
		return nil, fmt.Errorf("tokenizer: %w", err)
	}
	t.setStages(pre)
	t.setAdded()
	return t, nil
}

// readRanks returns the tokens as bytes, by rank.
func readRanks(file []byte) (*vocabFile, error) {
	v := &vocabFile{}
	n := 0
	for line := range bytes.Lines(file) {
		n++
		line = bytes.TrimSpace(line)
		if len(line) == 0 {
			continue
		}
		token, number, ok := bytes.Cut(line, []byte(" "))
		if !ok {
			return nil, fmt.Errorf("line %d: want a token in base64, a space and a rank", n)
		}
		rank, err := strconv.ParseUint(string(number), 10, 64)
		if err != nil {
			return nil, fmt.Errorf("line %d: rank: want a whole number below %d", n, maxID)
		}
		start := len(v.blob)
		if v.blob, err = base64.StdEncoding.AppendDecode(v.blob, token); err != nil {
			return nil, fmt.Errorf("line %d: token: %w", n, err)
		}
		switch length := len(v.blob) - start; {
		case length == 0 || length > maxRanked:
			return nil, fmt.Errorf("line %d: token: has %d bytes, want 1 to %d", n, length, maxRanked)
		case rank >= maxID:
			return nil, fmt.Errorf("line %d: rank: %d is not below %d", n, rank, maxID)
		case v.known(uint32(rank)):
			return nil, fmt.Errorf("line %d: rank: %d is taken by another token", n, rank)
		}
		v.set(uint32(rank), start)
		v.count++
	}
	return v, nil
}

// buildRanked makes a model of a vocabulary of bytes whose ids are ranks.
func (v *vocabFile) buildRanked() (*bpe, error) {
	m := &bpe{
		vocabulary:   v.vocabulary(),
		ignoreMerges: true,
		last:         make([]atomic.Uint32, len(v.at)),
	}
	for id := range uint32(len(m.at)) {
		if !m.known(id) {
			continue
		}
		word := string(m.bytes(id))
		hash := m.index.hash(word)
		if twin, ok := m.index.lookup(&m.pieces, word, hash); ok {
			return nil, fmt.Errorf("%q has the ranks %d and %d", word, twin, id)
		}
		m.index.insert(id, hash)
	}
	for b := range m.bytes1 {
		id, ok := m.find(string([]byte{byte(b)}))
		if !ok {
			return nil, fmt.Errorf("byte 0x%02x has no rank", b)
		}
		m.bytes1[b] = id
	}
	pairs := 0
	m.eachPair(func(_, _, _ uint32) { pairs++ })
	m.merges = newMergeTable(pairs)
	last := none
	m.eachPair(func(left, right, made uint32) {
		if made == last {
			m.merges.addAnother(left, right)
			return
		}
		m.merges.add(left, right, made)
		last = made
	})
	m.pairs = newPairs(&m.pieces)
	return m, nil
}

// eachPair calls f with all pairs of tokens that together are one, by its rank.
func (m *bpe) eachPair(f func(left, right, made uint32)) {
	for id := range uint32(len(m.at)) {
		token := string(m.bytes(id))
		for cut := 1; cut < len(token); cut++ {
			left, ok := m.find(token[:cut])
			if !ok {
				continue
			}
			if right, ok := m.find(token[cut:]); ok {
				f(left, right, id)
			}
		}
	}
}
