// Package tokenizer turns text into token ids and back, by the tokenizer.json,
// the tokenizer.model or the rank file that a model is published with. It reads
// BPE over bytes, the kind of GPT-2, Llama 3 and Qwen, and over characters, that
// of Llama 2, Mistral and Gemma, Unigram, that of T5, WordPiece, that of BERT, and
// words. It gives the very ids that the Hugging Face library, SentencePiece and
// tiktoken give; what it does not know it refuses to load, naming the place in the
// file.
//
// The one idea: text goes through a chain of cuts, each of which only looks
// forward. Added tokens are cut out first, then a hand-written scanner for the
// model's split pattern cuts words, and a word, which is nearly always a token
// already, costs one look-up by its bytes.
//
//	text ─▶ added tokens ─▶ normalize ─▶ split ─▶ words ─▶ merges ─▶ ids
package tokenizer

import (
	"maps"
	"slices"
	"strings"
	"sync"
)

// Tokenizer is one model's tokenizer. It is immutable and safe for concurrent
// use.
type Tokenizer struct {
	model     model
	vocab     *vocabulary // of model
	pieces    pieces      // of all ids, those of added tokens included
	added     []AddedToken
	ids       map[string]uint32 // of the added tokens, by content
	special   []bool            // by id; shorter if the last ids are not special
	structure []bool            // by id; shorter likewise
	forgeable bool              // the model alone can yield an id that is structure
	single    []bool            // by id: a token <0xNN> of a text model; shorter likewise
	normalize []normalizer
	spelling  *pieceNormalizer // of a SentencePiece model, which normalize then is
	split     []splitter       // of a piece at the start of the text
	later     []splitter       // of other pieces
	scan      scanner          // the only stage of both, or nil
	regexps   []string
	chain     *chain                   // how tokens join to text; nil if they are bytes
	joining   func(*Tokenizer) joining // in place of the chain, or nil
	before    []uint32
	after     []uint32 // what the post-processor puts around a text

	text    cutter // for Append
	literal cutter // for AppendLiteral
	scratch *sync.Pool
}

// model turns words into ids; a word must not be empty.
type model interface {
	appendWord(dst []uint32, word string, s *scratch) []uint32
	// symbols appends the ids of the smallest parts of word.
	symbols(dst []uint32, word string) []uint32
}

// cutter finds added tokens, first in the raw text and then, in what is left, in
// the normalized one.
type cutter struct{ raw, normalized *matcher }

// Append appends the ids of text to dst and returns the extended slice. Added
// tokens that the text spells are recognised; nothing is put around the text. It
// panics with a [PatternError] on a text that one of [Tokenizer.Regexps] takes
// time without end for, and so do its kin.
func (t *Tokenizer) Append(dst []uint32, text string) []uint32 {
	return t.encode(dst, text, false, t.split)
}

// AppendLiteral is Append for text that comes from outside, such as what a user
// typed: no id results that is structure, as [Tokenizer.AddedTokens] tells, and
// what the text spells of such tokens is plain text. All other text gives the
// ids of Append. The one exception is the token for what a vocabulary cannot
// spell: a model without bytes has nothing else for such text, special or not.
func (t *Tokenizer) AppendLiteral(dst []uint32, text string) []uint32 {
	return t.encode(dst, text, true, t.split)
}

// AppendBehind is Append, or with literal set AppendLiteral, for text that stands
// behind an added token: some models write the first word of a text in a way of
// its own.
func (t *Tokenizer) AppendBehind(dst []uint32, text string, literal bool) []uint32 {
	return t.encode(dst, text, literal, t.later)
}

// AppendWithSpecial is Append with what the model expects around a text that no
// chat template has rendered, such as a token for its beginning.
func (t *Tokenizer) AppendWithSpecial(dst []uint32, text string) []uint32 {
	dst = append(dst, t.before...)
	dst = t.Append(dst, text)
	return append(dst, t.after...)
}

// encode cuts what stands before the first added token by stages, and the rest as
// what is not first.
func (t *Tokenizer) encode(dst []uint32, text string, literal bool, stages []splitter) []uint32 {
	s := t.scratch.Get().(*scratch)
	defer t.scratch.Put(s)
	cut := &t.text
	if literal {
		cut = &t.literal
	}
	for part, token := range cut.raw.pieces(text) {
		if token != nil {
			dst = append(dst, token.ID)
			stages = t.later
			continue
		}
		for part, token := range cut.normalized.pieces(t.normalized(part)) {
			if token != nil {
				dst = append(dst, token.ID)
				stages = t.later
				continue
			}
			start := len(dst)
			dst = t.appendWords(dst, part, stages, s)
			if literal && t.forgeable && slices.ContainsFunc(dst[start:], t.forged) {
				dst = t.appendUnforged(dst[:start], part, stages, s)
			}
			stages = t.later
		}
	}
	return dst
}

