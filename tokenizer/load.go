package tokenizer

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// maxID bounds ids, so that a broken file cannot ask for memory without end. The
// largest vocabularies have less than a tenth of it.
const maxID = 1 << 22

// Load reads a tokenizer.json. The tokenizer does not keep the bytes. An error
// names the place in the file, and of a component that is not supported its
// type. Truncation, padding and dropout are for training and ignored.
func Load(tokenizerJSON []byte) (*Tokenizer, error) {
	var file struct {
		AddedTokens   []AddedToken   `json:"added_tokens"`
		Normalizer    jsontext.Value `json:"normalizer"`
		PreTokenizer  jsontext.Value `json:"pre_tokenizer"`
		PostProcessor jsontext.Value `json:"post_processor"`
		Decoder       jsontext.Value `json:"decoder"`
		Model         modelFile      `json:"model"`
	}
	if err := json.Unmarshal(tokenizerJSON, &file, jsontext.AllowDuplicateNames(true)); err != nil {
		return nil, fmt.Errorf("tokenizer: %w", err)
	}
	t, err := &Tokenizer{added: file.AddedTokens, scratch: &sync.Pool{New: func() any { return new(scratch) }}}, error(nil)
	if t.model, err = file.Model.build(); err != nil {
		return nil, fmt.Errorf("tokenizer: %w", err)
	}
	if t.normalize, err = loadNormalizer("normalizer", file.Normalizer); err != nil {
		return nil, fmt.Errorf("tokenizer: %w", err)
	}
	if t.split, err = loadPreTokenizer(file.PreTokenizer); err != nil {
		return nil, fmt.Errorf("tokenizer: %w", err)
	}
	if t.before, t.after, err = loadPostProcessor("post_processor", file.PostProcessor); err != nil {
		return nil, fmt.Errorf("tokenizer: %w", err)
	}
	if err := checkDecoder("decoder", file.Decoder); err != nil {
		return nil, fmt.Errorf("tokenizer: %w", err)
	}
	for i, a := range t.added {
		if a.ID >= maxID {
			return nil, fmt.Errorf("tokenizer: added_tokens[%d].id: %d is not below %d", i, a.ID, maxID)
		}
		// A token that the model has too keeps the model's id.
		if id, ok := t.model.id(a.Content); ok {
			t.added[i].ID = id
		}
	}
	if len(t.split) == 1 {
		t.scan, _ = t.split[0].(scanner)
	}
	t.setAdded()
	return t, nil
}

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
	var text []byte
	for dec.PeekKind() != ']' {
		value, err := dec.ReadValue()
		if err != nil {
			return err
		}
		switch value.Kind() {
		case '"':
			if text, err = jsontext.AppendUnquote(text[:0], value); err != nil {
				return err
			}
			left, right, ok := strings.Cut(string(text), " ")
			if !ok || strings.Contains(right, " ") {
				f.err = fmt.Errorf("model.merges[%d]: %q is not two tokens with a space between", f.n, text)
			}
			f.add(left, right)
		case '[':
			var pair []string
			if json.Unmarshal(value, &pair) != nil || len(pair) != 2 {
				f.err = fmt.Errorf("model.merges[%d]: must be a pair of tokens", f.n)
				pair = []string{"", ""}
			}
			f.add(pair[0], pair[1])
		default:
			f.err = fmt.Errorf("model.merges[%d]: must be a string or a pair of strings", f.n)
			f.add("", "")
		}
	}
	_, err := dec.ReadToken()
	return err
}

