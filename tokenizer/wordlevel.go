package tokenizer

import (
	"errors"
	"fmt"
)

// wordLevel is a model of whole words.
type wordLevel struct{ vocabulary }

func (f *modelFile) buildWordLevel() (*wordLevel, error) {
	if f.Vocab.scores != nil {
		return nil, errors.New("model.vocab: must be an object of ids by token")
	}
	if f.Vocab.err != nil {
		return nil, f.Vocab.err
	}
	m := &wordLevel{f.Vocab.vocabulary()}
	m.text = true
	m.fillIndex(nil)
	id, ok := m.id(f.UnkToken)
	if !ok {
		return nil, fmt.Errorf("model.unk_token: %q is not in the vocabulary", f.UnkToken)
	}
	m.unk = id
	return m, nil
}

func (m *wordLevel) appendWord(dst []uint32, word string, _ *scratch) []uint32 {
	id, ok := m.find(word)
	if !ok {
		id = m.unk
	}
	return append(dst, id)
}

// symbols appends the unknown token, since a word has no parts.
func (m *wordLevel) symbols(dst []uint32, _ string) []uint32 { return append(dst, m.unk) }
