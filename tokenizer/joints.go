package tokenizer

import "strings"

// blank is what vocabularies of SentencePiece write for a space: U+2581.
const blank = "\u2581"

// joints finds where a word of a SentencePiece model falls into parts. Such a
// model has no pre-tokenizer, so that a whole prompt is one word; but where a
// run of blanks begins no token of the vocabulary goes across, with few
// exceptions. Merging part by part is then the same and much faster.
type joints struct {
	across []across
}

// across is a token that goes across a joint, which it has at offset at.
type across struct {
	token string
	at    int
}

// maxAcross is the number of exceptions from which parts are not worth it.
const maxAcross = 64

// next returns the end of the part that begins at word[i:].
func (j *joints) next(word string, i int) int {
	for at := i; ; {
		for strings.HasPrefix(word[at:], blank) {
			at += len(blank)
		}
		n := strings.Index(word[at:], blank)
		if n < 0 {
			return len(word)
		}
		at += n
		if !j.covered(word, at) {
			return at
		}
	}
}

// covered tells whether a token may go across the joint at offset at.
func (j *joints) covered(word string, at int) bool {
	for _, a := range j.across {
		if at >= a.at && strings.HasPrefix(word[at-a.at:], a.token) {
			return true
		}
	}
	return false
}

// findJoints returns the joints of a model, or nil if words must stay whole.
func (m *bpe) findJoints(unk string) *joints {
	if _, ok := m.find(blank); !ok || m.ignoreMerges {
		return nil
	}
	j := &joints{}
	for _, made := range m.merges.made {
		token := string(m.bytes(made))
		for at := range token {
			if at == 0 || !strings.HasPrefix(token[at:], blank) || strings.HasSuffix(token[:at], blank) {
				continue
			}
			// A token of bytes or of unknown characters is not spelled as the
			// text that it stands for.
			if strings.Contains(token, "<0x") || unk != "" && strings.Contains(token, unk) || len(j.across) == maxAcross {
				return nil
			}
			j.across = append(j.across, across{token, at})
		}
	}
	return j
}
