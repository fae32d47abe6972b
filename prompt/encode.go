package prompt

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/dynago/dynago/chattemplate"
	"github.com/dynago/dynago/tokenizer"
)

// encoder turns a prompt's text into ids piece by piece. Control tokens cut the
// pieces: the tokenizer takes them out before all else, so that what stands
// behind one of them gives the same ids wherever it stands. Which of them a
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

// maxTrials bounds the sum of the squares of the control tokens' lengths in bytes,
// which is what trying them takes where they begin alike. Real vocabularies have a
// fiftieth of it.
const maxTrials = 1 << 26

// newEncoder fails for control tokens that are too many and too long to be tried.
func newEncoder(t *tokenizer.Tokenizer) (*encoder, error) {
	trials := 0
	for _, a := range t.AddedTokens() {
		if !a.Structure {
			continue
		}
		if trials += len(a.Content) * len(a.Content); trials > maxTrials {
			return nil, fmt.Errorf("control tokens: the one with id %d has %d bytes, and there are too many of its kind: want names of a few letters", a.ID, len(a.Content))
		}
	}
	e := &encoder{tokenizer: t, cuts: map[string]cut{}}
	var contents []string
	for _, a := range t.AddedTokens() {
		if !a.Structure || slices.Equal(t.Append(nil, a.Content), t.AppendLiteral(nil, a.Content)) {
			continue
		}
		if utf8.RuneCountInString(a.Content) < 2 {
			return &encoder{tokenizer: t}, nil
		}
		contents = append(contents, a.Content)
		e.longest = max(e.longest, len(a.Content))
		if c, ok := e.try(a.Content, a.ID); ok {
			e.cuts[a.Content] = c
		}
	}
	e.controls = chattemplate.NewControls(contents)
	return e, nil
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
		want = e.tokenizer.AppendBehind(want, rest, true)
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
