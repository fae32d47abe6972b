package pipeline

import (
	"slices"
	"strings"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/prompt"
)

// preamble begins a line that some agents put before their system text. It names
// a program's version and is another one with every request, so that no two
// prompts would begin alike if models were shown it.
const preamble = "x-anthropic-billing-header:"

// withoutPreamble returns a request without such lines at the beginning of its
// system texts, and the lines. What users and models say is theirs, and stays. A
// request without any is returned as it is; otherwise it is copied as far as it
// changes. Of its turns those are kept of which something is left.
func withoutPreamble(r *chat.Request) (*chat.Request, []string, kept) {
	if !hasPreamble(r) {
		return r, nil, nil
	}
	c := *r
	c.Cache = slices.Clone(r.Cache)
	s := &stripper{request: &c}
	c.System = s.blocks(r.System, -1)
	c.Turns = make([]chat.Turn, 0, len(r.Turns))
	moved := make([]int, len(r.Turns)) // where each turn is now
	left := make(kept, len(r.Turns))
	for i, turn := range r.Turns {
		moved[i] = len(c.Turns)
		if isSystem(&turn) && len(turn.Blocks) > 0 {
			if turn.Blocks = s.blocks(turn.Blocks, i); len(turn.Blocks) == 0 {
				s.mark(i, 0)
				left[i] = len(c.Turns)
				continue
			}
		}
		c.Turns = append(c.Turns, turn)
		left[i] = len(c.Turns)
	}
	for i := range c.Cache {
		at := &c.Cache[i]
		if at.Turn < 0 || at.Turn >= len(moved) {
			continue
		}
		if at.Turn = moved[at.Turn]; at.Turn == len(c.Turns) {
			at.Turn, at.Block = len(c.Turns)-1, prompt.WholeTurn
		}
	}
	return &c, s.lines, left
}

func isSystem(t *chat.Turn) bool { return t.Role == chat.RoleSystem || t.Role == chat.RoleDeveloper }

func hasPreamble(r *chat.Request) bool {
	begins := func(b chat.Block) bool { return b.Kind == chat.Text && startsWithPreamble(b.Text) }
	return slices.ContainsFunc(r.System, begins) || slices.ContainsFunc(r.Turns, func(t chat.Turn) bool {
		return isSystem(&t) && slices.ContainsFunc(t.Blocks, begins)
	})
}

func startsWithPreamble(s string) bool {
	s = strings.TrimLeft(s, asciiSpace)
	return len(s) >= len(preamble) && strings.EqualFold(s[:len(preamble)], preamble)
}

const asciiSpace = " \t\r\n\v\f"

// stripper takes the lines out of one request.
type stripper struct {
	request *chat.Request // its Cache moves along
	lines   []string
}

// blocks returns the blocks of a turn, or of the system text with turn -1,
// without the lines. The mark of a block that vanishes goes to the one behind it,
// or to the last one.
func (s *stripper) blocks(blocks []chat.Block, turn int) []chat.Block {
	out := make([]chat.Block, 0, len(blocks))
	moved := make([]int, len(blocks))
	for i, b := range blocks {
		moved[i] = len(out)
		if b.Kind == chat.Text && startsWithPreamble(b.Text) {
			if b.Text = s.text(b.Text); b.Text == "" {
				continue
			}
		}
		out = append(out, b)
	}
	for i := range s.request.Cache {
		if at := &s.request.Cache[i]; at.Turn == turn && at.Block >= 0 && at.Block < len(moved) {
			at.Block = min(moved[at.Block], len(out)-1) // which is the whole turn where nothing is left
		}
	}
	return out
}

// mark moves all marks of a turn to one of its blocks.
func (s *stripper) mark(turn, block int) {
	for i := range s.request.Cache {
		if at := &s.request.Cache[i]; at.Turn == turn {
			at.Block = block
		}
	}
}

// text takes the lines off a text.
func (s *stripper) text(text string) string {
	for startsWithPreamble(text) {
		line, rest, _ := strings.Cut(strings.TrimLeft(text, asciiSpace), "\n")
		s.lines = append(s.lines, line)
		text = rest
	}
	return text
}
