package prompt

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/dynago/dynago/engine/tiny/gguf"
	"github.com/dynago/dynago/tokenizer"
)

// The kinds of a token in a GGUF file, which are those of SentencePiece.
const (
	ggufNormal = 1 + iota
	ggufUnknown
	ggufControl
	ggufUserDefined
	ggufUnused
	ggufByte
)

// ggufSplit is how the text of a byte-level model is cut, by the name that the
// file gives it.
type ggufSplit struct {
	split, normalizer component
	whole             bool // a word that is a token is not merged
	bos               bool // a text begins with a token, if the file does not say
}

var ggufSplits = func() map[string]ggufSplit {
	digits := component{"type": "Sequence", "pretokenizers": []component{{"type": "Digits", "individual_digits": true}, gpt2Split(false)}}
	llama3 := ggufSplit{split: patternSplit(tokenizer.PatternLlama3), whole: true, bos: true}
	glm4 := ggufSplit{split: patternSplit(tokenizer.PatternLlama3), whole: true}
	o200k := ggufSplit{split: patternSplit(tokenizer.PatternO200k), whole: true}
	qwen2 := ggufSplit{split: patternSplit(tokenizer.PatternQwen2), normalizer: nfc}
	return map[string]ggufSplit{
		"gpt-2": {split: gpt2Split(false)}, "gpt2": {split: gpt2Split(false)}, "phi-2": {split: gpt2Split(false)},
		"llama3": llama3, "llama-v3": llama3, "llama-bpe": llama3,
		"qwen2": qwen2, "deepseek-r1-qwen": qwen2,
		"qwen35":      {split: patternSplit(tokenizer.PatternQwen35), normalizer: nfc},
		"gpt-4o":      o200k,
		"glm4":        glm4,
		"chatglm-bpe": glm4,
		"kimi-k2":     {split: patternSplit(tokenizer.PatternKimi), whole: true},
		"tekken":      {split: patternSplit(tokenizer.PatternTekken), whole: true, bos: true},
		"deepseek-v3": {split: patternSplit(tokenizer.PatternsDeepSeek()...)},
		"smollm":      {split: digits}, "starcoder": {split: digits}, "refact": {split: digits},
		"command-r": {split: digits, normalizer: nfc},
	}
}()

// ggufModel is the vocabulary of a GGUF file.
type ggufModel struct {
	gguf.Metadata
	tokens []string
	kinds  []float64
}

// loadGGUF makes a tokenizer of a file, and settings of what it says of the model.
func loadGGUF(g gguf.Metadata) (c *settings, t *tokenizer.Tokenizer, kind string, err error) {
	m := &ggufModel{Metadata: g}
	if m.tokens, err = g.Texts("tokenizer.ggml.tokens"); err != nil {
		return nil, nil, "", err
	}
	if m.kinds, err = g.Numbers("tokenizer.ggml.token_type"); err != nil {
		return nil, nil, "", err
	}
	switch n := len(m.tokens); {
	case n == 0:
		return nil, nil, "", errors.New("tokenizer.ggml.tokens: want the vocabulary, and there is none")
	case n >= maxID:
		return nil, nil, "", fmt.Errorf("tokenizer.ggml.tokens: %d tokens: want less than %d", n, maxID)
	case m.kinds != nil && len(m.kinds) != n:
		return nil, nil, "", fmt.Errorf("tokenizer.ggml.token_type: %d kinds for %d tokens: want as many", len(m.kinds), n)
	}
	name := m.Text("tokenizer.ggml.model")
	kind = "GGUF " + name
	switch name {
	case "gpt2":
		kind += ", split as " + m.Text("tokenizer.ggml.pre")
		t, err = m.loadBytes()
	case "llama", "t5":
		t, err = m.loadPieces(name)
	case "bert":
		t, err = m.loadWords()
	default:
		err = fmt.Errorf("tokenizer.ggml.model: %q: want gpt2, llama, t5 or bert", name)
	}
	if err != nil {
		return nil, nil, "", err
	}
	return m.settings(), t, kind, nil
}

