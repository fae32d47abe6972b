package tokenizer

import (
	"errors"
	"fmt"
	"math"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// unigram is the model of T5 and XLM-R: of all ways to cut a word into tokens,
// the one whose scores sum to the most (Kudo, 2018).
type unigram struct {
	vocabulary
	scores   []float64 // by id
	unkScore float64   // of a character that is no token
	trie     *pieceTrie
	fallback *[256]uint32
	narrow   bool // sums are kept in 32 bits, as SentencePiece does
}

// unknownPenalty is how much worse an unknown character is than any token.
const unknownPenalty = 10

func (f *modelFile) buildUnigram() (*unigram, error) {
	if f.Vocab.scores == nil {
		return nil, errors.New("model.vocab: must be a list of tokens with their scores")
	}
	if f.Vocab.err != nil {
		return nil, f.Vocab.err
	}
	m := &unigram{vocabulary: f.Vocab.vocabulary(), scores: f.Vocab.scores, unkScore: math.Inf(1)}
	m.text = true
	m.fillIndex(nil)
	for _, score := range m.scores {
		m.unkScore = min(m.unkScore, score)
	}
	m.unkScore -= unknownPenalty
	m.setTrie(func(uint32) bool { return true })
	if f.UnkID == nil || *f.UnkID >= uint64(len(m.scores)) {
		return nil, errors.New("model.unk_id: must be the index of a token")
	}
	m.unk = uint32(*f.UnkID)
	if f.ByteFallback {
		m.fallback, _ = m.byteTokens()
	}
	return m, nil
}

// bestEnd is the best way to cut a word up to a place: its last token, where
// that begins, and the sum of the scores.
type bestEnd struct {
	score float64
	start int32 // -1: no way
	id    uint32
}

// reach takes a way that ends here with a token from start, if it is better.
func (b *bestEnd) reach(start int, id uint32, score float64, narrow bool) {
	if b.start >= 0 && score <= b.score {
		return
	}
	if narrow {
		score = float64(float32(score))
	}
	*b = bestEnd{score, int32(start), id}
}

// setTrie makes known to the lattice the tokens that is holds for.
func (m *unigram) setTrie(is func(id uint32) bool) {
	var tokens []trieToken
	for id := range uint32(len(m.scores)) {
		if text := m.bytes(id); len(text) > 0 && is(id) {
			tokens = append(tokens, trieToken{string(text), id})
		}
	}
	m.trie = newPieceTrie(tokens)
}

func (m *unigram) appendWord(dst []uint32, word string, s *scratch) []uint32 {
	best := s.best[:0]
	for range len(word) + 1 {
		best = append(best, bestEnd{start: -1})
	}
	s.best = best
	for start := 0; start < len(word); {
		_, n := utf8.DecodeRuneInString(word[start:])
		single := false
		sum := best[start].score
		for end, node := start, uint32(0); end < len(word); {
			if node = m.trie.child(node, word[end]); node == 0 {
				break
			}
			end++
			if id := m.trie.ids[node]; id != none {
				best[end].reach(start, id, sum+m.scores[id], m.narrow)
				single = single || end == start+n
			}
		}
		if !single {
			best[start+n].reach(start, m.unk, sum+m.unkScore, m.narrow)
		}
		start += n
	}
	// From the end back; then the ways are in order.
	path := s.ids[:0]
	for end := len(word); end > 0; end = int(best[end].start) {
		path = append(path, uint32(end))
	}
	s.ids = path
	for i := len(path) - 1; i >= 0; i-- {
		end := int(path[i])
		if best[end].id != m.unk {
			dst = append(dst, best[end].id)
			continue
		}
		// Unknown characters in a row are one.
		start := int(best[end].start)
		for i > 0 && best[path[i-1]].id == m.unk {
			i--
			end = int(path[i])
		}
		dst = m.appendUnknown(dst, word[start:end])
	}
	return dst
}

// appendUnknown appends what stands for characters that are no tokens.
func (m *unigram) appendUnknown(dst []uint32, text string) []uint32 {
	if id, ok := m.find(text); ok {
		return append(dst, id)
	}
	if !spells(m.fallback, text) {
		return append(dst, m.unk)
	}
	for _, b := range []byte(text) {
		dst = append(dst, m.fallback[b])
	}
	return dst
}

func (m *unigram) symbols(dst []uint32, word string) []uint32 {
	for _, r := range word {
		dst = m.appendUnknown(dst, string(r))
	}
	return dst
}

// readScored reads a vocabulary of tokens with scores, whose ids are their
// places.
func (v *vocabFile) readScored(dec *jsontext.Decoder) error {
	*v = vocabFile{scores: []float64{}}
	if _, err := dec.ReadToken(); err != nil {
		return err
	}
	for dec.PeekKind() != ']' {
		var entry []jsontext.Value
		var token string
		var score float64
		err := json.UnmarshalDecode(dec, &entry)
		if err == nil && len(entry) != 2 {
			err = errors.New("want a token and its score")
		}
		if err == nil {
			err = errors.Join(json.Unmarshal(entry[0], &token), json.Unmarshal(entry[1], &score))
		}
		if err != nil {
			return fmt.Errorf("model.vocab[%d]: %w", len(v.scores), err)
		}
		v.add([]byte(token), uint64(len(v.scores)))
		v.scores = append(v.scores, score)
	}
	_, err := dec.ReadToken()
	return err
}
