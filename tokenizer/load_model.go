package tokenizer

import (
	"bytes"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/go-json-experiment/json/jsontext"
)

// modelFile is the model of a tokenizer.json.
type modelFile struct {
	Type         string     `json:"type"`
	UnkToken     string     `json:"unk_token"`
	Prefix       string     `json:"continuing_subword_prefix"`
	Suffix       string     `json:"end_of_word_suffix"`
	FuseUnk      bool       `json:"fuse_unk"`
	ByteFallback bool       `json:"byte_fallback"`
	IgnoreMerges bool       `json:"ignore_merges"`
	Vocab        vocabFile  `json:"vocab"`
	Merges       mergesFile `json:"merges"`
}

// build checks the model and makes it ready for use.
func (f *modelFile) build() (*bpe, error) {
	switch {
	case f.Type != "BPE" && (f.Type != "" || f.Merges.n == 0):
		return nil, unsupported("model", f.Type)
	case f.ByteFallback:
		return nil, fmt.Errorf("model.byte_fallback: true is not supported: only byte-level BPE is")
	case f.Prefix != "":
		return nil, fmt.Errorf("model.continuing_subword_prefix: %q is not supported: only an empty one is", f.Prefix)
	case f.Suffix != "":
		return nil, fmt.Errorf("model.end_of_word_suffix: %q is not supported: only an empty one is", f.Suffix)
	case f.Vocab.err != nil:
		return nil, f.Vocab.err
	case f.Merges.err != nil:
		return nil, f.Merges.err
	}
	m := &bpe{
		pieces:       f.Vocab.pieces,
		index:        newIndex(f.Vocab.count),
		other:        f.Vocab.other,
		count:        f.Vocab.count,
		ignoreMerges: f.IgnoreMerges,
		fuseUnk:      f.FuseUnk,
		unk:          none,
		whole:        make([]atomic.Uint32, len(f.Vocab.at)/16+1),
	}
	for id := range uint32(len(m.at)) {
		if !m.known(id) || f.Vocab.opaque[id] {
			continue
		}
		word := string(m.bytes(id))
		hash := m.index.hash(word)
		if _, ok := m.index.lookup(&m.pieces, word, hash); !ok {
			m.index.insert(id, hash)
		}
	}
	for b := range m.bytes1 {
		m.bytes1[b] = none
		if id, ok := m.find(string([]byte{byte(b)})); ok {
			m.bytes1[b] = id
		}
	}
	// Only a byte that is not in the vocabulary needs the unknown token.
	if f.UnkToken != "" && slices.Contains(m.bytes1[:], none) {
		id, ok := m.id(f.UnkToken)
		if !ok {
			return nil, fmt.Errorf("model.unk_token: %q is not in the vocabulary", f.UnkToken)
		}
		m.unk = id
	}
	return m, f.Merges.addTo(m)
}

// find returns the token of these bytes.
func (m *bpe) find(word string) (uint32, bool) {
	return m.index.lookup(&m.pieces, word, m.index.hash(word))
}

// id returns the id of a token as the file spells it.
func (m *bpe) id(token string) (uint32, bool) {
	if id, ok := m.other[token]; ok {
		return id, true
	}
	word, ok := appendBytes(nil, token)
	if !ok {
		return 0, false
	}
	return m.find(string(word))
}

// vocabFile reads the vocabulary straight into its final form. A token with
// characters that stand for no byte is kept for decoding alone.
type vocabFile struct {
	pieces
	opaque map[uint32]bool
	other  map[string]uint32
	count  int
	err    error // told only if the model's type calls for this kind of vocabulary
}

// UnmarshalJSONFrom implements json.UnmarshalerFrom.
func (v *vocabFile) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	if kind := dec.PeekKind(); kind != '{' {
		v.err = fmt.Errorf("model.vocab: must be an object of ids by token")
		return dec.SkipValue()
	}
	*v = vocabFile{opaque: map[uint32]bool{}, other: map[string]uint32{}}
	if _, err := dec.ReadToken(); err != nil {
		return err
	}
	var name []byte
	for dec.PeekKind() == '"' {
		quoted, err := dec.ReadValue()
		if err != nil {
			return err
		}
		if name, err = jsontext.AppendUnquote(name[:0], quoted); err != nil {
			return err
		}
		if dec.PeekKind() != '0' {
			v.err = fmt.Errorf("model.vocab[%q]: must be an id", name)
			if err := dec.SkipValue(); err != nil {
				return err
			}
			continue
		}
		number, err := dec.ReadToken()
		if err != nil {
			return err
		}
		id, err := number.Uint()
		if err != nil {
			v.err = fmt.Errorf("model.vocab[%q]: %w", name, err)
			continue
		}
		v.add(name, id)
	}
	_, err := dec.ReadToken()
	return err
}

