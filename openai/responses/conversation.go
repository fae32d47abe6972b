package responses

import (
	"slices"
	"time"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/internal/wire"
)

// converse makes the turns of the request out of the items, once all of them are
// known.
func (c *Call) converse() error {
	newest := c.newest()
	for i := range c.Input {
		item := &c.Input[i]
		if item.fault != nil && i >= newest && item.role == chat.RoleUser {
			return item.fault
		}
		c.note(index("input", i), item)
	}
	for _, list := range [][]Item{c.earlier, c.Input} {
		for i := range list {
			if err := c.tools.add(list[i].tools, "tools"); err != nil {
				c.ignore(err.Error())
			}
		}
	}
	c.Request.Tools = c.tools.list
	t := talk{call: c, turns: make([]chat.Turn, 0, len(c.earlier)+len(c.Input))}
	for i := range c.earlier {
		t.add(&c.earlier[i])
	}
	for i := range c.Input {
		t.add(&c.Input[i])
	}
	c.Request.Turns, c.Request.Cache = t.turns, t.marks
	c.earlier = nil
	return nil
}

// newest returns where the newest user turn begins: no answer stands behind it,
// so that the client can still mend what is refused.
func (c *Call) newest() int {
	i := len(c.Input)
	for i > 0 && c.Input[i-1].side != assistant {
		i--
	}
	return i
}

// note lists what is ignored in an item.
func (c *Call) note(path string, item *Item) {
	for _, what := range item.strange {
		c.ignore(path + "." + what)
	}
}

// maxUnknown bounds the list of what is ignored: it goes into a log line.
const maxUnknown = 32

func (c *Call) ignore(what string) {
	if len(c.Unknown) < maxUnknown {
		c.Unknown = append(c.Unknown, what)
	}
}

// talk is a conversation that grows item by item.
type talk struct {
	call  *Call
	turns []chat.Turn
	marks []chat.Breakpoint
}

// markTTL is how long a marked prompt is expected to stay cached.
const markTTL = 5 * time.Minute

// add puts an item where it belongs. Items of the model that follow each other
// are one turn.
func (t *talk) add(item *Item) {
	switch item.side {
	case speaker, result:
		blocks := item.blocks
		if item.Type == typeCompaction {
			if blocks = t.opened(item); blocks == nil {
				return
			}
			t.call.Request.Summarized = true
		}
		role := item.role
		if item.side == result {
			role = chat.RoleTool
		}
		// Whoever appends to these blocks must not write into the item.
		t.turns = append(t.turns, chat.Turn{Role: role, Blocks: slices.Clip(blocks), Phase: item.phase})
		t.mark(item, 0)
	case nobody:
		// It says nothing, and stands where it can be counted.
		if last := len(t.turns) - 1; last >= 0 && item.strange != nil {
			t.turns[last].Blocks = append(t.turns[last].Blocks, chat.Block{Kind: chat.Opaque, Wire: item.Wire})
		}
	case assistant:
		blocks := t.opened(item)
		if len(blocks) == 0 {
			return
		}
		last := len(t.turns) - 1
		if last < 0 || t.turns[last].Role != chat.RoleAssistant {
			t.turns = append(t.turns, chat.Turn{Role: chat.RoleAssistant, Blocks: slices.Clip(blocks), Phase: item.phase})
			t.mark(item, 0)
			return
		}
		turn := &t.turns[last]
		before := len(turn.Blocks)
		turn.Blocks = append(turn.Blocks, blocks...)
		if item.phase != "" {
			turn.Phase = item.phase
		}
		t.mark(item, before)
	}
}

// mark notes the marks of an item whose blocks were just put at the end of the
// last turn, behind so many others.
func (t *talk) mark(item *Item, before int) {
	for _, block := range item.marks {
		t.marks = append(t.marks, chat.Breakpoint{Turn: len(t.turns) - 1, Block: before + block, TTL: markTTL})
	}
}

// opened returns the blocks of an item as the model shall see them, out of their
// envelope. It returns nil for a thought that nothing is left of.
func (t *talk) opened(item *Item) []chat.Block {
	if len(item.blocks) == 0 {
		return nil
	}
	b := item.blocks[0]
	if item.sealed != "" {
		if content, ok := t.call.box.Open(item.sealed); ok && content.HasText {
			b.Text = content.Text
			return []chat.Block{b}
		}
	}
	if b.Text == "" && (item.Type == typeReasoning || item.Type == typeCompaction) {
		return nil
	}
	return item.blocks
}

// userItem is the item that a string stands for.
func userItem(text string) Item {
	raw := append([]byte(nil), `{"type":"message","role":"user","content":[{"type":"input_text","text":`...)
	raw = append(wire.AppendString(raw, text), "}]}"...)
	return Item{
		Type: typeMessage, Wire: raw, side: speaker, role: chat.RoleUser,
		blocks: []chat.Block{{Kind: chat.Text, Text: text}},
	}
}