// forged tells whether text from outside must not yield id. The unknown token of
// a text model may be special too, but forges nothing.
func (t *Tokenizer) forged(id uint32) bool {
	return isSet(t.structure, id) && !(t.vocab.text && id == t.vocab.unk)
}

// normalized brings text into the model's normal form. Most text is in it.
func (t *Tokenizer) normalized(text string) string {
	for _, normalize := range t.normalize {
		text = normalize(text)
	}
	return text
}

// appendWords appends the ids of text that holds no added token.
func (t *Tokenizer) appendWords(dst []uint32, text string, stages []splitter, s *scratch) []uint32 {
	if t.scan != nil {
		for i := 0; i < len(text); {
			end := t.scan(text, i)
			dst = t.model.appendWord(dst, text[i:end], s)
			i = end
		}
		return dst
	}
	for _, word := range words(text, stages, s) {
		dst = t.model.appendWord(dst, word, s)
	}
	return dst
}

// words runs text through the stages of pre-tokenization. The result is valid
// until the next use of s.
func words(text string, stages []splitter, s *scratch) []string {
	in, out := append(s.words[0][:0], text), s.words[1]
	for _, stage := range stages {
		out = out[:0]
		for _, word := range in {
			out = stage.split(out, word)
		}
		in, out = out, in
	}
	s.words = [2][]string{in, out}
	return in
}

// appendUnforged is appendWords where a word that is structure, which only an
// unusual vocabulary has, is spelled in single bytes or characters.
func (t *Tokenizer) appendUnforged(dst []uint32, text string, stages []splitter, s *scratch) []uint32 {
	for _, word := range words(text, stages, s) {
		start := len(dst)
		dst = t.model.appendWord(dst, word, s)
		if !slices.ContainsFunc(dst[start:], t.forged) {
			continue
		}
		dst = t.model.symbols(dst[:start], word)
		dst = dst[:start+len(slices.DeleteFunc(dst[start:], t.forged))]
	}
	return dst
}

// Bytes returns the exact bytes of one token, which may be part of a character,
// or nil if the id is unknown. They are shared and must not be changed.
func (t *Tokenizer) Bytes(id uint32) []byte { return t.pieces.bytes(id) }

// ID returns the id of a token by its content: the text of an added token, or a
// token of the vocabulary as tokenizer.json spells it ("Ġthe").
func (t *Tokenizer) ID(token string) (uint32, bool) {
	if id, ok := t.ids[token]; ok {
		return id, true
	}
	return t.vocab.id(token)
}

// Regexps returns the split patterns that run in the engine of regular
// expressions, since no scanner is known for them. It reads some 5 MB/s, a
// twentieth of what a scanner does, so that they are worth a line in a log.
func (t *Tokenizer) Regexps() []string { return slices.Clone(t.regexps) }

// IsSpecial tells whether decoding with skipSpecial drops id, such as the end of
// a turn. Added tokens without the special flag, such as <think>, are shown.
func (t *Tokenizer) IsSpecial(id uint32) bool { return isSet(t.special, id) }

// AddedTokens returns the added tokens in the order of the file, and behind them
// those of [Tokenizer.AddSpecial]. The slice is the caller's.
//
// Of them these are structure: the special ones; those that begin with <| or <｜,
// because some models leave role markers such as <｜User｜> without the flag; those
// that are a name between signs, such as <think> and <tool_call>, unless the model's
// own vocabulary has them too, as Gemma's has <table> and [multimodal], which are
// ordinary text that was always to be one token; and those of
// [Tokenizer.AddStructure]. Words, blanks and rows of signs, which many
// vocabularies add, are text.
func (t *Tokenizer) AddedTokens() []AddedToken { return slices.Clone(t.added) }

// Size returns the number of tokens, added ones included. Ids may have gaps, so
// that the largest can be beyond it.
func (t *Tokenizer) Size() int {
	n := t.vocab.count
	for _, a := range t.added {
		if !t.vocab.known(a.ID) {
			n++
		}
	}
	return n
}

// AddSpecial returns a tokenizer that knows these special tokens too, by id. It
// is for those that only tokenizer_config.json declares; a token whose id or
// content tokenizer.json already has an added token for stays as it is. Empty
// ones and ids of 2^22 and more, which no model has, are left out.
func (t *Tokenizer) AddSpecial(tokens map[uint32]string) *Tokenizer {
	n := *t
	n.added = slices.Clone(t.added)
	ids, contents := map[uint32]bool{}, map[string]bool{"": true}
	for _, a := range t.added {
		ids[a.ID], contents[a.Content] = true, true
	}
	for _, id := range slices.Sorted(maps.Keys(tokens)) {
		content := tokens[id]
		if ids[id] || contents[content] || id >= maxID {
			continue
		}
		contents[content] = true
		n.added = append(n.added, AddedToken{ID: id, Content: content, Special: true})
	}
	n.setAdded()
	return &n
}

