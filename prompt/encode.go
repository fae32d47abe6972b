package prompt

import (
	"slices"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"github.com/dynago/dynago/chattemplate"
	"github.com/dynago/dynago/tokenizer"
)

// encoder turns a prompt's text into ids piece by piece. Control tokens cut the
// pieces: the tokenizer takes them out before all else, so that what stands
// between two of them gives the same ids wherever it stands. Which of them a
// tokenizer really treats so is found out by trying, when a model is loaded.
type encoder struct {
	tokenizer *tokenizer.Tokenizer
	controls  *chattemplate.Controls // nil if the tokenizer leaves no choice
	cuts      map[string]cut
	longest   int // control token, in bytes
}

// cut is a control token that separates: a prompt's ids are those of the text
// before it, its own, and those of the text after it.
type cut struct {
	id uint32
	// left and right tell that the token takes the blanks there along.
	left, right bool
}

// encoding says how to read control tokens in a text.
type encoding struct {
	// literal makes text of all control tokens that are not the template's.
	literal bool
	// inert are the places of those, as in [chattemplate.Rendered].
	inert []int
}

func newEncoder(t *tokenizer.Tokenizer) *encoder {
	e := &encoder{tokenizer: t, cuts: map[string]cut{}}
	var contents []string
	for _, a := range t.AddedTokens() {
		if !a.Structure || slices.Equal(t.Append(nil, a.Content), t.AppendLiteral(nil, a.Content)) {
			continue
		}
		if utf8.RuneCountInString(a.Content) < 2 {
			return &encoder{tokenizer: t}
		}
		contents = append(contents, a.Content)
		e.longest = max(e.longest, len(a.Content))
		if c, ok := e.try(a.Content, a.ID); ok {
			e.cuts[a.Content] = c
		}
	}
	e.controls = chattemplate.NewControls(contents)
	return e
}

// Texts that a tokenizer might treat in another way next to a token: what joins
// words, combines with letters, or is blank.
var (
	textsBefore = []string{"a", "a ", "  ", "\n", "é", "1", "<", "▁", "a."}
	textsAfter  = []string{"a", " a", "  ", "\n\n", "1", "\u0301", "\u0338a", ">", "▁", "."}
)

// try finds out whether a control token separates.
func (e *encoder) try(content string, id uint32) (cut, bool) {
	alone := func(text string) bool {
		ids := e.tokenizer.Append(nil, text)
		return len(ids) == 1 && ids[0] == id
	}
	c := cut{id: id, left: alone(" \n" + content), right: alone(content + " \n")}
	separates := func(before, after string) bool {
		trimmed, rest := before, after
		if c.left {
			trimmed = strings.TrimRightFunc(before, unicode.IsSpace)
		}
		if c.right {
			rest = strings.TrimLeftFunc(after, unicode.IsSpace)
		}
		want := append(e.tokenizer.AppendLiteral(nil, trimmed), id)
		want = e.tokenizer.AppendLiteral(want, rest)
		return slices.Equal(e.tokenizer.Append(nil, before+content+after), want)
	}
	for _, before := range textsBefore {
		if !separates(before, "") || !separates(before, "a") {
			return c, false
		}
	}
	for _, after := range textsAfter {
		if !separates("", after) || !separates("a", after) {
			return c, false
		}
	}
	return c, slices.Equal(e.tokenizer.Append(nil, content+content), []uint32{id, id})
}

// buffers hold the ids of one prompt while they are made: their number is known
// at the end only.
var buffers = sync.Pool{New: func() any { return new([]uint32) }}

// keptIDs is the size of a buffer that may be kept for the next prompt.
const keptIDs = 1 << 20

// ids returns the ids of text. The cache may be nil.
func (e *encoder) ids(text string, how encoding, cache *Cache) []uint32 {
	buffer := buffers.Get().(*[]uint32)
	r := &run{cache: cache}
	made := (*buffer)[:0]
	if e.controls == nil {
		made = e.tokenizer.Append(made, text)
	} else {
		made = e.pieces(made, text, how, r)
	}
	if cache != nil {
		cache.count(r.cached, len(made))
	}
	ids := slices.Clone(made)
	if cap(made) <= keptIDs {
		*buffer = made
		buffers.Put(buffer)
	}
	return ids
}

func (e *encoder) pieces(dst []uint32, text string, how encoding, r *run) []uint32 {
	p := piece{encoding: how}
	start := 0
	for at := 0; ; {
		i, j, ok := e.controls.Find(text, at)
		if !ok {
			break
		}
		if how.literal && spans(how.inert, i, j) {
			p.typed = append(p.typed, span{i - start, j - start})
			at = i + 1
			continue
		}
		c, ok := e.cuts[text[i:j]]
		if !ok {
			p.structured = true
			at = j
			continue
		}
		before, after := text[start:i], text[j:]
		if c.left {
			before = strings.TrimRightFunc(before, unicode.IsSpace)
		}
		if c.right {
			after = strings.TrimLeftFunc(after, unicode.IsSpace)
		}
		dst = append(e.piece(dst, before, p, r), c.id)
		start = len(text) - len(after)
		at, p = start, piece{encoding: how}
	}
	return e.piece(dst, text[start:], p, r)
}

// spans tells that one of the sorted offsets lies inside of start to end.
func spans(offsets []int, start, end int) bool {
	i, _ := slices.BinarySearch(offsets, start+1)
	return i < len(offsets) && offsets[i] < end
}

// piece is what is known of the text between two cuts.
type piece struct {
	encoding
	structured bool   // the template wrote control tokens in it, which do not cut
	typed      []span // control tokens of a client
}

type span struct{ start, end int }

func (e *encoder) piece(dst []uint32, text string, p piece, r *run) []uint32 {
	switch {
	case text == "":
		return dst
	case !p.literal || p.structured && p.typed == nil:
		return r.append(dst, text, false, e.tokenizer.Append)
	case !p.structured:
		return r.append(dst, text, true, e.tokenizer.AppendLiteral)
	}
	// The tokenizer reads either all control tokens or none.
	done := 0
	for _, s := range p.typed {
		if s.start > done {
			dst = e.tokenizer.Append(dst, text[done:s.start])
			done = s.start
		}
		if s.end > done {
			dst = e.tokenizer.AppendLiteral(dst, text[done:min(s.end, len(text))])
			done = s.end
		}
	}
	if done < len(text) {
		dst = e.tokenizer.Append(dst, text[done:])
	}
	return dst
}
