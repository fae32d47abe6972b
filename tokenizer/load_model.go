package tokenizer

import (
	"bytes"
	"fmt"
	"slices"
	"sync/atomic"
	"unicode/utf8"

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
	MaxChars     *int       `json:"max_input_chars_per_word"`
	UnkID        *uint64    `json:"unk_id"`
	Vocab        vocabFile  `json:"vocab"`
	Merges       mergesFile `json:"merges"`
}

// load makes the model ready for use.
func (f *modelFile) load(byteLevel bool) (model, *vocabulary, error) {
	if f.Type == "WordPiece" && !byteLevel {
		w, err := f.buildWordPiece()
		if err != nil {
			return nil, nil, err
		}
		return w, &w.vocabulary, nil
	}
	if f.Type == "Unigram" && !byteLevel {
		u, err := f.buildUnigram()
		if err != nil {
			return nil, nil, err
		}
		return u, &u.vocabulary, nil
	}
	if f.Type == "WordLevel" && !byteLevel {
		w, err := f.buildWordLevel()
		if err != nil {
			return nil, nil, err
		}
		return w, &w.vocabulary, nil
	}
	if f.Prefix != "" || f.Suffix != "" {
		a, err := f.buildAffixed()
		if err != nil {
			return nil, nil, err
		}
		return a, &a.vocabulary, nil
	}
	m, err := f.build(byteLevel)
	if err != nil {
		return nil, nil, err
	}
	return m, &m.vocabulary, nil
}

// bytewise tells whether the model can have its tokens as bytes, if they are in
// the alphabet.
func (f *modelFile) bytewise() bool {
	return f.Prefix == "" && f.Suffix == "" && f.Type != "WordPiece" && f.Type != "Unigram" && f.Type != "WordLevel"
}

// build checks a BPE model and makes it ready for use. Whether its vocabulary is
// in the alphabet of bytes, the model alone does not tell.
func (f *modelFile) build(byteLevel bool) (*bpe, error) {
	switch {
	case f.Type != "BPE" && (f.Type != "" || f.Merges.n == 0):
		return nil, unsupported("model", f.Type)
	case f.Vocab.scores != nil:
		return nil, fmt.Errorf("model.vocab: must be an object of ids by token")
	case f.Vocab.err != nil:
		return nil, f.Vocab.err
	case f.Merges.err != nil:
		return nil, f.Merges.err
	}
	opaque := map[uint32]bool{}
	m := &bpe{
		vocabulary:   f.Vocab.vocabulary(),
		ignoreMerges: f.IgnoreMerges,
		fuseUnk:      f.FuseUnk,
		last:         make([]atomic.Uint32, len(f.Vocab.at)),
	}
	m.text = !byteLevel
	if byteLevel {
		m.pieces, opaque = f.Vocab.spelledBytes()
		for id := range opaque {
			m.other[string(m.bytes(id))] = id
		}
	}
	m.fillIndex(opaque)
	for b := range m.bytes1 {
		m.bytes1[b] = none
		if id, ok := m.find(string([]byte{byte(b)})); ok && (byteLevel || b < utf8.RuneSelf) {
			m.bytes1[b] = id
		}
	}
	complete := !slices.Contains(m.bytes1[:], none)
	if f.ByteFallback && byteLevel && !complete {
		return nil, fmt.Errorf("model.byte_fallback: true is not supported for a byte-level vocabulary without all bytes")
	}
	if f.ByteFallback && !byteLevel {
		m.fallback, complete = m.byteTokens()
	}
	// Only what is not in the vocabulary needs the unknown token.
	if f.UnkToken != "" && !complete {
		id, ok := m.id(f.UnkToken)
		if !ok {
			return nil, fmt.Errorf("model.unk_token: %q is not in the vocabulary", f.UnkToken)
		}
		m.unk = id
	}
	if err := f.Merges.addTo(m, byteLevel); err != nil {
		return nil, err
	}
	if byteLevel {
		m.pairs = newPairs(&m.pieces)
	} else {
		m.joints = m.findJoints(f.UnkToken)
	}
	return m, nil
}

// vocabFile reads the vocabulary as it is spelled.
type vocabFile struct {
	pieces
	scores []float64 // by id, if the file has them
	count  int
	err    error // told only if the model's type calls for this kind of vocabulary
}