// id returns the id of a token by its role, if it is one of the vocabulary.
func (m *ggufModel) id(role string) (uint32, bool) {
	f, ok := m.Number("tokenizer.ggml." + role + "_token_id")
	return uint32(f), ok && f >= 0 && f < float64(len(m.tokens))
}

func (m *ggufModel) settings() *settings {
	c := &settings{templates: map[string]string{}}
	for role, into := range map[string]*string{"bos": &c.bos, "eos": &c.eos, "unknown": &c.unk} {
		if id, ok := m.id(role); ok {
			*into = m.tokens[id]
		}
	}
	for _, role := range []string{"eos", "eot", "eom"} {
		if id, ok := m.id(role); ok {
			c.eosIDs = append(c.eosIDs, id)
		}
	}
	if n, ok := m.Number(m.Text("general.architecture") + ".context_length"); ok && n > 0 && n < immense {
		c.contextLength = int(n)
	}
	const key = "tokenizer.chat_template"
	if text := m.Text(key); text != "" {
		c.templates["default"] = text
		for _, name := range slices.Sorted(maps.Keys(m.Metadata)) {
			if rest, ok := strings.CutPrefix(name, key+"."); ok && m.Text(name) != "" {
				c.templates[rest] = m.Text(name)
			}
		}
	}
	return c
}

// kind is that of a token; files without kinds have normal ones only.
func (m *ggufModel) kind(id int) int {
	if m.kinds == nil {
		return ggufNormal
	}
	return int(m.kinds[id])
}

// added are the tokens that are cut out of the text before all else.
func (m *ggufModel) added() []tokenizer.AddedToken {
	var added []tokenizer.AddedToken
	for id, content := range m.tokens {
		if kind := m.kind(id); content != "" && (kind == ggufControl || kind == ggufUserDefined) {
			added = append(added, tokenizer.AddedToken{ID: uint32(id), Content: content, Special: kind == ggufControl})
		}
	}
	return added
}

// around puts the beginning and the end around a text, as the file says.
func (m *ggufModel) around(t *tokenizer.Tokenizer, begin, end bool, last string) *tokenizer.Tokenizer {
	var before, after []uint32
	if id, ok := m.id("bos"); ok && m.Flag("tokenizer.ggml.add_bos_token", begin) {
		before = []uint32{id}
	}
	if id, ok := m.id(last); ok && m.Flag("tokenizer.ggml.add_eos_token", end) {
		after = []uint32{id}
	}
	return t.WithAround(before, after)
}

// loadBytes reads a vocabulary of bytes with its merges.
func (m *ggufModel) loadBytes() (*tokenizer.Tokenizer, error) {
	pre := m.Text("tokenizer.ggml.pre")
	split, ok := ggufSplits[pre]
	if !ok {
		return nil, fmt.Errorf("tokenizer.ggml.pre: %q: how text is cut is known for %s: want tokenizer.json of the same model", pre, strings.Join(slices.Sorted(maps.Keys(ggufSplits)), ", "))
	}
	merges, err := m.Texts("tokenizer.ggml.merges")
	if err != nil {
		return nil, err
	}
	vocab := map[string]int{}
	for id, token := range m.tokens {
		switch _, twin := vocab[token]; {
		case m.kind(id) == ggufUnused || m.kind(id) == ggufControl || m.kind(id) == ggufUserDefined:
		case twin:
			return nil, fmt.Errorf("tokenizer.ggml.tokens[%d]: %q is also [%d]: want each token once", id, token, vocab[token])
		default:
			vocab[token] = id
		}
	}
	t, err := (&document{
		AddedTokens: m.added(), Normalizer: split.normalizer, PreTokenizer: split.split,
		Decoder: component{"type": "ByteLevel"},
		Model:   component{"type": "BPE", "vocab": vocab, "merges": merges, "ignore_merges": split.whole},
	}).load()
	if err != nil {
		return nil, err
	}
	return m.around(t, split.bos, false, "eos"), nil
}

