package openai

import (
	"slices"
	"strconv"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/internal/wire"
	"github.com/dynago/dynago/nvext"
)

// Names of the events that tell, beside the ordinary chunks, that a block is
// complete: an agent can begin with a call while the model still speaks. Clients
// ask for them by the same names in nvext.extra_fields.
const (
	toolDispatch      = "tool_call_dispatch"
	reasoningDispatch = "reasoning_dispatch"
)

// dispatch says which of these events a stream has.
type dispatch struct{ tools, reasoning bool }

func dispatchOf(o Options, ext *nvext.Ext) dispatch {
	d := dispatch{o.ToolDispatch, o.ReasoningDispatch}
	if ext != nil {
		d.tools = d.tools || slices.Contains(ext.ExtraFields, toolDispatch)
		d.reasoning = d.reasoning || slices.Contains(ext.ExtraFields, reasoningDispatch)
	}
	return d
}

// block is what is gathered of one that is open.
type block struct {
	kind chat.Kind
	tool *chat.ToolUse
	text []byte
}

// gather notes an event, and appends the frame of the block that it completes.
func (d dispatch) gather(dst []byte, e *chat.Event, c *choice) []byte {
	switch e.Kind {
	case chat.BlockStart:
		c.block = block{kind: e.BlockKind, tool: e.Tool, text: c.block.text[:0]}
	case chat.ThinkingDelta, chat.ArgsDelta:
		if d.tools && e.Kind == chat.ArgsDelta || d.reasoning && e.Kind == chat.ThinkingDelta {
			c.block.text = append(c.block.text, e.Text...)
		}
	case chat.BlockStop:
		switch b := &c.block; {
		case d.tools && b.kind == chat.ToolCall && b.tool != nil && !e.Truncated:
			dst = appendToolDispatch(dst, e.Choice, c.tools-1, b)
		case d.reasoning && b.kind == chat.Thought && len(b.text) > 0:
			dst = appendReasoningDispatch(dst, e.Choice, b)
		}
		c.block.kind = ""
	}
	return dst
}

func appendToolDispatch(dst []byte, choice, index int, b *block) []byte {
	dst = append(dst, "event: "+toolDispatch+"\ndata: "+`{"choice_index":`...)
	dst = strconv.AppendInt(dst, int64(choice), 10)
	dst = append(dst, `,"tool_call":{"index":`...)
	dst = strconv.AppendInt(dst, int64(index), 10)
	dst = append(dst, `,"id":`...)
	dst = wire.AppendString(dst, b.tool.ID)
	dst = append(dst, `,"type":"function","function":{"name":`...)
	dst = wire.AppendString(dst, b.tool.Name)
	dst = append(dst, `,"arguments":`...)
	dst = wire.AppendString(dst, string(b.text))
	return append(dst, "}}}\n\n"...)
}

func appendReasoningDispatch(dst []byte, choice int, b *block) []byte {
	dst = append(dst, "event: "+reasoningDispatch+"\ndata: "+`{"index":`...)
	dst = strconv.AppendInt(dst, int64(choice), 10)
	dst = append(dst, `,"reasoning_content":`...)
	dst = wire.AppendString(dst, string(b.text))
	return append(dst, "}\n\n"...)
}
