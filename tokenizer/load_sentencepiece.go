package tokenizer

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"unicode/utf8"
)

// LoadSentencePiece reads a tokenizer.model, as the SentencePiece library trains
// it: Unigram, BPE or characters. The tokenizer does not keep the bytes. An
// error names the place in the file.
//
// [Tokenizer.AppendLiteral] gives the ids that the library gives. Its control
// symbols, such as <s>, are special tokens here, which [Tokenizer.Append] finds
// in the text; what lies between two of them is a text of its own, with the
// blank before it that the model asks for. The file does not tell which of them
// begin and end a text, so that [Tokenizer.AppendWithSpecial] adds none.
// [Tokenizer.Decode] without special tokens gives the text of the library.
func LoadSentencePiece(model []byte) (*Tokenizer, error) {
	t, err := loadSentencePiece(model)
	if err != nil {
		return nil, fmt.Errorf("tokenizer: model: %w", err)
	}
	return t, nil
}

func loadSentencePiece(model []byte) (*Tokenizer, error) {
	file, err := parseSentencePiece(model)
	if err != nil {
		return nil, err
	}
	p := &pieceModel{file: file, byText: map[string]uint32{}, reserved: map[string]uint32{}, unk: none}
	if err := p.sort(); err != nil {
		return nil, err
	}
	n := &pieceNormalizer{file: *file, symbols: newPrefixSet(p.symbols)}
	if len(file.charsmap) > 0 {
		if n.charsmap, err = parseCharsmap(file.charsmap); err != nil {
			return nil, fmt.Errorf("normalizer_spec.precompiled_charsmap: %w", err)
		}
	}
	t := &Tokenizer{scratch: &sync.Pool{New: func() any { return new(scratch) }}}
	t.model, t.vocab = p.build()
	t.normalize, t.spelling = []normalizer{n.normalize}, n
	for id, piece := range file.pieces {
		if piece.kind == pieceControl {
			t.added = append(t.added, AddedToken{ID: uint32(id), Content: piece.text, Special: true})
		}
	}
	t.chain = &chain{fallback: file.byteFallback, before: []step{p.show}}
	kinds := make([]pieceType, len(file.pieces))
	for i, piece := range file.pieces {
		kinds[i] = piece.kind
	}
	t.joining = func(t *Tokenizer) joining { return &pieceJoiner{t: t, kinds: kinds, file: file} }
	n.file.pieces = nil
	t.setAdded()
	return t, nil
}

// pieceModel is a SentencePiece model while it is made ready for use.
type pieceModel struct {
	file     *sentencePieceFile
	byText   map[string]uint32 // pieces that text yields, and unused ones
	reserved map[string]uint32 // the others
	symbols  map[string]uint32 // user-defined ones
	bytes    [256]uint32
	unk      uint32
}

// sort checks the pieces and sorts them by what they are for.
func (p *pieceModel) sort() error {
	p.symbols = map[string]uint32{}
	for b := range p.bytes {
		p.bytes[b] = none
	}
	for i, piece := range p.file.pieces {
		id, into := uint32(i), p.reserved
		switch piece.kind {
		case pieceNormal, pieceUnused, pieceUserDefined:
			into = p.byText
		case pieceUnknown:
			if p.unk != none {
				return fmt.Errorf("pieces[%d].type: is a second unknown piece, after pieces[%d]", i, p.unk)
			}
			p.unk = id
		case pieceByte:
			b, ok := (&chain{fallback: true}).byteOf(piece.text)
			if !ok || !p.file.byteFallback {
				return fmt.Errorf("pieces[%d].piece: %q is a byte of a model without them, or none", i, piece.text)
			}
			p.bytes[b] = id
		}
		if other, ok := into[piece.text]; ok {
			return fmt.Errorf("pieces[%d].piece: %q is pieces[%d] too", i, piece.text, other)
		}
		into[piece.text] = id
		if piece.kind == pieceUserDefined {
			p.symbols[piece.text] = id
		}
	}
	if p.unk == none {
		return errors.New("pieces: has none of type unknown")
	}
	if b := slices.Index(p.bytes[:], none); p.file.byteFallback && b >= 0 {
		return fmt.Errorf("pieces: has none for the byte 0x%02x, but trainer_spec.byte_fallback", b)
	}
	return nil
}

// show is what a piece shows.
func (p *pieceModel) show(token string, _ bool) string {
	if _, ok := p.byText[token]; ok {
		return strings.ReplaceAll(token, blank, " ")
	}
	if id, ok := p.reserved[token]; ok && id == p.unk {
		return p.file.unkSurface
	}
	return token
}

// vocabulary returns the pieces, of which find knows those that text yields.
func (p *pieceModel) vocabulary() vocabulary {
	var f vocabFile
	hidden := map[uint32]bool{}
	for id, piece := range p.file.pieces {
		start := len(f.blob)
		f.blob = append(f.blob, piece.text...)
		f.set(uint32(id), start)
		f.count++
		hidden[uint32(id)] = piece.kind != pieceNormal && piece.kind != pieceUserDefined
	}
	v := f.vocabulary()
	v.text, v.unk = true, p.unk
	for id, is := range hidden {
		if is {
			v.other[p.file.pieces[id].text] = id
		} else {
			delete(hidden, id)
		}
	}
	v.fillIndex(hidden)
	return v
}

func (p *pieceModel) fallback() *[256]uint32 {
	if !p.file.byteFallback {
		return nil
	}
	return &p.bytes
}