func (v *vocabFile) vocabulary() vocabulary {
	return vocabulary{pieces: v.pieces, index: newIndex(v.count), other: map[string]uint32{}, count: v.count, unk: none}
}

// spelledBytes returns the tokens as the bytes that they spell in the alphabet.
// One with characters that stand for no byte is opaque: kept for decoding alone.
func (v *vocabFile) spelledBytes() (spelled pieces, opaque map[uint32]bool) {
	spelled = pieces{blob: make([]byte, 0, len(v.blob)), at: slices.Clone(v.at)}
	opaque = map[uint32]bool{}
	for id := range uint32(len(v.at)) {
		if !v.known(id) {
			continue
		}
		start, ok := len(spelled.blob), false
		if spelled.blob, ok = appendBytes(spelled.blob, v.bytes(id)); !ok {
			opaque[id] = true
		}
		spelled.set(id, start)
	}
	return spelled, opaque
}

// UnmarshalJSONFrom implements json.UnmarshalerFrom.
func (v *vocabFile) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	if dec.PeekKind() == '[' {
		return v.readScored(dec)
	}
	if kind := dec.PeekKind(); kind != '{' {
		v.err = fmt.Errorf("model.vocab: must be an object of ids by token")
		return dec.SkipValue()
	}
	*v = vocabFile{}
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
			v.err = fmt.Errorf("model.vocab[%q]: must be an id, a whole number below %d", name, maxID)
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
	start := len(v.blob)
	v.blob = append(v.blob, name...)
	v.set(id, start)
	v.count++
}

// mergesFile reads merges, each "left right" or ["left", "right"]; the vocabulary
// that they refer to may come later in the file.
type mergesFile struct {
	blob   []byte
	ends   []uint32 // of left and right in turn
	prefix int      // bytes of the right token that are not in the merged one
	n      int
	err    error
	text   []byte    // scratch for one string
	pair   [2][]byte // and for two
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

func (f *mergesFile) add(left, right []byte) {
	f.blob = append(f.blob, left...)
	mid := len(f.blob)
	f.blob = append(f.blob, right...)
	f.ends = append(f.ends, uint32(mid), uint32(len(f.blob)))
}

// spell replaces the merges by the bytes that they spell. One with a token that
// spells no bytes can never apply, and becomes empty.
func (f *mergesFile) spell() {
	spelled := make([]byte, 0, len(f.blob))
	start := uint32(0)
	for i := range f.n {
		mid, end := f.ends[2*i], f.ends[2*i+1]
		before := len(spelled)
		var okL, okR bool
		spelled, okL = appendBytes(spelled, f.blob[start:mid])
		half := len(spelled)
		spelled, okR = appendBytes(spelled, f.blob[mid:end])
		if !okL || !okR {
			spelled, half = spelled[:before], before
		}
		f.ends[2*i], f.ends[2*i+1] = uint32(half), uint32(len(spelled))
		start = end
	}
	f.blob = spelled
}

// addTo resolves the merges with the vocabulary of m.
func (f *mergesFile) addTo(m *bpe, byteLevel bool) error {
	if byteLevel {
		f.spell()
	}
	m.merges = newMergeTable(f.n)
	text := string(f.blob)
	start := uint32(0)
	last, made := "", none // all ways to make a token often come in a row
	for i := range f.n {
		mid, end := f.ends[2*i], f.ends[2*i+1]
		left, right, both := text[start:mid], text[mid:end], text[start:end]
		start = end
		if f.prefix > 0 {
			if len(right) < f.prefix {
				return fmt.Errorf("model.merges[%d]: %q is shorter than continuing_subword_prefix", i, right)
			}
			both = left + right[f.prefix:]
		}
		if both == "" {
			continue
		}
		okM := true
		if both != last {
			made, okM = m.find(both)
			last = both
		}
		l, okL := m.find(left)
		r, okR := m.find(right)
		if !okL || !okR || !okM {
			return fmt.Errorf("model.merges[%d]: %q and %q, or both together, are not in the vocabulary", i, left, right)
		}
		m.merges.add(l, r, made)
	}
	return nil
}
