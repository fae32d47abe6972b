package openai

import (
	"strconv"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/internal/wire"
)

// chatEncoder writes chat completions.
type chatEncoder struct {
	frame
	thought string // `"reasoning_content":`
}

func newChatEncoder(c *Call, h Header) *chatEncoder {
	return &chatEncoder{
		frame:   newFrame(c, h, "chatcmpl-", "chat.completion", "chat.completion.chunk"),
		thought: string(append(wire.AppendString(nil, c.reasoning), ':')),
	}
}

// AppendEvent implements [Encoder]. An event gives one chunk, if it holds
// something to show; the role goes with the first chunk of its choice. The end of
// a block may give an event of its own behind it.
func (f *chatEncoder) AppendEvent(dst []byte, e chat.Event) []byte {
	c := f.note(&e)
	dst = f.appendChunk(dst, &e, c)
	// An agent that goes by these events alone has all of the call then.
	return f.call.dispatch.gather(dst, &e, c)
}

// appendChunk appends what an event gives as a chunk.
func (f *chatEncoder) appendChunk(dst []byte, e *chat.Event, c *choice) []byte {
	logprobs := f.call.showLogprobs && len(e.Logprobs) > 0
	speaks := shown(e, c)
	if !speaks && !logprobs && !f.silent(e) {
		return dst
	}
	dst = append(dst, f.head...)
	dst = append(dst, `{"index":`...)
	dst = strconv.AppendInt(dst, int64(e.Choice), 10)
	dst = append(dst, `,"delta":{`...)
	if !c.opened {
		c.opened = true
		dst = append(dst, `"role":"assistant"`...)
		if speaks && (e.Kind != chat.Finished || e.Finish.Reason == chat.FinishPlaced) {
			dst = append(dst, ',')
		}
	}
	if speaks {
		dst = f.appendDelta(dst, e, c)
	}
	dst = append(dst, `},"finish_reason":`...)
	if e.Kind == chat.Finished {
		dst = append(dst, f.finishReason(e.Finish.Reason)...)
	} else {
		dst = append(dst, "null"...)
	}
	dst = append(dst, `,"logprobs":`...)
	if logprobs {
		dst = f.appendLogprobs(dst, e.Logprobs)
	} else {
		dst = append(dst, "null"...)
	}
	dst = append(dst, '}')
	return f.closeChunk(dst, e.Choice)
}

// shown says whether an event holds something besides log probabilities.
func shown(e *chat.Event, c *choice) bool {
	switch e.Kind {
	case chat.TextDelta, chat.ThinkingDelta, chat.RefusalDelta:
		return e.Text != ""
	case chat.ArgsDelta:
		return e.Text != "" && c.tools > 0
	case chat.BlockStart:
		return e.BlockKind == chat.ToolCall && e.Tool != nil
	}
	return e.Kind == chat.Finished
}

func (f *chatEncoder) appendDelta(dst []byte, e *chat.Event, c *choice) []byte {
	switch e.Kind {
	case chat.TextDelta:
		dst = append(dst, `"content":"`...)
		if c.apart {
			dst = append(dst, textSeparator...)
		}
		dst = append(wire.AppendEscaped(dst, e.Text), '"')
		c.spoke, c.apart = true, false
	case chat.ThinkingDelta:
		dst = append(dst, f.thought...)
		dst = wire.AppendString(dst, e.Text)
	case chat.RefusalDelta:
		dst = append(dst, `"refusal":`...)
		dst = wire.AppendString(dst, e.Text)
	case chat.BlockStart:
		dst = append(dst, `"tool_calls":[{"index":`...)
		dst = strconv.AppendInt(dst, int64(c.tools), 10)
		c.tools++
		dst = append(dst, `,"id":`...)
		dst = wire.AppendString(dst, e.Tool.ID)
		dst = append(dst, `,"type":"function","function":{"name":`...)
		dst = wire.AppendString(dst, e.Tool.Name)
		dst = append(dst, `,"arguments":""}}]`...)
	case chat.ArgsDelta:
		dst = append(dst, `"tool_calls":[{"index":`...)
		dst = strconv.AppendInt(dst, int64(c.tools-1), 10)
		dst = append(dst, `,"function":{"arguments":`...)
		dst = wire.AppendString(dst, e.Text)
		dst = append(dst, `}}]`...)
	case chat.Finished:
		if e.Finish.Reason == chat.FinishPlaced {
			dst = append(dst, `"content":""`...)
		}
	}
	return dst
}

// AppendAnswer implements [Encoder].
func (f *chatEncoder) AppendAnswer(dst []byte, answers []chat.Answer) []byte {
	return f.appendAnswer(dst, answers, f.appendChoice)
}

func (f *chatEncoder) appendChoice(dst []byte, i int, a *chat.Answer) []byte {
	dst = append(dst, `{"index":`...)
	dst = strconv.AppendInt(dst, int64(i), 10)
	dst = append(dst, `,"message":{"role":"assistant","content":`...)
	dst, any := appendBlocks(dst, "", a.Blocks, chat.Text, textSeparator)
	switch {
	case any:
	case a.Finish.Reason == chat.FinishPlaced:
		dst = append(dst, `""`...)
	default:
		dst = append(dst, "null"...)
	}
	dst, _ = appendBlocks(dst, ","+f.thought, a.Blocks, chat.Thought, "")
	dst, _ = appendBlocks(dst, `,"refusal":`, a.Blocks, chat.Refusal, "")
	dst = appendCalls(dst, a.Blocks)
	dst = append(dst, `},"finish_reason":`...)
	dst = append(dst, f.finishReason(a.Finish.Reason)...)
	dst = append(dst, `,"logprobs":`...)
	if f.call.showLogprobs && len(a.Logprobs) > 0 {
		dst = f.appendLogprobs(dst, a.Logprobs)
	} else {
		dst = append(dst, "null"...)
	}
	return append(dst, '}')
}

// textSeparator stands between the texts of an answer, escaped: the API has one
// text for all of them.
const textSeparator = `\n`

// appendBlocks appends the joined text of all blocks of a kind as a string
// behind key, if there is any text.
func appendBlocks(dst []byte, key string, blocks []chat.Block, kind chat.Kind, separator string) ([]byte, bool) {
	any := false
	for i := range blocks {
		if blocks[i].Kind != kind || blocks[i].Text == "" {
			continue
		}
		if !any {
			any = true
			dst = append(append(dst, key...), '"')
		} else {
			dst = append(dst, separator...)
		}
		dst = wire.AppendEscaped(dst, blocks[i].Text)
	}
	if any {
		dst = append(dst, '"')
	}
	return dst, any
}

func appendCalls(dst []byte, blocks []chat.Block) []byte {
	n := 0
	for i := range blocks {
		use := blocks[i].Use
		if use == nil {
			continue
		}
		if n++; n == 1 {
			dst = append(dst, `,"tool_calls":[`...)
		} else {
			dst = append(dst, ',')
		}
		dst = append(dst, `{"id":`...)
		dst = wire.AppendString(dst, use.ID)
		dst = append(dst, `,"type":"function","function":{"name":`...)
		dst = wire.AppendString(dst, use.Name)
		dst = append(dst, `,"arguments":`...)
		dst = wire.AppendString(dst, use.Args)
		dst = append(dst, "}}"...)
	}
	if n > 0 {
		dst = append(dst, ']')
	}
	return dst
}