func (p *pieceModel) build() (model, *vocabulary) {
	if p.file.modelType == trainedUnigram {
		m := p.buildUnigram()
		return m, &m.vocabulary
	}
	var m model
	var v *vocabulary
	switch ties := p.ties(); {
	case !p.ordinary():
		b := p.buildTied()
		m, v = b, &b.vocabulary
	case len(ties) > 0:
		b := &sometimesTied{bpe: p.buildBPE(), tied: p.buildTied(), ties: newPieceTrie(ties)}
		m, v = b, &b.vocabulary
	default:
		b := p.buildBPE()
		m, v = b, &b.vocabulary
	}
	if len(p.symbols) > 0 {
		m = &withSymbols{newPrefixSet(p.symbols), m}
	}
	return m, v
}

// buildUnigram gives a user-defined symbol a score that beats all other ways to
// spell it, as the library does, in its very precision.
func (p *pieceModel) buildUnigram() *unigram {
	m := &unigram{vocabulary: p.vocabulary(), narrow: true, fallback: p.fallback(), scores: make([]float64, len(p.file.pieces))}
	// The library takes the least positive number for the least of all, so that
	// the best score of most models counts as 0.
	low, high := float32(math.MaxFloat32), float32(0x1p-126)
	for _, piece := range p.file.pieces {
		if piece.kind == pieceNormal {
			low, high = min(low, piece.score), max(high, piece.score)
		}
	}
	for id, piece := range p.file.pieces {
		m.scores[id] = float64(piece.score)
		if piece.kind == pieceUserDefined {
			m.scores[id] = float64(float32(len(piece.text))*high) - 0.1
		}
	}
	m.unkScore = float64(low - unknownPenalty)
	m.setTrie(func(id uint32) bool {
		kind := p.file.pieces[id].kind
		return kind == pieceNormal || kind == pieceUserDefined
	})
	return m
}

// ordinary tells whether merging the pieces is byte-pair encoding but for pieces
// that share a score: all are used, and their characters are pieces too.
func (p *pieceModel) ordinary() bool {
	for _, piece := range p.file.pieces {
		if piece.kind == pieceUnused {
			return false
		}
		if piece.kind != pieceNormal {
			continue
		}
		for _, r := range piece.text {
			if id, ok := p.byText[string(r)]; !ok || p.file.pieces[id].kind != pieceNormal {
				return false
			}
		}
	}
	return true
}

// ties returns the pieces that merging makes and that share a score.
func (p *pieceModel) ties() []trieToken {
	var ties []trieToken
	var group []trieToken
	for _, id := range p.merged() {
		piece := p.file.pieces[id]
		if utf8.RuneCountInString(piece.text) == 1 {
			continue
		}
		if len(group) > 0 && p.file.pieces[group[0].id].score != piece.score {
			group = group[:0]
		}
		group = append(group, trieToken{piece.text, id})
		switch len(group) {
		case 1:
		case 2:
			ties = append(ties, group...)
		default:
			ties = append(ties, group[len(group)-1])
		}
	}
	return ties
}

// merged returns the pieces that merging can make, best first.
func (p *pieceModel) merged() []uint32 {
	var ids []uint32
	for id, piece := range p.file.pieces {
		if (piece.kind == pieceNormal || piece.kind == pieceUnused) && p.file.modelType == trainedBPE {
			ids = append(ids, uint32(id))
		}
	}
	slices.SortStableFunc(ids, func(a, b uint32) int { return cmp.Compare(p.file.pieces[b].score, p.file.pieces[a].score) })
	return ids
}

// buildBPE makes merges of pieces: all pairs of pieces that together are one.
func (p *pieceModel) buildBPE() *bpe {
	m := &bpe{
		vocabulary: p.vocabulary(),
		fuseUnk:    true,
		fallback:   p.fallback(),
		last:       make([]atomic.Uint32, len(p.file.pieces)),
	}
	for b := range m.bytes1 {
		m.bytes1[b] = none
		if id, ok := m.find(string([]byte{byte(b)})); ok && b < utf8.RuneSelf {
			m.bytes1[b] = id
		}
	}
	type pair struct{ left, right, made uint32 }
	var pairs []pair
	for _, id := range p.merged() {
		text := p.file.pieces[id].text
		for cut := range text {
			left, okL := p.byText[text[:cut]]
			right, okR := p.byText[text[cut:]]
			if cut > 0 && okL && okR {
				pairs = append(pairs, pair{left, right, id})
			}
		}
	}
	m.merges = newMergeTable(len(pairs))
	last := none
	for _, x := range pairs {
		if x.made == last {
			m.merges.addAnother(x.left, x.right)
			continue
		}
		m.merges.add(x.left, x.right, x.made)
		last = x.made
	}
	m.joints = m.findJoints("")
	return m
}

// withSymbols is a model from whose words user-defined symbols are cut first.
type withSymbols struct {
	set  *prefixSet
	rest model
}

func (m *withSymbols) appendWord(dst []uint32, word string, s *scratch) []uint32 {
	start := 0
	for i := 0; i < len(word); {
		id, n := m.set.match(word[i:])
		if n == 0 {
			_, n = utf8.DecodeRuneInString(word[i:])
			i += n
			continue
		}
		if i > start {
			dst = m.rest.appendWord(dst, word[start:i], s)
		}
		dst = append(dst, id)
		i += n
		start = i
	}
	if start < len(word) {
		dst = m.rest.appendWord(dst, word[start:], s)
	}
	return dst
}

// symbols spells user-defined symbols too.
func (m *withSymbols) symbols(dst []uint32, word string) []uint32 { return m.rest.symbols(dst, word) }
