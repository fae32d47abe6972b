package anthropic

import (
	"strings"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/internal/wire"
)

// Tools that the provider runs stand in an answer together with their results.
// Models here know them as calls like any other, with a turn of results behind
// them: that is what such an answer becomes, where both are there.

func isServerResult(b *block) bool {
	return b.callID != "" && b.kind != "tool_result" && strings.HasSuffix(b.kind, "_tool_result")
}

// findAnswers notes which calls to the provider's tools have results behind them.
func (c *conversation) findAnswers() {
	called := map[string]bool{}
	for i := range c.body.messages {
		m := &c.body.messages[i]
		if m.role != string(chat.RoleAssistant) {
			continue
		}
		for k := range m.content.blocks {
			switch b := &m.content.blocks[k]; {
			case b.kind == "server_tool_use" || b.kind == "mcp_tool_use":
				called[b.id] = b.name != ""
			case isServerResult(b) && called[b.callID]:
				if c.answered == nil {
					c.answered = map[string]bool{}
				}
				c.answered[b.callID] = true
			}
		}
	}
}

// serverResult adds a result. What the model says next is another turn.
func (c *conversation) serverResult(b *block) {
	result := &chat.Result{ID: b.callID, IsError: b.isError}
	for i := range b.content.blocks {
		result.Blocks = append(result.Blocks, b.content.blocks[i].reported()...)
	}
	if b.content.other != nil {
		result.Blocks = append(result.Blocks, reported(b.content.other)...)
	}
	if n := len(c.turns); n == 0 || c.turns[n-1].Role != chat.RoleTool {
		c.turns = append(c.turns, chat.Turn{Role: chat.RoleTool})
	}
	c.add(chat.Block{Kind: chat.ToolResult, Result: result})
}

// reported makes text of a block inside a result.
func (b *block) reported() []chat.Block {
	if b.wire == nil {
		return appendText(nil, *b.text)
	}
	return reported(wire.CleanRaw(b.wire))
}

// reported gathers what there is to read in a result, of whatever shape.
func reported(value []byte) []chat.Block {
	var g gathering
	r := wire.NewReader(value, "")
	if err := g.value(r, ""); err != nil {
		return nil // it was read before, as a whole
	}
	return append(appendText(nil, strings.Join(g.texts, "\n")), g.tools...)
}

type gathering struct {
	texts []string
	tools []chat.Block
}

// value reads one value, which is the member of this name.
func (g *gathering) value(r *wire.Reader, name string) error {
	switch r.Kind() {
	case '[':
		return r.Array("", func(int) error { return g.value(r, name) })
	case '{':
		return r.Object("", func(name []byte) error { return g.value(r, string(name)) })
	case '"':
		s, err := wire.Text(r)
		switch name {
		case "", "text", "title", "url", "stdout", "stderr", "error_code", "content":
			if s != "" {
				g.texts = append(g.texts, s)
			}
		case "tool_name":
			g.tools = append(g.tools, chat.Block{Kind: chat.ToolReference, Text: s})
		}
		return err
	}
	return r.Skip()
}
