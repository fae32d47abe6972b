package tokenizer

import (
	"errors"
	"fmt"
	"unicode/utf8"
)

// wordPiece is the model of BERT: from the left, a word falls into the longest
// tokens that there are, those behind the first with a prefix. If one part is
// not a token, all of the word is unknown.
type wordPiece struct {
	vocabulary
	prefix   string
	maxChars int // of a word; a longer one is unknown
	longest  int // bytes of the longest token
}

func (f *modelFile) buildWordPiece() (*wordPiece, error) {
	if f.Vocab.scores != nil {
		return nil, errors.New("model.vocab: must be an object of ids by token")
	}
	if f.Vocab.err != nil {
		return nil, f.Vocab.err
	}
	m := &wordPiece{vocabulary: f.Vocab.vocabulary(), prefix: f.Prefix, maxChars: 100}
	if f.MaxChars != nil {
		m.maxChars = *f.MaxChars
	}
	m.text = true
	m.fillIndex(nil)
	for id := range uint32(len(m.at)) {
		m.longest = max(m.longest, len(m.bytes(id)))
	}
	id, ok := m.id(f.UnkToken)
	if !ok {
		return nil, fmt.Errorf("model.unk_token: %q is not in the vocabulary", f.UnkToken)
	}
	m.unk = id
	return m, nil
}

func (m *wordPiece) appendWord(dst []uint32, word string, s *scratch) []uint32 {
	if utf8.RuneCountInString(word) > m.maxChars {
		return append(dst, m.unk)
	}
	known := len(dst)
	for start := 0; start < len(word); {
		id, end, ok := m.longestAt(word, start, s)
		if !ok {
			return append(dst[:known], m.unk)
		}
		dst = append(dst, id)
		start = end
	}
	return dst
}

// longestAt returns the longest token at word[start:] and its end.
func (m *wordPiece) longestAt(word string, start int, s *scratch) (id uint32, end int, ok bool) {
	s.text = s.text[:0]
	if start > 0 {
		s.text = append(s.text, m.prefix...)
	}
	prefix := len(s.text)
	s.text = append(s.text, word[start:min(len(word), start+m.longest)]...)
	for text := s.text; len(text) > prefix; {
		if id, ok := m.find(string(text)); ok {
			return id, start + len(text) - prefix, true
		}
		_, n := utf8.DecodeLastRune(text[prefix:])
		text = text[:len(text)-n]
	}
	return 0, 0, false
}

// symbols appends the unknown token alone: the parts of a word that are not the
// word cannot be told from those of another.
func (m *wordPiece) symbols(dst []uint32, _ string) []uint32 { return append(dst, m.unk) }
