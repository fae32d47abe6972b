package tokenizer

import (
	"strings"
	"unicode/utf8"
)

// prefixSet finds which of some strings a text begins with.
type prefixSet struct {
	ids     map[string]uint32
	lengths [256][]int // by first byte, longest first
}

// newPrefixSet makes a set of strings that are not empty.
func newPrefixSet(ids map[string]uint32) *prefixSet {
	p := &prefixSet{ids: ids}
	for s := range ids {
		lengths := p.lengths[s[0]]
		at := 0
		for at < len(lengths) && lengths[at] > len(s) {
			at++
		}
		if at == len(lengths) || lengths[at] != len(s) {
			lengths = append(lengths, 0)
			copy(lengths[at+1:], lengths[at:])
			lengths[at] = len(s)
		}
		p.lengths[s[0]] = lengths
	}
	return p
}

// match returns the longest that text, which is not empty, begins with, and its
// length; 0 if there is none.
func (p *prefixSet) match(text string) (id uint32, n int) {
	for _, n := range p.lengths[text[0]] {
		if n <= len(text) {
			if id, ok := p.ids[text[:n]]; ok {
				return id, n
			}
		}
	}
	return 0, 0
}

// pieceNormalizer brings a text into the form that a SentencePiece model was
// trained on.
type pieceNormalizer struct {
	charsmap *charsmap  // or nil
	symbols  *prefixSet // user-defined ones, which stay as they are
	file     sentencePieceFile
	part     bool // text is part of one: blanks at its start are within
}

func (n *pieceNormalizer) normalize(text string) string {
	f := &n.file
	if f.removeBlanks && !n.part {
		for text != "" {
			shown, size := n.next(text)
			if shown != " " {
				break
			}
			text = text[size:]
		}
	}
	if text == "" {
		return ""
	}
	space := f.space()
	var b strings.Builder
	b.Grow(len(text) + len(text)/2 + len(blank))
	if f.dummyPrefix && !f.suffixes {
		b.WriteString(space)
	}
	afterBlank := f.removeBlanks && !n.part
	for text != "" {
		shown, size := n.next(text)
		text = text[size:]
		if afterBlank {
			shown = strings.TrimLeft(shown, " ")
		}
		if shown == "" {
			continue
		}
		switch {
		case shown == " ":
			b.WriteString(space)
		case f.escapeBlanks && strings.Contains(shown, " "):
			b.WriteString(strings.ReplaceAll(shown, " ", blank))
		default:
			b.WriteString(shown)
		}
		afterBlank = f.removeBlanks && strings.HasSuffix(shown, " ")
	}
	out := b.String()
	if f.removeBlanks {
		for strings.HasSuffix(out, space) {
			out = out[:len(out)-len(space)]
		}
	}
	if f.dummyPrefix && f.suffixes {
		out += space
	}
	return out
}

// next returns what the start of text, size bytes of it, becomes.
func (n *pieceNormalizer) next(text string) (shown string, size int) {
	if _, size := n.symbols.match(text); size > 0 {
		return text[:size], size
	}
	if n.charsmap != nil {
		if shown, size := n.charsmap.prefix(text, true); size > 0 {
			return shown, size
		}
	}
	if text[0] < utf8.RuneSelf {
		return text[:1], 1
	}
	r, size := utf8.DecodeRuneInString(text)
	if r == utf8.RuneError && size == 1 {
		return string(utf8.RuneError), 1
	}
	return text[:size], size
}

// pieceJoiner turns the pieces of a SentencePiece model into text. It holds back
// at most the three bytes of a character that is not complete.
type pieceJoiner struct {
	t     *Tokenizer
	kinds []pieceType // by id
	file  *sentencePieceFile

	run     []byte // of pieces that are bytes
	started bool   // something has shown
	blanked bool   // the last piece lost its blank
	atStart bool   // blanks at the start are dropped
}

func (j *pieceJoiner) reset() { j.run, j.started, j.blanked, j.atStart = j.run[:0], false, false, true }

func (j *pieceJoiner) pending() int { return len(j.run) }

func (j *pieceJoiner) append(dst []byte, id uint32) []byte {
	b := j.t.Bytes(id)
	if b == nil {
		return dst
	}
	if uint64(id) >= uint64(len(j.kinds)) || j.t.IsSpecial(id) {
		return append(j.flush(dst), b...)
	}
	kind := j.kinds[id]
	if kind == pieceByte {
		j.run = append(j.run, b...)
		return j.complete(dst, false)
	}
	dst = j.complete(dst, true)
	j.atStart = j.atStart && !j.blanked && !j.started
	j.blanked = false
	if kind != pieceUnknown && j.atStart && (j.file.dummyPrefix || j.file.removeBlanks) {
		if piece := j.t.vocab.bytes(id); strings.HasPrefix(string(piece), blank) {
			b = b[1:]
			j.blanked = !j.file.removeBlanks
		}
	}
	j.started = j.started || len(b) > 0
	return append(dst, b...)
}

// flush appends what is held back.
func (j *pieceJoiner) flush(dst []byte) []byte { return j.complete(dst, true) }

// complete appends the characters that bytes in a row are; each byte that is
// part of none becomes U+FFFD. Until the end of the row is known, the start of a
// character waits.
func (j *pieceJoiner) complete(dst []byte, end bool) []byte {
	b := j.run
	for len(b) > 0 && (end || utf8.FullRune(b)) {
		r, n := utf8.DecodeRune(b)
		dst = utf8.AppendRune(dst, r)
		b = b[n:]
		j.started = true
	}
	j.run = append(j.run[:0], b...)
	return dst
}
