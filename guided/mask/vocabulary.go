package mask

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// Tokens says how the ids of a tokenizer are written.
type Tokens struct {
	// Bytes holds what each id adds to a text. Nothing marks an id that is never
	// allowed: a special token, or one that is no text.
	Bytes [][]byte
	// Marks are special tokens that a structural tag may name by their text, as the
	// markers of calls; nothing else allows them.
	Marks map[uint32]string
	// Ends are the ids that end an answer. They are allowed exactly where the text
	// may end, whatever their bytes are.
	Ends []uint32
}

// Vocabulary is a vocabulary made ready for masks: a trie of the bytes of all
// tokens. It does not change, and is safe for concurrent use.
type Vocabulary struct {
	tokens  [][]byte
	marks   map[string]uint32
	ends    []uint32
	isEnd   map[uint32]bool
	trie    []trieNode // in the order of a walk, the root first
	same    [][]uint32 // further ids with the bytes of one that stands in the trie
	longest int        // bytes of the longest token
}

// trieNode is one prefix of tokens. Its first child, if it has one, comes next.
type trieNode struct {
	token int32 // the id with these bytes, or -1
	same  int32 // its place in same, or -1
	skip  int32 // the node behind all those below it
	depth int16 // bytes of the prefix
	byte  byte  // its last byte
}

const maxToken = 1 << 10 // bytes of a token; longer ones are never allowed

// NewVocabulary returns the vocabulary of so many tokens. It keeps the slices.
func NewVocabulary(t Tokens) (*Vocabulary, error) {
	if len(t.Bytes) == 0 {
		return nil, errors.New("mask: the vocabulary is empty")
	}
	v := &Vocabulary{tokens: slices.Clone(t.Bytes), marks: map[string]uint32{}, ends: t.Ends, isEnd: map[uint32]bool{}}
	for _, id := range t.Ends {
		if int64(id) >= int64(len(t.Bytes)) {
			return nil, fmt.Errorf("mask: the end %d is not among the %d ids of the vocabulary", id, len(t.Bytes))
		}
		v.isEnd[id] = true
		v.tokens[id] = nil
	}
	for id, text := range t.Marks {
		if int64(id) >= int64(len(t.Bytes)) {
			return nil, fmt.Errorf("mask: the mark %q is %d, which is not among the %d ids of the vocabulary", text, id, len(t.Bytes))
		}
		if other, ok := v.marks[text]; text != "" && !v.isEnd[id] && (!ok || id < other) {
			v.marks[text] = id
		}
		v.tokens[id] = nil
	}
	v.grow()
	return v, nil
}

// Size returns the number of ids.
func (v *Vocabulary) Size() int { return len(v.tokens) }

// Words returns the number of words of a mask.
func (v *Vocabulary) Words() int { return (len(v.tokens) + 63) / 64 }

// grow makes the trie.
func (v *Vocabulary) grow() {
	var ids []uint32
	for id, b := range v.tokens {
		if len(b) > maxToken {
			v.tokens[id] = nil
		} else if len(b) > 0 {
			ids = append(ids, uint32(id))
			v.longest = max(v.longest, len(b))
		}
	}
	slices.SortFunc(ids, func(a, b uint32) int {
		return cmp.Or(bytes.Compare(v.tokens[a], v.tokens[b]), cmp.Compare(a, b))
	})
	v.trie = append(v.trie, trieNode{token: -1, same: -1})
	open := []int32{0} // the way to the last node, by depth
	var last []byte
	for _, id := range ids {
		text := v.tokens[id]
		if len(v.trie) > 1 && bytes.Equal(text, last) {
			v.again(open[len(text)], id)
			continue
		}
		common := 0
		for common < len(last) && common < len(text) && last[common] == text[common] {
			common++
		}
		v.close(open[common+1:])
		open = open[:common+1]
		for depth := common; depth < len(text); depth++ {
			open = append(open, int32(len(v.trie)))
			v.trie = append(v.trie, trieNode{token: -1, same: -1, depth: int16(depth + 1), byte: text[depth]})
		}
		v.trie[len(v.trie)-1].token = int32(id)
		last = text
	}
	v.close(open)
}

func (v *Vocabulary) close(nodes []int32) {
	for _, n := range nodes {
		v.trie[n].skip = int32(len(v.trie))
	}
}

// again adds an id with the bytes of one before.
func (v *Vocabulary) again(n int32, id uint32) {
	at := &v.trie[n]
	if at.same < 0 {
		at.same = int32(len(v.same))
		v.same = append(v.same, nil)
	}
	v.same[at.same] = append(v.same[at.same], id)
}

// Token returns the bytes of an id, which belong to the vocabulary; nothing for an
// id that is never allowed, an end or a mark.
func (v *Vocabulary) Token(id uint32) []byte { return v.tokens[id] }