// AddStructure returns a tokenizer for which the added tokens of these contents
// are structure too. It is for those that a chat template writes and that nothing
// in the tokenizer's file tells from text. Contents that no added token has, and
// blank ones, which text needs, are left out.
func (t *Tokenizer) AddStructure(contents ...string) *Tokenizer {
	n := *t
	n.added = slices.Clone(t.added)
	for i := range n.added {
		a := &n.added[i]
		blank := strings.TrimFunc(a.Content, isBlank) == ""
		a.Structure = a.Structure || !blank && slices.Contains(contents, a.Content)
	}
	n.setAdded()
	return &n
}

// setAdded derives from t.added all that depends on it.
func (t *Tokenizer) setAdded() {
	t.single = nil
	t.pieces = t.spelled()
	t.ids = make(map[string]uint32, len(t.added))
	t.special, t.structure, t.forgeable = nil, nil, false
	for i := range t.added {
		a := &t.added[i]
		t.ids[a.Content] = a.ID
		start := len(t.pieces.blob)
		if t.chain == nil {
			t.pieces.blob, _ = appendBytes(t.pieces.blob, a.Content)
		} else {
			t.pieces.blob = append(t.pieces.blob, t.chain.form(a.Content, false)...)
			t.setSingle(a.ID, a.Content)
		}
		t.pieces.set(a.ID, start)
		if a.Special {
			t.special = set(t.special, a.ID)
		}
		a.Structure = a.Structure || a.isStructure(t.owns(a.Content))
		if a.Structure {
			t.structure = set(t.structure, a.ID)
			t.forgeable = t.forgeable || t.vocab.known(a.ID)
		}
	}
	t.text = t.newCutter(t.added)
	t.literal = t.newCutter(slices.DeleteFunc(slices.Clone(t.added), func(a AddedToken) bool { return a.Structure }))
}

// owns tells whether the model's own vocabulary has a token.
func (t *Tokenizer) owns(content string) bool {
	_, ok := t.vocab.id(content)
	return ok
}

// set sets the flag of id.
func set(flags []bool, id uint32) []bool {
	for uint64(len(flags)) <= uint64(id) {
		flags = append(flags, false)
	}
	flags[id] = true
	return flags
}

func isSet(flags []bool, id uint32) bool {
	return uint64(id) < uint64(len(flags)) && flags[id]
}

// spelled returns the bytes of the model's tokens.
func (t *Tokenizer) spelled() pieces {
	if t.chain == nil {
		return pieces{blob: slices.Clip(t.vocab.blob), at: slices.Clone(t.vocab.at)}
	}
	p := pieces{at: slices.Clone(t.vocab.at), blob: make([]byte, 0, len(t.vocab.blob))}
	for id := range uint32(len(p.at)) {
		if t.vocab.known(id) {
			start := len(p.blob)
			token := string(t.vocab.bytes(id))
			p.blob = append(p.blob, t.chain.form(token, false)...)
			p.set(id, start)
			t.setSingle(id, token)
		}
	}
	return p
}

// setSingle notes whether a token stands for one byte.
func (t *Tokenizer) setSingle(id uint32, token string) {
	is := t.chain.isByte(token)
	for is && uint64(len(t.single)) <= uint64(id) {
		t.single = append(t.single, false)
	}
	if uint64(id) < uint64(len(t.single)) {
		t.single[id] = is
	}
}

// isSingle tells whether id is one byte of a run.
func (t *Tokenizer) isSingle(id uint32) bool {
	return isSet(t.single, id)
}

// content returns a token as the file of a text model spells it.
func (t *Tokenizer) content(id uint32) string {
	for _, a := range slices.Backward(t.added) {
		if a.ID == id {
			return a.Content
		}
	}
	return string(t.vocab.bytes(id))
}

func (t *Tokenizer) newCutter(tokens []AddedToken) cutter {
	var raw, normalized []AddedToken
	for _, a := range tokens {
		if a.Normalized {
			normalized = append(normalized, a)
		} else {
			raw = append(raw, a)
		}
	}
	return cutter{
		raw:        newMatcher(raw, func(a AddedToken) string { return a.Content }),
		normalized: newMatcher(normalized, func(a AddedToken) string { return t.normalized(a.Content) }),
	}
}