func (v *vocabFile) add(name []byte, number uint64) {
	if number >= maxID {
		v.err = fmt.Errorf("model.vocab[%q]: %d is not below %d", name, number, maxID)
		return
	}
	id := uint32(number)
	if v.known(id) {
		v.err = fmt.Errorf("model.vocab[%q]: id %d is taken by another token", name, id)
		return
	}
	start, ok := len(v.blob), false
	if v.blob, ok = appendBytes(v.blob, name); !ok {
		v.opaque[id] = true
		v.other[string(name)] = id
	}
	v.set(id, start)
	v.count++
}

// mergesFile reads merges, each "left right" or ["left", "right"], as the bytes
// of both; the vocabulary that they refer to may come later in the file.
type mergesFile struct {
	blob []byte
	ends []uint32 // of left and right in turn
	n    int
	err  error
	text []byte    // scratch for one string
	pair [2][]byte // and for two
}

// UnmarshalJSONFrom implements json.UnmarshalerFrom.
func (f *mergesFile) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	*f = mergesFile{}
	if dec.PeekKind() != '[' {
		f.err = fmt.Errorf("model.merges: must be a list")
		return dec.SkipValue()
	}
	if _, err := dec.ReadToken(); err != nil {
		return err
	}
	var err error
	for dec.PeekKind() != ']' && err == nil {
		switch dec.PeekKind() {
		case '"':
			err = f.readString(dec)
		case '[':
			err = f.readPair(dec)
		default:
			f.fail("must be a string or a pair of strings")
			err = dec.SkipValue()
		}
		f.n++
	}
	if err != nil {
		return err
	}
	_, err = dec.ReadToken()
	return err
}

// fail keeps the first fault, which is that of the merge being read.
func (f *mergesFile) fail(format string, args ...any) {
	if f.err == nil {
		f.err = fmt.Errorf("model.merges[%d]: %s", f.n, fmt.Sprintf(format, args...))
	}
}

func (f *mergesFile) readString(dec *jsontext.Decoder) error {
	text, err := f.readText(dec)
	if err != nil {
		return err
	}
	left, right, ok := bytes.Cut(text, []byte(" "))
	if !ok || bytes.IndexByte(right, ' ') >= 0 {
		f.fail("%q is not two tokens with a space between", text)
		return nil
	}
	f.add(left, right)
	return nil
}

func (f *mergesFile) readPair(dec *jsontext.Decoder) error {
	if _, err := dec.ReadToken(); err != nil {
		return err
	}
	n := 0
	for ; dec.PeekKind() == '"'; n++ {
		text, err := f.readText(dec)
		if err != nil {
			return err
		}
		f.pair[n%2] = append(f.pair[n%2][:0], text...)
	}
	if n != 2 || dec.PeekKind() != ']' {
		f.fail("must be a pair of tokens")
		for dec.PeekKind() != ']' {
			if err := dec.SkipValue(); err != nil {
				return err
			}
		}
	} else {
		f.add(f.pair[0], f.pair[1])
	}
	_, err := dec.ReadToken()
	return err
}

// readText reads a string. It is valid until the next call.
func (f *mergesFile) readText(dec *jsontext.Decoder) ([]byte, error) {
	quoted, err := dec.ReadValue()
	if err != nil {
		return nil, err
	}
	f.text, err = jsontext.AppendUnquote(f.text[:0], quoted)
	return f.text, err
}

// add keeps a merge; one with a token that spells no bytes can never apply and
// is kept as empty.
func (f *mergesFile) add(left, right []byte) {
	start := len(f.blob)
	blob, okL := appendBytes(f.blob, left)
	mid := len(blob)
	blob, okR := appendBytes(blob, right)
	if !okL || !okR {
		blob, mid = blob[:start], start
	}
	f.blob = blob
	f.ends = append(f.ends, uint32(mid), uint32(len(blob)))
}

// addTo resolves the merges with the vocabulary of m.
func (f *mergesFile) addTo(m *bpe) error {
	m.merges = newMergeTable(f.n)
	start := uint32(0)
	for i := range f.n {
		mid, end := f.ends[2*i], f.ends[2*i+1]
		left, right, both := string(f.blob[start:mid]), string(f.blob[mid:end]), string(f.blob[start:end])
		start = end
		if both == "" {
			continue
		}
		l, okL := m.find(left)
		r, okR := m.find(right)
		made, okM := m.find(both)
		if !okL || !okR || !okM {
			return fmt.Errorf("model.merges[%d]: %q and %q, or both together, are not in the vocabulary", i, left, right)
		}
		m.merges.add(l, r, made)
	}
	return nil
}
