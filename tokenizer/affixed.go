package tokenizer

import "unicode/utf8"

// affixed is byte-pair encoding whose symbols tell where in the word they are:
// those behind the first have a prefix, and the last has a suffix.
type affixed struct {
	*bpe
	prefix, suffix string
}

func (f *modelFile) buildAffixed() (*affixed, error) {
	f.Merges.prefix = len(f.Prefix)
	m, err := f.build(false)
	if err != nil {
		return nil, err
	}
	// Merging never goes across words, but here a part of a word is not one.
	m.joints = nil
	return &affixed{bpe: m, prefix: f.Prefix, suffix: f.Suffix}, nil
}

func (m *affixed) appendWord(dst []uint32, word string, s *scratch) []uint32 {
	hash := m.index.hash(word)
	if m.ignoreMerges {
		if id, ok := m.index.lookup(&m.pieces, word, hash); ok {
			return append(dst, id)
		}
	}
	if ids, ok := m.cache.get(hash, word); ok {
		return append(dst, ids...)
	}
	start := len(dst)
	dst = m.mergeFrom(start, m.symbols(dst, word), s)
	m.cache.put(hash, word, dst[start:])
	return dst
}

// symbols gives what has no token the ids of its bytes with its affixes, as the
// reference implementation has it.
func (m *affixed) symbols(dst []uint32, word string) []uint32 {
	due := false
	for i := 0; i < len(word); {
		_, n := utf8.DecodeRuneInString(word[i:])
		symbol := word[i : i+n]
		if i > 0 {
			symbol = m.prefix + symbol
		}
		i += n
		if i == len(word) {
			symbol += m.suffix
		}
		dst, due = m.appendSymbol(dst, symbol, due)
	}
	if due {
		dst = append(dst, m.unk)
	}
	return dst
}