// loadPieces puts a vocabulary of SentencePiece back in that library's form.
func (m *ggufModel) loadPieces(name string) (*tokenizer.Tokenizer, error) {
	scores, err := m.Numbers("tokenizer.ggml.scores")
	if err != nil {
		return nil, err
	}
	if len(scores) != len(m.tokens) {
		return nil, fmt.Errorf("tokenizer.ggml.scores: %d scores for %d tokens: want as many", len(scores), len(m.tokens))
	}
	fallback := false
	var model []byte
	for id, token := range m.tokens {
		fallback = fallback || m.kind(id) == ggufByte
		var piece []byte
		piece = protowire.AppendString(protowire.AppendTag(piece, 1, protowire.BytesType), token)
		piece = protowire.AppendFixed32(protowire.AppendTag(piece, 2, protowire.Fixed32Type), math.Float32bits(float32(scores[id])))
		piece = protowire.AppendVarint(protowire.AppendTag(piece, 3, protowire.VarintType), uint64(m.kind(id)))
		model = protowire.AppendBytes(protowire.AppendTag(model, 1, protowire.BytesType), piece)
	}
	const unigram, bpe = 1, 2
	trained, removeBlanks := uint64(bpe), false
	if name == "t5" {
		trained, removeBlanks = unigram, true
	}
	var trainer, normalizer []byte
	trainer = protowire.AppendVarint(protowire.AppendTag(trainer, 3, protowire.VarintType), trained)
	trainer = protowire.AppendVarint(protowire.AppendTag(trainer, 35, protowire.VarintType), protowire.EncodeBool(fallback))
	model = protowire.AppendBytes(protowire.AppendTag(model, 2, protowire.BytesType), trainer)

	charsmap, err := m.Numbers("tokenizer.ggml.precompiled_charsmap")
	if err != nil {
		return nil, err
	}
	if len(charsmap) > 0 {
		b := make([]byte, len(charsmap))
		for i, c := range charsmap {
			b[i] = byte(int(c))
		}
		normalizer = protowire.AppendBytes(protowire.AppendTag(normalizer, 2, protowire.BytesType), b)
	}
	for number, flag := range map[protowire.Number]bool{
		3: m.Flag("tokenizer.ggml.add_space_prefix", true),
		4: m.Flag("tokenizer.ggml.remove_extra_whitespaces", removeBlanks),
	} {
		normalizer = protowire.AppendVarint(protowire.AppendTag(normalizer, number, protowire.VarintType), protowire.EncodeBool(flag))
	}
	model = protowire.AppendBytes(protowire.AppendTag(model, 3, protowire.BytesType), normalizer)
	t, err := tokenizer.LoadSentencePiece(model)
	if err != nil {
		return nil, err
	}
	return m.around(t, name == "llama", name == "t5", "eos"), nil
}

// loadWords reads BERT's vocabulary. Such a file marks the tokens that begin a
// word rather than those that go on with one.
func (m *ggufModel) loadWords() (*tokenizer.Tokenizer, error) {
	vocab := map[string]int{}
	for id, token := range m.tokens {
		if m.kind(id) == ggufControl || m.kind(id) == ggufUnknown {
			vocab[token] = id
		} else if word, ok := strings.CutPrefix(token, "▁"); ok {
			vocab[word] = id
		} else {
			vocab["##"+token] = id
		}
	}
	unk := "[UNK]"
	if id, ok := m.id("unknown"); ok {
		unk = m.tokens[id]
	}
	t, err := (&document{
		AddedTokens: m.added(), Normalizer: component{"type": "BertNormalizer"}, PreTokenizer: component{"type": "BertPreTokenizer"},
		Decoder: component{"type": "WordPiece", "prefix": "##", "cleanup": true},
		Model:   component{"type": "WordPiece", "vocab": vocab, "unk_token": unk, "continuing_subword_prefix": "##", "max_input_chars_per_word": 100},
	}).load()
	if err != nil {
		return nil, err
	}
	last := "eos"
	if _, ok := m.id("seperator"); ok {
		last = "seperator" // as llama.cpp spells it
	}
	return m.around(t, true, true, last), nil
}
