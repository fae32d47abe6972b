package tiny

import (
	"github.com/dynago/dynago/guided/mask"
	"github.com/dynago/dynago/tokenizer"
)

// Vocabulary returns how a tokenizer writes the ids of a model, of which there are so
// many: what [Options] needs for forms. Within a form text comes from tokens of text,
// and markers, such as those around calls, come where the form names them. Ids that the
// tokenizer does not have are in no form; ends are those that end an answer.
func Vocabulary(t *tokenizer.Tokenizer, ids int, ends []uint32) (*mask.Vocabulary, error) {
	v := mask.Tokens{Bytes: make([][]byte, ids), Marks: map[uint32]string{}, Ends: ends}
	for id := range v.Bytes {
		v.Bytes[id] = t.Bytes(uint32(id))
	}
	for _, added := range t.AddedTokens() {
		if int64(added.ID) < int64(ids) && (added.Special || added.Structure) {
			v.Marks[added.ID] = added.Content
		}
	}
	return mask.NewVocabulary(v)
}