// add keeps a merge; one with a token that spells no bytes can never apply and
// is kept as empty.
func (f *mergesFile) add(left, right string) {
	start := len(f.blob)
	blob, okL := appendBytes(f.blob, left)
	mid := len(blob)
	blob, okR := appendBytes(blob, right)
	if !okL || !okR {
		blob, mid = blob[:start], start
	}
	f.blob = blob
	f.ends = append(f.ends, uint32(mid), uint32(len(blob)))
	f.n++
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

// component is what every component of the pipeline has.
type component struct {
	Type string `json:"type"`
}

func unsupported(path, kind string) error {
	return fmt.Errorf("%s.type: %q is not supported", path, kind)
}

// isNull tells whether an optional component is absent.
func isNull(v jsontext.Value) bool { return len(v) == 0 || v.Kind() == 'n' }

// read decodes the component at path.
func read(path string, v jsontext.Value, into any) error {
	if err := json.Unmarshal(v, into, jsontext.AllowDuplicateNames(true)); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// typeOf returns the type of the component at path.
func typeOf(path string, v jsontext.Value) (string, error) {
	var c component
	err := read(path, v, &c)
	return c.Type, err
}

// checkDecoder accepts the decoder of byte-level models, which decode.go is.
func checkDecoder(path string, v jsontext.Value) error {
	if isNull(v) {
		return fmt.Errorf("%s: must be a ByteLevel decoder", path)
	}
	kind, err := typeOf(path, v)
	if err != nil {
		return err
	}
	switch kind {
	case "ByteLevel":
		return nil
	case "Sequence":
		var seq struct {
			Decoders []jsontext.Value `json:"decoders"`
		}
		if err := read(path, v, &seq); err != nil {
			return err
		}
		if len(seq.Decoders) != 1 {
			return fmt.Errorf("%s.decoders: must be one ByteLevel decoder", path)
		}
		return checkDecoder(path+".decoders[0]", seq.Decoders[0])
	}
	return unsupported(path, kind)
}

// loadPostProcessor returns the ids before and after a single text.
func loadPostProcessor(path string, v jsontext.Value) (before, after []uint32, err error) {
	if isNull(v) {
		return nil, nil, nil
	}
	kind, err := typeOf(path, v)
	if err != nil {
		return nil, nil, err
	}
	switch kind {
	case "ByteLevel": // moves offsets only
		return nil, nil, nil
	case "TemplateProcessing":
		return loadTemplate(path, v)
	case "Sequence":
		var seq struct {
			Processors []jsontext.Value `json:"processors"`
		}
		if err := read(path, v, &seq); err != nil {
			return nil, nil, err
		}
		for i, p := range seq.Processors {
			path := fmt.Sprintf("%s.processors[%d]", path, i)
			b, a, err := loadPostProcessor(path, p)
			if err != nil {
				return nil, nil, err
			}
			if len(b)+len(a) > 0 && len(before)+len(after) > 0 {
				return nil, nil, fmt.Errorf("%s: a second template is not supported", path)
			}
			before, after = append(before, b...), append(after, a...)
		}
		return before, after, nil
	}
	return nil, nil, unsupported(path, kind)
}

func loadTemplate(path string, v jsontext.Value) (before, after []uint32, err error) {
	var template struct {
		Single []struct {
			SpecialToken *struct {
				ID string `json:"id"`
			}
			Sequence *struct {
				ID string `json:"id"`
			}
		} `json:"single"`
		SpecialTokens map[string]struct {
			IDs []uint32 `json:"ids"`
		} `json:"special_tokens"`
	}
	if err := read(path, v, &template); err != nil {
		return nil, nil, err
	}
	texts := 0
	for i, part := range template.Single {
		switch {
		case part.Sequence != nil && part.Sequence.ID == "A":
			texts++
		case part.SpecialToken != nil:
			token, ok := template.SpecialTokens[part.SpecialToken.ID]
			if !ok {
				return nil, nil, fmt.Errorf("%s.single[%d]: %q is not in special_tokens", path, i, part.SpecialToken.ID)
			}
			if texts == 0 {
				before = append(before, token.IDs...)
			} else {
				after = append(after, token.IDs...)
			}
		default:
			return nil, nil, fmt.Errorf("%s.single[%d]: must be a special token or sequence A", path, i)
		}
	}
	if texts != 1 {
		return nil, nil, fmt.Errorf("%s.single: must hold sequence A once", path)
	}
	return before, after, nil
}
